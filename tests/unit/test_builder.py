"""What may be written: the options of encode_batch() and encode_columns(), and the rules of Kafka's builder."""

from __future__ import annotations

from typing import Any

import pytest

from logcore import Record, UsageError, decode_batches, decode_columns, encode_batch, encode_columns
from logcore.errors import MessageTooLargeError
from tests.helpers import CODECS, CODECS_BY_MAGIC, only_batch, rows, same_in_every_reader

PAIR = [(b"k", b"v")]
INT32_MAX = 2**31 - 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_compression_none_is_no_compression(magic: int) -> None:
    assert encode_batch(PAIR, magic=magic, compression=None) == encode_batch(PAIR, magic=magic, compression="none")
    columns = decode_columns(encode_batch(PAIR))
    assert encode_columns(columns, compression=None) == encode_columns(columns, compression="none")


# ---------------------------------------------------------------------------------------------- what each magic has


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    "options",
    [
        {"is_transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0},
        {"is_control": True},
        {"compression": "zstd"},
        {"delete_horizon_ms": 100},
        {"leader_epoch": 3},
        {"last_offset": 3},
    ],
)
def test_old_formats_take_none_of_the_new_options(magic: int, options: dict[str, Any]) -> None:
    """REC-070: transactional, control, zstd, delete horizon; nor a leader epoch or a last offset."""
    with pytest.raises(UsageError) as caught:
        encode_batch(PAIR, magic=magic, **options)
    assert next(iter(options)) in caught.value.what.replace(" zstd", "")
    assert (caught.value.where, caught.value.wanted) == (f"magic {magic}", "magic 2")


@pytest.mark.parametrize("magic", [0, 1])
def test_a_producer_id_needs_magic_2(magic: int) -> None:
    """REC-072: idempotence is not in the old formats."""
    with pytest.raises(UsageError, match=f"producer_id, magic {magic}: got a value, wanted magic 2"):
        encode_batch(PAIR, magic=magic, producer_id=1, producer_epoch=0, base_sequence=0)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_headers_need_magic_2(magic: int, codec: str) -> None:
    """REC-078: and the record that has them is named; an empty list of headers is none."""
    with pytest.raises(UsageError, match=f"headers, record 1: got magic {magic}, wanted magic 2"):
        encode_batch([(b"k", b"v"), (b"k", b"v", 0, [("h", b"x")])], magic=magic, compression=codec)
    assert len(rows(encode_batch([(b"k", b"v", 0, [])], magic=magic, compression=codec))) == 1


@pytest.mark.parametrize(
    ("options", "what", "got"),
    [
        ({"is_transactional": True}, "producer_id", -1),
        ({"is_transactional": True, "producer_epoch": 1, "base_sequence": 1}, "producer_id", -1),
        ({"is_transactional": True, "is_control": True}, "producer_id", -1),
        ({"producer_id": 9, "base_sequence": 1}, "producer_epoch", -1),
        ({"producer_id": 9, "producer_epoch": 1}, "base_sequence", -1),
        ({"producer_id": 9, "producer_epoch": 1, "is_transactional": True}, "base_sequence", -1),
    ],
)
def test_a_batch_of_a_producer_needs_id_epoch_and_sequence(options: dict[str, Any], what: str, got: int) -> None:
    """REC-071: a transaction needs the id, an id needs epoch and sequence; a control batch goes without the last."""
    with pytest.raises(UsageError) as caught:
        encode_batch(PAIR, **options)
    assert (caught.value.what, caught.value.got) == (what, got)
    marker = encode_batch(
        [(b"\0\0\0\1", b"\0\0\0\0\0\0")], producer_id=9, producer_epoch=1, is_transactional=True, is_control=True
    )
    assert only_batch(marker).base_sequence == -1


# ------------------------------------------------------------------------------------------------ offsets and times


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
@pytest.mark.parametrize("offsets", [(0, 0), (5, 4), (5, 9, 9), (7, 8, 0)])
def test_offsets_must_increase(magic: int, codec: str, offsets: tuple[int, ...]) -> None:
    """REC-076: repeating offset 0, or going back, names the record."""
    with pytest.raises(UsageError) as caught:
        encode_batch([Record(offset) for offset in offsets], magic=magic, compression=codec)
    assert (caught.value.what, caught.value.where) == ("offset", f"record {len(offsets) - 1}")
    assert (caught.value.got, caught.value.wanted) == (offsets[-1], f"more than {offsets[-2]}")


def test_offsets_must_increase_in_columns_too() -> None:
    """REC-076: shown by columns of two batches in the wrong order."""
    columns = decode_columns(encode_batch([Record(5)]) + encode_batch([Record(5)]))
    with pytest.raises(UsageError) as caught:
        encode_columns(columns)
    assert (caught.value.what, caught.value.where, caught.value.got) == ("offset", "row 1", 5)


def test_records_without_an_offset_are_numbered_onwards() -> None:
    mixed = [(None, b"0"), Record(5, value=b"1"), (None, b"2"), Record(value=b"3"), Record(9, value=b"4")]
    assert [record.offset for record in rows(encode_batch(mixed))] == [0, 5, 6, 7, 9]
    assert [record.offset for record in rows(encode_batch(mixed, base_offset=3))] == [3, 5, 6, 7, 9]
    assert only_batch(encode_batch([Record(5)], base_offset=3)).base_offset == 3


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
@pytest.mark.parametrize("timestamp", [-2, -(2**63)])
def test_a_negative_timestamp_that_is_not_minus_one_cannot_be_written(magic: int, codec: str, timestamp: int) -> None:
    """REC-077: -1 means that there is none."""
    with pytest.raises(UsageError) as caught:
        encode_batch([(b"k", b"v", 1), (b"k", b"v", timestamp)], magic=magic, compression=codec)
    assert (caught.value.what, caught.value.where, caught.value.got) == ("timestamp", "record 1", timestamp)
    assert rows(encode_batch([(b"k", b"v", -1)], magic=magic, compression=codec))[0].timestamp == -1


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_an_offset_too_far_above_the_base_cannot_be_written(magic: int, codec: str) -> None:
    """REC-079: 2147483647 above it is the last that fits."""
    base = 100
    fits = encode_batch([Record(base), Record(base + INT32_MAX)], magic=magic, compression=codec)
    assert [record.offset for record in rows(fits)] == [base, base + INT32_MAX]
    with pytest.raises(UsageError) as caught:
        encode_batch([Record(base), Record(base + INT32_MAX + 1)], magic=magic, compression=codec)
    assert (caught.value.where, caught.value.got) == ("record 1", base + INT32_MAX + 1)
    assert str(base + INT32_MAX) in caught.value.wanted
    with pytest.raises(UsageError):
        encode_batch([Record(base + INT32_MAX + 1)], base_offset=base, magic=magic, compression=codec)


def test_a_last_offset_spans_more_than_the_records_but_not_less() -> None:
    assert only_batch(encode_batch([Record(5), Record(7)], last_offset=10)).last_offset == 10
    for last_offset in (6, 5 + INT32_MAX + 1):
        with pytest.raises(UsageError, match=f"last_offset: got {last_offset}, wanted 7, that of the last record"):
            encode_batch([Record(5), Record(7)], last_offset=last_offset)


@pytest.mark.parametrize(
    ("magic", "codec", "offset"),
    [(2, codec, 2) for codec in CODECS] + [(1, codec, 2) for codec in CODECS[1:4]] + [(1, "none", 0)],
)
def test_log_append_time_is_the_max_timestamp_of_the_batch(magic: int, codec: str, offset: int) -> None:
    """REC-084: the first batch that has it ends at the last offset; as single messages, the first one has it."""
    data = encode_batch(
        [(b"k", b"v", time) for time in (0, 2, 1)],
        magic=magic,
        compression=codec,
        timestamp_type="log_append_time",
        log_append_time_ms=1000,
    )
    newest = max(decode_batches(data), key=lambda batch: batch.max_timestamp)
    assert (newest.max_timestamp, newest.last_offset) == (1000, offset)
    assert {record.timestamp for record in same_in_every_reader(data)} == {1000}


@pytest.mark.parametrize(
    ("magic", "codec", "time", "offset"),
    [(2, codec, 2, 2) for codec in CODECS]
    + [(1, codec, 2, 2) for codec in CODECS[1:4]]
    + [(1, "none", 2, 1), (0, "none", -1, 0), (0, "gzip", -1, 2)],
)
def test_the_max_timestamp_of_create_time_is_the_highest_of_the_records(
    magic: int, codec: str, time: int, offset: int
) -> None:
    """REC-085: 0, 2, 1 give 2, in a batch that ends at 2, or in message 1; magic 0 has none to report."""
    data = encode_batch([(b"k", b"v", time) for time in (0, 2, 1)], magic=magic, compression=codec)
    newest = max(decode_batches(data), key=lambda batch: batch.max_timestamp)
    assert (newest.max_timestamp, newest.last_offset) == (time, offset)


@pytest.mark.parametrize("codec", CODECS)
def test_the_base_timestamp_is_the_first_records_and_not_the_least(codec: str) -> None:
    """REC-086: later records may lie before it."""
    times = [500, 100, 900, 0]
    data = encode_batch([(None, None, time) for time in times], compression=codec)
    assert (only_batch(data).base_timestamp, only_batch(data).max_timestamp) == (500, 900)
    assert [record.timestamp for record in same_in_every_reader(data)] == times


@pytest.mark.parametrize("codec", CODECS)
def test_a_delete_horizon_is_written_as_the_base_timestamp(codec: str) -> None:
    """REC-087: 100, bit 6, and the records read back with 50, 100, 150."""
    data = encode_batch([(b"k", None, time) for time in (50, 100, 150)], compression=codec, delete_horizon_ms=100)
    batch = only_batch(data)
    assert (batch.base_timestamp, batch.delete_horizon_ms, batch.attributes & 0x40) == (100, 100, 0x40)
    assert [record.timestamp for record in same_in_every_reader(data)] == [50, 100, 150]
    assert encode_columns(decode_columns(data), compression=codec, delete_horizon_ms=100) == data


def test_records_without_a_timestamp_get_now_or_none() -> None:
    times = [record.timestamp for record in rows(encode_batch([PAIR[0], (b"k", b"v", None), (b"k", b"v", 5)]))]
    assert times == [-1, -1, 5]
    times = [
        record.timestamp for record in rows(encode_batch([PAIR[0], (b"k", b"v", None), (b"k", b"v", 5)], now_ms=8))
    ]
    assert times == [8, 8, 5]


# ---------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize("codec", CODECS)
def test_a_limit_too_small_for_any_record_gives_batches_of_one(codec: str) -> None:
    """REC-080: not full before the first record, full after it."""
    columns = decode_columns(encode_batch([(b"k", b"v%d" % index) for index in range(5)]))
    batches = list(decode_batches(encode_columns(columns, batch_bytes=1, compression=codec)))
    assert [batch.count for batch in batches] == [1] * 5
    assert [record for batch in batches for record in batch] == list(columns)


def test_the_cut_between_batches_is_soft_and_counts_headers() -> None:
    """REC-081: what does not fit opens a batch, even alone above the limit; a header fills a batch like a value."""
    plain = [(b"k", b"v" * 20)] * 10
    headed = [(b"k", b"v" * 20, None, [("h", b"w" * 50)])] * 10
    large = [(b"k", b"v" * 20), (b"k", b"v" * 1000), (b"k", b"v" * 20)]
    limit = len(encode_batch(plain))

    def counts(records: list[Any]) -> list[int]:
        data = encode_columns(decode_columns(encode_batch(records)), batch_bytes=limit)
        batches = list(decode_batches(data))
        assert all(batch.size_in_bytes <= limit or batch.count == 1 for batch in batches)
        return [batch.count for batch in batches]

    assert counts(plain) == [10]
    assert counts(plain + plain[:1]) == [10, 1]
    assert sum(counts(headed)) == 10
    assert max(counts(headed)) < 10
    assert counts(large) == [1, 1, 1]


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_batch_above_the_hard_limit_is_too_large_by_one_byte(magic: int, codec: str) -> None:
    records = [(b"k%d" % index, b"v" * index) for index in range(40)]
    data = encode_batch(records, magic=magic, compression=codec)
    options = {"magic": magic, "compression": codec}
    assert encode_batch(records, batch_bytes_max=len(data), **options) == data
    with pytest.raises(MessageTooLargeError, match=f"got {len(data)} bytes, wanted at most {len(data) - 1}"):
        encode_batch(records, batch_bytes_max=len(data) - 1, **options)


@pytest.mark.parametrize("codec", CODECS)
def test_columns_and_rows_write_the_same_bytes(codec: str) -> None:
    records = [
        Record(7, 900, b"key", b"value" * 30),
        Record(8, 800, None, b""),
        Record(11, 1000, b"", None, [("h", b"x"), ("h", None)]),
    ]
    options = {"compression": codec, "producer_id": 4, "producer_epoch": 2, "base_sequence": 6, "leader_epoch": 1}
    data = encode_batch(records, **options)
    for layout in ("binary", "view"):
        assert encode_columns(decode_columns(data, layout=layout), **options) == data


def test_the_sequence_counts_on_over_the_batches_of_one_call() -> None:
    columns = decode_columns(encode_batch([Record(0), Record(4), Record(5)]))
    data = encode_columns(columns, batch_bytes=1, producer_id=1, producer_epoch=0, base_sequence=INT32_MAX)
    batches = list(decode_batches(data))
    assert [batch.base_sequence for batch in batches] == [INT32_MAX, 0, 1]
