"""Small compacted logs for tests: what to write into them, and how to look at what is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import logcore
from logcore.log.compaction import Pass, cleanable
from logcore.log.partition import PartitionLog

NOW = 1_700_000_000_000
RETENTION_MS = 1000


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now_ms = NOW

    def __call__(self) -> int:
        return self.now_ms


def open_compacted(path: Path, clock: Callable[[], int] | None = None, **changes: Any) -> logcore.Log:
    settings: dict[str, Any] = {
        "cleanup.policy": "compact",
        "delete.retention.ms": RETENTION_MS,
        "index.interval.bytes": 1,
    } | {name.replace("_", "."): value for name, value in changes.items()}
    return logcore.open_log(path, config=settings, clock=clock or Clock())


def core_of(log: logcore.Log) -> PartitionLog:
    core = log._core
    assert isinstance(core, PartitionLog)
    return core


def put(log: logcore.Log, text: str, **producer: int) -> int:
    """Append a batch: "a1 b2 a-" is a=1, b=2, and a tombstone of a. Returns its first offset."""
    return log.append(rows_of(text), **producer).first_offset


def rows_of(text: str) -> list[tuple[bytes, bytes | None]]:
    return [(word[:1].encode(), None if word[1:] == "-" else word[1:].encode()) for word in text.split()]


def produce(log: logcore.Log, producer_id: int, text: str, sequence: int = 0, epoch: int = 0) -> logcore.AppendResult:
    """Append a batch of a transaction."""
    core = core_of(log)
    return core.append_records(
        rows_of(text),
        now_ms=log._clock(),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def end(log: logcore.Log, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
    """End a transaction, as coordinators did before they raised the epoch with it."""
    now_ms = log._clock()
    marker = logcore.encode_transaction_marker(producer_id, epoch, commit=commit, coordinator_epoch=0, timestamp=now_ms)
    core_of(log).append_batches(marker, leader_epoch=0, now_ms=now_ms, origin="coordinator", transaction_version=1)


def left(log: logcore.Log) -> str:
    """The records that are left, as put() takes them, with their offsets: "0:a1 2:a-"."""
    words = []
    for record in log.read(log.log_start_offset):
        assert record.key is not None
        words.append(f"{record.offset}:{record.key.decode()}{'-' if record.value is None else record.value.decode()}")
    return " ".join(words)


def batches(log: logcore.Log) -> list[logcore.Batch]:
    """All batches, also those without records, and markers."""
    return [batch for one in log.segments for batch in logcore.decode_batches(Path(one.path).read_bytes())]


def shape(log: logcore.Log) -> str:
    """All batches by their last offset and kind: d for data, m for a marker; in brackets if they are empty."""
    words = []
    for batch in batches(log):
        word = f"{'m' if batch.is_control else 'd'}{batch.last_offset}"
        words.append(word if batch.count else f"({word})")
    return " ".join(words)


def bases(log: logcore.Log) -> list[int]:
    return [one.base_offset for one in log.segments]


def a_pass(log: logcore.Log, cleaned_offset: int | None = None, memory_bytes: int | None = None) -> Pass:
    core = core_of(log)
    found = cleanable(core, cleaned_offset, log._clock())
    return Pass(core, found, now_ms=log._clock(), seed=bytes(16), memory_bytes=memory_bytes)


def checkpointed(log: logcore.Log) -> int | None:
    return log._cleaned_offset(core_of(log))
