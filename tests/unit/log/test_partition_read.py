"""Reading a log: by offset, up to the high watermark or the last stable offset, a segment at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from logcore import decode_batches
from logcore.errors import OffsetOutOfRangeError, UsageError
from logcore.log.view import Fetch
from tests.logs import BATCH_BYTES, Partition, batch, produced


def fetch(one: Partition, offset: int, bytes_max: int = 1 << 20, *, end: int | None = None, least: bool = False,
          aborted: bool = False) -> Fetch:  # fmt: skip
    view = one.log.view
    end = view.high_watermark if end is None else end
    return view.fetch(offset, bytes_max=bytes_max, end_offset=end, at_least_one=least, want_aborted=aborted)


def data(found: Fetch) -> bytes:
    part = found.slice
    return b"" if part is None else part.segment.file.read(part.position, part.size_in_bytes)


def offsets(found: Fetch) -> list[int]:
    return [record.offset for one in decode_batches(data(found)) for record in one]


def test_reading_at_the_end_gives_nothing_and_outside_is_an_error(tmp_path: Path) -> None:
    """LOG-028."""
    with Partition(tmp_path) as one:
        one.fill(5)
        one.delete_records(2)
        assert fetch(one, 5) == Fetch(5, None, [], False)
        assert one.offsets(5) == []
        for offset in (-1, 0, 1, 6):
            with pytest.raises(OffsetOutOfRangeError):
                fetch(one, offset)
            with pytest.raises(OffsetOutOfRangeError):
                one.offsets(offset)


def test_reading_inside_a_batch_gives_all_of_it(tmp_path: Path) -> None:
    """LOG-029: a compressed one too; rows begin with the offset that was asked for."""
    with Partition(tmp_path) as one:
        one.lead(batch(0, 2, compression="gzip"))
        one.lead(batch(0, 3, compression="lz4"))
        assert [fetch(one, n).first_offset for n in range(5)] == [0, 0, 2, 2, 2]
        assert offsets(fetch(one, 1)) == [0, 1, 2, 3, 4]
        assert one.offsets(1) == [1, 2, 3, 4]


def test_reading_in_a_gap_gives_what_follows(tmp_path: Path) -> None:
    """LOG-030: also in a later segment."""
    with Partition(tmp_path) as one:
        one.follow(batch(0), batch(10))
        one.roll()
        one.roll()
        one.follow(batch(50))
        assert [fetch(one, n).first_offset for n in (1, 10, 11, 30, 50)] == [10, 10, 50, 50, 50]
        assert one.offsets(5) == [10, 50]


def test_how_much_a_read_gives(tmp_path: Path) -> None:
    """LOG-031, SEG-017: cut in the midst of a batch, unless the first one is wanted in any case."""
    with Partition(tmp_path) as one:
        one.fill(3)
        assert fetch(one, 1, 0) == Fetch(1, None, [], False)
        for size in (1, 17, BATCH_BYTES - 1):
            found = fetch(one, 1, size)
            assert (len(data(found)), found.is_first_incomplete) == (size, True)
        assert (len(data(fetch(one, 1, BATCH_BYTES))), fetch(one, 1, BATCH_BYTES).is_first_incomplete) == (
            BATCH_BYTES,
            False,
        )
        assert len(data(fetch(one, 1, BATCH_BYTES + 5))) == BATCH_BYTES + 5
        for size in (0, 1, BATCH_BYTES):
            found = fetch(one, 1, size, least=True)
            assert (offsets(found), found.is_first_incomplete) == ([1], False)


def test_no_more_is_read_than_there_is_and_no_negative_size(tmp_path: Path) -> None:
    """SEG-018."""
    with Partition(tmp_path) as one:
        one.fill(3)
        assert len(data(fetch(one, 1, 10**9))) == 2 * BATCH_BYTES
        assert len(data(fetch(one, 0, 10**9, end=2))) == 2 * BATCH_BYTES
        for least in (True, False):
            with pytest.raises(UsageError):
                fetch(one, 0, -1, least=least)


def test_nothing_at_or_above_the_high_watermark_is_read(tmp_path: Path) -> None:
    """LOG-032, LOG-035, SEG-016: but every offset up to the log's end can be asked for."""
    with Partition(tmp_path) as one:
        one.log.set_high_watermark(0)
        for n in range(10):
            one.fill(1)
            if n % 3 == 2:
                one.roll()
        for watermark in range(11):
            one.log.set_high_watermark(watermark)
            for offset in range(11):
                for least in (True, False):
                    found = fetch(one, offset, least=least)
                    assert found.first_offset == offset
                    assert all(offset <= read < watermark for read in offsets(found))
                    assert bool(offsets(found)) == (offset < watermark)
                assert one.offsets(offset) == list(range(offset, watermark))
            with pytest.raises(OffsetOutOfRangeError):
                fetch(one, 11)


def test_a_committed_read_ends_at_the_last_stable_offset_and_tells_what_was_aborted(tmp_path: Path) -> None:
    """LOG-033: also where the abort lies in a later segment."""
    with Partition(tmp_path) as one:
        one.lead(produced(7, 0, 2, is_transactional=True))
        one.lead(batch(0))
        one.lead(produced(8, 0, 2, is_transactional=True))
        one.roll()
        one.lead(batch(0))
        one.end(7, commit=False)
        one.lead(batch(0, 2))
        stable = one.log.last_stable_offset
        assert stable == 3
        found = fetch(one, 0, end=stable, aborted=True)
        assert offsets(found) == [0, 1, 2]
        assert [(entry.producer_id, entry.first_offset) for entry in found.aborted] == [(7, 0)]
        assert one.offsets(0, "read_committed") == [2]
        one.end(8, commit=True)
        assert one.log.last_stable_offset == one.log.log_end_offset == 10
        assert one.offsets(0, "read_committed") == [2, 3, 4, 5, 7, 8]
        assert one.offsets(4, "read_committed") == [4, 5, 7, 8]
        assert fetch(one, 7, aborted=True).aborted == []
        assert [entry.producer_id for entry in fetch(one, 1, aborted=True).aborted] == [7]


def test_a_bound_in_another_segment(tmp_path: Path) -> None:
    """LOG-034: in a later one all of this one is read, in this one up to it, in an earlier one nothing."""
    with Partition(tmp_path) as one:
        for _ in range(3):
            one.fill(3)
            one.roll()
        assert offsets(fetch(one, 4, end=8)) == [4, 5]
        assert offsets(fetch(one, 4, end=6)) == [4, 5]
        assert offsets(fetch(one, 4, end=5)) == [4]
        assert offsets(fetch(one, 4, end=2)) == []
        assert offsets(fetch(one, 3, end=3)) == []


def test_a_reader_keeps_its_view_while_the_log_changes(tmp_path: Path) -> None:
    """LOG-036: of what is cut off and written anew it never sees a mix."""
    with Partition(tmp_path) as one:
        one.log.set_high_watermark(0)
        one.fill(6)
        one.log.maybe_increment_high_watermark(4)
        view = one.log.view
        one.truncate_to(5)
        one.lead(batch(0, value=b"other"), epoch=1)
        assert [record.value for record in one.read(0)] == [b"%05d" % n for n in range(4)]
        assert view.high_watermark == 4
        one.log.check_cut(view.generation, view.high_watermark)
        assert one.log.generation == 1


def test_a_read_does_not_cross_a_segment(tmp_path: Path) -> None:
    """LOG-037: one that has nothing more is skipped."""
    with Partition(tmp_path) as one:
        one.fill(3)
        one.roll()
        one.follow(batch(10), batch(11))
        assert offsets(fetch(one, 1)) == [1, 2]
        assert offsets(fetch(one, 3)) == [10, 11]
        assert one.offsets(0) == [0, 1, 2, 10, 11]
