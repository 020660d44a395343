"""A file of batches: found by offset and by time, cut, preallocated, sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from logcore import encode_batch, scan_batches
from logcore._file import File
from logcore._segment import BatchFile
from logcore.errors import CorruptBatch, StorageError, UsageError
from tests.logs import BATCH_BYTES, Partition, batch

INT_MAX = 2**31 - 1


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    with File(tmp_path / "0.log", is_writable=True, create=True) as made:
        yield made


def test_truncating_only_shortens(file: File, tmp_path: Path) -> None:
    """REC-106: to the present size touches nothing, to a larger one is an error."""
    file.append([batch(0), batch(1)])
    os.utime(tmp_path / "0.log", ns=(1, 1))
    file.truncate(2 * BATCH_BYTES)
    with pytest.raises(UsageError):
        file.truncate(2 * BATCH_BYTES + 1)
    assert (tmp_path / "0.log").stat().st_size == file.size == 2 * BATCH_BYTES
    assert (tmp_path / "0.log").stat().st_mtime_ns == 1
    file.truncate(BATCH_BYTES)
    assert (tmp_path / "0.log").stat().st_size == file.size == BATCH_BYTES


def test_preallocated_space_is_cut_off_by_closing(tmp_path: Path) -> None:
    """REC-107."""
    path = tmp_path / "0.log"
    with File(path, is_writable=True, create=True) as file:
        file.preallocate(1 << 20)
        file.set_size(0)
        assert (file.size, path.stat().st_size) == (0, 1 << 20)
        file.append([batch(0)])
        assert (file.size, path.stat().st_size) == (BATCH_BYTES, 1 << 20)
    assert path.stat().st_size == BATCH_BYTES
    with File(path) as file:
        assert file.size == BATCH_BYTES


def test_a_search_by_offset_finds_the_batch_or_the_one_behind(file: File) -> None:
    """REC-108: from a position on."""
    log = BatchFile(file)
    file.append([batch(0), batch(1), batch(50, 3), batch(60)])
    wide = len(batch(50, 3))
    assert log.find(0) == (0, 0, 0, BATCH_BYTES)
    assert log.find(1) == (1, 1, BATCH_BYTES, BATCH_BYTES)
    assert log.find(3) == log.find(50) == log.find(52) == (50, 52, 2 * BATCH_BYTES, wide)
    assert log.find(0, BATCH_BYTES) == (1, 1, BATCH_BYTES, BATCH_BYTES)
    assert log.find(53) == log.find(60, 2 * BATCH_BYTES) == (60, 60, 2 * BATCH_BYTES + wide, BATCH_BYTES)
    assert log.find(61) is None


def test_a_search_by_offset_at_the_edges_of_batches(file: File) -> None:
    """REC-109: a batch that begins with the offset, one that ends with it, one before a gap, none behind the last."""
    log = BatchFile(file)
    sizes = [len(batch(0, count)) for count in (2, 3, 1)]
    file.append([batch(2, 2), batch(4, 3), batch(9)])
    where = {2: 0, 3: 0, 4: 1, 6: 1, 7: 2, 8: 2, 9: 2}
    for offset, number in where.items():
        found = log.find(offset)
        assert found is not None
        assert found.position == sum(sizes[:number]), offset
    assert log.find(10) is None
    assert log.find(-1) == log.find(0) == log.find(2)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_search_by_time_gives_the_record_itself(file: File, magic: int) -> None:
    """REC-110: at or behind an offset; with the batch's leader epoch, where it has one. Magic 0 has no times."""
    log = BatchFile(file)
    codec = "none" if magic == 0 else "gzip"
    more = {"leader_epoch": 5} if magic == 2 else {}
    for base, times in ((0, (10, 30, 20)), (3, (5, 5, 5)), (6, (40, 25, 50))):
        records = [(b"k", b"v", time if magic else -1) for time in times]
        file.append([encode_batch(records, base_offset=base, magic=magic, compression=codec, **more)])
    epoch = 5 if magic == 2 else -1
    if magic == 0:
        assert log.find_timestamp(0, 0) is None
        assert log.find_timestamp(10, 0) is None
        return
    assert log.find_timestamp(0, 0) == (0, 10, epoch)
    assert log.find_timestamp(11, 0) == (1, 30, epoch)
    assert log.find_timestamp(11, 2) == (2, 20, epoch)
    assert log.find_timestamp(11, 3) == (6, 40, epoch)
    assert log.find_timestamp(31, 0) == (6, 40, epoch)
    assert log.find_timestamp(41, 0) == log.find_timestamp(5, 8) == (8, 50, epoch)
    assert log.find_timestamp(51, 0) is None


def test_sending_sends_no_more_than_there_is(file: File) -> None:
    """REC-111."""
    file.append([batch(0), batch(1)])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert file.send_to(ours.fileno(), BATCH_BYTES, 10_000) == BATCH_BYTES
        assert theirs.recv(10_000) == batch(1)
        assert file.send_to(ours.fileno(), 2 * BATCH_BYTES, 10) == 0
        file.append([batch(2)])
        assert file.send_to(ours.fileno(), 2 * BATCH_BYTES, 10_000) == BATCH_BYTES


def test_a_segment_is_not_longer_than_an_index_can_tell(tmp_path: Path) -> None:
    """REC-105: it is rolled before; and a .log that is longer is refused."""
    with Partition(tmp_path, {"segment.bytes": INT_MAX, "index.interval.bytes": INT_MAX}) as partition:
        partition.fill(1)
        assert not partition.active.should_roll(INT_MAX - BATCH_BYTES, 0, 1, 0)
        assert partition.active.should_roll(INT_MAX - BATCH_BYTES + 1, 0, 1, 0)
        partition.close()
        path = partition.path / "00000000000000000000.log"
        os.truncate(path, INT_MAX + 1)
        with pytest.raises(StorageError) as caught:
            partition.open()
        assert caught.value.path == str(path)
        os.truncate(path, BATCH_BYTES)
        partition.open()
        assert partition.offsets(0) == [0]


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("sizes", [[10] * 200, [50_000, 10, 10, 70_000, 10], [4096] * 9])
def test_headers_alone_are_those_of_a_scan(file: File, magic: int, sizes: list[int]) -> None:
    parts = [encode_batch([(b"k", b"v" * size)], base_offset=at, magic=magic) for at, size in enumerate(sizes)]
    data = b"".join(parts)
    file.append([data + parts[0][:40]])
    log = BatchFile(file)
    scanned = scan_batches(data, verify_crc=False).headers
    assert log.headers(0, len(data), 1000).tobytes() == scanned.tobytes()
    assert log.headers(0, file.size, 1000).tobytes() == scanned.tobytes()  # what is not whole is left out
    assert log.headers(len(parts[0]), len(data), 3).tobytes() == scanned[1:4].tobytes()
    assert len(log.headers(len(data), len(data), 5)) == 0


def test_a_header_that_cannot_be_is_told_with_its_place(file: File) -> None:
    good = encode_batch([(b"k", b"v")])
    file.append([good, b"\xff" * 100])
    log = BatchFile(file)
    assert len(log.headers(0, file.size, 10)) == 1
    with pytest.raises(CorruptBatch) as caught:
        log.headers(len(good), file.size, 10)
    assert caught.value.position == len(good)
