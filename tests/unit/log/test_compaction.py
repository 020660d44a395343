"""Compaction: what of a log is compacted, in which groups, and what is left of it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import logcore
from logcore.errors import CorruptBatch, StorageError, UsageError
from logcore.log.compaction import SLOT_BYTES, CompactionResult, Pass, cleanable, has_expired_horizon, is_due
from logcore.log.segment import OFFSET_SPAN_MAX
from tests.compacted import (
    NOW,
    RETENTION_MS,
    Clock,
    a_pass,
    bases,
    batches,
    checkpointed,
    core_of,
    end,
    left,
    open_compacted,
    produce,
    put,
    shape,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "orders-0"


def three_segments(path: Path, clock: Clock | None = None, **changes: object) -> logcore.Log:
    """Segments at 0, 2 and 4, the last one active."""
    log = open_compacted(path, clock, **changes)
    for text in ("a1 b1", "a2 c1", "a3"):
        log.roll()
        put(log, text)
    return log


# --- what can be compacted ------------------------------------------------------------------------------------------


def test_the_dirty_ratio_is_of_sealed_segments(path: Path) -> None:
    """CLN-001: dirty bytes are those from the first dirty segment on, clean ones lie before, the active one is none."""
    with three_segments(path) as log:
        sizes = [one.size_in_bytes for one in log.segments]
        found = cleanable(core_of(log), 2, NOW)
        assert (found.clean_bytes, found.dirty_bytes) == (sizes[0], sizes[1])
        assert found.dirty_ratio == sizes[1] / (sizes[0] + sizes[1])
        assert log.dirty_ratio == 1.0
        log.compact()
        assert log.dirty_ratio == 0.0


def test_only_a_compacted_log_is_compacted(path: Path) -> None:
    """CLN-003: a log whose policy is to delete is refused, and never due."""
    with three_segments(path, cleanup_policy="delete") as log:
        assert not is_due(core_of(log), cleanable(core_of(log), None, NOW))
        with pytest.raises(UsageError, match=r"cleanup.policy=delete, wanted compact"):
            log.compact()
        assert left(log) == "0:a1 1:b1 2:a2 3:c1 4:a3"


def test_a_checkpoint_out_of_the_log_is_not_believed(path: Path) -> None:
    """CLN-005: below the log start or above the log end, all is dirty from the log start on."""
    with three_segments(path) as log:
        core = core_of(log)
        assert [cleanable(core, offset, NOW).first_dirty_offset for offset in (None, 0, 3, 5, 6)] == [0, 0, 3, 5, 0]
        log.delete_records(1)
        assert [cleanable(core, offset, NOW).first_dirty_offset for offset in (None, 0, 1, 6)] == [1, 1, 1, 1]
        log.compact()
        assert checkpointed(log) == 4


@pytest.mark.parametrize(("checkpoint", "wanted"), [(0, 1), (9, 1), (3, 3)])
def test_a_checkpoint_out_of_the_log_is_written_anew_though_nothing_is_compacted(
    path: Path, checkpoint: int, wanted: int
) -> None:
    """CLN-005: or it would be believed when the log has grown beyond it."""
    with three_segments(path, min_cleanable_dirty_ratio=1.0) as log:
        log.delete_records(1)
    file = path.parent / "cleaner-offset-checkpoint"
    file.write_text(f"0\n1\norders 0 {checkpoint}\n")
    with open_compacted(path, min_cleanable_dirty_ratio=1.0) as log:
        assert log.compact(only_if_due=True) is None
        assert file.read_text() == f"0\n1\norders 0 {wanted}\n"


def test_nothing_is_dirty_when_the_checkpoint_or_the_log_start_is_in_the_active_segment(path: Path) -> None:
    """CLN-006, CLN-007: the active segment is never compacted."""
    with three_segments(path) as log:
        put(log, "a4")
        found = cleanable(core_of(log), 5, NOW)
        assert (found.first_uncleanable_offset, found.dirty_bytes) == (4, 0)
        log.delete_records(5)
        found = cleanable(core_of(log), None, NOW)
        assert (found.first_dirty_offset, found.dirty_bytes) == (5, 0)
        assert log.compact() is None
        assert left(log) == "5:a4"


def test_segments_younger_than_the_lag_wait(path: Path) -> None:
    """CLN-008, CLN-009: the first segment with a record younger than min.compaction.lag.ms, and all behind it."""
    clock = Clock()
    with open_compacted(path, clock, min_compaction_lag_ms=3_600_000) as log:
        for text in ("a1", "a2"):
            put(log, text)
            log.roll()
        put(log, "a3")
        clock.now_ms += 3_600_001
        put(log, "a4")  # into the segment that was active
        log.roll()
        assert [
            cleanable(core_of(log), 0, NOW + more).first_uncleanable_offset for more in (0, 3_599_999, 3_600_000)
        ] == [0, 0, 2]
        log.compact()
        assert left(log) == "1:a2 2:a3 3:a4"


def test_undecided_transactions_wait_however_old_they_are(path: Path) -> None:
    """CLN-008, CLN-010, CLN-043: the last stable offset is a bound, until a marker is below the high watermark."""
    clock = Clock()
    with open_compacted(path, clock, min_compaction_lag_ms=1000) as log:
        put(log, "a0")
        put(log, "a1")
        log.roll()
        produce(log, 7, "a2")
        log.roll()
        put(log, "a3")
        log.roll()
        clock.now_ms += 1_000_000
        assert cleanable(core_of(log), 0, clock.now_ms).first_uncleanable_offset == 2
        log.compact()
        assert left(log) == "1:a1 2:a2 3:a3"
        core_of(log).set_high_watermark(4)
        end(log, 7, commit=True)
        assert cleanable(core_of(log), 0, clock.now_ms).first_uncleanable_offset == 2
        core_of(log).set_high_watermark(5)
        assert cleanable(core_of(log), 0, clock.now_ms).first_uncleanable_offset == 4


def test_a_segment_with_an_undecided_record_is_not_touched_at_all(path: Path) -> None:
    """CLN-008: the bound is taken down to the beginning of its segment."""
    with open_compacted(path) as log:
        put(log, "a1 a2")
        log.roll()
        put(log, "a3")
        produce(log, 7, "b1")
        log.roll()
        assert core_of(log).last_stable_offset == 3
        assert cleanable(core_of(log), 0, NOW).first_uncleanable_offset == 2
        log.compact()
        assert left(log) == "1:a2 2:a3 3:b1"


def test_what_was_dirty_for_too_long_is_compacted_whatever_the_ratio(path: Path) -> None:
    """CLN-011: by the first batch of a dirty segment; the delay is how long ago its time was over."""
    clock = Clock()
    with three_segments(path, clock, max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0) as log:
        assert log.compact(only_if_due=True) is None
        assert cleanable(core_of(log), 0, NOW + 5000).delay_ms == 0
        assert not is_due(core_of(log), cleanable(core_of(log), 0, NOW + 5000))
        assert cleanable(core_of(log), 0, NOW + 5007).delay_ms == 7
        clock.now_ms += 5007
        assert log.compact(only_if_due=True) is not None
        assert left(log) == "1:b1 2:a2 3:c1 4:a3"
        assert log.compact(only_if_due=True) is None


def test_a_compacted_log_rolls_after_the_longest_lag(path: Path) -> None:
    """CLN-012: after the lesser of segment.ms and max.compaction.lag.ms; another log after segment.ms."""
    for number, (policy, segments) in enumerate((("compact", 2), ("delete", 1))):
        clock = Clock()
        with open_compacted(
            path.with_name(f"orders-{number}"),
            clock,
            cleanup_policy=policy,
            segment_ms=9000,
            max_compaction_lag_ms=5000,
        ) as log:
            put(log, "a1")
            clock.now_ms += 5001
            log.tick()
            assert len(log.segments) == segments


@pytest.mark.parametrize(("policy", "count"), [("compact", 0), ("compact,delete", 2)])
def test_retention_of_a_compacted_log_needs_delete_in_its_policy(path: Path, policy: str, count: int) -> None:
    """CLN-013, CLN-075: compact alone deletes nothing for its age; compact,delete does."""
    clock = Clock()
    with three_segments(path, clock, cleanup_policy=policy, retention_ms=60_000, segment_ms=10**9) as log:
        log.compact()
        log.roll()
        clock.now_ms += 60_001
        put(log, "d1")
        log.roll()
        before = len(log.segments)
        assert log.retain() == count
        assert len(log.segments) == before - count
        log.compact()
        assert left(log) == ("5:d1" if count else "1:b1 3:c1 4:a3 5:d1")
        assert checkpointed(log) == 6


# --- the checkpoint -------------------------------------------------------------------------------------------------


def test_where_a_compaction_ended_is_checkpointed_and_goes_with_the_log(path: Path) -> None:
    """CLN-020: in the root's cleaner-offset-checkpoint; the entry goes when the partition is deleted."""
    file = path.parent / "cleaner-offset-checkpoint"
    with three_segments(path) as log:
        assert not file.exists()
        log.compact()
        assert file.read_text() == "0\n1\norders 0 4\n"
    with logcore.open_root(path.parent) as root:
        root.delete_topic("orders")
    assert file.read_text() == "0\n0\n"


def test_truncation_lowers_the_checkpoint(path: Path) -> None:
    """CLN-017: to where the log was cut, if it was higher."""
    with three_segments(path) as log:
        log.compact()
        log.truncate_to(5)
        assert checkpointed(log) == 4
        log.truncate_to(2)
        assert checkpointed(log) == 2
        log.roll()
        put(log, "b2")
        log.roll()
        log.compact()
        assert left(log) == "2:b2"


# --- the map --------------------------------------------------------------------------------------------------------


def test_offsets_far_apart_are_mapped(path: Path) -> None:
    """CLN-029: 0 and 7206178 in one segment."""
    with open_compacted(path, segment_index_bytes=24) as log:
        put(log, "a1")
        for offset, key in ((7206178, b"b"), (7206179, b"a")):
            log.append_batches(
                logcore.encode_batch([(key, b"2", NOW)], base_offset=offset), leader_epoch=0, origin="follower"
            )
        log.roll()
        one = a_pass(log)
        assert one.build_map() == 7206180
        assert [one.map.get(key) for key in (b"a", b"b")] == [7206179, 7206178]


def test_gaps_between_segments_are_passed_over(path: Path) -> None:
    """CLN-030: what lies before the next segment is compacted, records or not."""
    with open_compacted(path) as log:
        put(log, "a1")
        for offset in (10, 20):
            log.roll()
            log.append_batches(
                logcore.encode_batch([(b"a", b"2", NOW)], base_offset=offset), leader_epoch=0, origin="follower"
            )
        log.roll()
        assert a_pass(log).build_map() == 21
        result = log.compact()
        assert result is not None
        assert result.end_offset == checkpointed(log) == 21
        assert left(log) == "20:a2"


# --- what is left ---------------------------------------------------------------------------------------------------


def test_a_key_like_that_of_a_marker_is_not_taken_for_one(path: Path) -> None:
    """CLN-034: a record whose key is the bytes of a commit marker's key."""
    with open_compacted(path) as log:
        produce(log, 7, "a1")
        end(log, 7, commit=True)
        marker_key = b"\x00\x00\x00\x01"
        log.append([(marker_key, b"1")])
        log.append([(marker_key, b"2")])
        log.roll()
        log.compact()
        assert shape(log) == "d0 m1 d3"


def test_segments_behind_the_bound_are_as_they_were(path: Path) -> None:
    """CLN-036: the same object with the same file, not a copy."""
    with open_compacted(path) as log:
        put(log, "a1 a2")
        log.roll()
        produce(log, 7, "a3 a4")
        log.roll()
        put(log, "a5 a6")
        log.roll()
        before = core_of(log).segments.view.segments[1:]
        log.compact()
        assert core_of(log).segments.view.segments[1:] == before
        assert left(log) == "1:a2 2:a3 3:a4 4:a5 5:a6"


def test_a_segment_of_which_nothing_is_left_stays_until_it_has_a_neighbour(path: Path) -> None:
    """CLN-037: empty, at its base offset; the next compaction that can merges it."""
    with open_compacted(path, internal_segment_bytes=150, max_message_bytes=140) as log:
        for text in ("a1" + "x" * 50, "a2" + "x" * 50, "b1"):
            put(log, text)
            log.roll()
        log.compact()
        assert [(one.base_offset, one.size_in_bytes > 0) for one in log.segments][:2] == [(0, False), (1, True)]
        put(log, "c1")
        log.roll()
        log.compact()
        assert bases(log)[0] == 0
        assert log.segments[0].size_in_bytes > 0
    with open_compacted(path) as log:
        assert [record.offset for record in log.read(0)] == [1, 2, 3]


def test_a_compacted_segment_is_as_old_as_the_last_that_it_was_made_of(path: Path) -> None:
    """CLN-042: by the time of its files."""
    with three_segments(path) as log:
        core = core_of(log)
        for segment, modified_ms in zip(core.segments, (NOW - 9000, NOW - 5000), strict=False):
            segment.set_modified(modified_ms)
        log.compact()
        assert bases(log) == [0, 4]
        assert core.segments.first.modified_ms == NOW - 5000


def test_batches_of_nobody_leave_nothing(path: Path) -> None:
    """CLN-055: a superseded batch without a producer id goes whole; one that ends the round stays, empty."""
    with open_compacted(path) as log:
        for text in ("a1", "a2", "a3", "b1", "a4"):
            put(log, text)
        log.roll()
        log.compact()
        assert shape(log) == "d3 d4"


# --- groups ---------------------------------------------------------------------------------------------------------


def groups(log: logcore.Log) -> list[list[int]]:
    one = a_pass(log)
    return [[segment.base_offset for segment in group.segments] for group in one.groups(log.log_end_offset)]


def test_segments_are_grouped_by_sizes_and_in_order(path: Path) -> None:
    """CLN-056, CLN-057: as long as logs and indexes fit one segment; a limit of 1 leaves each by itself."""
    with open_compacted(path) as log:
        for n in range(6):
            put(log, f"a{n}")
            put(log, f"b{n}")
            log.roll()
        core = core_of(log)
        size = log.segments[0].size_in_bytes
        assert groups(log) == [[0, 2, 4, 6, 8, 10]]
        for limit, wanted in (
            (14, [[0], [2], [4], [6], [8], [10]]),
            (2 * size - 1, [[0], [2], [4], [6], [8], [10]]),
            (2 * size, [[0, 2], [4, 6], [8, 10]]),
            (4 * size, [[0, 2, 4, 6], [8, 10]]),
        ):
            core.config = core.config.with_changes({"internal.segment.bytes": limit})
            assert groups(log) == wanted
        core.config = core.config.with_changes({"internal.segment.bytes": 1 << 20})
        index, time_index = core.segments.first.index_size_in_bytes
        assert index > 0
        core.config = core.config.with_changes({"segment.index.bytes": 3 * max(index, time_index)})
        assert groups(log) == [[0, 2, 4], [6, 8, 10]]


def test_a_group_spans_no_more_offsets_than_an_index_can_say(path: Path) -> None:
    """CLN-056, CLN-058: the last offset of a segment is the one before the next, whatever its index says."""
    for number, (base, wanted) in enumerate(
        ((OFFSET_SPAN_MAX, [[0, 1, OFFSET_SPAN_MAX]]), (OFFSET_SPAN_MAX + 1, [[0, 1], [OFFSET_SPAN_MAX + 1]]))
    ):
        with open_compacted(path.with_name(f"far-{number}"), index_interval_bytes=4096) as log:
            put(log, "a1")
            log.roll()
            put(log, "a2")
            core_of(log).roll(NOW, base)
            log.append_batches(
                logcore.encode_batch([(b"b", b"1", NOW)], base_offset=base), leader_epoch=0, origin="follower"
            )
            log.roll()
            assert not len(core_of(log).segments.first.offset_index)
            found = groups(log)
            # The segment at 1 ends just before the next: at OFFSET_SPAN_MAX - 1, or at OFFSET_SPAN_MAX.
            assert found == wanted


def test_an_empty_segment_joins_a_group_however_far_it_is(path: Path) -> None:
    """CLN-059, CLN-060: and the new segment begins where the first of its group began."""
    with open_compacted(path) as log:
        put(log, "a1")
        core = core_of(log)
        for base in (OFFSET_SPAN_MAX, 3 * OFFSET_SPAN_MAX):
            core.log_end_offset = base
            core.segments.active.seal()
            segment = core.new_segment(base, NOW)
            segment.create()
            core.segments.add(segment)
        put(log, "b1")
        log.roll()
        assert groups(log) == [[0, OFFSET_SPAN_MAX], [3 * OFFSET_SPAN_MAX]]
        log.compact()
        assert bases(log) == [0, 3 * OFFSET_SPAN_MAX, 3 * OFFSET_SPAN_MAX + 1]


# --- large and damaged batches --------------------------------------------------------------------------------------


def test_batches_larger_than_a_read_and_than_the_limit_of_today_are_compacted(path: Path) -> None:
    """CLN-061, CLN-062: max.message.bytes was lowered after they were written."""
    large = b"x" * (5 << 20)
    with open_compacted(path, max_message_bytes=8 << 20) as log:
        log.append([(b"a", large)])
        log.append([(b"a", large + b"2"), (b"b", b"1")])
        log.roll()
    with open_compacted(path, max_message_bytes=1000) as log:
        log.compact()
        assert [(record.offset, len(record.value or b"")) for record in log.read(0)] == [(1, len(large) + 1), (2, 1)]


@pytest.mark.parametrize(("position", "byte"), [(16, 255), (8, 0x70)])
def test_damage_ends_a_compaction_and_changes_nothing(path: Path, position: int, byte: int) -> None:
    """CLN-063: an unknown magic, and a size beyond the end of the segment; the error says where."""
    with three_segments(path) as log:
        file = Path(log.segments[0].path)
        data = bytearray(file.read_bytes())
        data[position] = byte
        file.write_bytes(data)
        names = sorted(one.name for one in path.iterdir())
        for _ in range(2):
            with pytest.raises(CorruptBatch) as caught:
                log.compact()
            assert str(file) in str(caught.value)
            assert sorted(one.name for one in path.iterdir()) == names
        assert bases(log) == [0, 2, 4]
        put(log, "d1")


@pytest.mark.parametrize("rest", [b"c", b"a"])
def test_a_segment_whose_offsets_do_not_fit_is_split_and_compacted(path: Path, rest: bytes) -> None:
    """CLN-071: found while compacting. What was begun is dropped, and compaction begins again."""
    far = OFFSET_SPAN_MAX + 6
    with open_compacted(path) as log:
        put(log, "a1")
        core_of(log).roll(NOW, far + 5)
        core_of(log).log_end_offset = far + 5
        put(log, "b1")
        log.roll()
    with (path / f"{0:020}.log").open("ab") as file:
        file.write(logcore.encode_batch([(rest, b"1", NOW)], base_offset=far))
    with open_compacted(path) as log:
        before = log.read(0)
        assert log.compact() is not None
        kept = "" if rest == b"a" else "0:a1 "
        assert left(log) == f"{kept}{far}:{rest.decode()}1 {far + 5}:b1"
        assert bases(log) == [0, far, far + 6]
        # A reader from before that has opened nothing sees what is there now, and nothing less.
        assert [record.offset for record in before] == [*([0] if kept else []), far, far + 5]
        assert not list(path.glob("*.cleaned"))
    with open_compacted(path) as log:
        assert not log.recovery
        assert left(log) == f"{kept}{far}:{rest.decode()}1 {far + 5}:b1"


def two_logs(root: logcore.LogRoot, *texts: str) -> list[logcore.Log]:
    """Partitions of one topic, each with the batches of a text, sealed."""
    logs = [root.log("orders", number, create=True) for number in range(len(texts))]
    for log, text in zip(logs, texts, strict=True):
        for word in text.split():
            put(log, word)
        log.roll()
    return logs


def test_a_log_that_cannot_be_compacted_does_not_keep_others_from_it(path: Path) -> None:
    """CLN-004, CLN-021: the background goes on with the next one, and the error names the file. It is not tried again
    each second, but listed, until the log is closed.
    """
    settings = {"cleanup.policy": "compact"}
    with logcore.open_root(path.parent, config=settings, clock=lambda: NOW) as root:
        logs = two_logs(root, "a1 a2 b1", "a1 a2 b1")
        file = Path(logs[0].segments[0].path)
        file.write_bytes(file.read_bytes().replace(b"\x02", b"\xff", 1))
        with pytest.raises(CorruptBatch, match="orders-0"):
            root._tick()
        assert left(logs[1]) == "1:a2 2:b1"
        assert {key: type(error) for key, error in root.uncompactable.items()} == {("orders", 0): CorruptBatch}
        root._tick()
        with pytest.raises(CorruptBatch):
            logs[0].compact()
        logs[0].close()
        assert root.uncompactable == {}


def test_a_disk_that_refuses_once_is_asked_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("append", errno=errno.ENOSPC, path=str(path))

    with logcore.open_root(path.parent, config={"cleanup.policy": "compact"}, clock=lambda: NOW) as root:
        [log] = two_logs(root, "a1 a2 b1")
        with monkeypatch.context() as patch:
            patch.setattr(Pass, "write", refuse)
            with pytest.raises(StorageError):
                root._tick()
        assert root.uncompactable == {}
        root._tick()
        assert left(log) == "1:a2 2:b1"


def test_the_dirtiest_log_is_compacted_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLN-002: of those that are over their ratio, strictly."""
    order = []
    compact = logcore.Log.compact

    def noted(log: logcore.Log, **options: Any) -> CompactionResult | None:
        order.append(log.partition)
        return compact(log, **options)

    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.5}
    with logcore.open_root(path.parent, config=config, clock=lambda: NOW) as root:
        logs = two_logs(root, "a1", "a1", "a1", "a1")
        root._tick()
        for log, count in zip(logs, (1, 2, 4, 3), strict=True):
            for _ in range(count):
                put(log, "b1")
            log.roll()
        assert [log.dirty_ratio for log in logs] == [1 / 2, 2 / 3, 4 / 5, 3 / 4]
        monkeypatch.setattr(logcore.Log, "compact", noted)
        root._tick()
        assert order == [2, 3, 1]


# --- again ----------------------------------------------------------------------------------------------------------


def test_a_horizon_whose_tombstones_are_gone_asks_for_nothing(path: Path) -> None:
    """A batch keeps its horizon when its tombstones have gone: that alone is no reason to compact again."""
    clock = Clock()
    with open_compacted(path, clock) as log:
        put(log, "a1 b-")
        put(log, "c1")
        log.roll()
        log.compact()
        assert log.compact() is None
        assert not has_expired_horizon(core_of(log), 3, clock.now_ms + RETENTION_MS - 1)
        clock.now_ms += RETENTION_MS
        assert log.compact() is not None
        assert left(log) == "0:a1 2:c1"
        assert batches(log)[0].delete_horizon_ms == NOW + RETENTION_MS
        assert log.compact() is None


def test_a_small_map_takes_more_passes_and_comes_to_the_same(path: Path) -> None:
    """CLN-030: each pass goes on where the one before ended."""
    with three_segments(path) as log:
        result = log.compact(memory_bytes=2 * SLOT_BYTES)
        assert result is not None
        assert result.passes > 1
        assert result.end_offset == 4
        assert left(log) == "1:b1 2:a2 3:c1 4:a3"
