"""Random histories of a compacted log: what was committed last of each key is what is read, nothing moves, and nothing
is forgotten that a producer's retry needs, whatever is appended, rolled and compacted, and whenever.

The reference is the history itself: a list of all records with what became of their transactions.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import event, given
from hypothesis import strategies as st

import logcore
from logcore._batch import scan_batches
from logcore.log.compaction import SLOT_BYTES
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK
from logcore.log.partition import PartitionLog
from logcore.log.segment import Segment

NOW = 1_700_000_000_000
SETTINGS: dict[str, str | int | bool | float] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 700,
    "index.interval.bytes": 150,
    "delete.retention.ms": 40_000,
    "file.delete.delay.ms": 30_000,
}
CONFIG = LogConfig.of(SETTINGS)
PRODUCERS = 3

Row = tuple[bytes, bytes | None]


@dataclass
class Written:
    """A record of the history."""

    offset: int
    key: bytes
    value: bytes | None
    transaction: int | None


@dataclass
class Producer:
    """What a producer knows of itself."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    transaction: int | None = None  # the open one
    first_offset: int = -1  # of the open one
    last: tuple[list[Row], int, bool, int, int, int] | None = None  # rows, sequence, transactional, first, last, time


@dataclass
class History:
    """A log, and all that was ever done to it."""

    path: Path
    now_ms: int = NOW
    written: list[Written] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    producers: list[Producer] = field(default_factory=lambda: [Producer(7 + n) for n in range(PRODUCERS)])
    transactions: int = 0
    end_offset: int = 0

    def __post_init__(self) -> None:
        self.log = self._open()

    def _open(self) -> logcore.Log:
        return logcore.open_log(self.path, config=SETTINGS, clock=lambda: self.now_ms)

    @property
    def core(self) -> PartitionLog:
        core = self.log._core
        assert isinstance(core, PartitionLog)
        return core

    def _note(self, first_offset: int, rows: Iterable[Row], transaction: int | None) -> None:
        for key, value in rows:
            self.written.append(Written(first_offset, key, value, transaction))
            first_offset += 1
        self.end_offset = first_offset

    def append(self, rows: list[Row], compression: str) -> None:
        """Append rows of nobody."""
        self._note(self.log.append(rows, compression=compression).first_offset, rows, None)

    def produce(self, number: int, rows: list[Row], is_transactional: bool) -> None:
        """Append a producer's next batch; one that has a transaction open goes on with it."""
        producer = self.producers[number]
        is_transactional |= producer.transaction is not None
        result = self._produce(producer, rows, producer.sequence, is_transactional, self.now_ms)
        assert not result.is_duplicate
        if is_transactional and producer.transaction is None:
            producer.transaction, producer.first_offset = self.transactions, result.first_offset
            self.transactions += 1
        producer.last = (
            rows, producer.sequence, is_transactional, result.first_offset, result.last_offset, self.now_ms,
        )  # fmt: skip
        producer.sequence += len(rows)
        self._note(result.first_offset, rows, producer.transaction)

    def _produce(
        self, producer: Producer, rows: list[Row], sequence: int, is_transactional: bool, timestamp: int
    ) -> logcore.AppendResult:
        return self.core.append_records(
            [(key, value, timestamp) for key, value in rows],
            now_ms=self.now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )

    def end(self, number: int, commit: bool, version: int) -> None:
        """End a producer's transaction, if it has one open; with version 2 its epoch is raised by that."""
        producer = self.producers[number]
        if producer.transaction is None:
            return
        if version == 2:
            producer.epoch, producer.sequence, producer.last = producer.epoch + 1, 0, None
        marker = logcore.encode_transaction_marker(
            producer.producer_id, producer.epoch, commit=commit, coordinator_epoch=0, timestamp=self.now_ms
        )
        self.core.append_batches(
            marker, leader_epoch=0, now_ms=self.now_ms, origin="coordinator", transaction_version=version
        )
        if not commit:
            self.aborted.add(producer.transaction)
        producer.transaction = None
        self.end_offset += 1

    def reopen(self, is_clean: bool) -> None:
        """Close and open; if not clean, as after a crash that nothing is known of: all is recovered."""
        self.log.close()
        if not is_clean:
            for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
                (self.path.parent / name).unlink(missing_ok=True)
        self.log = self._open()
        assert self.log.recovery.was_clean == is_clean

    def compact(self, slots: int | None) -> None:
        """Compact, and look that this took nothing away that is not superseded, and that once was enough."""
        before = list(self.log.read(0))
        committed = list(self.log.read(0, isolation="read_committed"))
        memory = None if slots is None else slots * SLOT_BYTES
        result = self.log.compact(memory_bytes=memory)
        if result is not None:
            event(f"passes: {min(result.passes, 3)}, smaller: {result.bytes_written < result.bytes_read}")
        is_subsequence(list(self.log.read(0)), before)
        is_subsequence(list(self.log.read(0, isolation="read_committed")), committed)
        self.check()
        files = contents(self.path)
        self.log.compact(memory_bytes=memory)
        assert contents(self.path) == files

    def check(self) -> None:
        """What is read is the history."""
        unstable = [one.first_offset for one in self.producers if one.transaction is not None]
        stable_offset = min([self.end_offset, *unstable])
        assert self.log.log_start_offset == 0
        assert self.log.log_end_offset == self.end_offset
        assert self.log.last_stable_offset == stable_offset
        wanted: dict[bytes, bytes | None] = {}
        for one in self.written:
            if one.offset < stable_offset and one.transaction not in self.aborted:
                wanted[one.key] = one.value
        found: dict[bytes, bytes | None] = {}
        for record in self.log.read(0, isolation="read_committed"):
            assert record.key is not None
            found[record.key] = record.value
        assert living(found) == living(wanted)
        known = {(one.offset, one.key, one.value) for one in self.written}
        assert all((one.offset, one.key, one.value) in known for one in self.log.read(0))
        self.core.segments.check_invariants()
        for segment in self.core.segments.view.segments[:-1]:
            segment.check_invariants()
            assert_indexes_are_as_rebuilt(segment)

    def check_duplicates(self) -> None:
        """Each producer's last batch, sent again, is answered with the offsets that it has."""
        for producer in self.producers:
            if producer.last is not None:
                rows, sequence, is_transactional, first_offset, last_offset, timestamp = producer.last
                again = self._produce(producer, rows, sequence, is_transactional, timestamp)
                assert again.is_duplicate
                assert (again.first_offset, again.last_offset) == (first_offset, last_offset)


def living(values: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    """Without the keys that a tombstone has deleted: whether it is still there is a matter of time."""
    return {key: value for key, value in values.items() if value is not None}


def is_subsequence(part: list[logcore.Record], whole: list[logcore.Record]) -> None:
    rest = iter(whole)
    assert all(record in rest for record in part)


def contents(path: Path) -> dict[str, bytes]:
    """The files of a log, but for those that wait to be removed."""
    return {one.name: one.read_bytes() for one in path.iterdir() if one.suffix != ".deleted"}


def assert_indexes_are_as_rebuilt(segment: Segment) -> None:
    with tempfile.TemporaryDirectory() as directory:
        data = segment.file.read(0, segment.size)
        rebuilt = Segment(SYSTEM_DISK, directory, segment.base_offset, CONFIG, created_ms=NOW)
        rebuilt.create()
        for header in scan_batches(data).headers:
            begin = int(header["position"])
            rebuilt.append([data[begin : begin + int(header["size_in_bytes"])]], scan_batches(
                data[begin : begin + int(header["size_in_bytes"])]).headers)  # fmt: skip
        rebuilt.seal()
        rebuilt.close()
        name = os.path.basename(segment.path).removesuffix(".log")
        for kind in (".index", ".timeindex"):
            wanted = Path(directory, f"{name}{kind}").read_bytes()
            assert Path(segment.directory, f"{name}{kind}").read_bytes() == wanted


keys = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
rows = st.lists(st.tuples(keys, st.none() | st.sampled_from([b"1", b"22", b"3" * 60])), min_size=1, max_size=5)
numbers = st.integers(0, PRODUCERS - 1)
steps = st.one_of(
    st.tuples(st.just("append"), rows, st.sampled_from(["none", "lz4"])),
    st.tuples(st.just("produce"), numbers, rows, st.booleans()),
    st.tuples(st.just("produce"), numbers, rows, st.just(True)),
    st.tuples(st.just("end"), numbers, st.booleans(), st.sampled_from([1, 2])),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.sampled_from([1, 10_000, 40_000, 100_000])),
    st.tuples(st.just("compact"), st.none() | st.integers(1, 4)),
    st.tuples(st.just("reopen"), st.booleans()),
)


@given(st.lists(steps, min_size=5, max_size=40))
def test_a_compacted_log_says_of_each_key_what_was_committed_last(done: list[tuple[object, ...]]) -> None:
    """CLN-028, CLN-043, CLN-052: with any history, any size of the map, and compactions at any time."""
    with tempfile.TemporaryDirectory() as root:
        history = History(Path(root, "orders-0"))
        for name, *arguments in [*done, ("roll",), ("compact", 2), ("wait", 40_000), ("compact", None)]:
            if name == "wait":
                history.now_ms += arguments[0]  # type: ignore[operator]
            elif name == "roll":
                history.log.roll()
            else:
                getattr(history, str(name))(*arguments)
        for is_clean in (True, False):
            before = list(history.log.read(0))
            history.reopen(is_clean)
            assert list(history.log.read(0)) == before
            history.check()
            history.check_duplicates()
        history.log.close()
