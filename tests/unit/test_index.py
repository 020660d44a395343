"""The sparse indexes: what a look-up finds, what an append refuses, what is damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logcore._index import Index, OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset
from logcore.errors import CorruptIndex, UsageError

BASE = 45


class Growing:
    """Memory with the methods of a mapped file."""

    flushed = 0
    closed = False

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)

    def view(self) -> bytearray:
        return self.data

    def resize(self, size: int) -> None:
        self.data = self.data[:size] + bytes(max(size - len(self.data), 0))

    def write(self, position: int, data: bytes) -> None:
        assert position + len(data) <= len(self.data)
        self.data[position : position + len(data)] = data

    def flush(self) -> None:
        self.flushed += 1

    def close(self) -> None:
        self.closed = True


def offsets(entries: int = 10, base: int = BASE) -> OffsetIndex:
    return OffsetIndex(Growing(8 * entries), base, entry_count=0, is_writable=True)


def times(entries: int = 10, base: int = BASE) -> TimeIndex:
    return TimeIndex(Growing(12 * entries), base, entry_count=0, is_writable=True)


# ------------------------------------------------------------------------------------------------------ offset index


def test_an_offset_entry_is_a_relative_offset_and_a_position() -> None:
    """SEG-064: 8 bytes, big-endian."""
    memory = Growing(16)
    index = OffsetIndex(memory, 100, entry_count=0, is_writable=True)
    index.append(100, 7)
    index.append(100 + 0x7FFFFFFF, 0x7FFFFFFF)
    index.close()
    assert memory.data == bytes.fromhex("00000000 00000007 7fffffff 7fffffff")


def test_a_look_up_below_the_first_entry_says_to_scan_from_the_start() -> None:
    """SEG-065: in an empty index too."""
    index = offsets()
    assert index.lookup(92) == (BASE, 0)
    index.append(50, 10)
    assert index.lookup(49) == OffsetPosition(BASE, 0)
    assert index.lookup(-1) == (BASE, 0)


def test_a_look_up_gives_the_last_entry_at_or_below() -> None:
    """SEG-066: exact hits give themselves."""
    index = offsets()
    for n in range(10):
        index.append(BASE + 3 * n, 100 * n)
    for n in range(10):
        for more in range(3):
            assert index.lookup(BASE + 3 * n + more) == (BASE + 3 * n, 100 * n)
    assert index.lookup(2**63 - 1) == (BASE + 27, 900)


def test_there_is_no_entry_behind_the_last() -> None:
    """SEG-067."""
    index = offsets()
    for number in (0, -1, 5):
        with pytest.raises(UsageError, match="entry"):
            index.entry(number)
    index.append(50, 10)
    assert index.entry(0) == (50, 10)
    with pytest.raises(UsageError):
        index.entry(1)


def test_a_full_offset_index_takes_no_entry_and_an_offset_must_increase() -> None:
    """SEG-068."""
    index = offsets(2)
    index.append(51, 0)
    for offset in (51, 50):
        with pytest.raises(UsageError, match=f"got {offset}, wanted more than 51"):
            index.append(offset, 1)
    index.append(52, 1)
    assert index.is_full
    with pytest.raises(UsageError, match="an entry more than its 2"):
        index.append(53, 2)
    assert [index.entry(n) for n in range(len(index))] == [(51, 0), (52, 1)]


def test_an_entry_at_the_base_offset_is_valid() -> None:
    """SEG-069."""
    index = offsets()
    index.append(BASE, 0)
    index.check()
    assert index.last_offset == BASE


@pytest.mark.parametrize(("to", "last"), [(12, 9), (10, 9), (9, 8), (5, 4), (1, 0), (0, 0)])
def test_truncating_removes_the_entries_at_and_behind_an_offset(to: int, last: int) -> None:
    """SEG-070."""
    index = offsets(base=0)
    for offset in range(1, 10):
        index.append(offset, offset)
    index.truncate_to(to)
    assert index.last_offset == last
    assert len(index) == last


def test_the_upper_bound_is_the_first_entry_at_or_behind_a_position() -> None:
    """SEG-071."""
    index = offsets()
    assert index.upper_bound(0, 5) is None
    for n in range(4):
        index.append(BASE + n, 10 * n)
    assert index.upper_bound(0, 0) == (BASE, 0)
    assert index.upper_bound(0, 5) == (BASE + 1, 10)
    assert index.upper_bound(10, 20) == (BASE + 3, 30)
    assert index.upper_bound(10, 21) is None
    assert index.upper_bound(2**31 - 1, 2**31 - 1) is None


def test_an_index_over_bytes_finds_its_entries_and_refuses_to_be_written() -> None:
    """SEG-072."""
    index = offsets()
    index.append(51, 0)
    index.append(52, 1)
    index.trim()
    reopened = OffsetIndex(bytes(index_bytes(index)), BASE)
    assert reopened.lookup(52) == (52, 1)
    for call in (lambda: reopened.append(53, 2), lambda: reopened.truncate_to(52), reopened.clear, reopened.flush):
        with pytest.raises(UsageError, match="got a write, wanted a writable index"):
            call()


def index_bytes(index: Index) -> bytes:
    made = bytearray()
    for n in range(len(index)):
        entry = index.entry(n)  # type: ignore[attr-defined]
        if isinstance(index, OffsetIndex):
            made += (entry.offset - index.base_offset).to_bytes(4, "big") + entry.position.to_bytes(4, "big")
        else:
            made += entry.timestamp.to_bytes(8, "big", signed=True) + (entry.offset - index.base_offset).to_bytes(
                4, "big"
            )
    return bytes(made)


def test_a_last_offset_below_the_base_or_half_an_entry_is_damage() -> None:
    """SEG-073."""
    with pytest.raises(CorruptIndex, match="index at position 8: size got 9, wanted a multiple of 8"):
        OffsetIndex(bytes(9), 0).check()
    with pytest.raises(CorruptIndex, match="index at position 8: last offset got 99, wanted at least 100"):
        OffsetIndex(bytes.fromhex("00000000 00000000 ffffffff 00000007"), 100).check()


def test_a_file_is_taken_as_full_of_entries_down_to_a_whole_one() -> None:
    """SEG-074."""
    assert len(OffsetIndex(bytes(8 * 5 + 7), 0)) == 5
    assert len(TimeIndex(bytes(12 * 5 + 11), 0)) == 5
    assert offsets(5).entries_max == 5


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 1026, 5000])
def test_the_warm_section_changes_no_answer(count: int) -> None:
    """SEG-075: 1024 offset entries, 682 time entries are searched first."""
    index, clock = offsets(count, 0), times(count + 1, 0)
    for n in range(count):
        index.append(2 * n + 1, n)
        clock.append(20 * n + 10, 2 * n + 1)
    for n in range(count):
        assert index.lookup(2 * n + 1) == index.lookup(2 * n + 2) == (2 * n + 1, n)
        assert clock.lookup(20 * n + 10) == clock.lookup(20 * n + 29) == (20 * n + 10, 2 * n + 1)
    assert index.lookup(0) == (0, 0)
    assert clock.lookup(9) == (-1, 0)


@pytest.mark.parametrize("make", [offsets, times])
def test_a_closed_index_fails_cleanly(make: Callable[[], OffsetIndex | TimeIndex]) -> None:
    """SEG-076."""
    memory = Growing(120)
    index = type(make())(memory, BASE, is_writable=True)
    index.close()
    index.close()
    assert memory.closed
    calls: list[Callable[[], object]] = [
        lambda: index.lookup(50),
        lambda: index.entry(0),
        lambda: index.append(50, 50),
        lambda: index.truncate_to(3),
        lambda: index.resize(24),
        index.trim,
        index.flush,
        index.clear,
        index.check,
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"wanted none after close\(\)"):
            call()
    assert repr(index).endswith("closed)")


# -------------------------------------------------------------------------------------------------------- time index


def test_a_time_entry_is_a_timestamp_and_a_relative_offset() -> None:
    """SEG-077: 12 bytes, big-endian."""
    memory = Growing(24)
    index = TimeIndex(memory, 100, entry_count=0, is_writable=True)
    index.append(1_700_000_000_000, 109)
    index.close()
    assert memory.data[:12] == bytes.fromhex("0000018bcfe56800 00000009")


def test_a_timestamp_below_the_first_says_to_scan_from_the_start() -> None:
    """SEG-078, SEG-084."""
    index = times()
    assert index.lookup(100) == index.last_entry == TimestampOffset(-1, BASE)
    for n in range(5):
        index.append(100 * n + 100, BASE + 10 * n)
    assert index.lookup(99) == (-1, BASE)
    assert index.lookup(100) == index.lookup(199) == (100, BASE)
    assert index.lookup(10**15) == index.last_entry == (500, BASE + 40)


def test_a_time_index_is_full_one_entry_early() -> None:
    """SEG-079: the last place is for the final entry."""
    index = times(3)
    index.append(10, BASE)
    assert not index.is_full
    index.append(20, BASE + 1)
    assert index.is_full
    with pytest.raises(UsageError, match="an entry more than its 3"):
        index.append(30, BASE + 2)
    assert index.append(30, BASE + 2, is_last=True)
    with pytest.raises(UsageError, match="an entry more than its 3"):
        index.append(40, BASE + 3, is_last=True)


def test_neither_offset_nor_timestamp_goes_back_and_an_equal_timestamp_is_ignored() -> None:
    """SEG-080."""
    index = times()
    assert index.append(10_000, 1000)
    with pytest.raises(UsageError, match="offset of an index entry: got 999, wanted at least 1000"):
        index.append(10_000, 999)
    with pytest.raises(UsageError, match="timestamp of an index entry: got 9999, wanted at least 10000"):
        index.append(9999, 1000)
    assert not index.append(10_000, 1001)
    assert len(index) == 1


def test_truncating_a_time_index_goes_by_offset() -> None:
    """SEG-081."""
    index = times()
    for n in range(5):
        index.append(100 * n, BASE + 10 * n)
    index.truncate_to(BASE + 20)
    assert index.last_entry == (100, BASE + 10)
    index.truncate_to(BASE + 11)
    assert len(index) == 2
    index.truncate_to(BASE)
    assert len(index) == 0


def test_a_time_index_whose_ends_contradict_each_other_is_damaged() -> None:
    """SEG-082."""
    with pytest.raises(CorruptIndex, match="size got 13, wanted a multiple of 12"):
        TimeIndex(bytes(13), 0).check()
    back = (9).to_bytes(8, "big") + bytes(4) + (8).to_bytes(8, "big") + bytes(4)
    with pytest.raises(CorruptIndex, match="index at position 12: last timestamp got 8, wanted at least 9"):
        TimeIndex(back, 0).check()
    below = (9).to_bytes(8, "big") + b"\xff" * 4
    with pytest.raises(CorruptIndex, match="last offset got 99, wanted at least 100"):
        TimeIndex(below, 100).check()


@pytest.mark.parametrize("make", [offsets, times])
def test_resizing_keeps_the_entries_and_says_whether_it_did_anything(
    make: Callable[..., OffsetIndex | TimeIndex],
) -> None:
    """SEG-083."""
    index = make(10)
    for n in range(5):
        index.append(50 + n, 50 + n)
    size = index.size_in_bytes // len(index)
    assert not index.resize(10 * size)
    assert not index.resize(10 * size + size - 1)
    assert index.resize(20 * size + 1)
    assert (index.entries_max, len(index)) == (20, 5)
    assert index.trim()
    assert not index.trim()
    assert (index.entries_max, len(index)) == (5, 5)
    assert index.lookup(52)[0] == 52
    assert index.resize(3 * size)
    assert len(index) == 3


def test_clearing_keeps_the_room_and_flushing_is_the_memorys_own() -> None:
    memory = Growing(80)
    index = OffsetIndex(memory, 0, entry_count=0, is_writable=True)
    index.append(1, 1)
    index.flush()
    assert memory.flushed == 1
    index.clear()
    assert (len(index), index.entries_max) == (0, 10)


def test_a_failed_resize_leaves_a_usable_index() -> None:
    class Stuck(Growing):
        def resize(self, size: int) -> None:
            raise OSError(28, "No space left on device")

    index = OffsetIndex(Stuck(16), 0, entry_count=0, is_writable=True)
    index.append(1, 1)
    with pytest.raises(OSError, match="No space"):
        index.resize(800)
    assert index.lookup(5) == (1, 1)
    index.append(2, 2)


@pytest.mark.parametrize("offset", [BASE - 1, BASE + 2**31])
def test_an_offset_that_does_not_fit_an_entry_is_refused(offset: int) -> None:
    for index in (offsets(), times()):
        assert not index.fits(offset)
        with pytest.raises(UsageError, match=f"got {offset}, wanted {BASE} to {BASE + 2**31 - 1}"):
            index.append(offset, 5) if isinstance(index, OffsetIndex) else index.append(5, offset)
        assert len(index) == 0


def test_a_failed_write_adds_no_entry() -> None:
    class Full(Growing):
        def write(self, position: int, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    index = OffsetIndex(Full(80), 0, entry_count=0, is_writable=True)
    with pytest.raises(OSError, match="No space"):
        index.append(1, 1)
    assert len(index) == 0


def test_memory_that_is_no_buffer_is_refused() -> None:
    with pytest.raises(TypeError):
        OffsetIndex("text", 0)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="entry_count: got 2, wanted 0 to 1"):
        OffsetIndex(bytes(8), 0, entry_count=2)
