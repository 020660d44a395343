"""Look-ups against a linear scan, and any bytes at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logcore._index import OffsetIndex, TimeIndex
from logcore.errors import CorruptIndex
from tests.unit.test_index import Growing

offset_steps = st.lists(st.integers(1, 10_000), max_size=60)
base_offsets = st.integers(0, 2**63 - 2**32)


@given(base_offsets, offset_steps, st.lists(st.integers(-5, 700_000), max_size=20), st.data())
def test_an_offset_index_is_a_linear_scan(base: int, steps: list[int], asked: list[int], data: st.DataObject) -> None:
    index = OffsetIndex(Growing(8 * len(steps)), base, entry_count=0, is_writable=True)
    entries: list[tuple[int, int]] = []
    offset = base - 1
    for n, step in enumerate(steps):
        offset += step
        entries.append((offset, 17 * n))
        index.append(offset, 17 * n)
    if entries and data.draw(st.booleans()):
        cut = data.draw(st.integers(base, offset + 2))
        index.truncate_to(cut)
        entries = [entry for entry in entries if entry[0] < cut]
    assert [index.entry(n) for n in range(len(index))] == entries
    index.check()
    index.check_invariants()
    for target in (*(base + delta for delta in asked), *(entry[0] for entry in entries)):
        found = [entry for entry in entries if entry[0] <= target]
        assert index.lookup(target) == (found[-1] if found else (base, 0))
    for position in asked:
        if position >= 0:
            behind = [entry for entry in entries if entry[1] >= position]
            assert index.upper_bound(position, 0) == (behind[0] if behind else None)


@given(base_offsets, st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=60), st.data())
def test_a_time_index_is_a_linear_scan(base: int, steps: list[tuple[int, int]], data: st.DataObject) -> None:
    index = TimeIndex(Growing(12 * (len(steps) + 1)), base, entry_count=0, is_writable=True)
    entries: list[tuple[int, int]] = []
    timestamp, offset = 0, base
    for later, further in steps:
        timestamp += later
        offset += further
        assert index.append(timestamp, offset) == (not entries or timestamp > entries[-1][0])
        if not entries or timestamp > entries[-1][0]:
            entries.append((timestamp, offset))
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(base, offset + 1))
        index.truncate_to(cut)
        entries = [entry for entry in entries if entry[1] < cut]
    assert [index.entry(n) for n in range(len(index))] == entries
    index.check()
    index.check_invariants()
    for target in range(-1, timestamp + 2, max(1, timestamp // 50)):
        found = [entry for entry in entries if entry[0] <= target]
        assert index.lookup(target) == (found[-1] if found else (-1, base))


@given(st.binary(max_size=200), base_offsets, st.integers(-(2**63), 2**63 - 1))
def test_any_bytes_are_an_index_or_damage_and_every_look_up_answers(memory: bytes, base: int, target: int) -> None:
    for index in (OffsetIndex(memory, base), TimeIndex(memory, base)):
        try:
            index.check()
        except CorruptIndex as error:
            assert error.position is not None
        found = index.lookup(target)
        assert found in [index.entry(n) for n in range(len(index))] or found in [(base, 0), (-1, base)]
