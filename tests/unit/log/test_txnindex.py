"""The index of aborted transactions: its bytes, what it finds, what it refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logcore.errors import CorruptIndex, CorruptionReason, StorageError, UsageError
from logcore.log.disk import SYSTEM_DISK
from logcore.log.txnindex import ENTRY_BYTES, AbortedTransaction, TransactionIndex
from tests.logs import FailingDisk

NAME = "00000000000000000000.txnindex"
FOUR = [
    AbortedTransaction(0, 0, 10, 11),
    AbortedTransaction(1, 5, 15, 13),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TransactionIndex]:
    made = TransactionIndex(SYSTEM_DISK, str(tmp_path), 0)
    yield made
    made.close()


def fill(index: TransactionIndex) -> None:
    for entry in FOUR:
        index.append(entry)


def test_an_entry_is_34_bytes(index: TransactionIndex, tmp_path: Path) -> None:
    """SEG-085."""
    index.append(AbortedTransaction(1, 2, 3, 4))
    index.append(AbortedTransaction(2**63 - 1, 0x0102030405060708, 2**62, -1))
    assert (tmp_path / NAME).read_bytes() == bytes.fromhex(
        "0000 0000000000000001 0000000000000002 0000000000000003 0000000000000004"
        "0000 7fffffffffffffff 0102030405060708 4000000000000000 ffffffffffffffff"
    )
    assert index.size_in_bytes == 2 * ENTRY_BYTES == 68


def test_last_offsets_increase(index: TransactionIndex) -> None:
    """SEG-086: across a reopening too; what is refused is not written."""
    index.append(AbortedTransaction(0, 0, 10, 11))
    for last_offset in (10, 9):
        with pytest.raises(UsageError):
            index.append(AbortedTransaction(1, 0, last_offset, 11))
    index.close()
    with pytest.raises(UsageError):
        index.append(AbortedTransaction(1, 0, 10, 11))
    assert index.size_in_bytes == ENTRY_BYTES
    index.append(AbortedTransaction(1, 0, 11, 12))


@pytest.mark.parametrize("exists", [True, False])
def test_there_is_a_file_only_once_there_is_an_entry(tmp_path: Path, exists: bool) -> None:
    """SEG-087: whatever is done to one that is not there is no error."""
    index = TransactionIndex(SYSTEM_DISK, str(tmp_path), 0, exists=exists)
    assert (list(index), index.collect(0, 10), index.size_in_bytes, index.last_offset) == ([], ([], False), 0, None)
    index.sync()
    index.truncate_to(0)
    index.clear()
    index.check()
    assert not index.rename(str(tmp_path), ".swap")
    assert not index.rename(str(tmp_path), "")
    assert not index.delete()
    assert os.listdir(tmp_path) == []
    index.append(FOUR[0])
    assert os.listdir(tmp_path) == [NAME]
    index.clear()
    assert (list(index), index.size_in_bytes) == ([], 0)
    assert index.delete()
    assert os.listdir(tmp_path) == []


def test_collecting_ends_where_no_later_one_can_matter(index: TransactionIndex) -> None:
    """SEG-088, SEG-089."""
    fill(index)
    assert index.collect(0, 100) == (FOUR, False)
    assert index.collect(0, 32) == (FOUR[:3], True)
    assert index.collect(0, 35) == (FOUR, True)
    assert index.collect(10, 35) == (FOUR, True)
    assert index.collect(11, 35) == (FOUR[1:], True)
    assert index.collect(20, 41) == (FOUR[2:], False)
    assert index.collect(51, 60) == ([], False)


def test_truncating_keeps_what_ended_before(index: TransactionIndex) -> None:
    """SEG-090."""
    fill(index)
    index.truncate_to(51)
    assert list(index) == FOUR
    index.truncate_to(50)
    assert list(index) == FOUR[:3]
    index.append(FOUR[3])
    index.clear()
    assert list(index) == []
    index.append(FOUR[0])
    assert list(index) == FOUR[:1]


@pytest.mark.parametrize(
    ("base_offset", "entries"), [(100, [FOUR[3]]), (0, [FOUR[1], FOUR[0]]), (0, [FOUR[0], FOUR[0]])]
)
def test_an_entry_of_another_segment_or_out_of_order_is_damage(
    tmp_path: Path, base_offset: int, entries: list[AbortedTransaction]
) -> None:
    """SEG-091."""
    index = TransactionIndex(SYSTEM_DISK, str(tmp_path), base_offset)
    for entry in entries:
        other = TransactionIndex(SYSTEM_DISK, str(tmp_path), base_offset)
        other._last_offset = -1
        other.append(entry)
        other.close()
    with pytest.raises(CorruptIndex) as caught:
        index.check()
    assert (caught.value.reason, caught.value.path) == (CorruptionReason.ENTRY_ORDER, index.path)
    assert caught.value.position == (len(entries) - 1) * ENTRY_BYTES
    index.close()


def test_appends_go_behind_the_last_entry_and_to_where_the_file_is_now(index: TransactionIndex, tmp_path: Path) -> None:
    """SEG-092."""
    index.append(FOUR[0])
    index.close()
    index.append(FOUR[1])
    assert index.rename(str(tmp_path), ".cleaned")
    index.append(FOUR[2])
    assert os.listdir(tmp_path) == [NAME + ".cleaned"]
    index.close()
    assert list(index) == FOUR[:3]
    index.rename(str(tmp_path), "")
    index.append(FOUR[3])
    again = TransactionIndex(SYSTEM_DISK, str(tmp_path), 0)
    assert list(again) == FOUR
    again.close()


def test_an_index_that_let_go_of_its_file_is_synced_all_the_same(tmp_path: Path) -> None:
    disk = FailingDisk()
    index = TransactionIndex(disk, str(tmp_path), 0)
    fill(index)
    index.close()
    disk.fail("sync", ".txnindex")
    with pytest.raises(StorageError):
        index.sync()
    disk.heal()
    index.sync()
    disk.fail("sync", ".txnindex")
    index.sync()  # there is nothing left to be synced


def test_who_reads_an_index_goes_on_when_another_thread_lets_go_of_its_file(index: TransactionIndex) -> None:
    fill(index)
    reader = iter(index)
    assert next(reader) == FOUR[0]
    index.close()
    assert list(reader) == FOUR[1:]


def test_another_version_is_no_entry(index: TransactionIndex, tmp_path: Path) -> None:
    """SEG-093."""
    fill(index)
    index.close()
    data = bytearray((tmp_path / NAME).read_bytes())
    data[ENTRY_BYTES + 1] = 1
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(CorruptIndex) as caught:
        index.collect(0, 100)
    assert (caught.value.reason, caught.value.position) == (CorruptionReason.VERSION, ENTRY_BYTES)


@pytest.mark.parametrize("size", [1, 33, 35, 34 * 4 - 1])
def test_half_an_entry_is_damage(index: TransactionIndex, tmp_path: Path, size: int) -> None:
    fill(index)
    index.close()
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes()[:size])
    with pytest.raises(CorruptIndex) as caught:
        index.check()
    assert (caught.value.reason, caught.value.position) == (CorruptionReason.ENTRY_SIZE, size // 34 * 34)
    index.clear()
    fill(index)
    assert list(index) == FOUR
