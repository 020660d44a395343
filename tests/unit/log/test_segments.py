"""The segments of a log, by base offset."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logcore.errors import InvariantError, StorageError, UsageError
from logcore.log.segment import Segment
from logcore.log.segments import Segments, SegmentsView


def one(base_offset: int, **more: Any) -> Segment:
    return SimpleNamespace(base_offset=base_offset, **more)  # type: ignore[return-value]


def many(*bases: int) -> Segments:
    segments = Segments()
    for base in bases:
        segments.add(one(base))
    return segments


def bases(found: list[Segment]) -> list[int]:
    return [segment.base_offset for segment in found]


def test_segments_are_kept_in_order_and_one_takes_the_place_of_another() -> None:
    """SEG-057."""
    segments = many(7, 1, 5, 3)
    assert bases(list(segments)) == [1, 3, 5, 7]
    assert (segments.first.base_offset, segments.active.base_offset, len(segments)) == (1, 7, 4)
    old, new = segments.view.segments[1], one(3)
    assert segments.add(new) is old
    assert segments.view.segments[1] is new
    assert len(segments) == 4
    assert 3 in segments
    assert 4 not in segments
    segments.remove(old)
    assert len(segments) == 4
    segments.remove(new)
    assert bases(list(segments)) == [1, 5, 7]
    segments.check_invariants()


def test_the_segments_that_overlap_a_range() -> None:
    """SEG-058."""
    segments = many(1, 3, 5, 7)
    assert bases(segments.between(2, 6)) == [1, 3, 5]
    assert bases(segments.between(3, 5)) == [3]
    assert bases(segments.between(0, 1)) == []
    assert bases(segments.between(0, 2)) == [1]
    assert bases(segments.between(7, 100)) == [7]
    assert bases(segments.between(100, 101)) == [7]
    assert segments.between(4, 4) == []
    with pytest.raises(UsageError):
        segments.between(5, 4)


def test_the_segments_that_are_not_written_to() -> None:
    """SEG-059."""
    segments = many(1, 3, 5, 7)
    assert bases(segments.sealed_from(0)) == [1, 3, 5]
    assert bases(segments.sealed_from(4)) == [3, 5]
    assert bases(segments.sealed_from(7)) == []
    with pytest.raises(UsageError):
        segments.sealed_from(8)
    with pytest.raises(UsageError):
        Segments().sealed_from(0)


def test_neighbours_of_an_offset() -> None:
    """SEG-060."""
    segments = many(1, 3, 5, 7)

    def base(found: Segment | None) -> int | None:
        return None if found is None else found.base_offset

    assert [base(segments.floor(n)) for n in (0, 1, 2, 3, 9)] == [None, 1, 1, 3, 7]
    assert [base(segments.lower(n)) for n in (1, 2, 3, 9)] == [None, 1, 1, 7]
    assert [base(segments.higher(n)) for n in (0, 1, 4, 5, 7, 9)] == [1, 3, 5, 7, None, None]
    assert base(Segments().floor(3)) is None


def test_the_size_of_many_large_segments() -> None:
    """SEG-061."""
    segments = Segments()
    for base in (0, 1):
        segments.add(one(base, size=2**31 - 1))
    assert segments.size == 2**32 - 2


def test_closing_goes_on_after_one_that_fails(tmp_path: Path) -> None:
    """SEG-062: the first failure is raised when all are closed."""
    closed: list[int] = []
    segments = Segments()

    def close(base: int) -> None:
        closed.append(base)
        if base in (1, 2):
            raise StorageError("close", errno=5, path=str(base))

    for base in range(4):
        segments.add(one(base, close=lambda base=base: close(base)))
    with pytest.raises(StorageError) as caught:
        segments.close()
    assert caught.value.path == "1"
    assert closed == [0, 1, 2, 3]


def test_a_view_stays_what_it_was() -> None:
    segments = many(1, 3)
    view = segments.view
    segments.replace(list(segments), [one(2)])
    segments.add(one(9))
    assert view.base_offsets == (1, 3)
    assert [view.floor_index(n) for n in (0, 1, 2, 3, 99)] == [-1, 0, 0, 1, 1]
    assert segments.view.base_offsets == (2, 9)


def test_a_list_out_of_order_is_our_bug() -> None:
    segments = many(1, 3)
    segments.view = SegmentsView(segments.view.segments[::-1], (3, 1))
    with pytest.raises(InvariantError):
        segments.check_invariants()
