"""The source in Spark: found, read, pushed down to, and its errors. One session on two local threads for all tests."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

import logcore
from pyspark_logcore.source import DefaultSource, UnusedOptionWarning
from tests.logs import Partition, produced
from tests.spark.layouts import expected_of, numbered, unpacked, write

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """orders-0 and orders-1 of 300 and 100 records, in segments of 2 KB."""
    root = tmp_path_factory.mktemp("numbers")
    write(root, "orders-0", numbered(300))
    return write(root, "orders-1", numbered(100))


def reader(spark: SparkSession, root: Path, **options: str) -> DataFrameReader:
    return spark.read.format("logcore").option("path", str(root)).options(**options)


def counts(found: DataFrame) -> dict[tuple[str, int], int]:
    grouped = found.groupBy("topic", "partition").count().collect()
    return {(row["topic"], row["partition"]): row["count"] for row in grouped}


def last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip() and "SQLSTATE" not in line]
    lines = [line for line in lines if line.startswith(("logcore.", "pyspark_logcore."))] or lines
    return lines[-1]


# --- whole reads ------------------------------------------------------------------------------------------------------


def test_the_columns_are_those_of_the_kafka_source(spark: SparkSession, numbers: Path) -> None:
    plain = reader(spark, numbers, subscribe="orders").load()
    names = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in plain.schema) == names
    assert all(field.nullable for field in plain.schema)
    headers = reader(spark, numbers, subscribe="orders", includeHeaders="true").load().schema["headers"]
    assert headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert headers.nullable


# Every combination is in test_batches.py; here each of them comes with each of the others once.
@pytest.mark.parametrize(
    ("kind", "isolation", "split"),
    [
        ("clean", "read_committed", {}),
        ("clean", "read_uncommitted", {"minPartitions": "24"}),
        ("crashed", "read_committed", {"minPartitions": "24"}),
        ("crashed", "read_uncommitted", {}),
    ],
)
def test_a_brokers_logs_are_the_rows_that_kafkas_consumer_read(
    spark: SparkSession, tmp_path: Path, kind: str, isolation: str, split: dict[str, str]
) -> None:
    root = unpacked(kind, tmp_path)
    options = {"subscribePattern": ".*", "kafka.isolation.level": isolation, "includeHeaders": "true", **split}
    table = reader(spark, root, **options).load().toArrow()
    found: dict[tuple[str, int], list[list[Any]]] = {}
    for row in table.sort_by("offset").to_pylist():
        texts = [row["key"], row["value"]]
        for header in row["headers"] or ():
            texts += [header["key"], header["value"]]
        found.setdefault((row["topic"], row["partition"]), []).append(
            [
                row["offset"],
                int(row["timestamp"].timestamp() * 1000 + 0.5),
                *(text.hex() if isinstance(text, bytes) else text for text in texts),
            ]
        )
    expected = {(one["topic"], one["partition"]): one["records"] for one in expected_of(isolation)}
    assert found == {key: records for key, records in expected.items() if records}
    if split:
        assert reader(spark, root, **options).load().rdd.getNumPartitions() >= 24


def test_a_schema_or_the_option_columns_read_only_those(spark: SparkSession, numbers: Path) -> None:
    few = reader(spark, numbers, subscribe="orders").schema("offset long, value binary").load()
    assert few.columns == ["offset", "value"]
    assert few.agg(F.count("*"), F.max("offset"), F.max("value")).first() == (400, 299, b"v99" + b"." * 20)
    short = reader(spark, numbers, subscribe="orders", columns="partition,offset").load()
    assert short.columns == ["partition", "offset"]
    assert short.groupBy("partition").agg(F.sum("offset")).orderBy("partition").collect() == [(0, 44850), (1, 4950)]


def test_a_view_in_sql(spark: SparkSession, numbers: Path) -> None:
    spark.sql(
        f"CREATE TEMPORARY VIEW numbers USING logcore OPTIONS (path '{numbers}', subscribe 'orders', minPartitions '5')"
    )
    found = spark.sql("SELECT partition, count(*), max(timestamp) FROM numbers GROUP BY partition ORDER BY partition")
    assert [tuple(row) for row in found.collect()] == [
        (0, 300, datetime.datetime(1970, 1, 1, 0, 0, 2, 990_000)),
        (1, 100, datetime.datetime(1970, 1, 1, 0, 0, 0, 990_000)),
    ]
    spark.catalog.dropTempView("numbers")


def test_several_paths_as_load_takes_them(spark: SparkSession, tmp_path: Path) -> None:
    one, two = (write(tmp_path / name, f"orders-{name}", numbered(int(name) + 3)) for name in ("1", "2"))
    base = spark.read.format("logcore").option("subscribe", "orders")
    assert counts(base.load([str(one), str(two)])) == {("orders", 1): 4, ("orders", 2): 5}
    assert counts(base.load(str(tmp_path / "*"))) == {("orders", 1): 4, ("orders", 2): 5}


def test_offsets_and_times_bound_a_read(spark: SparkSession, numbers: Path) -> None:
    found = reader(
        spark,
        numbers,
        subscribe="orders",
        startingOffsets='{"orders": {"0": 290, "1": -2}}',
        endingTimestamp="500",
    )
    with pytest.raises(Exception, match="option endingTimestamp: got 50 for orders-0, wanted 290 or more"):
        found.load().count()
    found = reader(
        spark, numbers, subscribe="orders", startingTimestamp="900", endingOffsets='{"orders":{"0":95,"1":-1}}'
    )
    assert counts(found.load()) == {("orders", 0): 5, ("orders", 1): 10}


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession, numbers: Path) -> None:
    found = reader(spark, numbers, subscribePattern="payments").load()
    assert found.count() == 0
    assert found.columns[0] == "key"


def test_rows_that_are_read_again_are_planned_again(spark: SparkSession, tmp_path: Path) -> None:
    with Partition(tmp_path) as one:
        one.fill(3)
        one.lead(produced(7, 0, 2, is_transactional=True))
        found = reader(spark, tmp_path, subscribe="orders", columns="offset").load()
        assert found.count() == 3
        one.end(7, commit=True)
        again = reader(spark, tmp_path, subscribe="orders", columns="offset").load()
        assert again.count() == 5


# --- filters ----------------------------------------------------------------------------------------------------------


FILTERS = [
    ("offset >= 95 AND offset < 105", 15),
    ("offset = 7 AND partition = 1", 1),
    ("topic = 'orders' AND partition <> 0", 100),
    ("topic LIKE 'ord%' AND partition IN (1, 2)", 100),
    ("topic = 'payments'", 0),
    ("offset IN (3, 290, 500)", 3),
    ("timestamp >= timestamp'1970-01-01 00:00:02.900'", 10),
    ("timestamp > timestamp'1970-01-01 00:00:00.980' AND partition = 1", 1),
    ("timestamp = timestamp'1970-01-01 00:00:00.500' OR offset = 3", 4),
    ("offset > 200 AND length(value) > 5 AND key IS NOT NULL", 99),
    ("offset IS NULL", 0),
    ("NOT (offset < 299)", 1),
]


@pytest.mark.parametrize(("condition", "expected"), FILTERS[:2])
def test_filters_without_push_down(spark: SparkSession, numbers: Path, condition: str, expected: int) -> None:
    assert reader(spark, numbers, subscribe="orders").load().where(condition).count() == expected


@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize(("condition", "expected"), FILTERS)
def test_filters_with_push_down(spark: SparkSession, numbers: Path, condition: str, expected: int) -> None:
    assert reader(spark, numbers, subscribe="orders").load().where(condition).count() == expected


@pytest.mark.usefixtures("pushdown")
def test_with_push_down_on_only_the_wanted_partition_is_a_task_and_exact_filters_are_done(
    spark: SparkSession, numbers: Path
) -> None:
    whole = reader(spark, numbers, subscribe="orders", minPartitions="8").load()
    assert whole.rdd.getNumPartitions() == 8
    few = whole.where("partition = 1 AND offset >= 10 AND offset < 20")
    assert few.rdd.getNumPartitions() == 8  # ten records, cut as asked for
    assert sorted(row["offset"] for row in few.collect()) == list(range(10, 20))
    plan = few._jdf.queryExecution().executedPlan().toString()
    assert "BatchScan logcore" in plan
    assert "Filter (" not in plan


# --- what is not there yet --------------------------------------------------------------------------------------------


def test_streams_and_writes_are_refused(spark: SparkSession, numbers: Path, tmp_path: Path) -> None:
    stream = spark.readStream.format("logcore").options(path=str(numbers), subscribe="orders").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        query.processAllAvailable()
    rows = spark.createDataFrame([(b"v",)], "value binary")
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        rows.write.format("logcore").mode("append").option("path", str(tmp_path / "new")).save()
    assert not (tmp_path / "new").exists()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "option subscribe, subscribePattern, assign: got none of them, wanted exactly one of them"),
        ({"subscribe": "orders", "assign": '{"orders":[0]}'}, "got subscribe and assign, wanted exactly one of them"),
        ({"subscribe": "orders", "startingOffsets": "{orders"}, "option startingOffsets: got {orders, wanted"),
        ({"subscribe": "orders", "failOnDataLoss": "maybe"}, "option failOnDataLoss: got maybe, wanted true or false"),
        ({"subscribe": "orders", "columns": "offset,nothing"}, "option columns: got offset,nothing, wanted some of"),
    ],
)
def test_wrong_options_are_told_by_load(
    spark: SparkSession, numbers: Path, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(Exception, match=r"logcore\.errors\.UsageError") as caught:
        reader(spark, numbers, **options).load()
    assert expected in last_line(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"path": "/nothing/here"}, "option path: got /nothing/here, which is not there, wanted a log root"),
        ({"subscribe": "refunds"}, "option subscribe: got refunds, wanted topics that have a partition in"),
        ({"startingOffsets": '{"orders":{"0":5}}'}, "option startingOffsets: got no orders-1, wanted exactly"),
        (
            {"endingOffsets": '{"orders":{"0":5,"1":999}}'},
            "got offsets 0 to 100, wanted 0 to 999 (failOnDataLoss=false",
        ),
    ],
)
def test_what_is_not_there_is_told_when_the_read_is_planned(
    spark: SparkSession, numbers: Path, options: dict[str, str], expected: str
) -> None:
    found = reader(spark, numbers, subscribe="orders").options(**options).load()
    with pytest.raises(Exception, match="Traceback") as caught:
        found.count()
    assert expected in last_line(caught.value)


def test_a_schema_of_other_types_is_told(spark: SparkSession, numbers: Path) -> None:
    found = reader(spark, numbers, subscribe="orders").schema("value string").load()
    with pytest.raises(Exception, match="option schema: got value string, wanted value binary"):
        found.count()


def test_a_damaged_batch_is_told_by_file_and_position(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(30))
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match="CorruptBatch") as caught:
        reader(spark, tmp_path, subscribe="orders").load().collect()
    assert f"batch at position 0 of {path}" in str(caught.value)
    assert "crc" in str(caught.value)


def test_options_of_a_broker_are_put_aside_with_one_warning(spark: SparkSession, numbers: Path) -> None:
    options = {"kafka.bootstrap.servers": "host:9092", "kafka.security.protocol": "SSL", "maxOffsetsPerTrigger": "9"}
    assert reader(spark, numbers, subscribe="orders", **options).load().count() == 400
    # What load() makes, in a process of its own, once.
    with pytest.warns(UnusedOptionWarning) as told:
        source = DefaultSource({"path": str(numbers), "subscribe": "orders", **options})
    source.schema()
    [one] = told
    assert str(one.message).endswith(": kafka.bootstrap.servers, kafka.security.protocol, maxOffsetsPerTrigger")


def test_reading_beside_a_writer_of_this_process(spark: SparkSession, tmp_path: Path) -> None:
    with logcore.open_root(tmp_path) as root:
        root.create_topic("orders", 2)
        root.append("orders", [(b"k%d" % n, b"v") for n in range(100)])
        assert reader(spark, tmp_path, subscribe="orders").load().count() == 100
        root.append("orders", [(b"k%d" % n, b"v") for n in range(50)])
        assert reader(spark, tmp_path, subscribe="orders").load().count() == 150
