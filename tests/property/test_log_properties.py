"""Random operations on a log against a list of batches: appends, duplicates, transactions, cuts, retention, crashes.

The model is a list of the batches that were appended, and where the log begins. What producers and transactions are
follows from reading the list again, each time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcore import Record, decode_batches, decode_columns, encode_batch
from logcore.errors import OffsetOutOfRangeError, OutOfOrderSequenceNumberError
from logcore.log.searching import find_max_timestamp, find_timestamp
from logcore.log.segment import Segment
from logcore.log.txnindex import AbortedTransaction
from logcore.log.view import Isolation
from tests.logs import Partition, Settings, entries, marker, rebuilt_indexes

IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12, 13)


class Sent(NamedTuple):
    """A batch of the model."""

    base_offset: int
    last_offset: int
    records: tuple[Record, ...]  # none of a marker
    producer_id: int = -1
    base_sequence: int = -1
    is_abort: bool | None = None  # of a marker
    data: bytes = b""  # as the producer sent it


@dataclass
class Told:
    """What the list says of transactions."""

    open: dict[int, int] = field(default_factory=dict)  # producer: first offset
    sequences: dict[int, int] = field(default_factory=dict)  # producer: the next one
    latest: dict[int, Sent] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)  # base offsets of batches that were aborted


class Model:
    def __init__(self) -> None:
        self.batches: list[Sent] = []
        self.start = 0
        self.end = 0
        self.is_vague = False  # the start has passed records of a transaction that was open, or is again

    def told(self) -> Told:
        told = Told()
        pending: dict[int, list[int]] = {}
        for sent in self.batches:
            if sent.producer_id < 0:
                continue
            if sent.is_abort is None:
                told.sequences[sent.producer_id] = sent.base_sequence + len(sent.records)
                told.latest[sent.producer_id] = sent
                if sent.producer_id in TRANSACTIONAL:
                    told.open.setdefault(sent.producer_id, sent.base_offset)
                    pending.setdefault(sent.producer_id, []).append(sent.base_offset)
            elif sent.producer_id in told.open:
                first = told.open.pop(sent.producer_id)
                offsets = pending.pop(sent.producer_id)
                if sent.is_abort:
                    told.hidden.update(offsets)
                    stable = min(told.open.values(), default=sent.last_offset + 1)
                    told.aborted.append(AbortedTransaction(sent.producer_id, first, sent.last_offset, stable))
        return told

    def last_stable_offset(self) -> int:
        return max(min(self.told().open.values(), default=self.end), self.start)

    def read(self, offset: int, isolation: Isolation) -> list[Record]:
        end, hidden = self.end, set[int]()
        if isolation == "read_committed":
            end, hidden = self.last_stable_offset(), self.told().hidden
        return [
            record
            for sent in self.batches
            if sent.base_offset not in hidden
            for record in sent.records
            if offset <= record.offset < end
        ]

    def cut(self, offset: int) -> None:
        self.batches = [sent for sent in self.batches if sent.last_offset < offset]
        self.end, self.start = offset, min(self.start, offset)
        self.look()

    def begin_at(self, offset: int) -> None:
        self.start = offset
        self.look()

    def look(self) -> None:
        self.is_vague |= any(first < self.start for first in self.told().open.values())


class Run:
    """One example."""

    def __init__(self, directory: Path, config: Settings) -> None:
        self.model = Model()
        self.count = 0
        self.partition = Partition(directory, config, now_ms=1000)
        self.partition.log.opened._count_max = 2

    # --- operations -------------------------------------------------------------------------------------------------

    def rows(self, times: list[int]) -> list[tuple[bytes, bytes, int]]:
        made = []
        for time in times:
            self.count += 1
            made.append((b"key%d" % (self.count % 5), b"value%d" % self.count, time))
        return made

    def note(self, rows: list[tuple[bytes, bytes, int]], **more: Any) -> None:
        """Rows were appended; into which batches the log has cut them, only the log knows."""
        records = [Record(self.model.end + n, row[2], row[0], row[1]) for n, row in enumerate(rows)]
        end = self.model.end + len(rows)
        while self.model.end < end:
            found = self.partition.log.view.find(self.model.end)
            assert found is not None
            assert found[1].base_offset == self.model.end
            last = found[1].last_offset
            part = tuple(record for record in records if self.model.end <= record.offset <= last)
            self.model.batches.append(Sent(self.model.end, last, part, **more))
            self.model.end = last + 1

    def append_rows(self, times: list[int], codec: str) -> None:
        rows = self.rows(times)
        result = self.partition.log.append_records(rows, now_ms=1000, compression=codec)
        assert (result.first_offset, result.last_offset) == (self.model.end, self.model.end + len(rows) - 1)
        self.note(rows)

    def append_columns(self, times: list[int], codec: str) -> None:
        rows = self.rows(times)
        columns = decode_columns(encode_batch(rows))
        result = self.partition.log.append_columns(columns, now_ms=1000, compression=codec)
        assert (result.first_offset, result.record_count) == (self.model.end, len(rows))
        self.note(rows)

    def produce(self, producer_id: int, times: list[int]) -> None:
        sequence = self.model.told().sequences.get(producer_id, 0)
        rows = self.rows(times)
        data = encode_batch(
            rows,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=producer_id in TRANSACTIONAL,
        )
        result = self.partition.lead(data, epoch=self.partition.log.leader_epoch)
        assert not result.is_duplicate
        self.note(rows, producer_id=producer_id, base_sequence=sequence, data=data)

    def duplicate(self, producer_id: int) -> None:
        latest = self.model.told().latest.get(producer_id)
        if latest is None or latest.base_offset < self.model.start:
            return
        result = self.partition.lead(latest.data, epoch=self.partition.log.leader_epoch)
        assert (result.is_duplicate, result.first_offset, result.last_offset) == (
            True,
            latest.base_offset,
            latest.last_offset,
        )

    def leave_a_gap(self, producer_id: int) -> None:
        told = self.model.told()
        latest = told.latest.get(producer_id)
        if latest is None or latest.base_offset < self.model.start:
            return
        data = encode_batch(
            [(b"k", b"v", 1)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=told.sequences[producer_id] + 7,
            is_transactional=producer_id in TRANSACTIONAL,
        )
        with pytest.raises(OutOfOrderSequenceNumberError):
            self.partition.lead(data, epoch=self.partition.log.leader_epoch)

    def end(self, producer_id: int, commit: bool) -> None:
        data = marker(producer_id, commit=commit)
        leader_epoch = self.partition.log.leader_epoch
        result = self.partition.lead(data, epoch=leader_epoch, origin="coordinator", transaction_version=1)
        assert result.first_offset == self.model.end
        sent = Sent(self.model.end, self.model.end, (), producer_id, is_abort=not commit)
        self.model.batches.append(sent)
        self.model.end += 1

    def roll(self) -> None:
        self.partition.roll()
        assert self.partition.bases[-1] == self.model.end or not self.partition.active.size

    def truncate(self, fraction: float) -> None:
        offset = int(self.model.end * fraction)
        assert self.partition.truncate_to(offset) == (offset < self.model.end)
        if offset < self.model.end:
            self.model.cut(offset)

    def delete_records(self, fraction: float) -> None:
        offset = int(self.model.end * fraction)
        assert self.partition.delete_records(offset) == max(offset, self.model.start)
        if offset > self.model.start:
            self.model.begin_at(offset)

    def retain(self, limit: int) -> None:
        log = self.partition.log
        self.partition.configure({"retention.bytes": limit, "retention.ms": -1})
        deleted = self.partition.retain()
        assert log.size - log.segments.first.size < limit or not log.size
        if deleted:
            assert log.log_start_offset in self.partition.bases
            assert log.log_start_offset >= self.model.start
            self.model.begin_at(log.log_start_offset)
        assert self.partition.retain() == 0

    def reopen(self, clean: bool) -> None:
        # A cut inside a batch leaves a gap at the end, which only the open log knows of. Kafka's forgets it too.
        written = max([sent.last_offset + 1 for sent in self.model.batches] + [self.partition.active.base_offset])
        if written < self.model.start:
            self.model.batches, written = [], self.model.start
        self.model.end = written
        self.partition.reopen(clean=clean)
        self.partition.log.opened._count_max = 2
        assert self.partition.recovery.was_clean == clean
        assert not self.partition.recovery.bytes_cut or (self.partition.config.preallocate and not clean)
        assert not self.partition.recovery.indexes_rebuilt
        for segment in self.partition.log.segments:
            assert (entries(segment.offset_index), entries(segment.time_index)) == rebuilt_indexes(segment), segment

    # --- checks -----------------------------------------------------------------------------------------------------

    def check(self, offset: int, timestamp: int) -> None:
        model, partition = self.model, self.partition
        log = partition.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (model.start, model.end, model.end)
        isolations: list[Isolation] = ["read_uncommitted"]
        if not model.is_vague:
            assert log.last_stable_offset == model.last_stable_offset()
            isolations.append("read_committed")
        offset = min(max(offset, model.start), model.end)
        for isolation in isolations:
            for begin in (model.start, offset):
                assert partition.read(begin, isolation) == model.read(begin, isolation), isolation
        for bad in (model.start - 1, model.end + 1):
            with pytest.raises(OffsetOutOfRangeError):
                log.view.check_offset(bad)
        self.check_searches(timestamp)
        if not model.is_vague:
            self.check_transaction_indexes()
        log.segments.check_invariants()
        log.producers.check_invariants()
        log.epochs.check_invariants()
        for segment in log.segments:
            segment.check_invariants()

    def check_searches(self, timestamp: int) -> None:
        """By a linear scan over the list."""
        model, view = self.model, self.partition.log.view
        for offset in range(model.start, model.end + 2):
            wanted = next((sent for sent in model.batches if sent.last_offset >= offset), None)
            found = view.find(offset)
            if wanted is None:
                assert found is None
                continue
            assert found is not None
            segment, place = view.segments.segments[found[0]], found[1]
            assert (place.base_offset, place.last_offset) == (wanted.base_offset, wanted.last_offset)
            assert segment.base_offset <= wanted.base_offset
            [batch] = decode_batches(segment.file.read(place.position, place.size_in_bytes))
            assert batch.base_offset == wanted.base_offset
        found_record = find_timestamp(view, timestamp)
        assert (None if found_record is None else found_record.offset) == self.linear_timestamp(timestamp)
        self.check_max_timestamp()

    def of(self, segment: Segment) -> list[Sent]:
        """The batches of the model that lie in a segment."""
        higher = self.partition.log.segments.higher(segment.base_offset)
        end = self.model.end if higher is None else higher.base_offset
        return [sent for sent in self.model.batches if segment.base_offset <= sent.base_offset < end]

    def linear_timestamp(self, timestamp: int) -> int | None:
        for segment in self.partition.log.segments:
            batches = self.of(segment)
            times = [record.timestamp for sent in batches for record in sent.records]
            # A marker has a time too, and an empty segment that of its file.
            times += [0 for sent in batches if not sent.records]
            if max(times, default=1 << 60) >= timestamp:
                return next(
                    (
                        offset
                        for sent in batches
                        for offset, time in self.timed(sent)
                        if time >= timestamp and offset >= self.model.start
                    ),
                    None,
                )
        return None

    def timed(self, sent: Sent) -> Iterable[tuple[int, int]]:
        if not sent.records:
            return [(sent.base_offset, 0)]
        return [(record.offset, record.timestamp) for record in sent.records]

    def check_max_timestamp(self) -> None:
        timed = [one for sent in self.model.batches for one in self.timed(sent) if one[0] >= self.model.start]
        found = find_max_timestamp(self.partition.log.view)
        if not timed:
            assert found is None
        else:
            latest = max(time for _, time in timed)
            assert found is not None
            assert (found.offset, found.timestamp) == next(one for one in timed if one[1] == latest)

    def check_transaction_indexes(self) -> None:
        aborted = self.model.told().aborted
        for segment in self.partition.log.segments:
            higher = self.partition.log.segments.higher(segment.base_offset)
            end = 1 << 62 if higher is None else higher.base_offset
            wanted = [one for one in aborted if segment.base_offset <= one.last_offset < end]
            assert list(segment.transactions) == wanted


times = st.lists(st.integers(0, 40), min_size=1, max_size=4)
codecs = st.sampled_from(["none", "gzip", "lz4"])
fractions = st.floats(0, 1)
operations = st.one_of(
    st.tuples(st.just("append_rows"), times, codecs),
    st.tuples(st.just("append_columns"), times, codecs),
    st.tuples(st.just("produce"), st.sampled_from(IDEMPOTENT + TRANSACTIONAL), times),
    st.tuples(st.just("produce"), st.sampled_from(TRANSACTIONAL), times),
    st.tuples(st.just("end"), st.sampled_from(TRANSACTIONAL), st.booleans()),
    st.tuples(st.just("duplicate"), st.sampled_from(IDEMPOTENT + TRANSACTIONAL)),
    st.tuples(st.just("leave_a_gap"), st.sampled_from(IDEMPOTENT + TRANSACTIONAL)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("truncate"), fractions),
    st.tuples(st.just("delete_records"), fractions),
    st.tuples(st.just("retain"), st.integers(0, 2000)),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("reopen"), st.booleans()),
)
configs = st.fixed_dictionaries(
    {
        "internal.segment.bytes": st.sampled_from([400, 700, 1500, 100_000]),
        "index.interval.bytes": st.sampled_from([0, 1, 100, 250, 4096]),
        "segment.index.bytes": st.sampled_from([40, 60, 1200]),
        "max.message.bytes": st.sampled_from([170, 300, 100_000]),
        "preallocate": st.booleans(),
        "file.delete.delay.ms": st.sampled_from([0, 60_000]),
    }
)


@given(configs, st.lists(operations, max_size=25), st.integers(0, 80), st.integers(0, 45))
def test_a_log_is_a_list_of_batches(
    config: dict[str, Any], steps: list[tuple[Any, ...]], offset: int, timestamp: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = Run(Path(directory), config)
        with run.partition:
            for name, *arguments in steps:
                getattr(run, name)(*arguments)
                run.check(offset, timestamp)
            for clean in (True, False):
                run.reopen(clean)
                run.check(offset, timestamp)
