"""Producers of a partition: sequences, epochs, coordinators, transactions, expiry. Not their snapshots."""

from __future__ import annotations

import pytest

from logcore.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    InvariantError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
    UsageError,
)
from logcore.log.disk import SYSTEM_DISK
from logcore.log.producer_append import EndTxnMarker, Origin, ProducerAppend
from logcore.log.producer_entry import BatchMetadata, ProducerEntry
from logcore.log.producers import (
    LATE_TRANSACTION_BUFFER_MS,
    PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS,
    LastRecord,
    ProducerState,
)
from logcore.log.transactions import CompletedTxn, LogOffsetMetadata, TxnMetadata

PRODUCER = 1
SEQUENCE_MAX = 2147483647
NOW_MS = 1_000_000_000
ORIGINS: tuple[Origin, ...] = ("client", "coordinator", "raft_leader", "replication")


@pytest.fixture
def state() -> ProducerState:
    return ProducerState(SYSTEM_DISK, "orders-0", names=[])


def append(
    state: ProducerState,
    sequence: int,
    offset: int,
    *,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    timestamp: int = NOW_MS,
    is_transactional: bool = False,
    origin: Origin = "client",
) -> None:
    """A batch of one record, as a log appends it."""
    candidate = state.prepare(producer_id, origin)
    candidate.append(epoch, sequence, sequence, offset, offset, timestamp, is_transactional)
    state.update(candidate)
    state.map_end_offset = offset + 1
    state.check_invariants()


def append_marker(
    state: ProducerState,
    offset: int,
    *,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    is_abort: bool = False,
    coordinator_epoch: int = 0,
    timestamp: int = NOW_MS,
    version: int | None = 0,
    origin: Origin = "coordinator",
) -> CompletedTxn | None:
    candidate = state.prepare(producer_id, origin)
    marker = EndTxnMarker(is_abort, coordinator_epoch, timestamp)
    completed = candidate.append_control(epoch, offset, marker, transaction_version=version)
    state.update(candidate)
    if completed is not None:
        state.complete_transaction(completed)
    state.map_end_offset = offset + 1
    state.check_invariants()
    return completed


def entry_of(state: ProducerState, producer_id: int = PRODUCER) -> ProducerEntry:
    entry = state.last_entry(producer_id)
    assert entry is not None
    return entry


def contents(state: ProducerState) -> tuple[object, ...]:
    """All that an append may change."""
    verified = [(found, state.verifications.guard(found)) for found in range(10)]
    unstable = state.first_unstable_offset(), state.first_undecided_offset()
    return dict(state.active_producers), unstable, state.map_end_offset, verified


def raises_and_changes_nothing(state: ProducerState, error: type[Exception], match: str, call) -> None:
    before = contents(state)
    with pytest.raises(error, match=match):
        call()
    assert contents(state) == before
    state.check_invariants()


# ----------------------------------------------------------------------------------------------------------- sequences


def test_a_client_goes_on_where_it_stopped(state):
    """PST-001: repeated or skipped sequences are refused; that a repeated one is a duplicate, the log asks before."""
    append(state, 0, 0)
    append(state, 1, 1)
    for sequence in (1, 0, 5):
        raises_and_changes_nothing(
            state,
            OutOfOrderSequenceNumberError,
            rf"^producer 1, batch at offset 2 of orders-0: got sequence {sequence}, wanted 2$",
            lambda sequence=sequence: append(state, sequence, 2),
        )
    append(state, 2, 2)


def test_after_the_last_sequence_comes_0(state):
    """PST-002: not 1."""
    append(state, SEQUENCE_MAX, 735, epoch=15, origin="replication")
    raises_and_changes_nothing(
        state, OutOfOrderSequenceNumberError, "got sequence 1, wanted 0$", lambda: append(state, 1, 1235, epoch=15)
    )
    append(state, 0, 1235, epoch=15)
    assert (entry_of(state).first_sequence, entry_of(state).last_sequence) == (SEQUENCE_MAX, 0)


@pytest.mark.parametrize("origin", ["client", "replication"])
def test_a_batch_may_hold_the_last_sequence_and_0(state, origin):
    """PST-003, PST-013: its first sequence is found again from its last and its offsets."""
    candidate = state.prepare(PRODUCER, origin)
    candidate.append(15, 2147483637, 9, 2000, 2020, NOW_MS)
    assert state.last_entry(PRODUCER) is None
    state.update(candidate)
    entry = entry_of(state)
    assert (entry.first_sequence, entry.last_sequence) == (2147483637, 9)
    assert (entry.first_data_offset, entry.last_data_offset) == (2000, 2020)
    append(state, 10, 2021, epoch=15)


@pytest.mark.parametrize("origin", ORIGINS)
def test_an_unknown_producer_begins_with_any_sequence(state, origin):
    """PST-004, PST-005: on replicas, in loading, and from a client whose transactions are none of version 2."""
    append(state, 16, 735, epoch=5, origin=origin)
    assert entry_of(state) == (PRODUCER, 5, -1, NOW_MS, None, ((16, 735, 0, NOW_MS),))
    assert (entry_of(state).first_sequence, entry_of(state).first_data_offset) == (16, 735)


@pytest.mark.parametrize("is_fenced", [False, True])
def test_with_version_2_an_unknown_producer_begins_with_0(state, is_fenced):
    """PST-005: also if a marker is all that is known of it."""
    if is_fenced:
        append_marker(state, 0, epoch=0)
    state.start_verification(PRODUCER, sequence=9, producer_epoch=0, supports_epoch_bump=True, now_ms=NOW_MS)
    raises_and_changes_nothing(
        state,
        OutOfOrderSequenceNumberError,
        "got sequence 5, wanted 0, as nothing is known of the producer$",
        lambda: append(state, 5, 1),
    )
    append(state, 0, 1)


def test_with_version_1_an_unknown_producer_begins_with_any_sequence_that_none_is_below(state):
    """PST-005: version 1 asks for the lowest that was seen only."""
    state.start_verification(PRODUCER, sequence=5, producer_epoch=0, supports_epoch_bump=False, now_ms=NOW_MS)
    append(state, 5, 0)


def test_replicas_take_gaps_and_the_new_value_counts(state):
    """PST-006: the leader has checked."""
    append(state, 0, 0)
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(state, 3, 1)
    assert entry_of(state).last_sequence == 0
    append(state, 3, 1, origin="replication")
    assert entry_of(state).last_sequence == 3
    append(state, 4, 2)


def test_what_a_coordinator_appends_has_no_sequence(state):
    """PST-007: offset commits, again and again."""
    append(state, -1, 99, origin="coordinator", is_transactional=True)
    append(state, -1, 100, origin="coordinator", is_transactional=True)
    assert entry_of(state).batches == [BatchMetadata(-1, 99, 0, NOW_MS), BatchMetadata(-1, 100, 0, NOW_MS)]


def test_a_new_epoch_begins_with_sequence_0(state):
    """PST-008: and with 0 only."""
    for sequence in range(3):
        append(state, sequence, sequence)
    raises_and_changes_nothing(
        state,
        OutOfOrderSequenceNumberError,
        r"got sequence 5, wanted 0, as epoch 1 begins \(it was 0\)$",
        lambda: append(state, 5, 3, epoch=1),
    )
    append(state, 0, 3, epoch=1)
    assert entry_of(state).kept == ((0, 3, 0, NOW_MS),)


def test_after_a_marker_that_is_all_that_is_known_the_sequence_is_0(state):
    """PST-009, PST-019, PST-020: the entry fences, has no data and no transaction."""
    assert append_marker(state, 27, epoch=2) is None
    assert entry_of(state) == (PRODUCER, 2, 0, NOW_MS, None, ())
    assert (entry_of(state).last_sequence, entry_of(state).last_data_offset) == (-1, -1)
    raises_and_changes_nothing(
        state,
        InvalidProducerEpochError,
        r"^producer 1, batch at offset 28 of orders-0: got epoch 0, wanted 2 or higher$",
        lambda: append(state, 0, 28, epoch=0),
    )
    raises_and_changes_nothing(
        state,
        OutOfOrderSequenceNumberError,
        "got sequence 17, wanted 0$",
        lambda: append(state, 17, 28, epoch=2),
    )
    append(state, 0, 28, epoch=2)
    assert entry_of(state).last_sequence == 0


def test_a_producer_that_has_expired_goes_on_with_any_sequence(state):
    """PST-010: it becomes the new state."""
    append(state, 0, 1, epoch=5)
    assert state.remove_expired(NOW_MS + state.producer_id_expiration_ms + 1) == 1
    append(state, 9, 2, epoch=5)
    assert (len(state.active_producers), entry_of(state).last_sequence, state.map_end_offset) == (1, 9, 3)


def test_five_batches_are_kept_the_oldest_go_first(state):
    """PST-011: whether they came one by one or in one append; a new epoch clears them."""
    for sequence in range(7):
        append(state, sequence, 100 + sequence)
    assert [batch.last_sequence for batch in entry_of(state).batches] == [2, 3, 4, 5, 6]
    candidate = state.prepare(PRODUCER, "client")
    for sequence in range(7, 10):
        candidate.append(0, sequence, sequence, 100 + sequence, 100 + sequence, NOW_MS)
    state.update(candidate)
    assert [batch.last_sequence for batch in entry_of(state).batches] == [5, 6, 7, 8, 9]
    assert (entry_of(state).first_sequence, entry_of(state).first_data_offset) == (5, 105)
    candidate = state.prepare(PRODUCER, "replication")
    for sequence in range(10, 1000):
        candidate.append(0, sequence, sequence, 100 + sequence, 100 + sequence, NOW_MS)
    assert len(candidate.kept) == 5
    state.update(candidate)
    assert [batch.last_sequence for batch in entry_of(state).batches] == [995, 996, 997, 998, 999]
    append(state, 0, 2000, epoch=1)
    assert [batch.last_sequence for batch in entry_of(state).batches] == [0]


def test_a_duplicate_is_a_kept_batch_of_the_same_epoch_and_sequences(state):
    """PST-012, PST-013: the answer is what was answered first."""
    candidate = state.prepare(PRODUCER, "client")
    candidate.append(0, SEQUENCE_MAX - 1, 2, 100, 104, 1600)
    candidate.append(0, 3, 5, 105, 107, 1700)
    state.update(candidate)
    find = entry_of(state).find_duplicate
    first = find(0, SEQUENCE_MAX - 1, 2)
    assert first == BatchMetadata(last_sequence=2, last_offset=104, offset_delta=4, timestamp=1600)
    assert first is not None
    assert (first.first_offset, first.first_sequence) == (100, SEQUENCE_MAX - 1)
    assert find(0, 3, 5) == BatchMetadata(5, 107, 2, 1700)
    for epoch, base, last in ((1, 3, 5), (0, 3, 4), (0, 4, 5), (0, 6, 8), (0, SEQUENCE_MAX - 1, 5), (-1, 3, 5)):
        assert find(epoch, base, last) is None


def test_preparing_changes_nothing_and_what_is_refused_leaves_the_candidate(state):
    """PST-014: only the update does."""
    candidate = state.prepare(PRODUCER, "client")
    candidate.append(0, 0, 5, 15, 20, NOW_MS)
    assert state.last_entry(PRODUCER) is None
    assert state.is_empty
    state.update(candidate)
    candidate = state.prepare(PRODUCER, "client")
    candidate.append(0, 6, 10, 26, 30, NOW_MS, True)
    assert entry_of(state) == (PRODUCER, 0, -1, NOW_MS, None, ((5, 20, 5, NOW_MS),))
    assert state.first_unstable_offset() is None

    def as_it_is() -> list[object]:
        return [
            list(value) if isinstance(value := getattr(candidate, name), list) else value
            for name in ProducerAppend.__slots__
        ]

    before = as_it_is()
    for bad in ((1, 1, 1), (0, 6, 6), (0, 12, 12), (-1, 11, 11)):
        with pytest.raises((OutOfOrderSequenceNumberError, InvalidProducerEpochError)):
            candidate.append(*bad, 31, 31, NOW_MS, True)
    with pytest.raises(InvalidTxnStateError):
        candidate.append(0, 11, 11, 31, 31, NOW_MS, False)
    with pytest.raises(InvalidTxnStateError):
        candidate.append(1, 0, 0, 31, 31, NOW_MS, False)
    for epoch, marker, version in ((-1, EndTxnMarker(True, 0, 5), 0), (1, EndTxnMarker(True, -2, 5), 2)):
        with pytest.raises((InvalidProducerEpochError, TransactionCoordinatorFencedError)):
            candidate.append_control(epoch, 31, marker, transaction_version=version)
    assert as_it_is() == before
    state.update(candidate)
    assert entry_of(state) == (PRODUCER, 0, -1, NOW_MS, 26, ((5, 20, 5, NOW_MS), (10, 30, 4, NOW_MS)))


def test_batches_of_one_append_are_checked_one_after_the_other(state):
    """PST-015: against what the ones before prepared."""
    append(state, 0, 0)
    candidate = state.prepare(PRODUCER, "client")
    candidate.append(0, 1, 3, 1, 3, NOW_MS)
    with pytest.raises(OutOfOrderSequenceNumberError, match="got sequence 1, wanted 4"):
        candidate.append(0, 1, 3, 4, 6, NOW_MS)
    candidate.append(1, 0, 0, 4, 4, NOW_MS)
    with pytest.raises(InvalidProducerEpochError):
        candidate.append(0, 4, 4, 5, 5, NOW_MS)
    candidate.append(1, 1, 1, 5, 5, NOW_MS)
    state.update(candidate)
    assert entry_of(state).kept == ((0, 4, 0, NOW_MS), (1, 5, 0, NOW_MS))


def test_of_an_unknown_producer_no_sequence_is_checked_in_its_first_append(state):
    """PST-015: Kafka looks at what was known before the append."""
    candidate = state.prepare(PRODUCER, "client")
    candidate.append(0, 5, 5, 0, 0, NOW_MS)
    candidate.append(0, 9, 9, 1, 1, NOW_MS)
    state.update(candidate)
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(state, 20, 2)


# -------------------------------------------------------------------------------------------------------------- epochs


@pytest.mark.parametrize("origin", ORIGINS)
def test_an_older_epoch_is_refused_but_on_replicas(state, origin):
    """PST-016: they take it, with all that a change of epoch brings."""
    append(state, 0, 0, epoch=3)
    if origin != "replication":
        raises_and_changes_nothing(
            state,
            InvalidProducerEpochError,
            r"^producer 1, batch at offset 1 of orders-0: got epoch 2, wanted 3 or higher$",
            lambda: append(state, 1, 1, epoch=2, origin=origin),
        )
    else:
        append(state, 1, 1, epoch=2, origin=origin)
        assert entry_of(state) == (PRODUCER, 2, -1, NOW_MS, None, ((1, 1, 0, NOW_MS),))


def test_an_epoch_that_goes_up_and_down_within_an_append_keeps_the_batches_from_before(state):
    """PST-016: so it is in Kafka, for replicas; in two appends they are gone."""
    append(state, 4, 0, epoch=3, origin="replication")
    candidate = state.prepare(PRODUCER, "replication")
    candidate.append(5, 0, 0, 1, 1, NOW_MS)
    candidate.append_control(3, 2, EndTxnMarker(True, 0, NOW_MS))
    state.update(candidate)
    assert entry_of(state).kept == ((4, 0, 0, NOW_MS),)
    append(state, 0, 3, epoch=5, origin="replication")
    append_marker(state, 4, epoch=3, origin="replication")
    assert entry_of(state).kept == ()


def test_a_marker_of_a_higher_epoch_clears_batches_and_transaction(state):
    """PST-017, PST-018: the next batch needs that epoch or a higher one, and sequence 0."""
    append(state, 0, 0, is_transactional=True)
    append(state, 1, 1, is_transactional=True)
    assert append_marker(state, 2, epoch=1, is_abort=True, version=2) == (PRODUCER, 0, 2, True)
    entry = entry_of(state)
    assert entry == (PRODUCER, 1, 0, NOW_MS, None, ())
    assert (entry.first_sequence, entry.last_sequence) == (-1, -1)
    assert (entry.first_data_offset, entry.last_data_offset) == (-1, -1)
    for epoch in (1, 2):
        raises_and_changes_nothing(
            state,
            OutOfOrderSequenceNumberError,
            "got sequence 2, wanted 0",
            lambda epoch=epoch: append(state, 2, 3, epoch=epoch, is_transactional=True),
        )
    raises_and_changes_nothing(
        state, InvalidProducerEpochError, "got epoch 0, wanted 1", lambda: append(state, 0, 3, epoch=0)
    )
    append(state, 0, 3, epoch=1, is_transactional=True)
    assert (entry_of(state).producer_epoch, entry_of(state).last_sequence) == (1, 0)
    append(state, 0, 4, epoch=7, is_transactional=True)


@pytest.mark.parametrize("version", [0, 1])
def test_before_version_2_a_marker_has_the_epoch_of_its_transaction_or_a_higher_one(state, version):
    """PST-021: an older one is refused."""
    append(state, 0, 99, epoch=5, is_transactional=True)
    raises_and_changes_nothing(
        state,
        InvalidProducerEpochError,
        r"^producer 1, batch at offset 100 of orders-0: got epoch 3, wanted 5 or higher$",
        lambda: append_marker(state, 100, epoch=3, version=version),
    )
    append_marker(state, 100, epoch=5, version=version)
    append_marker(state, 101, epoch=6, version=version)


@pytest.mark.parametrize("version", [2, 3])
def test_from_version_2_on_a_marker_has_a_higher_epoch_than_its_transaction(state, version):
    """PST-022: the same is refused while the transaction is open."""
    append(state, 0, 99, epoch=5, is_transactional=True)
    for epoch in (3, 5):
        raises_and_changes_nothing(
            state,
            InvalidProducerEpochError,
            f"got epoch {epoch}, wanted 6 or higher$",
            lambda epoch=epoch: append_marker(state, 100, epoch=epoch, version=version),
        )
    append_marker(state, 100, epoch=6, version=version)


def test_a_marker_that_is_written_again_may_have_the_same_epoch(state):
    """PST-023: its transaction is over. An older one is refused still."""
    append(state, 0, 99, is_transactional=True)
    append_marker(state, 100, epoch=1, version=2)
    assert append_marker(state, 101, epoch=1, version=2) is None
    assert entry_of(state) == (PRODUCER, 1, 0, NOW_MS, None, ())
    with pytest.raises(InvalidProducerEpochError, match=r"got epoch 0, wanted 1 or higher$"):
        append_marker(state, 102, epoch=0, version=2)


def test_a_marker_of_the_highest_epoch_ends_a_transaction_of_that_epoch(state):
    """PST-023: no higher one can come."""
    append(state, 0, 99, epoch=32767, is_transactional=True)
    with pytest.raises(InvalidProducerEpochError, match=r"got epoch 32766, wanted 32767 or higher$"):
        append_marker(state, 100, epoch=32766, version=2)
    assert append_marker(state, 100, epoch=32767, version=2) == (PRODUCER, 99, 100, False)


def test_a_leader_must_know_the_version_of_a_marker_and_a_replica_need_not(state):
    """PST-024: a replica takes what passed at the leader, whatever the rule was."""
    append(state, 0, 99, epoch=5, is_transactional=True)
    for origin in ORIGINS[:3]:
        raises_and_changes_nothing(
            state,
            UsageError,
            r"^transaction_version, producer 1, batch at offset 100 of orders-0: got None, wanted the version",
            lambda origin=origin: append_marker(state, 100, epoch=6, version=None, origin=origin),
        )
    assert append_marker(state, 100, epoch=5, version=None, origin="replication") is not None


# -------------------------------------------------------------------------------------------------------- coordinators


@pytest.mark.parametrize("version", [0, 2])
def test_a_coordinator_that_was_replaced_is_fenced(state, version):
    """PST-026: an equal or higher epoch passes and is remembered, a lower one is refused."""
    step = 1 if version == 2 else 0
    append(state, 0, 99, epoch=5, is_transactional=True)
    for number, coordinator_epoch in enumerate((1, 1, 2), start=1):
        append_marker(state, 99 + number, epoch=5 + number * step, coordinator_epoch=coordinator_epoch, version=version)
        assert entry_of(state).coordinator_epoch == coordinator_epoch
    raises_and_changes_nothing(
        state,
        TransactionCoordinatorFencedError,
        r"^producer 1, batch at offset 103 of orders-0: got coordinator epoch 1, wanted 2 or higher$",
        lambda: append_marker(state, 103, epoch=5 + 4 * step, coordinator_epoch=1, version=version),
    )


def test_replicas_take_a_lower_coordinator_epoch(state):
    """PST-028: and remember it."""
    append_marker(state, 0, coordinator_epoch=5)
    append_marker(state, 1, coordinator_epoch=3, origin="replication")
    assert entry_of(state).coordinator_epoch == 3


def test_transactions_without_records_fence_coordinators_too(state):
    """PST-029: epoch 2 twice, then 1."""
    append_marker(state, 0, coordinator_epoch=2)
    append_marker(state, 1, coordinator_epoch=2)
    with pytest.raises(TransactionCoordinatorFencedError):
        append_marker(state, 2, coordinator_epoch=1)


# -------------------------------------------------------------------------------------------------------- transactions


def test_where_a_transaction_begins_is_remembered(state):
    """PST-030: with its place, if that came with it; of its later batches nothing is."""
    candidate = state.prepare(PRODUCER, "client")
    candidate.append(0, 0, 0, 992342, 992342, NOW_MS, True, segment_base_offset=990000, position=234224)
    candidate.append(0, 1, 1, 992343, 992343, NOW_MS, True, segment_base_offset=990000, position=234300)
    state.update(candidate)
    assert state.first_unstable_offset() == LogOffsetMetadata(992342, 990000, 234224)
    assert entry_of(state).current_txn_first_offset == 992342
    append(state, 0, 100, producer_id=2, is_transactional=True)
    assert state.first_unstable_offset() == LogOffsetMetadata(100, None, None)


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_batch_outside_of_the_open_transaction_is_refused(state, origin):
    """PST-031: from anybody."""
    append(state, 0, 0, is_transactional=True)
    raises_and_changes_nothing(
        state,
        InvalidTxnStateError,
        r"^producer 1, batch at offset 1 of orders-0: got a batch without a transaction, wanted one of the transaction "
        r"from offset 0$",
        lambda: append(state, 1, 1, origin=origin),
    )


@pytest.mark.parametrize("is_abort", [False, True])
def test_a_marker_ends_the_transaction_and_leaves_the_batches(state, is_abort):
    """PST-032: first offset 16, last offset 40."""
    append(state, 0, 9)
    candidate = state.prepare(PRODUCER, "client")
    candidate.append(0, 1, 5, 16, 20, NOW_MS, True)
    candidate.append(0, 6, 10, 26, 30, NOW_MS, True)
    assert candidate.started == [TxnMetadata(PRODUCER, LogOffsetMetadata(16))]
    completed = candidate.append_control(0, 40, EndTxnMarker(is_abort, 15, NOW_MS + 1), transaction_version=0)
    assert completed == CompletedTxn(PRODUCER, 16, 40, is_abort)
    assert candidate.kept == [(5, 20, 4, NOW_MS), (10, 30, 4, NOW_MS)]
    state.update(candidate)
    state.complete_transaction(completed)
    assert entry_of(state)[:5] == (PRODUCER, 0, 15, NOW_MS + 1, None)
    assert [batch.last_offset for batch in entry_of(state).batches] == [9, 20, 30]
    state.check_invariants()


def test_a_marker_without_a_transaction_completes_nothing(state):
    """PST-033: there is no last stable offset and no entry of the index to make of it."""
    append(state, 0, 0)
    assert append_marker(state, 1, is_abort=True) is None
    assert state.first_unstable_offset() is None
    assert state.first_undecided_offset() is None
    assert entry_of(state).kept == ((0, 0, 0, NOW_MS),)


def test_an_append_may_end_skip_and_begin_transactions(state):
    """PST-034: what is unstable then is the one that is open."""
    first = state.prepare(PRODUCER, "client")
    first.append(0, 0, 4, 16, 20, NOW_MS, True)
    state.update(first)
    state.on_high_watermark_updated(21)
    assert state.first_unstable_offset() == LogOffsetMetadata(16)

    second = state.prepare(PRODUCER, "client")

    def end(offset: int, is_abort: bool) -> CompletedTxn | None:
        return second.append_control(0, offset, EndTxnMarker(is_abort, 27, NOW_MS), transaction_version=0)

    ends = [end(21, False), end(22, False), end(23, True)]
    second.append(0, 5, 8, 24, 27, NOW_MS, True)
    ends += [end(28, True), end(29, True)]
    second.append(0, 9, 10, 30, 31, NOW_MS, True)
    assert ends == [(PRODUCER, 16, 21, False), None, None, (PRODUCER, 24, 28, True), None]
    assert [txn.first_offset for txn in second.started or ()] == [24, 30]
    state.update(second)
    for completed in ends:
        if completed is not None:
            state.complete_transaction(completed)
    state.check_invariants()
    state.on_high_watermark_updated(32)
    assert state.first_unstable_offset() == LogOffsetMetadata(30)


def test_an_emptied_control_batch_changes_nothing(state):
    """PST-035: no transaction begins or ends. Of an unknown producer it leaves, as in Kafka, an entry that says so."""
    append(state, 0, 0, is_transactional=True)
    before = entry_of(state)
    for origin in ORIGINS:
        candidate = state.prepare(PRODUCER, origin)
        assert candidate.append_control(9, 15, None) is None
        state.update(candidate)
    assert entry_of(state) == before
    candidate = state.prepare(23423, "client")
    assert candidate.append_control(0, 15, None) is None
    state.update(candidate)
    assert entry_of(state, 23423) == (23423, -1, -1, -1, None, ())
    append(state, 17, 16, producer_id=23423)
    state.check_invariants()


@pytest.mark.parametrize("version", [0, 2])
def test_undecided_and_unstable_offsets(state, version):
    """PST-036, PST-037: the end of the first at 109 is unstable until the high watermark is 110."""
    step = 1 if version == 2 else 0

    def offsets() -> tuple[int | None, int | None]:
        unstable = state.first_unstable_offset()
        return state.first_undecided_offset(), None if unstable is None else unstable.offset

    assert offsets() == (None, None)
    append(state, 0, 99, epoch=5, is_transactional=True)
    assert offsets() == (99, 99)
    append(state, 0, 105, producer_id=2, epoch=5, is_transactional=True)
    assert offsets() == (99, 99)
    append_marker(state, 109, epoch=5 + step, version=version)
    assert offsets() == (105, 99)
    for high_watermark in (100, 109):
        state.on_high_watermark_updated(high_watermark)
        assert offsets() == (105, 99)
    state.on_high_watermark_updated(110)
    assert offsets() == (105, 105)
    append_marker(state, 112, producer_id=2, epoch=5 + step, is_abort=True, version=version)
    assert offsets() == (None, 105)
    assert not state.is_empty
    state.on_high_watermark_updated(113)
    assert offsets() == (None, None)


def test_the_last_stable_offset_is_where_the_next_open_transaction_begins(state):
    """PST-038, PST-039: or behind the marker, if no other is open."""
    start = 992342
    for producer_id, offset in ((1, start), (2, start + 25), (3, start + 57)):
        append(state, 0, offset, producer_id=producer_id, is_transactional=True)

    def complete(producer_id: int, first_offset: int, last_offset: int) -> int:
        candidate = state.prepare(producer_id, "replication")
        completed = candidate.append_control(0, last_offset, EndTxnMarker(False, 0, NOW_MS))
        assert completed == (producer_id, first_offset, last_offset, False)
        assert completed is not None
        state.update(candidate)
        stable = state.last_stable_offset(completed)
        state.complete_transaction(completed)
        state.on_high_watermark_updated(last_offset + 1)
        unstable = state.first_unstable_offset()
        assert (unstable.offset if unstable else last_offset + 1) == stable
        return stable

    assert complete(1, start, start + 72) == start + 25
    assert complete(3, start + 57, start + 92) == start + 25
    assert complete(2, start + 25, start + 170) == start + 171
    state.check_invariants()


def test_a_transaction_that_was_not_begun_is_not_completed(state):
    append(state, 0, 10, is_transactional=True)
    raises_and_changes_nothing(
        state,
        UsageError,
        r"^transaction, producer 1 of orders-0: got the end of one from offset 11, wanted an open one$",
        lambda: state.complete_transaction(CompletedTxn(PRODUCER, 11, 20, False)),
    )


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_is_late_if_its_producer_is_silent_for_too_long(state, version):
    """PST-040: only the oldest is looked at."""
    step = 1 if version == 2 else 0
    late_ms = NOW_MS + state.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS
    assert LATE_TRANSACTION_BUFFER_MS == 300_000
    append(state, 0, 100, producer_id=39, epoch=2, is_transactional=True)
    append(state, 0, 150, producer_id=57, epoch=9, is_transactional=True, timestamp=NOW_MS + 500)
    assert not state.has_late_transaction(late_ms)
    assert state.has_late_transaction(late_ms + 1)
    append_marker(state, 200, producer_id=39, epoch=2 + step, version=version)
    assert not state.has_late_transaction(late_ms + 500)
    assert state.has_late_transaction(late_ms + 501)
    append(state, 1, 201, producer_id=57, epoch=9, is_transactional=True, timestamp=NOW_MS + 600)
    assert not state.has_late_transaction(late_ms + 501)
    append_marker(state, 250, producer_id=57, epoch=9 + step, version=version)
    assert not state.has_late_transaction(late_ms * 2)


def test_a_transaction_without_a_timestamp_is_never_late(state):
    append(state, 0, 0, timestamp=-1, is_transactional=True)
    assert not state.has_late_transaction(1 << 62)


# -------------------------------------------------------------------------------------------------------------- expiry


def test_a_producer_expires_after_a_day(state):
    """PST-050: counted from its last timestamp; the check is due every ten minutes."""
    assert PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS == 600_000
    assert state.producer_id_expiration_ms == 86_400_000
    append(state, 0, 0)
    append(state, 0, 1, producer_id=2, timestamp=NOW_MS + 1)
    assert state.remove_expired(NOW_MS + 86_400_000 - 1) == 0
    assert state.remove_expired(NOW_MS + 86_400_000) == 1
    assert list(state.active_producers) == [2]
    state.producer_id_expiration_ms = 10
    assert state.remove_expired(NOW_MS + 11) == 1
    assert state.is_empty


def test_a_producer_with_an_open_transaction_does_not_expire(state):
    """PST-050: whatever the time."""
    append(state, 0, 99, epoch=5, is_transactional=True)
    assert state.remove_expired(NOW_MS * 100) == 0
    assert state.first_undecided_offset() == 99
    append_marker(state, 100, epoch=5)
    assert state.remove_expired(NOW_MS * 100) == 1
    state.check_invariants()


def test_a_producer_of_which_only_a_marker_is_known_stays_until_it_expires(state):
    """PST-051: its epoch fences."""
    append(state, 0, 0, is_transactional=True)
    append_marker(state, 1, epoch=1, is_abort=True)
    assert state.remove_expired(NOW_MS) == 0
    assert entry_of(state).producer_epoch == 1
    assert state.remove_expired(NOW_MS + 86_400_000) == 1


def test_the_log_may_begin_later_without_forgetting_a_producer(state):
    """PST-053: only what waits for the high watermark is done with."""
    append(state, 0, 0, is_transactional=True)
    append_marker(state, 1)
    append(state, 0, 2, producer_id=2, is_transactional=True)
    state.on_log_start_offset_incremented(1)
    assert state.first_unstable_offset() == LogOffsetMetadata(0)
    state.on_log_start_offset_incremented(100)
    assert list(state.active_producers) == [1, 2]
    assert state.first_unstable_offset() == LogOffsetMetadata(2)
    assert state.map_end_offset == 100
    state.on_log_start_offset_incremented(50)
    assert state.map_end_offset == 100


# ------------------------------------------------------------------------------------------------------------ the rest


def test_what_compaction_has_to_keep(state):
    append(state, 0, 10)
    append(state, 1, 20)
    append_marker(state, 30)
    append_marker(state, 40, producer_id=2, epoch=4)
    assert state.last_records() == {1: LastRecord(20, 0), 2: LastRecord(None, 4)}


def test_the_view_of_producers_cannot_be_written_to(state):
    append(state, 0, 10)
    with pytest.raises(TypeError):
        state.active_producers[2] = entry_of(state)
    assert list(state.active_producers) == [PRODUCER]


def test_a_candidate_is_used_once_and_only_if_nothing_came_between(state):
    candidate, other = state.prepare(PRODUCER, "client"), state.prepare(PRODUCER, "client")
    for one in (candidate, other):
        one.append(0, 0, 0, 0, 0, NOW_MS)
    state.update(candidate)
    for one in (candidate, other):
        raises_and_changes_nothing(
            state,
            UsageError,
            r"^candidate, producer 1 of orders-0: got an outdated one, wanted the latest$",
            lambda one=one: state.update(one),
        )
    candidate = state.prepare(PRODUCER, "client")
    candidate.append(0, 1, 1, 1, 1, NOW_MS)
    state.remove_expired(NOW_MS * 100)
    with pytest.raises(UsageError, match="outdated"):
        state.update(candidate)


def test_no_two_transactions_begin_at_one_offset(state):
    append(state, 0, 10, is_transactional=True)
    candidate = state.prepare(2, "replication")
    candidate.append(0, 0, 0, 10, 10, NOW_MS, True)
    raises_and_changes_nothing(
        state,
        UsageError,
        r"^transaction, producer 2 of orders-0: got one from \[10\], where another begins, wanted one an offset$",
        lambda: state.update(candidate),
    )
    candidate = state.prepare(2, "replication")
    for _ in range(2):
        candidate.append(0, 0, 0, 20, 20, NOW_MS, True)
        candidate.append_control(0, 21, EndTxnMarker(False, 0, NOW_MS))
    with pytest.raises(UsageError, match="where another begins"):
        state.update(candidate)
    state.check_invariants()


def test_bad_arguments_are_refused(state):
    with pytest.raises(UsageError, match=r"^producer_id, orders-0: got -1, wanted 0 or higher$"):
        state.prepare(-1, "client")
    with pytest.raises(UsageError, match=r"^origin: got 'leader', wanted client, coordinator, raft_leader, replic"):
        state.prepare(1, "leader")


def test_a_renamed_directory_is_named_in_messages(state):
    state.move_to("data/orders-0.0f3c-delete")
    assert state.snapshots.path(5) == "data/orders-0.0f3c-delete/00000000000000000005.snapshot"
    append(state, 0, 0)
    with pytest.raises(OutOfOrderSequenceNumberError, match=r"of orders-0\.0f3c-delete: got sequence 2, wanted 1"):
        append(state, 2, 1)


def test_check_invariants_finds_what_cannot_be(state):
    append(state, 0, 10, is_transactional=True)
    good = entry_of(state)
    state._producers[PRODUCER] = good._replace(current_txn_first_offset=None)
    with pytest.raises(InvariantError, match="open transactions"):
        state.check_invariants()
    state._producers[PRODUCER] = good._replace(kept=good.kept * 6)
    with pytest.raises(InvariantError, match="batches of producer 1"):
        state.check_invariants()
    state._producers[PRODUCER] = good._replace(producer_id=2)
    with pytest.raises(InvariantError, match="producer at 1"):
        state.check_invariants()
