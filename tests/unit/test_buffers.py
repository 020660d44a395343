"""Buffers of many batches as bytes: scanned, split, joined, searched, numbered and patched; no record is touched."""

from __future__ import annotations

import struct

import pytest

from logcore import (
    BatchScan,
    CorruptBatch,
    CorruptionReason,
    Record,
    UsageError,
    assign_offsets,
    concat_batches,
    decode_batches,
    decode_columns,
    encode_batch,
    encode_empty_batch,
    find_batch,
    patch_batch,
    scan_batches,
    split_batches,
)
from tests.helpers import CODECS_BY_MAGIC, only_batch, replaced, rows, same_in_every_reader
from tests.reference import checksum

PARTS = [
    encode_batch([(b"a", b"1", 5), (b"b", b"2", 3)], base_offset=10, leader_epoch=1),
    encode_batch([(b"c", b"x" * 500, 9)], base_offset=20, magic=1, compression="gzip"),
    encode_batch([(b"d", b"4", 7)], base_offset=30, magic=0),
    encode_batch(
        [(b"e", b"y" * 500)] * 3,
        base_offset=40,
        compression="lz4",
        producer_id=5,
        producer_epoch=1,
        base_sequence=8,
        is_transactional=True,
    ),
    encode_empty_batch(50, 59, max_timestamp=77),
]
WHOLE = b"".join(PARTS)
STARTS = [sum(map(len, PARTS[:index])) for index in range(len(PARTS) + 1)]


# ------------------------------------------------------------------------------------------------------------- scan


def test_a_scan_gives_the_header_of_every_batch() -> None:
    scan = scan_batches(WHOLE)
    assert (len(scan), scan.consumed, scan.is_partial, scan.error) == (5, len(WHOLE), False, None)
    batches = list(decode_batches(WHOLE))
    for name in scan.headers.dtype.names:
        if name == "base_offset":
            continue  # of a compressed wrapper only the last is in the header
        read = [getattr(batch, name) if name != "count" else batch.count for batch in batches]
        assert scan.headers[name].tolist() == [-1 if field is None else field for field in read], name
    assert scan.headers["base_offset"].tolist() == [10, 20, 30, 40, 50]
    assert scan.headers["position"].tolist() == STARTS[:-1]
    assert repr(scan) == f"BatchScan(5 batches, consumed={len(WHOLE)}, end=clean)"


def test_a_scan_from_a_position_sees_what_follows_and_tells_places_in_the_whole_buffer() -> None:
    for index, start in enumerate(STARTS):
        scan = scan_batches(WHOLE, position=start)
        assert scan.headers["position"].tolist() == STARTS[index:-1]
        assert scan.consumed == len(WHOLE)


def test_a_scan_holds_more_headers_than_it_first_made_room_for() -> None:
    one = encode_batch([(b"k", b"v")])
    scan = scan_batches(one * 1000)
    assert scan.headers["position"].tolist() == [index * len(one) for index in range(1000)]


def test_a_scan_tells_a_cut_from_damage_and_raises_neither() -> None:
    cut = scan_batches(WHOLE[:-1])
    assert (len(cut), cut.consumed, cut.is_partial, cut.error) == (4, STARTS[4], True, None)
    assert repr(cut).endswith("end=partial)")
    damaged = scan_batches(replaced(WHOLE, STARTS[3] + 30, b"\x01"))
    assert (len(damaged), damaged.consumed, damaged.is_partial) == (3, STARTS[3], False)
    assert isinstance(damaged.error, CorruptBatch)
    assert (damaged.error.reason, damaged.error.position) == (CorruptionReason.CRC, STARTS[3])
    assert "end=damaged: batch at position" in repr(damaged)
    assert len(scan_batches(replaced(WHOLE, STARTS[3] + 30, b"\x01"), verify_crc=False)) == 5
    assert isinstance(cut, BatchScan)


# ------------------------------------------------------------------------------------------------- split and concat


def test_batches_are_split_without_copying_and_joined_again() -> None:
    data = bytearray(WHOLE)
    parts = split_batches(data)
    assert [bytes(part) for part in parts] == PARTS
    data[0] = 0x7F
    assert parts[0][0] == 0x7F, "a view, not a copy"
    assert concat_batches(PARTS) == concat_batches(iter([memoryview(part) for part in PARTS])) == WHOLE
    assert concat_batches([]) == b""


def test_a_split_leaves_out_a_partial_batch_and_refuses_damage() -> None:
    """REC-104: a slice that ends a byte before the end of a batch has nothing of that batch."""
    for index in range(1, len(STARTS)):
        assert [bytes(part) for part in split_batches(WHOLE[: STARTS[index] - 1])] == PARTS[: index - 1]
        assert list(rows(WHOLE[: STARTS[index] - 1])) == rows(b"".join(PARTS[: index - 1]))
        assert decode_columns(WHOLE[: STARTS[index] - 1]).consumed == STARTS[index - 1]
    with pytest.raises(CorruptBatch) as caught:
        split_batches(replaced(WHOLE, STARTS[2] + 16, b"\x09"))
    assert (caught.value.reason, caught.value.position) == (CorruptionReason.MAGIC, STARTS[2])


def test_a_partial_batch_cannot_be_joined_to_what_it_would_swallow() -> None:
    with pytest.raises(UsageError) as caught:
        concat_batches([PARTS[0], PARTS[1][:-1], PARTS[2]])
    assert (caught.value.what, caught.value.where) == ("buffer to concatenate", "buffers[1]")
    assert (caught.value.got, caught.value.wanted) == ("a partial batch at position 0", "whole batches")


@pytest.mark.parametrize("at", range(1, len(WHOLE), 37))
def test_a_buffer_cut_anywhere_is_read_in_two_halves(at: int) -> None:
    """REC-112: a cut inside a batch loses nothing when the rest is read behind what was consumed."""
    first = decode_batches(WHOLE[:at])
    records = [record for batch in first for record in batch]
    second = decode_batches(WHOLE[first.consumed : at] + WHOLE[at:], base_position=first.consumed)
    records += [record for batch in second for record in batch]
    assert records == rows(WHOLE)
    assert first.consumed + second.consumed == len(WHOLE)


def test_slices_end_with_their_buffer_and_positions_outside_of_it_are_refused() -> None:
    """REC-103: more than there is means to the end, also in a slice of a slice; before or behind it is an error."""
    view = memoryview(WHOLE)
    assert rows(view[STARTS[1] : STARTS[1] + 2**31 - 1]) == rows(WHOLE[STARTS[1] :])
    assert rows(view[STARTS[1] :][STARTS[2] - STARTS[1] : 2**63]) == rows(WHOLE[STARTS[2] :])
    assert len(scan_batches(WHOLE, position=len(WHOLE))) == 0
    for position in (-1, len(WHOLE) + 1, 2**31, 2**63):
        for call in (scan_batches, find_batch):
            with pytest.raises(UsageError) as caught:
                call(WHOLE, position=position)
            assert (caught.value.what, caught.value.got) == ("position in the buffer", position)
            assert caught.value.wanted == f"0 to {len(WHOLE)}"
        with pytest.raises(UsageError, match="position in the buffer"):
            patch_batch(bytearray(WHOLE), position=position, leader_epoch=1)


# ------------------------------------------------------------------------------------------------------------- find


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_the_next_whole_batch_is_found_behind_noise(magic: int, codec: str) -> None:
    batch = encode_batch([(b"key", b"value")], base_offset=3, magic=magic, compression=codec)
    for noise in (
        b"",
        b"\0",
        b"\xff" * 100,
        batch[: len(batch) // 2],
        replaced(batch, len(batch) - 1, bytes([batch[-1] ^ 1])),
    ):
        assert find_batch(noise + batch + batch) == len(noise)
        assert find_batch(noise + batch + batch, position=len(noise) + 1) == len(noise) + len(batch)
        assert find_batch(noise + batch[:-1]) is None
    assert find_batch(b"") is None
    assert find_batch(batch, batch_bytes_max=len(batch) - 13) is None


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("size", [64, 255, 65_536, 17_000_003])
def test_a_batch_of_any_size_is_found(magic: int, size: int) -> None:
    batch = encode_batch([(None, b"value" + bytes(size))], magic=magic)
    buffer = b"noise" + batch + b"more"
    assert find_batch(buffer) == 5
    assert find_batch(buffer, position=3) == 5
    assert find_batch(replaced(buffer, len(batch), b"\1")) is None


def test_what_follows_damage_is_found_from_every_position() -> None:
    damaged = replaced(WHOLE, STARTS[1] + 40, b"\xff\xff")
    for position in range(STARTS[1], STARTS[2] + 1):
        assert find_batch(damaged, position=position) == STARTS[2]


def test_a_header_that_nobody_writes_is_passed_over_though_its_checksum_is_right() -> None:
    odd = bytearray(encode_batch([(b"k", b"v")]))
    odd[21] = 0x7F  # attributes that no version has
    odd[17:21] = checksum.crc32c(bytes(odd[21:])).to_bytes(4, "big")
    assert len(scan_batches(odd)) == 1
    assert find_batch(bytes(odd) + PARTS[0]) == len(odd)


# ----------------------------------------------------------------------------------------------------------- number


def test_batches_are_numbered_in_place_by_their_spans() -> None:
    data = bytearray(PARTS[0] + PARTS[3] + PARTS[4] + PARTS[0])
    before = bytes(data)
    assert assign_offsets(data, 1000, leader_epoch=6) == 1000 + 2 + 3 + 10 + 2
    batches = list(decode_batches(data))
    assert [(batch.base_offset, batch.last_offset) for batch in batches] == [
        (1000, 1001), (1002, 1004), (1005, 1014), (1015, 1016),
    ]  # fmt: skip
    assert {batch.leader_epoch for batch in batches} == {6}
    assert [record.offset for record in same_in_every_reader(data)] == [1000, 1001, 1002, 1003, 1004, 1015, 1016]
    assert [batch.crc for batch in batches] == [batch.crc for batch in decode_batches(before)]


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (PARTS[0] + PARTS[1], UsageError, "buffer to number: got magic 1, wanted magic 2"),
        (
            PARTS[0] + PARTS[3][:-1],
            UsageError,
            "buffer to number: got 1 whole batches and a part, wanted whole batches",
        ),
        (PARTS[0] + replaced(PARTS[3], 16, b"\x07"), CorruptBatch, "magic got 7"),
        (replaced(PARTS[0], 23, struct.pack(">i", -2)), UsageError, "offsets of the buffer"),
        (b"", UsageError, "buffer to number"),
    ],
)
def test_nothing_is_numbered_unless_everything_can_be(data: bytes, error: type[Exception], match: str) -> None:
    changed = bytearray(data)
    with pytest.raises(error, match=match):
        assign_offsets(changed, 1000, leader_epoch=6)
    assert changed == data


def test_offsets_stay_below_2_to_the_63() -> None:
    data = bytearray(PARTS[0])
    assert assign_offsets(data, 2**63 - 3) == 2**63 - 1
    assert rows(data)[-1].offset == 2**63 - 2
    before = bytes(data)
    with pytest.raises(UsageError, match="below 2\\^63"):
        assign_offsets(data, 2**63 - 2)
    assert data == before


# ------------------------------------------------------------------------------------------------------------ patch


def test_a_batch_in_the_middle_is_patched_and_its_neighbours_are_not() -> None:
    data = bytearray(WHOLE)
    patch_batch(
        data, position=STARTS[3], base_offset=70, leader_epoch=2, timestamp_type="log_append_time", max_timestamp=88
    )
    assert data[: STARTS[3]] == WHOLE[: STARTS[3]]
    assert data[STARTS[4] :] == WHOLE[STARTS[4] :]
    batch = only_batch(data[STARTS[3] : STARTS[4]])
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch, batch.max_timestamp) == (70, 72, 2, 88)
    assert [record.timestamp for record in batch] == [88] * 3


def test_the_offset_of_a_message_is_patched_in_old_formats() -> None:
    data = bytearray(PARTS[2])
    assert patch_batch(data, last_offset=99) is False
    assert same_in_every_reader(data) == [Record(99, -1, b"d", b"4")]
    with pytest.raises(UsageError, match="base_offset: got a batch of magic 0, wanted last_offset there"):
        patch_batch(data, base_offset=99)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"base_offset": 1, "last_offset": 2}, "offsets to patch"),
        ({"base_offset": -1}, "base_offset"),
        ({"last_offset": 0}, "base_offset that follows from last_offset"),
        ({"leader_epoch": 2**31}, "leader_epoch"),
        ({"max_timestamp": -2}, "max_timestamp"),
        ({"timestamp_type": "log_append_time"}, "max_timestamp"),
        ({"timestamp_type": "LogAppendTime", "max_timestamp": 1}, "timestamp_type"),
        ({"position": 5, "leader_epoch": 1}, None),
    ],
)
def test_a_patch_that_is_refused_changes_nothing(options: dict[str, object], what: str | None) -> None:
    data = bytearray(PARTS[0])
    with pytest.raises((UsageError, CorruptBatch)) as caught:
        patch_batch(data, **options)
    if what is not None:
        assert caught.value.what == what
    assert data == PARTS[0]


def test_a_partial_batch_cannot_be_patched() -> None:
    with pytest.raises(UsageError) as caught:
        patch_batch(bytearray(PARTS[0][:-1]), leader_epoch=1)
    assert str(caught.value) == "batch to patch, position 0: got no whole batch, wanted one"
