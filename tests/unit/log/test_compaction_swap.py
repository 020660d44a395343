"""The swap of a compaction: in one step for readers, and after a crash the old log or the new one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logcore
from logcore.log.disk import SystemDisk
from tests.compacted import NOW, Clock, a_pass, bases, core_of, end, left, open_compacted, produce, put

OLD = "0:a1 1:b1 3:a2 4:c1 5:a3"
NEW = "1:b1 4:c1 5:a3"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "orders-0"


def written(path: Path, clock: Clock | None = None, **changes: object) -> logcore.Log:
    """Segments at 0, 3 and 6, the last one active and empty, and a gap at 2."""
    log = open_compacted(path, clock, **changes)
    put(log, "a1 b1")
    core_of(log).roll(NOW, 3)
    core_of(log).log_end_offset = 3
    put(log, "a2 c1")
    put(log, "a3")
    log.roll()
    return log


def test_a_crash_at_any_rename_leaves_the_old_log_or_the_new_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLN-066, CLN-067, CLN-068: old as long as a file is .cleaned, new once all are .swap."""
    images: list[Path] = []
    renames: list[tuple[str, str]] = []
    rename = SystemDisk.rename

    def spied(self: SystemDisk, source: str, target: str) -> None:
        if Path(source).parent == path and not source.endswith(".snapshot"):
            images.append(tmp_path / f"image-{len(images)}")
            shutil.copytree(path.parent, images[-1])
            renames.append((Path(source).name, Path(target).name))
        rename(self, source, target)

    with written(path) as log:
        with monkeypatch.context() as patch:
            patch.setattr(SystemDisk, "rename", spied)
            log.compact()
        assert left(log) == NEW
    suffixes = [(Path(source).suffix, Path(target).suffix) for source, target in renames]
    first_swapped = max(n for n, (source, _) in enumerate(suffixes) if source == ".cleaned") + 1
    assert {target for _, target in suffixes[:first_swapped]} == {".swap"}
    assert {source for source, _ in suffixes[-3:]} == {".swap"}
    assert all(target == ".deleted" for _, target in suffixes[first_swapped:-3])
    for number, image in enumerate(images):
        with open_compacted(image / path.name) as log:
            assert left(log) == (OLD if number < first_swapped else NEW), renames[number]
            assert log.log_end_offset == 6
            put(log, "d1")
        assert not [one for one in (image / path.name).iterdir() if one.suffix in (".swap", ".cleaned", ".deleted")]


def test_segments_that_retention_took_meanwhile_stay_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLN-069: each file is renamed to .deleted once, and the new segment takes the place of what is left."""
    with written(path) as log:
        one = a_pass(log)
        [group] = one.groups(one.build_map())
        cleaned = one.write(group)
        log.delete_records(3)
        deleted: list[str] = []
        rename = SystemDisk.rename

        def spied(self: SystemDisk, source: str, target: str) -> None:
            if target.endswith(".log.deleted"):
                deleted.append(Path(source).name)
            rename(self, source, target)

        monkeypatch.setattr(SystemDisk, "rename", spied)
        assert one.swap(group, cleaned)
        assert deleted == ["00000000000000000003.log"]
        assert left(log) == "4:c1 5:a3"
        assert log.log_start_offset == 3
    with open_compacted(path) as log:
        assert left(log) == "4:c1 5:a3"


def test_a_log_that_was_cut_meanwhile_keeps_what_it_has(path: Path) -> None:
    """CLN-070: the new segment's files go, nothing else changes."""
    with written(path) as log:
        one = a_pass(log)
        [group] = one.groups(one.build_map())
        cleaned = one.write(group)
        log.truncate_to(5)
        assert not one.swap(group, cleaned)
        assert left(log) == "0:a1 1:b1 3:a2 4:c1"
        assert not list(path.glob("*.cleaned"))


def test_a_compaction_that_fails_removes_what_it_has_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLN-070: whatever it fails by."""

    def interrupted(done: int, size: int) -> None:
        if list(path.glob("*.cleaned")):
            raise KeyboardInterrupt

    with written(path) as log:
        with pytest.raises(KeyboardInterrupt):
            log.compact(progress=interrupted)
        assert not list(path.glob("*.cleaned"))
        assert left(log) == OLD


def test_a_compacted_segment_of_a_preallocated_log_has_its_real_size(path: Path) -> None:
    """CLN-072: no zeros lie behind its batches."""
    with written(path, preallocate=True) as log:
        log.compact()
        first = log.segments[0]
        assert Path(first.path).stat().st_size == first.size_in_bytes > 0
        assert left(log) == NEW


def test_snapshots_of_merged_segments_go(path: Path) -> None:
    """CLN-073: one for each segment that is left stays, but for the first, which has none."""
    clock = Clock()
    with open_compacted(path, clock) as log:
        for n in range(4):
            put(log, f"a{n}", producer_id=7, producer_epoch=0, base_sequence=n)
            log.roll()
        assert sorted(one.name for one in path.glob("*.snapshot")) == [f"{n:020}.snapshot" for n in (1, 2, 3, 4)]
        log.compact()
        assert bases(log) == [0, 4]
        assert sorted(one.name for one in path.glob("*.snapshot")) == [f"{4:020}.snapshot"]
        clock.now_ms += 60_000
        log.tick()
        assert not list(path.glob("*.deleted"))


def test_the_index_of_aborted_transactions_comes_along(path: Path) -> None:
    """CLN-045: kept by a pass that meets batches of the aborted transaction, also an empty one."""
    with open_compacted(path) as log:
        produce(log, 7, "a1")
        end(log, 7, commit=False)
        put(log, "b1")
        log.roll()
        assert len(core_of(log).view.aborted(0, 3)) == 1
        log.compact()
        assert len(core_of(log).view.aborted(0, 3)) == 1
        assert (path / "00000000000000000000.txnindex").exists()
        put(log, "b2")
        log.roll()
        log.compact()
        # The empty batch that is left of the producer's last sequence still belongs to the aborted transaction.
        assert len(core_of(log).view.aborted(0, 4)) == 1
