"""From splits to RecordBatches, without a Spark session: columns, isolation, and what is lost under way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

import pyarrow as pa
from pyspark.sql.types import StructType

import logcore
from logcore import encode_batch
from logcore.errors import CorruptBatch, UsageError
from pyspark_logcore import batches as reading
from pyspark_logcore.batches import RowFormat, read_rows
from pyspark_logcore.bounds import Range
from pyspark_logcore.errors import DataLossError
from pyspark_logcore.options import COLUMNS, parse_options
from pyspark_logcore.schema import check_schema, schema_of
from tests.conftest import FULL
from tests.logs import Partition, batch, produced
from tests.spark.layouts import expected_of, numbered, ranges, unpacked, write


def schema(columns: str | None = None) -> StructType:
    options = {"path": "/", "subscribe": "x", "includeHeaders": "true"}
    return schema_of(parse_options(options if columns is None else {**options, "columns": columns}))


def batches(
    found: Range, columns: str | None = None, *, isolation: Any = "read_committed", fail: bool = True
) -> Iterator[pa.RecordBatch]:
    wanted = schema(columns)
    rows = RowFormat.of(check_schema(wanted), wanted)
    return read_rows(found, rows, isolation, fail_on_data_loss=fail)


def rows(found: Range, columns: str | None = None, **more: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for one in batches(found, columns, **more) for row in one.to_pylist()]


def offsets(found: Range, **more: Any) -> list[int]:
    return [row[0] for row in rows(found, "offset", **more)]


def only(root: Path, **options: str) -> Range:
    [found] = ranges(root, **options)
    return found


# --- columns ----------------------------------------------------------------------------------------------------------


def test_rows_have_the_columns_of_the_connector(tmp_path: Path) -> None:
    headers = [("a", b"1"), ("b", None)]
    write(tmp_path, "orders-3", [[(b"k", b"v", 5, headers), (None, None, 6), (b"", b"", 7, [("c", b"")])]])
    [found] = list(batches(only(tmp_path)))
    assert found.schema.equals(
        pa.schema(
            {
                "key": pa.binary(),
                "value": pa.binary(),
                "topic": pa.string(),
                "partition": pa.int32(),
                "offset": pa.int64(),
                "timestamp": pa.timestamp("us", tz="UTC"),
                "timestampType": pa.int32(),
                "headers": pa.list_(pa.field("element", pa.struct({"key": pa.string(), "value": pa.binary()}))),
            }
        )
    )
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [5000, 6000, 7000]
    assert found.drop_columns(["timestamp"]).to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "orders",
            "partition": 3,
            "offset": 0,
            "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        },
        {
            "key": None,
            "value": None,
            "topic": "orders",
            "partition": 3,
            "offset": 1,
            "timestampType": 0,
            "headers": None,
        },
        {
            "key": b"",
            "value": b"",
            "topic": "orders",
            "partition": 3,
            "offset": 2,
            "timestampType": 0,
            "headers": [{"key": "c", "value": b""}],
        },
    ]
    found.validate(full=True)


@pytest.mark.parametrize("name", COLUMNS)
def test_each_column_alone(tmp_path: Path, name: str) -> None:
    write(tmp_path, "orders-0", numbered(20))
    whole = [one[COLUMNS.index(name)] for one in rows(only(tmp_path))]
    assert [row[0] for row in rows(only(tmp_path), name)] == whole
    assert len(whole) == 20


def test_only_what_is_asked_for_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "orders-0", numbered(5))
    asked = []
    known = logcore.Log.read_columns

    def noting(log: logcore.Log, *args: Any, **more: Any) -> Any:
        asked.append(more["columns"])
        return known(log, *args, **more)

    monkeypatch.setattr(logcore.Log, "read_columns", noting)
    for columns in ("value,offset", "topic,partition", "timestampType"):
        assert len(rows(only(tmp_path), columns)) == 5
    assert asked == [("value", "offset"), ("offset",), ("timestamp_type",)]


def test_log_append_time_is_told_by_its_type(tmp_path: Path) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    with logcore.open_log(tmp_path / "orders-0", config=config, clock=lambda: 777) as log:
        log.append([(b"k", b"v", 5)] * 3)
    [found] = list(batches(only(tmp_path), "timestamp,timestampType"))
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [777_000] * 3
    assert found.column("timestampType").to_pylist() == [1] * 3


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_brokers_have_their_times_or_none(tmp_path: Path, magic: int) -> None:
    with Partition(tmp_path) as one:
        one.fill(1)
        path = Path(one.active.path)
    path.write_bytes(encode_batch([(b"k", b"v", 5)], magic=magic))
    [found] = list(batches(only(tmp_path, **{"isolation.level": "read_uncommitted"}), "timestamp,timestampType"))
    assert found.column("timestampType").to_pylist() == [magic - 1]
    # In the connector -1, no time, is a millisecond before 1970 too.
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [5000 if magic else -1000]


def test_a_time_that_spark_cannot_have_is_told(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", [[(b"k", b"v", 2**62)]])
    with pytest.raises(UsageError, match=r"timestamp, orders-0 in .*: got 4611686018427387904"):
        rows(only(tmp_path))
    assert offsets(only(tmp_path)) == [0]


def test_a_schema_may_say_that_a_column_is_never_null_and_how_it_is_called(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(2))
    wanted = StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": "OFFSET", "type": "long", "nullable": False, "metadata": {}},
                {"name": "Topic", "type": "string", "nullable": True, "metadata": {}},
            ],
        }
    )
    made = RowFormat.of(check_schema(wanted), wanted)
    [found] = list(read_rows(only(tmp_path), made, "read_committed", fail_on_data_loss=True))
    assert found.schema.equals(pa.schema([pa.field("OFFSET", pa.int64(), False), pa.field("Topic", pa.string())]))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([("offset", "string")], "option schema: got offset string, wanted offset bigint"),
        ([("value", "string")], "option schema: got value string, wanted value binary"),
        ([("offsets", "long")], "option schema: got a column offsets, wanted some of key, value"),
        ([("offset", "long"), ("Offset", "long")], "option schema: got Offset twice"),
        ([], "option schema: got no column"),
    ],
)
def test_a_schema_that_cannot_be_is_told(fields: list[tuple[str, str]], expected: str) -> None:
    wanted = StructType.fromJson(
        {
            "type": "struct",
            "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields],
        }
    )
    with pytest.raises(UsageError, match=expected):
        check_schema(wanted)


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_logs_of_a_broker_whole_and_split(tmp_path: Path, kind: str, isolation: str) -> None:
    root = unpacked(kind, tmp_path)
    for one in expected_of(isolation):
        whole = {"assign": f'{{"{one["topic"]}": [{one["partition"]}]}}', "isolation.level": isolation}
        for split in ({}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "100"}):
            found = [
                [
                    offset,
                    int(time.timestamp() * 1000 + 0.5),
                    None if key is None else key.hex(),
                    None if value is None else value.hex(),
                    *(
                        text
                        for h in headers or ()
                        for text in (h["key"], None if h["value"] is None else h["value"].hex())
                    ),
                ]
                for part in ranges(root, **whole, **split)
                for offset, time, key, value, headers in rows(
                    part, "offset,timestamp,key,value,headers", isolation=isolation
                )
            ]
            assert found == one["records"], (one["topic"], one["partition"], split)


def test_records_of_aborted_transactions_and_markers_are_no_rows(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0, 2, is_transactional=True))  # 0, 1
        one.fill(1)
        one.end(7, commit=False)  # 3
        one.lead(produced(7, 2, 2, is_transactional=True))  # 4, 5
        one.end(7, commit=True)  # 6
        one.lead(produced(7, 4, 1, is_transactional=True))  # 7, open
        assert offsets(only(tmp_path)) == [2, 4, 5]
        uncommitted = only(tmp_path, **{"isolation.level": "read_uncommitted"})
        assert offsets(uncommitted, isolation="read_uncommitted") == [0, 1, 2, 4, 5, 7]


def test_a_transaction_that_was_aborted_since_the_plan_changes_nothing(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(3)
        one.lead(produced(7, 0, 2, is_transactional=True))
        found = only(tmp_path)
        one.end(7, commit=False)
        one.fill(3)
        assert offsets(found) == [0, 1, 2]


@pytest.mark.parametrize("start", range(0, 12, 3))
def test_a_split_may_begin_and_end_inside_of_batches(tmp_path: Path, start: int) -> None:
    write(tmp_path, "orders-0", numbered(20, per_batch=10))
    assert offsets(replace(only(tmp_path), start=start, end=start + 5)) == list(range(start, start + 5))


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(30))
    found = only(tmp_path)
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    for fail in (True, False):
        with pytest.raises(CorruptBatch, match=rf"position 0 of {path}.*crc"):
            offsets(found, fail=fail)


# --- losses -----------------------------------------------------------------------------------------------------------


def test_what_retention_took_since_the_plan_is_a_loss_or_left_out(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(10)
        found = only(tmp_path)
        one.delete_records(4)
        with pytest.raises(DataLossError, match=r"got offsets 4 to 10, wanted 0 to 10 \(failOnDataLoss=false"):
            offsets(found)
        assert offsets(found, fail=False) == list(range(4, 10))
        one.delete_records(-1)
        assert offsets(found, fail=False) == []


def test_segments_that_are_deleted_under_way_are_a_loss_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"file.delete.delay.ms": 0}
    for fail in (True, False):
        with Partition(tmp_path / str(fail), config) as one:
            for _ in range(4):
                one.fill(5)
                one.roll()
            one.fill(5)
            found = only(tmp_path / str(fail))
            read: list[int] = []
            stream = batches(found, "offset", fail=fail)
            read += next(stream).column("offset").to_pylist()
            one.delete_records(12)
            one.now_ms += 1_000_000
            one.log.tick(one.now_ms)
            if fail:
                with pytest.raises(DataLossError, match=r"got offsets from 12 on, wanted 0 to 25"):
                    list(stream)
            else:
                for more in stream:
                    read += more.column("offset").to_pylist()
                # Segments that were open are read to their end; of what is gone nothing is.
                assert sorted(set(read)) == read
                assert read[:5] == list(range(5))
                assert read[-13:] == list(range(12, 25))


def test_a_log_that_was_cut_since_the_plan_is_a_loss_or_left_out(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(10)
        found = only(tmp_path)
        one.truncate_to(6)
        with pytest.raises(DataLossError, match="got offsets 0 to 6, wanted 0 to 10"):
            offsets(found)
        assert offsets(found, fail=False) == list(range(6))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_topic_that_was_deleted_or_made_anew_since_the_plan_is_lost(tmp_path: Path, is_there: bool) -> None:
    write(tmp_path, "orders-0", numbered(10))
    found = only(tmp_path)
    shutil.rmtree(tmp_path / "orders-0")
    if is_there:
        with logcore.open_log(tmp_path / "orders-0", topic_id="AAAAAAAAAAAAAAAAAAAAEg") as log:
            log.append([(b"k", b"other")] * 10)
    with pytest.raises(DataLossError, match=r"read of orders-0 in .*: got no .*orders-0.*wanted 0 to 10"):
        offsets(found)
    assert offsets(found, fail=False) == []


def test_what_is_appended_since_the_plan_is_not_read(tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(3)
        found = only(tmp_path)
        one.fill(3)
        one.lead(batch(0))
        assert offsets(found) == [0, 1, 2]


def test_a_batch_is_about_as_large_as_one_read_of_the_log(tmp_path: Path) -> None:
    count = 4000 if FULL else 800
    with logcore.open_log(tmp_path / "orders-0") as log:
        for _ in range(count // 10):
            log.append([(b"k", b"x" * 10_000)] * 10)
    sizes = [one.num_rows for one in batches(only(tmp_path), "value")]
    assert sum(sizes) == count
    assert max(sizes) * 10_000 <= 4 << 20
    assert reading.__doc__ is not None
