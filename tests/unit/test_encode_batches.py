"""Rows cut into batches of a size, and numbered."""

from __future__ import annotations

import pytest

from logcore import Record, decode_batches, decode_columns, encode_batch, encode_batches, encode_columns, scan_batches
from logcore.errors import UsageError, UsageTypeError

ROWS = [(b"k%d" % n, b"v" * (n % 40), 1000 + n) for n in range(500)]


def test_what_fits_one_batch_is_what_encode_batch_writes():
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        options = {"base_offset": 70, "compression": codec, "now_ms": 5, "leader_epoch": 3}
        assert encode_batches(ROWS, **options) == encode_batch(ROWS, **options)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_are_cut_before_they_grow_beyond_the_size_and_number_on(codec: str):
    data = encode_batches(ROWS, batch_bytes=1000, base_offset=7, compression=codec, producer_id=1, producer_epoch=0,
                          base_sequence=2**31 - 100)  # fmt: skip
    batches = list(decode_batches(data))
    assert len(batches) > 5
    assert [record.offset for batch in batches for record in batch] == list(range(7, 507))
    assert [(record.key, record.value, record.timestamp) for batch in batches for record in batch] == ROWS
    assert codec == "lz4" or max(batch.size_in_bytes for batch in batches) <= 1000
    expected = 2**31 - 100
    for batch in batches:
        assert batch.base_sequence == expected
        expected = (expected + batch.count) % 2**31


def test_a_record_that_is_larger_than_a_batch_gets_one_of_its_own():
    rows = [(None, b"a"), (None, b"b" * 500), (None, b"c"), (None, b"d")]
    assert [batch.count for batch in decode_batches(encode_batches(rows, batch_bytes=100))] == [1, 1, 2]
    assert [batch.count for batch in decode_batches(encode_batches(rows, batch_bytes=1))] == [1, 1, 1, 1]


def test_offsets_of_records_do_not_count():
    records = [Record(offset, 5, b"k", b"v") for offset in (9, 3, 900)]
    assert [record.offset for batch in decode_batches(encode_batches(records, base_offset=4)) for record in batch] == [
        4,
        5,
        6,
    ]
    columns = decode_columns(encode_batch([(b"k", b"v"), (b"l", b"w")], base_offset=100))
    assert scan_batches(encode_columns(columns, renumber=True, base_offset=3)).headers["base_offset"].tolist() == [3]
    assert decode_columns(encode_columns(columns, renumber=True)).offset.tolist() == [0, 1]


def test_rows_may_come_from_any_iterable_and_none_or_wrong_ones_are_refused():
    assert encode_batches(iter(ROWS)) == encode_batches(tuple(ROWS)) == encode_batches(ROWS)
    with pytest.raises(UsageError, match="records: got none, wanted at least one"):
        encode_batches([])
    with pytest.raises(UsageTypeError, match="records: got bytes, wanted an iterable"):
        encode_batches(b"abc")
    with pytest.raises(UsageTypeError, match="key, record 400: got str"):
        encode_batches([*ROWS[:400], ("text", b"")], batch_bytes=100)
    with pytest.raises(UsageError, match="batch_bytes: got 0, wanted 1 to 2147483647"):
        encode_batches(ROWS, batch_bytes=0)


def test_a_list_that_shrinks_while_it_is_written_ends_the_batch():
    rows: list[tuple[object, ...]] = []

    class Shrinking:
        def __index__(self) -> int:
            del rows[2:]
            return 77

    rows += [(b"a", b"1"), (b"b", b"2", Shrinking()), (b"c", b"3"), (b"d", b"4")]
    found = [(record.key, record.timestamp) for batch in decode_batches(encode_batches(rows)) for record in batch]
    assert found == [(b"a", -1), (b"b", 77)]


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize(("now_ms", "timestamp"), [(5, 5), (None, -1)])
def test_a_record_that_leaves_its_timestamp_out_gets_now(magic: int, now_ms: int | None, timestamp: int):
    data = encode_batch([Record(key=b"k", value=b"v"), (b"k", b"v")], magic=magic, now_ms=now_ms)
    assert [record.timestamp for batch in decode_batches(data) for record in batch] == [timestamp, timestamp]
