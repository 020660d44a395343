"""Worker: one process that uses a log, does anything a log can do, and notes what it was promised.

What was promised is an Expected: the rows that the log holds, where it begins, and up to where a flush has made it
survive the machine. While a call is under way, `attempt` says what it may have done already.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from logcore import Batch, encode_transaction_marker
from logcore.log import compaction, retention, truncation
from logcore.log.config import LogConfig
from logcore.log.disk import Disk
from logcore.log.names import TopicPartition
from logcore.log.partition import PartitionLog
from logcore.log.root import Chance, Root
from tests.crash.rules import Row, batches_of, rows_of

ROOT = "/data"
PARTITION = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
KEYS = [b"a", b"b", b"c", b"d", b"e"]
PRODUCERS = (100, 101, 102)


@dataclass
class Expected:
    """What a log must hold after a crash."""

    rows: list[Row] = field(default_factory=list)
    start: int = 0
    flushed: int = 0  # rows before this offset survive the machine
    is_known: bool = False  # whether the log was ever opened
    undone: Attempt | None = None  # what may still happen until it is opened: see check_state_of()

    @property
    def end(self) -> int:
        return self.rows[-1].offset + 1 if self.rows else self.start


@dataclass
class Attempt:
    """What a call that did not return may have done."""

    what: str
    rows: list[Row] = field(default_factory=list)  # an append: these, or the first of them
    cut: int | None = None  # a truncation: everything from here on may be gone
    start: int | None = None  # a deletion: the log may begin here, or anywhere before
    is_compaction: bool = False


def config_of(rng: random.Random) -> LogConfig:
    """A log of small segments and dense indexes; every kind of it."""
    policy = rng.choice(["delete", "delete", "compact", "compact,delete"])
    return LogConfig.of(
        {
            "internal.segment.bytes": rng.choice([600, 1200, 3000]),
            "segment.index.bytes": rng.choice([48, 240, 1200]),
            "index.interval.bytes": rng.choice([0, 100, 400]),
            "cleanup.policy": policy,
            "retention.bytes": rng.choice([-1, 2500]) if "delete" in policy else -1,
            "retention.ms": rng.choice([-1, 40_000]) if "delete" in policy else -1,
            "delete.retention.ms": rng.choice([0, 20_000]),
            "file.delete.delay.ms": rng.choice([0, 5_000]),
            "flush.messages": rng.choice([0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 7]),
            "segment.jitter.ms": rng.choice([0, 1000]),
            "preallocate": rng.random() < 0.2,
            "max.message.bytes": rng.choice([250, 590]),
        }
    )


def chance_of(rng: random.Random) -> Chance:
    return Chance(rng.randrange, rng.randbytes)


class Worker:
    """A process with a log. `expected` and `attempt` are what a crash has to leave."""

    def __init__(
        self, disk: Disk, rng: random.Random, config: LogConfig, expected: Expected | None = None, now_ms: int = NOW_MS
    ) -> None:
        self.disk = disk
        self.rng = rng
        self.config = config
        self.now_ms = now_ms
        self.expected = expected or Expected()
        self.attempt: Attempt | None = None
        self.root: Root
        self.log: PartitionLog
        self.number = 0
        self.done: list[str] = []  # what was asked, for whoever looks for a failure

    # ---------------------------------------------------------------------------------------------------- open, close

    def open(self) -> None:
        self.attempt = self.expected.undone or Attempt("open")
        self.root = Root(self.disk, ROOT, chance_of(self.rng), self.now_ms)
        self.log, _ = self.root.open(PARTITION, self.config, now_ms=self.now_ms, create=True)
        self.log.producers.is_verification_enabled = False
        self.expected = replace(self.expected, is_known=True, undone=None)
        self.attempt = None

    def close(self) -> None:
        self.attempt = Attempt("close")
        self.root.close(self.now_ms)
        self._flushed()

    def reopen(self) -> None:
        self.close()
        self.open()

    # ----------------------------------------------------------------------------------------------------- the model

    def _flushed(self) -> None:
        self.expected = replace(self.expected, flushed=self.expected.end)
        self.attempt = None

    def _appended(self, rows: list[Row]) -> None:
        expected = self.expected
        self.expected = replace(expected, rows=[*expected.rows, *rows])
        self.attempt = None
        self._promised()

    def _promised(self) -> None:
        """Take over up to where the log says that it is on the disk: flush.messages, and rolls."""
        flushed = max(self.expected.flushed, self.log.recovery_point)
        self.expected = replace(self.expected, flushed=flushed)
        self.attempt = None

    def _taken(self) -> None:
        """Take over what the log holds and where it begins, from its files: a call that removes things has returned."""
        kept = {row.offset for row in held_rows(self.log)}
        start = self.log.log_start_offset
        rows = [row for row in self.expected.rows if row.offset >= start and row.offset in kept]
        flushed = min(self.expected.flushed, self.log.log_end_offset)
        self.expected = Expected(rows, start, flushed, True)
        self.attempt = None

    # ----------------------------------------------------------------------------------------------------------- work

    def step(self) -> None:
        """Do something."""
        self.now_ms += self.rng.choice([1, 10, 3000])
        steps: list[tuple[int, Callable[[], None]]] = [
            (30, self.append),
            (8, self.append_idempotent),
            (10, self.append_transactional),
            (8, self.end_transaction),
            (8, self.flush),
            (5, self.roll),
            (4, self.truncate),
            (2, self.delete_records),
            (3, self.retain),
            (8 if self.config.is_compacted else 0, self.compact),
            (4, self.checkpoint),
            (4, self.tick),
            (2, self.reopen),
        ]
        chosen = self.rng.choices([step for _, step in steps], [weight for weight, _ in steps])[0]
        self.done.append(chosen.__name__)
        chosen()

    def _records(self, count: int) -> list[tuple[bytes, bytes | None, int]]:
        rng = self.rng
        made = []
        for _ in range(count):
            self.number += 1
            value: bytes | None = b"%d-%d." % (self.now_ms, self.number) + bytes(rng.choice([0, 20, 100]))
            if rng.random() < 0.1:
                value = None
            made.append((rng.choice(KEYS), value, self.now_ms - rng.choice([0, 0, 5000])))
        return made

    def _rows(self, records: list[tuple[bytes, bytes | None, int]]) -> list[Row]:
        first = self.log.log_end_offset
        return [Row(first + at, key, value) for at, (key, value, _) in enumerate(records)]

    def append(self) -> None:
        records = self._records(self.rng.choice([1, 1, 2, 5]))
        rows = self._rows(records)
        self.attempt = Attempt("append", rows)
        codec = self.rng.choice([None, None, "zstd"])
        self.log.append_records(records, now_ms=self.now_ms, compression=codec)
        self._appended(rows)

    def _next_sequence(self, producer_id: int, epoch: int) -> int:
        entry = self.log.producers.last_entry(producer_id)
        if entry is None or entry.producer_epoch != epoch or not entry.kept:
            return 0
        return entry.last_sequence + 1

    def _epoch(self, producer_id: int) -> int:
        entry = self.log.producers.last_entry(producer_id)
        return 0 if entry is None else entry.producer_epoch

    def append_idempotent(self, *, is_transactional: bool = False) -> None:
        producer_id = self.rng.choice(PRODUCERS) + (1000 if is_transactional else 0)
        epoch = self._epoch(producer_id)
        if self.log.producers.has_ongoing_transaction(producer_id, epoch) and not is_transactional:
            return
        records = [(key, value and value[:20], time) for key, value, time in self._records(self.rng.choice([1, 2]))]
        rows = self._rows(records)
        self.attempt = Attempt("append of a producer", rows)
        result = self.log.append_records(
            records,
            now_ms=self.now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._next_sequence(producer_id, epoch),
            is_transactional=is_transactional,
        )
        assert not result.is_duplicate
        self._appended(rows)

    def append_transactional(self) -> None:
        self.append_idempotent(is_transactional=True)

    def end_transaction(self) -> None:
        """Commit or abort one that is open; transaction version 1, which keeps the producer's epoch."""
        log = self.log
        opened = [
            entry for entry in log.producers.active_producers.values() if entry.current_txn_first_offset is not None
        ]
        if not opened:
            return
        entry = self.rng.choice(opened)
        is_abort = self.rng.random() < 0.5
        marker = encode_transaction_marker(
            entry.producer_id,
            entry.producer_epoch,
            commit=not is_abort,
            coordinator_epoch=1,
            timestamp=self.now_ms,
        )
        offset = log.log_end_offset
        rows = [Row(offset, b"ABORT" if is_abort else b"COMMIT", None, True)]
        self.attempt = Attempt("end of a transaction", rows)
        log.append_batches(
            marker, leader_epoch=log.leader_epoch, now_ms=self.now_ms, origin="coordinator", transaction_version=1
        )
        self._appended(rows)

    def flush(self) -> None:
        self.attempt = Attempt("flush")
        assert self.log.flush(self.now_ms) >= self.log.written_end_offset
        self._flushed()

    def roll(self) -> None:
        self.attempt = Attempt("roll")
        self.log.roll(self.now_ms)
        self._promised()

    def truncate(self) -> None:
        log = self.log
        low = max(log.log_start_offset - (5 if self.rng.random() < 0.1 else 0), 0)
        self.truncate_to(self.rng.randint(low, log.log_end_offset))

    def truncate_to(self, offset: int) -> None:
        log = self.log
        # The batch that has the offset goes whole.
        cut = min((batch.base_offset for batch in held_batches(log) if batch.last_offset >= offset), default=offset)
        self.attempt = Attempt("truncation", cut=min(cut, offset), start=offset)
        rows = [row for row in self.expected.rows if row.offset < cut]
        truncation.truncate_to(log, offset, self.now_ms)
        self._taken()
        assert self.expected.rows == rows

    def delete_records(self) -> None:
        log = self.log
        offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
        if self.rng.random() < 0.7:
            offset = min(offset, log.log_start_offset + 6)
        self.delete_before(offset)

    def delete_before(self, offset: int) -> None:
        log = self.log
        self.attempt = Attempt("deletion of records", start=offset)
        assert retention.delete_records(log, offset, self.now_ms) == offset
        self._taken()

    def retain(self) -> None:
        self.attempt = Attempt("retention", start=self.log.log_end_offset)
        retention.retain(self.log, self.now_ms)
        self._taken()

    def compact(self) -> None:
        self.compact_with(self.rng.choice([None, 24 * 4]))

    def compact_with(self, memory: int | None = None) -> None:
        """One compaction, as Log.compact() does it; with little memory it takes several passes."""
        self.attempt = Attempt("compaction", is_compaction=True)
        end = compact(self.root, self.log, self.now_ms, self.rng.randbytes(16), memory)
        self._taken()
        if end is not None:  # What took the place of something else is durable.
            self.expected = replace(self.expected, flushed=max(self.expected.flushed, end))

    def checkpoint(self) -> None:
        self.attempt = Attempt("checkpoint")
        self.root.checkpoint(self.now_ms)
        self.attempt = None

    def tick(self) -> None:
        self.now_ms += 6000
        self.attempt = Attempt("tick")
        self.root.tick(self.now_ms)
        self.attempt = None


def compact(root: Root, log: PartitionLog, now_ms: int, seed: bytes, memory_bytes: int | None = None) -> int | None:
    """Compact all that can be; the offset up to which it went, None if there was nothing."""
    end: int | None = None
    for _ in range(100):
        found = compaction.cleanable(log, root.cleaned.get(log.partition), now_ms)
        if found.first_dirty_offset >= found.first_uncleanable_offset or not found.dirty_bytes:
            return end
        one = compaction.Pass(log, found, now_ms=now_ms, seed=seed, memory_bytes=memory_bytes)
        end = one.build_map()
        for group in one.groups(end):
            assert one.swap(group, one.write(group))
        root.write_cleaned_offset(log.partition, end)
    raise AssertionError("compaction does not come to an end")


def held_batches(log: PartitionLog) -> list[Batch]:
    """What the files of a log hold."""
    return [batch for segment in log.segments for batch in batches_of(segment.file.read(0, segment.size))]


def held_rows(log: PartitionLog) -> list[Row]:
    """Its rows, from the log start offset on."""
    return [row for row in rows_of(held_batches(log)) if row.offset >= log.log_start_offset]
