"""Each setting that is honoured makes a difference to a log, and the one that its name says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logcore
from logcore.errors import InvalidTimestampError, LogcoreError, MessageTooLargeError, UsageError
from logcore.log.compaction import SLOT_BYTES
from tests.compacted import NOW, Clock, a_pass, batches, core_of, produce, put
from tests.unit.log.test_config import BROKER_CONFIGS, HONOURED, KEPT

TEXT = [(b"k", b"all work and no play makes jack a dull boy %d" % (n * n), NOW) for n in range(2000)]


class Lab:
    """A log with one setting, and others that let it show."""

    def __init__(self, path: Path, name: str, value: object, **others: object) -> None:
        self.clock = Clock()
        config: dict[str, Any] = {key.replace("_", "."): other for key, other in others.items()} | {name: value}
        self.log = logcore.open_log(path, config=config, clock=self.clock)
        self.core = core_of(self.log)

    def kind_of_failure(self, call: Callable[[], object]) -> type[LogcoreError] | None:
        try:
            call()
        except LogcoreError as error:
            return type(error)
        return None

    def sealed(self, *texts: str) -> None:
        """Append batches to a segment each, and begin another."""
        for text in texts:
            put(self.log, text)
            self.log.roll()

    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms

    # --- what shows a setting ---------------------------------------------------------------------------------------

    def compacts(self) -> object:
        return self.kind_of_failure(self.log.compact)

    def size_compressed(self, codec: str) -> int:
        return self.log.append(TEXT, compression=codec).size_in_bytes

    def codec(self) -> object:
        self.log.append(TEXT)
        return batches(self.log)[0].compression

    def horizon(self) -> object:
        self.sealed("a1 b-")
        self.log.compact()
        horizon = batches(self.log)[0].delete_horizon_ms
        assert horizon is not None
        return horizon - NOW

    def files_to_be_deleted(self) -> object:
        self.sealed("a1", "b1")
        self.log.delete_records(2)
        self.wait(10)
        self.log.tick()
        return bool(list(Path(self.log.path).glob("*.deleted")))

    def recovery_point(self) -> object:
        put(self.log, "a1")
        self.wait(10)
        put(self.log, "a2")
        return self.core.recovery_point

    def index_entries(self) -> object:
        for _ in range(4):
            put(self.log, "a1")
        return len(self.core.segments.active.offset_index)

    def is_compacted_after(self, ms: int) -> object:
        self.sealed("a1", "a2")
        self.wait(ms)
        return self.log.compact(only_if_due=True) is not None

    def is_compacted(self) -> object:
        self.sealed("a1", "a2")
        return self.log.compact() is not None

    def takes(self, value: bytes, ms: int = 0) -> object:
        return self.kind_of_failure(lambda: self.log.append([(b"k", value, NOW + ms)]))

    def timestamp(self) -> object:
        self.log.append([(b"k", b"v", 5)])
        return next(self.log.read(0)).timestamp - NOW

    def bytes_allocated(self) -> object:
        put(self.log, "a1")
        return Path(self.log.segments[0].path).stat().st_size > 1 << 19

    def segments_left(self) -> object:
        self.sealed("a1", "b1", "c1")
        self.wait(10)
        self.log.retain()
        return len(self.log.segments)

    def segments_of(self, *sizes: int) -> object:
        for size in sizes:
            self.log.append([(b"k", b"x" * size, NOW)])
        return len(self.log.segments)

    def segments_in_time(self, *waits: int) -> object:
        self.core.draw = lambda bound: bound - 1
        self.core.segments.active.roll_jitter_ms = self.core.draw(self.core.config.segment_jitter_bound_ms or 1)
        for ms in (0, *waits):
            self.wait(ms)
            put(self.log, "a1")
        return len(self.log.segments)

    def is_producer_known(self) -> object:
        put(self.log, "a1", producer_id=7, producer_epoch=0, base_sequence=0)
        self.wait(600_000)  # how often it is looked
        self.log.tick()
        return self.core.producers.last_entry(7) is not None

    def is_transaction_late(self) -> object:
        produce(self.log, 7, "a1")
        return self.core.producers.has_late_transaction(self.clock.now_ms + 300_000 + 10)

    def slots_of_the_map(self) -> object:
        put(self.log, "a1")
        far = logcore.encode_batch([(b"b", b"1", NOW)], base_offset=300_000)
        self.log.append_batches(far, leader_epoch=0, origin="follower")
        self.log.roll()
        return a_pass(self.log).map.slots > (1 << 20) // SLOT_BYTES

    def passes(self) -> object:
        self.sealed("a1 b1", "c1 d1")
        result = self.log.compact(memory_bytes=4 * SLOT_BYTES)
        assert result is not None
        return result.passes


COMPACT = {"cleanup_policy": "compact"}

# A setting: two values, what is seen with each, how, and other settings.
Effect = tuple[object, object, object, object, Callable[[Lab], object], dict[str, object]]
EFFECTS: dict[str, Effect] = {
    "cleanup.policy": ("delete", "compact", UsageError, None, Lab.compacts, {}),
    "compression.gzip.level": (1, 9, "more", "less", lambda lab: lab.size_compressed("gzip"), {}),
    "compression.lz4.level": (1, 17, "more", "less", lambda lab: lab.size_compressed("lz4"), {}),
    "compression.zstd.level": (-50, 19, "more", "less", lambda lab: lab.size_compressed("zstd"), {}),
    "compression.type": ("producer", "zstd", "none", "zstd", Lab.codec, {}),
    "delete.retention.ms": (5, 70, 5, 70, Lab.horizon, COMPACT),
    "file.delete.delay.ms": (10, 11, False, True, Lab.files_to_be_deleted, {}),
    "flush.messages": (1, 3, 2, 0, Lab.recovery_point, {}),
    "flush.ms": (10, 11, 1, 0, Lab.recovery_point, {}),
    "index.interval.bytes": (0, 1000, 3, 0, Lab.index_entries, {}),
    "max.compaction.lag.ms": (9, 10, True, False, lambda lab: lab.is_compacted_after(10),
                              COMPACT | {"min_cleanable_dirty_ratio": 1.0}),
    "max.message.bytes": (100, 200, MessageTooLargeError, None, lambda lab: lab.takes(b"x" * 100), {}),
    "message.timestamp.after.max.ms": (9, 10, InvalidTimestampError, None, lambda lab: lab.takes(b"x", 10), {}),
    "message.timestamp.before.max.ms": (9, 10, InvalidTimestampError, None, lambda lab: lab.takes(b"x", -10), {}),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", 5 - NOW, 0, Lab.timestamp, {}),
    "min.cleanable.dirty.ratio": (0.9, 1.0, True, False, lambda lab: lab.is_compacted_after(0), COMPACT),
    "min.compaction.lag.ms": (0, 10, True, False, Lab.is_compacted, COMPACT),
    "preallocate": (True, False, True, False, Lab.bytes_allocated, {"segment_bytes": 1 << 20}),
    "retention.bytes": (0, -1, 1, 4, Lab.segments_left, {}),
    "retention.ms": (9, 10, 1, 4, Lab.segments_left, {}),
    "segment.bytes": (1 << 20, 1 << 21, 2, 1, lambda lab: lab.segments_of(700_000, 700_000), {}),
    "segment.index.bytes": (24, 2400, 2, 1, lambda lab: lab.segments_of(9, 9, 9, 9), {"index_interval_bytes": 0}),
    "segment.jitter.ms": (11, 10, 2, 1, lambda lab: lab.segments_in_time(91), {"segment_ms": 100}),
    "segment.ms": (9, 10, 2, 1, lambda lab: lab.segments_in_time(10), {}),
    "producer.id.expiration.ms": (600_000, 600_001, False, True, Lab.is_producer_known, {}),
    "transaction.max.timeout.ms": (9, 10, True, False, Lab.is_transaction_late, {}),
    "log.cleaner.dedupe.buffer.size": ((1 << 20) + 1, 1 << 24, False, True, Lab.slots_of_the_map, COMPACT),
    "log.cleaner.io.buffer.load.factor": (0.5, 1.0, 2, 1, Lab.passes, COMPACT),
}  # fmt: skip


def test_every_setting_that_is_honoured_is_here() -> None:
    assert set(EFFECTS) == set(HONOURED) | set(BROKER_CONFIGS)


def test_what_is_accepted_without_effect_is_named_in_the_documents() -> None:
    text = (Path(__file__).parents[3] / "docs" / "library.md").read_text()
    assert [name for name in (*KEPT, *BROKER_CONFIGS) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", EFFECTS)
def test_a_setting_does_what_its_name_says(tmp_path: Path, name: str) -> None:
    first, second, *wanted, look, others = EFFECTS[name]
    seen = []
    for number, value in enumerate((first, second)):
        lab = Lab(tmp_path / f"orders-{number}", name, value, **others)
        with lab.log:
            seen.append(look(lab))
    if wanted == ["more", "less"]:
        wanted, seen = [True], [seen[0] > seen[1]]  # type: ignore[operator]
    assert seen == wanted
