import json
import sys
import zlib

import pytest

from logcore import CorruptBatch, StorageError, UsageError, encode_batch, encode_transaction_marker
from logcore.bench import data
from logcore.bench.data import FIRST_TIMESTAMP, file_rows, head, synthetic_rows


@pytest.mark.parametrize("value_bytes", [1, 10, 100, 1024])
def test_synthetic_values_have_exactly_the_size_asked_for(value_bytes):
    rows = synthetic_rows(value_bytes, plain_bytes=20_000)
    assert {len(value) for _, value, _, _ in rows} == {value_bytes}


def test_synthetic_keys_are_distinct_and_timestamps_never_fall():
    rows = synthetic_rows(100, 10, plain_bytes=1 << 20)
    keys = [key for key, _, _, _ in rows]
    assert len(set(keys)) == len(keys) > 8000
    assert {len(key) for key in keys} == {10}
    times = [timestamp for _, _, timestamp, _ in rows]
    assert times == sorted(times)


def test_synthetic_rows_without_keys_have_none():
    assert {key for key, _, _, _ in synthetic_rows(10, 0, plain_bytes=1000)} == {None}


def test_synthetic_rows_are_the_same_each_time():
    assert synthetic_rows(100, plain_bytes=5000) == synthetic_rows(100, plain_bytes=5000)


def test_synthetic_values_compress_as_events_do_and_not_as_constants_or_noise():
    plain = b"".join(value for _, value, _, _ in synthetic_rows(100, plain_bytes=100_000))
    assert 2 < len(plain) / len(zlib.compress(plain)) < 5


def test_head_takes_rows_up_to_a_size_and_at_least_one():
    rows = [(b"k" * 2, b"v" * 10, 0, ())] * 5
    assert head(rows, 60) == rows[:3]
    assert head(rows, 1) == rows[:1]


def test_a_line_of_jsonl_is_a_value(tmp_path):
    path = tmp_path / "sample.jsonl"
    path.write_bytes(b'{"a": 1}\n\n[2]\n"text"\n{"value": 1, "other": 2}')
    rows = file_rows(str(path))
    assert [value for _, value, _, _ in rows] == [b'{"a": 1}', b"[2]", b'"text"', b'{"value": 1, "other": 2}']
    assert {key for key, _, _, _ in rows} == {None}


def test_a_line_of_jsonl_that_is_a_record_is_taken_apart(tmp_path):
    path = tmp_path / "sample.jsonl"
    lines = [
        {"key": "k", "value": {"é": 1}, "timestamp": 5, "headers": {"a": "b", "n": None}},
        {"value": None, "timestamp": None, "headers": [["a", "b"], "no pair", ["c"]]},
        {"key": 7, "value": "plain", "timestamp": "no time"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert file_rows(str(path)) == [
        (b"k", '{"é":1}'.encode(), 5, (("a", b"b"), ("n", None))),
        (None, None, FIRST_TIMESTAMP + 2, (("a", b"b"),)),
        (b"7", b"plain", FIRST_TIMESTAMP + 3, ()),
    ]


@pytest.mark.parametrize(
    ("line", "got"),
    [
        (b'{"a": nonsense', "Expecting value at column 7"),
        (b"\xff", "'utf-8' codec can't decode"),
        (b"[" * 100_000, "arrays or objects nested too deep"),
    ],
)
def test_a_line_that_is_no_json_is_named(tmp_path, line, got):
    path = tmp_path / "sample.jsonl"
    path.write_bytes(b"{}\n" + line)
    with pytest.raises(UsageError) as caught:
        file_rows(str(path))
    assert (caught.value.where, caught.value.wanted) == (f"line 2 of {path}", "JSON")
    assert caught.value.got.startswith(got)


def test_a_log_that_was_allocated_ahead_ends_at_its_zeros(tmp_path):
    path = tmp_path / "sample.log"
    path.write_bytes(encode_batch([(b"k", b"v", 5)]) + bytes(4096))
    assert file_rows(str(path)) == [(b"k", b"v", 5, ())]


def test_only_the_beginning_of_a_large_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "FILE_BYTES_MAX", 100)
    path = tmp_path / "sample.jsonl"
    path.write_text('"12345678"\n' * 50)
    assert len(file_rows(str(path))) == 10


@pytest.mark.parametrize("name", ["sample.jsonl", "sample.log"])
def test_a_file_without_a_record_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(UsageError, match="got no record, wanted at least one"):
        file_rows(str(path))


@pytest.mark.parametrize("name", ["sample.jsonl", "sample.parquet", "sample.log"])
def test_a_file_that_is_not_there_is_named(tmp_path, name):
    with pytest.raises(StorageError, match=name):
        file_rows(str(tmp_path / name))


def test_the_records_of_a_log_are_its_rows_and_control_records_are_none(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    written = encode_batch([(b"k", b"v", 5, [("h", b"x")]), (None, None, 6)], compression="zstd")
    path.write_bytes(written + encode_transaction_marker(1, 0, commit=True, coordinator_epoch=1, offset=2))
    assert file_rows(str(path)) == [(b"k", b"v", 5, (("h", b"x"),)), (None, None, 6, ())]


def test_damage_in_a_log_is_told_with_the_file_and_the_position(tmp_path):
    path = tmp_path / "sample.log"
    first = encode_batch([(b"k", b"v")])
    damaged = bytearray(encode_batch([(b"k", b"v")]))
    damaged[-2] ^= 1
    path.write_bytes(first + damaged)
    with pytest.raises(CorruptBatch) as caught:
        file_rows(str(path))
    assert (caught.value.path, caught.value.position) == (str(path), len(first))


def _write_parquet(path, **columns):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)
    return pyarrow


def test_the_columns_of_a_parquet_file_are_its_rows(tmp_path):
    path = str(tmp_path / "sample.parquet")
    _write_parquet(path, key=[b"a", None], value=["x", "y"], timestamp=[7, None], other=[1, 2])
    assert file_rows(path) == [(b"a", b"x", 7, ()), (None, b"y", FIRST_TIMESTAMP + 2, ())]


def test_other_columns_of_a_parquet_file_can_be_asked_for(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path = str(tmp_path / "sample.parquet")
    times = pyarrow.array([1_000_000_000, 2_000_000_000], pyarrow.timestamp("ns"))
    _write_parquet(path, body=[b"x", b"y"], name=["a", "b"], timestamp=times)
    rows = file_rows(path, value_column="body", key_column="name")
    assert rows == [(b"a", b"x", 1000, ()), (b"b", b"y", 2000, ())]


def test_a_parquet_file_without_the_value_column_is_refused_with_the_columns_it_has(tmp_path):
    path = str(tmp_path / "sample.parquet")
    _write_parquet(path, body=[b"x"], name=["a"])
    with pytest.raises(UsageError, match=r"column 'value'.*got body, name, wanted it, or another by --value-column"):
        file_rows(path)


def test_a_parquet_column_that_holds_no_bytes_is_refused(tmp_path):
    path = str(tmp_path / "sample.parquet")
    _write_parquet(path, value=[1.5])
    with pytest.raises(UsageError, match=r"column 'value'.*got double, wanted binary or string"):
        file_rows(path)


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "sample.parquet"
    path.write_bytes(b"something else entirely")
    with pytest.raises(UsageError, match="wanted Parquet"):
        file_rows(str(path))


def test_parquet_without_pyarrow_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "sample.parquet"
    path.write_bytes(b"")
    with pytest.raises(UsageError) as caught:
        file_rows(str(path))
    assert str(caught.value) == f"--file {path} needs pyarrow: pip install 'logcore[arrow]'"
