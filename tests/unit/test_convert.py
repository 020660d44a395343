"""Batches from one magic to another and from one codec to another."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcore import (
    CorruptBatch,
    CorruptionReason,
    KafkaError,
    LogcoreError,
    Record,
    UsageError,
    UsageTypeError,
    decode_batches,
    encode_batch,
    encode_empty_batch,
    encode_transaction_marker,
)
from logcore._convert import convert_batches
from tests.reference import batch_v2, legacy, stream
from tests.reference.model import RefRecord

OLD_CODECS = ["none", "gzip", "snappy", "lz4"]
ROWS = [
    Record(7, 1000, b"a", b"1", (("h", b"x"),)),
    Record(9, 3000, None, b"2", ()),
    Record(10, 2000, b"c", None, ()),
]


def records_of(data: bytes) -> list[Record]:
    return [record for batch in decode_batches(data) for record in batch]


def without(records: list[Record], *, headers: bool = False, timestamps: bool = False) -> list[Record]:
    return [
        Record(
            record.offset,
            -1 if timestamps else record.timestamp,
            record.key,
            record.value,
            () if headers else record.headers,
        )
        for record in records
    ]


BARE = without(ROWS, headers=True)


# --- down ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_going_down_keeps_offsets_codec_keys_and_values(codec: str, magic: int) -> None:
    data = convert_batches(encode_batch(ROWS, compression=codec, leader_epoch=3), magic)
    batches = list(decode_batches(data))
    assert {(batch.magic, batch.compression) for batch in batches} == {(magic, codec)}
    assert len(batches) == (3 if codec == "none" else 1)
    assert records_of(data) == without(ROWS, headers=True, timestamps=magic == 0)
    assert batches[-1].last_offset == 10


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_what_was_converted_down_is_what_the_reference_writes(codec: str, magic: int) -> None:
    rows = [RefRecord(record.offset, record.timestamp, record.key, record.value) for record in ROWS]
    data = convert_batches(encode_batch(ROWS, compression=codec), magic)
    theirs = legacy.encode_set(rows, magic=magic, compression_name=codec)
    if codec == "none":
        assert data == theirs
    ours_batches, consumed, damage = stream.decode_batches(data)
    assert (damage, consumed) == (None, len(data))
    for ours, expected in zip(ours_batches, stream.decode_batches(theirs)[0], strict=True):
        assert ours.records() == expected.records()
        assert (ours.max_timestamp, ours.attributes) == (expected.max_timestamp, expected.attributes)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_going_down_keeps_log_append_time_in_magic_1(codec: str) -> None:
    batch = encode_batch(ROWS, compression=codec, timestamp_type="log_append_time", log_append_time_ms=555)
    batches = list(decode_batches(convert_batches(batch, 1)))
    assert {(batch.timestamp_type, batch.max_timestamp) for batch in batches} == {("log_append_time", 555)}
    assert [record.timestamp for batch in batches for record in batch] == [555] * 3
    assert {batch.timestamp_type for batch in decode_batches(convert_batches(batch, 0))} == {"none"}


def test_going_down_drops_control_batches_and_empty_ones() -> None:
    marker = encode_transaction_marker(7, 0, commit=True, coordinator_epoch=1, offset=20)
    empty = encode_empty_batch(11, 19, producer_id=7, producer_epoch=0, base_sequence=3)
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    data = convert_batches(encode_batch(ROWS, **producer) + empty + marker, 1)
    assert records_of(data) == BARE
    assert {batch.producer_id for batch in decode_batches(data)} == {-1}
    assert convert_batches(empty + marker, 0) == b""


def test_going_down_refuses_zstd_unless_told_another_codec() -> None:
    batch = encode_batch(ROWS, compression="zstd")
    with pytest.raises(KafkaError, match="position 0: codec got zstd") as caught:
        convert_batches(batch, 1)
    assert caught.value.name == "UNSUPPORTED_COMPRESSION_TYPE"
    data = convert_batches(batch, 1, compression="lz4")
    assert [(batch.magic, batch.compression) for batch in decode_batches(data)] == [(1, "lz4")]
    assert records_of(data) == BARE
    assert convert_batches(batch, 2) == batch


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_lower_batches_are_copied_as_they_are(codec: str) -> None:
    old = encode_batch(BARE, magic=0, compression=codec)
    assert convert_batches(old, 1) == old
    newer = encode_batch([(b"k", b"v", 5)], base_offset=30)
    data = convert_batches(old + newer, 1)
    assert data.startswith(old)
    assert [batch.magic for batch in decode_batches(data)] == [0] * (3 if codec == "none" else 1) + [1]
    assert records_of(convert_batches(encode_batch(BARE, magic=1, compression=codec), 0)) == without(
        BARE, timestamps=True
    )


@pytest.mark.parametrize(("codec", "expected"), [("none", [9, 10]), ("gzip", [7, 9, 10])])
def test_first_offset_leaves_out_earlier_records_of_uncompressed_batches(codec: str, expected: list[int]) -> None:
    batch = encode_batch(ROWS, compression=codec)
    data = convert_batches(batch, 1, first_offset=8)
    assert [record.offset for record in records_of(data)] == expected
    assert convert_batches(batch, 2, first_offset=8) == batch
    assert convert_batches(encode_batch(ROWS), 0, first_offset=11) == b""


# --- up ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_going_up_makes_one_batch_with_the_same_records(codec: str, magic: int) -> None:
    data = convert_batches(encode_batch(BARE, magic=magic, compression=codec), 2)
    (batch,) = decode_batches(data)
    assert (batch.magic, batch.compression, batch.timestamp_type) == (2, codec, "create_time")
    assert list(batch) == without(BARE, timestamps=magic == 0)
    assert (batch.base_offset, batch.last_offset, batch.count) == (7, 10, 3)
    assert batch.max_timestamp == (-1 if magic == 0 else 3000)
    assert (batch.producer_id, batch.leader_epoch) == (-1, -1)
    if codec == "none":
        rows = [RefRecord(record.offset, record.timestamp, record.key, record.value) for record in batch]
        assert data == batch_v2.encode(rows)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_going_up_keeps_log_append_times(codec: str) -> None:
    one = encode_batch(BARE[:2], magic=1, compression=codec, timestamp_type="log_append_time", log_append_time_ms=55)
    two = encode_batch(BARE[2:], magic=1, compression=codec, timestamp_type="log_append_time", log_append_time_ms=66)
    batches = list(decode_batches(convert_batches(one + two, 2)))
    assert [(batch.timestamp_type, batch.max_timestamp, batch.count) for batch in batches] == [
        ("log_append_time", 55, 2),
        ("log_append_time", 66, 1),
    ]


def test_going_up_begins_a_new_batch_where_offsets_go_back_the_size_is_reached_or_the_kind_changes() -> None:
    def run(*rows: tuple[int, int]) -> bytes:
        return b"".join(legacy.encode_message(offset, b"k", b"v" * 50, magic=magic) for offset, magic in rows)

    def spans(data: bytes, **options: Any) -> list[tuple[int, int]]:
        return [(batch.base_offset, batch.last_offset) for batch in decode_batches(convert_batches(data, 2, **options))]

    assert spans(run((1, 1), (2, 1), (2, 1), (5, 1), (4, 1))) == [(1, 2), (2, 5), (4, 4)]
    assert spans(run((1, 1), (2**31, 1), (2**31 + 1, 1))) == [(1, 2**31), (2**31 + 1, 2**31 + 1)]
    assert spans(run((-5, 1), (2**63 - 1, 1))) == [(-5, -5), (2**63 - 1, 2**63 - 1)]
    assert spans(run(*((offset, 1) for offset in range(10))), batch_bytes_max=400) == [(0, 4), (5, 9)]
    wrapped = encode_batch([(b"k", b"v", 3)], base_offset=2, magic=1, compression="gzip")
    assert spans(run((0, 0), (1, 1)) + wrapped + run((3, 1))) == [(0, 1), (2, 2), (3, 3)]
    stamped = encode_batch(
        [(b"k", b"v")], base_offset=2, magic=1, timestamp_type="log_append_time", log_append_time_ms=1
    )
    assert spans(run((0, 1)) + stamped + run((3, 1))) == [(0, 0), (2, 2), (3, 3)]


# --- codecs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("target", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_another_codec_changes_nothing_else_of_a_v2_batch(source: str, target: str) -> None:
    header: dict[str, Any] = {
        "base_offset": 5,
        "last_offset": 12,
        "producer_id": 7,
        "producer_epoch": 1,
        "base_sequence": 4,
        "is_transactional": True,
        "leader_epoch": 9,
        "delete_horizon_ms": 900,
    }
    batch = encode_batch(ROWS, compression=source, **header)
    data = convert_batches(batch, 2, compression=target)
    if source == target:
        assert data == batch
    assert convert_batches(data, 2, compression="none") == encode_batch(ROWS, **header)
    (after,) = decode_batches(data)
    assert after.compression == target


def test_levels_are_used() -> None:
    batch = encode_batch([(b"k", b"%d" % (index % 97), index) for index in range(3000)])
    sizes = [len(convert_batches(batch, 2, compression="zstd", level=level)) for level in (-50, 19)]
    assert sizes[1] < sizes[0]


def test_control_batches_are_not_compressed() -> None:
    marker = encode_transaction_marker(7, 0, commit=True, coordinator_epoch=1)
    assert convert_batches(marker, 2, compression="gzip") == marker


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_are_put_into_a_compressed_set_and_taken_out(magic: int) -> None:
    plain = encode_batch(BARE, magic=magic)
    packed = convert_batches(plain, magic, compression="snappy")
    (batch,) = decode_batches(packed)
    assert (batch.magic, batch.compression, batch.last_offset) == (magic, "snappy", 10)
    assert convert_batches(packed, magic, compression="none") == plain


# --- damage and misuse ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_damage_raises_with_its_position_and_a_partial_batch_is_left_out(magic: int) -> None:
    one, two = encode_batch(ROWS, compression="gzip"), encode_batch(ROWS, base_offset=1, compression="gzip")
    assert convert_batches(one + two[:-1], magic) == convert_batches(one, magic)
    broken = one + two[:-1] + b"\xff"
    with pytest.raises(CorruptBatch) as caught:
        convert_batches(broken, magic)
    assert (caught.value.reason, caught.value.position) == (CorruptionReason.CRC, len(one))


def test_a_damaged_record_is_refused_where_it_is_rewritten_and_copied_where_not() -> None:
    data = bytearray(encode_batch(ROWS))
    data[-2] = 0x7E
    broken = batch_v2.with_crc(bytes(data))
    with pytest.raises(CorruptBatch, match="record 2"):
        convert_batches(broken, 1)
    with pytest.raises(CorruptBatch, match="record 2"):
        convert_batches(broken, 2, compression="gzip")
    assert convert_batches(broken, 2) == broken


def test_offsets_that_go_back_inside_a_batch_are_refused() -> None:
    plain = encode_batch(ROWS[:1])[61:] * 2
    head = bytearray(encode_batch(ROWS[:1])[:61])
    head[57:61] = (2).to_bytes(4, "big")
    head[8:12] = (61 - 12 + len(plain)).to_bytes(4, "big")
    with pytest.raises(CorruptBatch) as caught:
        convert_batches(batch_v2.with_crc(bytes(head) + plain), 1)
    assert (caught.value.reason, caught.value.record_index) == (CorruptionReason.OFFSET_ORDER, 1)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_negative_offsets_are_refused_going_down(codec: str) -> None:
    """No reader could tell the offsets inside a compressed set from its wrapper's."""
    batch = bytearray(encode_batch(ROWS, compression=codec))
    batch[0:8] = (-9).to_bytes(8, "big", signed=True)
    with pytest.raises(CorruptBatch, match=r"offset got one that .* is negative") as caught:
        convert_batches(batch, 1)
    assert caught.value.reason is CorruptionReason.OFFSET_ORDER


def test_decompression_is_capped_for_each_batch_and_for_all_together() -> None:
    bomb = encode_batch([(None, bytes(500_000))], compression="zstd")
    assert len(convert_batches(bomb, 2, compression="none")) > 500_000
    with pytest.raises(CorruptBatch, match="decompressed size"):
        convert_batches(bomb, 2, compression="none", max_decompressed_bytes=400_000)
    with pytest.raises(CorruptBatch, match="decompressed size"):
        convert_batches(bomb * 3, 2, compression="none", max_decompressed_bytes=600_000)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((b"", 3), {}, UsageError, "magic: got 3"),
        ((b"", None), {}, UsageTypeError, "magic: got None"),
        ((b"", "2"), {}, UsageTypeError, "magic: got str"),
        (("text", 2), {}, UsageTypeError, "buffer: got str"),
        ((b"", 2), {"compression": "brotli"}, UsageError, "brotli"),
        ((b"", 2), {"compression": "gzip", "level": 10}, UsageError, "compression level, gzip: got 10"),
        ((b"", 2), {"level": 3}, UsageError, "level: got 3"),
        ((b"", 1), {"compression": "zstd"}, UsageError, "compression, magic 1: got zstd"),
        ((b"", 1), {"first_offset": -1}, UsageError, "first_offset: got -1"),
        ((b"", 1), {"batch_bytes_max": 0}, UsageError, "batch_bytes_max: got 0"),
    ],
)
def test_wrong_arguments_are_told(
    arguments: tuple[Any, Any], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        convert_batches(*arguments, **options)


def test_nothing_converts_to_nothing() -> None:
    assert convert_batches(b"", 1) == b""


# --- properties ----------------------------------------------------------------------------------------------------

some_bytes = st.none() | st.binary(max_size=40)
some_records = st.lists(
    st.tuples(
        st.integers(1, 300),
        st.integers(-1, 2**62),
        some_bytes,
        some_bytes,
        st.lists(st.tuples(st.text(max_size=4), some_bytes), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


def numbered(rows: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> list[Record]:
    records, offset = [], 0
    for step, timestamp, key, value, headers in rows:
        offset += step
        records.append(Record(offset, timestamp, key, value, headers))
    return records


@given(some_records, st.sampled_from(OLD_CODECS), st.sampled_from([0, 1]))
def test_down_and_up_again_keeps_all_that_the_lower_magic_has(rows: Any, codec: str, magic: int) -> None:
    records = numbered(rows)
    down = convert_batches(encode_batch(records, compression=codec), magic)
    up = convert_batches(down, 2)
    assert records_of(down) == records_of(up) == without(records, headers=True, timestamps=magic == 0)
    (batch,) = decode_batches(up)
    assert batch.compression == codec


@given(
    some_records,
    st.sampled_from([0, 1, 2]),
    st.sampled_from(OLD_CODECS),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([None, "none", "lz4"]),
)
def test_damaged_buffers_are_converted_or_refused_in_a_typed_way(
    rows: Any, magic: int, codec: str, changes: list[tuple[int, int]], to_magic: int, target: str | None
) -> None:
    """The checksum is not verified, so that the parsers are reached; what comes out is read by the reference."""
    records = numbered(rows)
    if magic < 2:
        records = without(records, headers=True)
    data = bytearray(encode_batch(records, magic=magic, compression=codec))
    for at, value in changes:
        data[at % len(data)] = value
    try:
        made = convert_batches(data, to_magic, compression=target, verify_crc=False, max_decompressed_bytes=2**20)
    except LogcoreError:
        return
    batches, consumed, damage = stream.decode_batches(made, verify_crc=False)
    assert (consumed, damage) == (len(made), None)
    originals = stream.decode_batches(bytes(data), verify_crc=False)[0]
    if all(batch.magic > to_magic for batch in originals):
        expected = [record for batch in originals if not batch.is_control for record in batch.records()]
        assert [(record.offset, record.key, record.value) for batch in batches for record in batch.records()] == [
            (record.offset, record.key, record.value) for record in expected
        ]
