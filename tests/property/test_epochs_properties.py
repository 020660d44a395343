"""The cache of leader epochs against a list that is filtered from end to end, with a file written now and then."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from logcore.log.checkpoints import EpochEntry, parse_epochs, read_epochs
from logcore.log.disk import SYSTEM_DISK
from logcore.log.epochs import LeaderEpochCache
from tests.reference.epochs import RefEpochs

EPOCHS = st.integers(0, 8)
OFFSETS = st.integers(0, 30)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), EPOCHS, OFFSETS),
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(0, 5)),
        st.tuples(st.sampled_from(["truncate_from_end", "truncate_from_start"]), st.integers(-1, 35)),
        st.tuples(st.sampled_from(["clear", "flush", "reload"])),
    ),
    max_size=30,
)


@given(STEPS)
def test_a_cache_is_a_filtered_list(steps: list[tuple[str | int, ...]]) -> None:
    with TemporaryDirectory() as directory:
        path = os.path.join(directory, "leader-epoch-checkpoint")
        cache, model = LeaderEpochCache.load(SYSTEM_DISK, path), RefEpochs()
        written: list[tuple[int, int]] = []
        must_write = False
        for name, *arguments in steps:
            if name in ("assign", "append"):
                epoch, start_offset = arguments
                if name == "append":  # what a log does: epochs and offsets rise
                    last = model.entries[-1] if model.entries else (0, 0)
                    epoch, start_offset = last[0] + epoch, last[1] + start_offset
                before = model.entries
                model.assign(epoch, start_offset)
                must_write |= model.entries is not before
                assert cache.assign(epoch, start_offset) == must_write
            elif name == "flush":
                wrote = cache.flush(SYSTEM_DISK)
                assert wrote or model.entries == written
                written, must_write = model.entries, False
            elif name == "reload":
                cache.flush(SYSTEM_DISK)
                cache = LeaderEpochCache.load(SYSTEM_DISK, path)
                written, must_write = model.entries, False
                assert not cache.is_dirty
            else:
                getattr(cache, name)(*arguments)
                getattr(model, name)(*arguments)
            cache.check_invariants()
            assert list(cache.entries) == model.entries
            assert read_epochs(SYSTEM_DISK, path) == written
            assert cache.is_dirty or model.entries == written
            assert cache.is_dirty or not must_write
        for epoch in range(-2, 12):
            assert cache.end_offset_for(epoch, 99) == model.end_offset_for(epoch, 99)
            assert cache.previous_epoch(epoch) == model.previous_epoch(epoch)
            assert cache.next_epoch(epoch) == model.next_epoch(epoch)
            assert cache.entry_for(epoch) == next((entry for entry in model.entries if entry[0] == epoch), None)
        for offset in range(-1, 40):
            assert cache.epoch_for_offset(offset) == model.epoch_for_offset(offset)


@given(st.lists(st.builds(EpochEntry, EPOCHS, OFFSETS), max_size=12))
def test_a_file_in_any_order_is_as_if_its_lines_were_assigned(lines: list[EpochEntry]) -> None:
    cache, model = LeaderEpochCache("x", lines), RefEpochs()
    for entry in lines:
        model.assign(*entry)
    cache.check_invariants()
    assert list(cache.entries) == model.entries
    assert cache.is_dirty == (model.entries != lines)


@given(st.lists(st.builds(EpochEntry, EPOCHS, OFFSETS), max_size=12), st.integers(-1, 35), st.integers(-1, 35))
def test_a_range_is_what_two_truncations_leave(lines: list[EpochEntry], start_offset: int, end_offset: int) -> None:
    cache = LeaderEpochCache("x", lines)
    cut = LeaderEpochCache("x", cache.entries)
    cut.truncate_from_start(start_offset)
    cut.truncate_from_end(end_offset)
    assert cache.entries_in_range(start_offset, end_offset) == cut.entries


def test_the_file_of_a_hundred_thousand_epochs_is_read_at_once() -> None:
    """Both ways to be slow: to copy for each line, and to search for each line."""
    count = 100_000
    lines = b"".join(b"%d %d\n" % (n, 2 * n) for n in range(count))
    cache = LeaderEpochCache("x", parse_epochs(b"0\n%d\n" % count + lines, "x"))
    assert (len(cache.entries), cache.is_dirty) == (count, False)
    assert cache.epoch_for_offset(count) == count // 2
