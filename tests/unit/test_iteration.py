"""A buffer of many batches: where it ends, what is a cut and what is damage, and how little has to be there."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import pytest

from logcore import (
    CorruptBatch,
    CorruptionReason,
    Record,
    decode_batches,
    decode_columns,
    encode_batch,
    first_batch_size,
    scan_batches,
    split_batches,
)
from logcore.errors import CorruptMessageError
from tests.helpers import CODECS_BY_MAGIC, only_batch, refusal, replaced, rows, same_in_every_reader
from tests.reference import batch_v2

THREE = [(b"a", b"1", 1), (b"b", b"2", 2), (b"c", b"3", 3)]


def two(magic: int = 2, codec: str = "none") -> tuple[bytes, bytes]:
    """Two batches, or in the uncompressed old formats two messages."""
    records = THREE if magic == 2 or codec != "none" else THREE[:1]
    return tuple(encode_batch(records, base_offset=at, magic=magic, compression=codec) for at in (10, 20))


def assert_ends_quietly_after(buffer: bytes, whole: bytes) -> None:
    """Every reader yields what `whole` holds and then ends without a word."""
    batches = decode_batches(buffer)
    assert [bytes(batch.data) for batch in batches] == [bytes(batch.data) for batch in decode_batches(whole)]
    assert batches.consumed == len(whole)
    assert same_in_every_reader(buffer) == rows(whole)
    scan = scan_batches(buffer)
    assert (scan.consumed, scan.is_partial, scan.error) == (len(whole), len(buffer) > len(whole), None)
    assert b"".join(split_batches(buffer)) == whole


# ------------------------------------------------------------------------------------------------------ quiet ends


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_last_batch_that_is_cut_ends_the_iteration_without_an_error(magic: int, codec: str) -> None:
    """REC-058: by 5 bytes or by any other number, the batches before it come and nothing is raised."""
    first, second = two(magic, codec)
    for kept in (*range(len(second)), len(second) - 5):
        assert_ends_quietly_after(first + second[:kept], first)


def test_fewer_bytes_than_a_magic_are_the_end() -> None:
    """REC-062: below 12 always; from 12 to 16 if the size is sane, for a bad size is known by then."""
    first, second = two()
    for kept in range(12):
        assert_ends_quietly_after(first + b"\xff" * kept, first)
    for kept in range(12, 17):
        assert_ends_quietly_after(first + second[:kept], first)
        error = refusal(first + replaced(second, 8, struct.pack(">i", 13))[:kept])
        assert (error.reason, error.got, error.kafka_error) == (CorruptionReason.BATCH_SIZE, "13", CorruptMessageError)


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_mapped_file_whose_last_batch_is_cut_is_read_up_to_it(magic: int, codec: str, tmp_path: Path) -> None:
    """REC-064: cut by 13 bytes, for every magic and codec."""
    first, second = two(magic, codec)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes((first + second)[:-13])
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        batches = decode_batches(mapped)
        assert [record for batch in batches for record in batch] == rows(first)
        assert batches.consumed == len(first)
        del batches  # or the map could not be closed
        assert list(decode_columns(mapped)) == rows(first)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_nothing_is_nothing(make: type) -> None:
    """REC-065: an empty buffer, and an empty or outlying slice of one with batches."""
    whole = b"".join(two())
    for empty in (make(b""), memoryview(make(whole))[5:5], memoryview(make(whole))[len(whole) + 9 :]):
        assert list(decode_batches(empty)) == []
        assert decode_batches(empty).consumed == 0
        columns = decode_columns(empty)
        assert (len(columns), columns.consumed, columns.offset.tolist()) == (0, 0, [])
        scan = scan_batches(empty)
        assert (len(scan), scan.consumed, scan.is_partial, scan.error) == (0, 0, False, None)
        assert split_batches(empty) == []
        assert first_batch_size(empty) is None


@pytest.mark.parametrize("padding", [0, 2, 4, 5, 6, 11])
@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_few_zero_bytes_behind_the_last_batch_change_nothing(magic: int, codec: str, padding: int) -> None:
    """REC-068: 0, 2, 4, 5 or 6 bytes of padding."""
    whole = b"".join(two(magic, codec))
    assert_ends_quietly_after(whole + b"\0" * padding, whole)


def test_twelve_zero_bytes_are_a_size_of_zero_and_so_damage() -> None:
    whole = b"".join(two())
    error = refusal(whole + b"\0" * 12)
    assert (error.reason, error.position, error.got) == (CorruptionReason.BATCH_SIZE, len(whole), "0")


# ---------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("size", [9, 0, -1, -(2**31)])
def test_a_size_below_any_message_is_damage_behind_the_batches_before_it(size: int) -> None:
    """REC-059: 9, where 14 is the least."""
    first, second = two()
    damaged = first + replaced(second, 8, struct.pack(">i", size))
    batches = decode_batches(damaged)
    assert [record.offset for record in next(batches)] == [10, 11, 12]
    with pytest.raises(CorruptBatch) as caught:
        next(batches)
    assert (caught.value.reason, caught.value.position) == (CorruptionReason.BATCH_SIZE, len(first))
    assert (caught.value.got, caught.value.wanted) == (str(size), "at least 14")
    assert caught.value.kafka_error is CorruptMessageError
    assert batches.consumed == len(first)
    scan = scan_batches(damaged)
    assert (len(scan), scan.consumed, scan.is_partial) == (1, len(first), False)
    assert str(scan.error) == str(caught.value)
    with pytest.raises(CorruptBatch):
        decode_columns(damaged)


@pytest.mark.parametrize("magic", [37, 3, 127, -1, -128])
def test_a_magic_that_nobody_writes_is_damage(magic: int) -> None:
    """REC-060: 37, or negative, or above 2."""
    first, second = two()
    damaged = first + replaced(second, 16, struct.pack(">b", magic))
    batches = decode_batches(damaged)
    next(batches)
    with pytest.raises(CorruptBatch) as caught:
        next(batches)
    error = caught.value
    assert (error.reason, error.position, error.got) == (CorruptionReason.MAGIC, len(first), str(magic))
    assert (error.wanted, error.kafka_error) == ("0, 1 or 2", CorruptMessageError)
    with pytest.raises(CorruptBatch, match="magic"):
        decode_columns(damaged)


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_a_batch_above_the_readers_limit_is_damage(magic: int, codec: str) -> None:
    """REC-061: with a limit of 60, a size field of 61 is refused when reached, and 60 is not."""
    small = encode_batch([(None, None)], magic=min(magic, 1))
    large = encode_batch([(b"k" * 100, b"v" * 100)] * 20, base_offset=5, magic=magic, compression=codec)
    size = struct.unpack_from(">i", large, 8)[0]
    batches = decode_batches(small + large, batch_bytes_max=60)
    next(batches)
    with pytest.raises(CorruptBatch) as caught:
        next(batches)
    assert (caught.value.reason, caught.value.position) == (CorruptionReason.BATCH_SIZE, len(small))
    assert (caught.value.got, caught.value.wanted) == (str(size), "at most 60")
    assert caught.value.kafka_error is CorruptMessageError
    first = next(iter(decode_batches(large, batch_bytes_max=size)))
    assert first.size_in_bytes == size + 12
    assert scan_batches(large, batch_bytes_max=size - 1).error is not None
    with pytest.raises(CorruptBatch, match="wanted at most"):
        decode_columns(large, batch_bytes_max=size - 1)


# ------------------------------------------------------------------------------------------------ how little suffices


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_the_size_of_the_first_batch_is_known_from_17_bytes(magic: int, codec: str) -> None:
    """REC-063: unknown from 1 or 12, then known before the payload has come; a bad magic or size is damage."""
    batch = encode_batch(THREE[:1], magic=magic, compression=codec)
    for kept in (0, 1, 12, 16):
        assert first_batch_size(batch[:kept]) is None
    for kept in (17, 18, len(batch) - 1, len(batch)):
        assert first_batch_size(batch[:kept]) == len(batch)
    assert first_batch_size(batch + b"\xff" * 40) == len(batch)
    for at, new, reason in (
        (16, b"\x0a", CorruptionReason.MAGIC),
        (8, struct.pack(">i", 13), CorruptionReason.BATCH_SIZE),
    ):
        with pytest.raises(CorruptBatch) as caught:
            first_batch_size(replaced(batch, at, new)[:17])
        assert (caught.value.reason, caught.value.position) == (reason, 0)
        assert caught.value.kafka_error is CorruptMessageError


def test_a_header_is_read_without_looking_at_the_payload() -> None:
    """REC-066: size from 17 bytes, the other fields from the header, and only iterating needs the records."""
    whole = encode_batch(THREE, base_offset=10, compression="zstd", leader_epoch=4)
    assert first_batch_size(whole[:17]) == len(whole)
    nonsense = batch_v2.with_crc(whole[:61] + b"\xff" * (len(whole) - 61))
    batch = only_batch(nonsense)
    fields = ("base_offset", "last_offset", "count", "leader_epoch", "max_timestamp", "compression", "size_in_bytes")
    assert [getattr(batch, name) for name in fields] == [10, 12, 3, 4, 3, "zstd", len(whole)]
    (row,) = scan_batches(nonsense).headers
    assert [int(row[name]) for name in ("base_offset", "last_offset", "count", "leader_epoch")] == [10, 12, 3, 4]
    with pytest.raises(CorruptBatch) as caught:
        iter(batch)
    assert caught.value.reason is CorruptionReason.DECOMPRESSION
    uncovered = only_batch(whole[:61] + b"\xff" * (len(whole) - 61), verify_crc=False)
    assert uncovered.last_offset == 12


@pytest.mark.parametrize(("magic", "codec"), [pair for pair in CODECS_BY_MAGIC if pair[0] == 2])
def test_the_max_timestamp_is_the_highest_wherever_it_stands(magic: int, codec: str) -> None:
    """REC-067: 3241324 in the first record, 234280 in the second."""
    records = [Record(0, 3241324, b"k", b"v"), Record(1, 234280, b"k", b"v")]
    buffer = encode_batch(records, magic=magic, compression=codec)
    batch = only_batch(buffer)
    assert (batch.max_timestamp, batch.base_timestamp) == (3241324, 3241324)
    assert int(scan_batches(buffer).headers["max_timestamp"][0]) == 3241324
    assert same_in_every_reader(buffer) == records


def test_batches_may_be_iterated_again_and_outlive_buffer_and_iterator() -> None:
    buffer = bytearray(b"".join(two()))
    batches = list(decode_batches(buffer))
    expected = rows(bytes(buffer))
    with pytest.raises(BufferError):
        buffer.extend(b"more")  # lent as long as a batch lives
    del buffer
    assert [record for batch in batches for record in batch] == expected
    assert [record for batch in batches for record in batch] == expected
