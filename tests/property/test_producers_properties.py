"""Producers against a list of all that happened: appends, markers, truncations, snapshots good and bad, reopening."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from logcore.errors import KafkaError
from logcore.log.disk import SYSTEM_DISK
from logcore.log.names import SNAPSHOT, file_name
from logcore.log.producer_append import EndTxnMarker, Origin, ProducerAppend
from logcore.log.producers import ProducerState
from logcore.log.transactions import CompletedTxn
from tests.reference import producers as reference
from tests.reference.model import RefKafkaError
from tests.reference.producers import Data, Event, Forgotten, Marker

EXPIRATION_MS = 1000


class Partition:
    """A log's part: it appends to the state and to the list, cuts both, and replays what a snapshot does not have."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log: list[Data | Marker] = []  # what is in the log
        self.history: list[Event] = []  # what the state has seen since it was last loaded
        self.snapshots: dict[int, list[Event] | None] = {}  # None: damaged
        self.start = self.end = self.passed = self.last_snapshot = 0
        self.now_ms = 10_000
        self.state = self.opened()

    def opened(self) -> ProducerState:
        return ProducerState(SYSTEM_DISK, str(self.directory), producer_id_expiration_ms=EXPIRATION_MS)

    # ------------------------------------------------------------------------------------------------ what may happen

    def append(self, wanted: list[tuple]) -> None:
        """Batches of one append: all of them, or none if one is refused."""
        seen: list[Event] = []
        batches = []
        for what in wanted:
            batch = self.batch(what, self.end if not batches else batches[-1].last_offset + 1)
            was_known = reference.producer(self.history, batch.producer_id) is not None
            try:
                reference.check(self.history + seen, batch, was_known=was_known)
            except RefKafkaError as refused:
                self.expect_refused([*batches, batch], refused.name)
                return
            seen.append(batch)
            batches.append(batch)
        completed = self.put(batches, "client")
        already = len(reference.ended(self.history))
        self.history += seen
        self.log += batches
        self.end = batches[-1].last_offset + 1
        assert [tuple(one) for one in completed] == reference.ended(self.history)[already:]
        self.state.map_end_offset = self.end

    def batch(self, wanted: tuple, offset: int) -> Data | Marker:
        """A batch near to one that would be right."""
        is_marker, producer_id, raise_epoch, sequence, count, flag, late_ms = wanted
        now = reference.producer(self.history, producer_id)
        if now is None:  # forgotten perhaps, and then its epoch does not go back
            used = [one.epoch for one in self.log if one.producer_id == producer_id]
            epoch = max(used, default=0) + abs(raise_epoch)
        else:
            epoch = now.epoch + raise_epoch
        epoch = max(0, min(32767, epoch))
        timestamp = self.now_ms - late_ms
        if is_marker:
            version = 2 if count > 2 else 0
            coordinator = max(0, (0 if now is None else now.coordinator_epoch) + sequence // 4)
            return Marker(producer_id, epoch, offset, coordinator, timestamp, flag, version)
        expected = 0
        if now is not None and now.batches and epoch == now.epoch:
            expected = (now.batches[-1].last_sequence + 1) % 2**31
        sequence = {7: 2**31 - 2, -1: expected + 1, -2: 0}.get(sequence, expected)
        return Data(producer_id, epoch, sequence % 2**31, offset, count, timestamp, flag)

    def put(self, batches: list[Data | Marker], origin: Origin) -> list[CompletedTxn]:
        """Bring batches into the state; what they completed."""
        candidates: dict[int, ProducerAppend] = {}
        completed = []
        for batch in batches:
            if batch.producer_id not in candidates:
                candidates[batch.producer_id] = self.state.prepare(batch.producer_id, origin)
            one = take(candidates[batch.producer_id], batch)
            if one is not None:
                completed.append(one)
        for candidate in candidates.values():
            self.state.update(candidate)
        for one in completed:
            others = [
                txn.first_offset_metadata.offset for txn in self.state._ongoing if txn.producer_id != one.producer_id
            ]
            assert self.state.last_stable_offset(one) == min(others, default=one.last_offset + 1)
            self.state.complete_transaction(one)
        return completed

    def expect_refused(self, batches: list[Data | Marker], name: str) -> None:
        try:
            self.put(batches, "client")
        except KafkaError as error:
            assert error.name == name
        else:
            raise AssertionError(f"not refused with {name}: {batches}")

    def append_plain(self, count: int) -> None:
        self.end += count
        self.state.map_end_offset = self.end

    def pass_high_watermark(self, behind: int) -> None:
        high_watermark = max(0, self.end - behind)
        self.state.on_high_watermark_updated(high_watermark)
        self.passed = max(self.passed, high_watermark)

    def advance_log_start(self, count: int) -> None:
        self.start = min(self.end, self.start + count)
        self.state.on_log_start_offset_incremented(self.start)
        self.passed = max(self.passed, self.start)
        self.last_snapshot = max(self.snapshots, default=self.start)

    def take_snapshot(self) -> None:
        is_due = self.end > self.last_snapshot
        assert (self.state.take_snapshot(sync=False) is not None) == is_due
        if is_due:
            self.snapshots[self.end] = [one.known() for one in reference.producers(self.history).values()]
            self.last_snapshot = self.end

    def spoil_snapshot(self, which: int) -> None:
        if self.snapshots:
            offset = sorted(self.snapshots)[which % len(self.snapshots)]
            path = self.directory / file_name(offset, SNAPSHOT)
            path.write_bytes(path.read_bytes()[:-1])
            self.snapshots[offset] = None

    def delete_snapshots(self, behind: int) -> None:
        self.state.delete_snapshots_before(self.end - behind)
        self.snapshots = {at: found for at, found in self.snapshots.items() if at >= self.end - behind}

    def expire(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.state.remove_expired(self.now_ms)
        for one in reference.producers(self.history).values():
            if one.first_offset is None and self.now_ms - one.timestamp >= EXPIRATION_MS:
                self.history.append(Forgotten(one.producer_id))

    def truncate(self, count: int, chunk: int) -> None:
        end = max(self.start, self.end - count)
        is_there_already = end == self.state.map_end_offset
        self.log = [batch for batch in self.log if batch.last_offset < end]
        self.end = end
        self.reload(is_there_already, chunk)

    def reopen(self, later_ms: int, chunk: int) -> None:
        self.now_ms += later_ms
        self.state = self.opened()
        assert self.state.is_empty
        assert self.state.snapshots.offsets == sorted(self.snapshots)
        self.history = []
        self.passed = 0
        self.reload(self.end == 0, chunk)

    def reload(self, is_there_already: bool, chunk: int) -> None:
        self.state.truncate_and_reload(self.start, self.end, self.now_ms)
        self.snapshots = {at: found for at, found in self.snapshots.items() if self.start < at <= self.end}
        if is_there_already:
            self.passed = max(self.passed, self.start)
            self.last_snapshot = max(self.snapshots, default=self.start)
            return
        while self.snapshots and self.snapshots[max(self.snapshots)] is None:
            del self.snapshots[max(self.snapshots)]
        reached = max(self.snapshots, default=self.start)
        assert self.state.map_end_offset == reached
        stored = self.snapshots.get(reached) or []
        self.history = [
            one for one in stored if one.first_offset is not None or self.now_ms - one.timestamp < EXPIRATION_MS
        ]
        self.last_snapshot, self.passed = reached, 0
        rest = [batch for batch in self.log if batch.offset >= reached]
        for at in range(0, len(rest), chunk):
            self.put(rest[at : at + chunk], "replication")
        self.history += rest
        self.state.map_end_offset = self.end

    # ------------------------------------------------------------------------------------------------ what must be so

    def check(self) -> None:
        state = self.state
        state.check_invariants()
        known = reference.producers(self.history)
        assert {at: tuple(entry) for at, entry in state.active_producers.items()} == known
        for one in known.values():
            for batch in one.batches:
                first = (batch.last_sequence - batch.offset_delta) % 2**31
                found = state.active_producers[one.producer_id].find_duplicate(one.epoch, first, batch.last_sequence)
                assert found is not None
                assert found.last_sequence == batch.last_sequence
        still_open = [one.first_offset for one in known.values() if one.first_offset is not None]
        waiting = [first for _, first, last, _ in reference.ended(self.history) if last >= self.passed]
        assert state.first_undecided_offset() == min(still_open, default=None)
        unstable = state.first_unstable_offset()
        assert (None if unstable is None else unstable.offset) == min(still_open + waiting, default=None)
        assert state.is_empty == (not known and not waiting)
        assert state.snapshots.offsets == sorted(self.snapshots)
        names = sorted(path.name for path in self.directory.iterdir())
        assert names == [file_name(offset, SNAPSHOT) for offset in sorted(self.snapshots)]
        assert state.map_end_offset == self.end


def take(candidate: ProducerAppend, batch: Data | Marker) -> CompletedTxn | None:
    if isinstance(batch, Marker):
        marker = EndTxnMarker(batch.is_abort, batch.coordinator_epoch, batch.timestamp)
        return candidate.append_control(batch.epoch, batch.offset, marker, transaction_version=batch.version)
    candidate.append(
        batch.epoch,
        batch.base_sequence,
        batch.last_sequence,
        batch.offset,
        batch.last_offset,
        batch.timestamp,
        batch.is_transactional,
    )
    return None


a_batch = st.tuples(
    st.sampled_from([False, False, True]),
    st.integers(0, 2),
    st.sampled_from([0, 0, 0, 0, 1, 2, -1, 32767]),
    st.integers(-2, 7),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 1200),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(a_batch, min_size=1, max_size=3)),
        st.tuples(st.just("append"), st.lists(a_batch, min_size=1, max_size=1)),
        st.tuples(st.just("append_plain"), st.integers(1, 3)),
        st.tuples(st.just("take_snapshot")),
        st.tuples(st.just("pass_high_watermark"), st.integers(0, 6)),
        st.tuples(st.just("advance_log_start"), st.integers(0, 4)),
        st.tuples(st.just("spoil_snapshot"), st.integers(0, 5)),
        st.tuples(st.just("delete_snapshots"), st.integers(0, 20)),
        st.tuples(st.just("expire"), st.integers(0, 600)),
        st.tuples(st.just("truncate"), st.integers(0, 15), st.integers(1, 5)),
        st.tuples(st.just("reopen"), st.integers(0, 600), st.integers(1, 5)),
    ),
    max_size=40,
)


@given(steps)
def test_the_state_is_what_a_list_of_all_that_happened_says(steps: list[tuple]) -> None:
    """PST-014, PST-015, PST-053, PST-055, PST-058: in any order."""
    with tempfile.TemporaryDirectory() as directory:
        partition = Partition(Path(directory))
        for what, *arguments in steps:
            getattr(partition, what)(*arguments)
            partition.check()
