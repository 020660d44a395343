"""Guards and entries of transactions that are being verified, and what an append makes of them."""

from __future__ import annotations

import pytest

from logcore.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    InvariantError,
    OutOfOrderSequenceNumberError,
)
from logcore.log.disk import SYSTEM_DISK
from logcore.log.producer_append import EndTxnMarker, Origin
from logcore.log.producers import ProducerState
from logcore.log.verification import NO_GUARD, VerificationGuard, Verifications

PRODUCER = 7
NOW_MS = 1_000_000


@pytest.fixture
def state() -> ProducerState:
    return ProducerState(SYSTEM_DISK, "orders-0", names=[])


def start(
    state: ProducerState, *, sequence: int = 0, epoch: int = 0, bump: bool = True, now_ms: int = NOW_MS
) -> VerificationGuard:
    return state.start_verification(
        PRODUCER, sequence=sequence, producer_epoch=epoch, supports_epoch_bump=bump, now_ms=now_ms
    )


def write(
    state: ProducerState,
    guard: VerificationGuard = NO_GUARD,
    *,
    epoch: int = 0,
    sequence: int = 0,
    is_transactional: bool = True,
    origin: Origin = "client",
) -> None:
    """What a log does with a batch of one record."""
    if is_transactional:
        state.check_verified(PRODUCER, epoch, guard)
    candidate = state.prepare(PRODUCER, origin)
    offset = state.map_end_offset
    candidate.append(epoch, sequence, sequence, offset, offset, NOW_MS, is_transactional)
    state.update(candidate)
    state.map_end_offset += 1
    state.check_invariants()


def write_marker(state: ProducerState, *, epoch: int, version: int) -> None:
    state.check_verified(PRODUCER, epoch, is_control=True)
    candidate = state.prepare(PRODUCER, "coordinator")
    marker = EndTxnMarker(False, 0, NOW_MS)
    completed = candidate.append_control(epoch, state.map_end_offset, marker, transaction_version=version)
    state.update(candidate)
    if completed is not None:
        state.complete_transaction(completed)
    state.map_end_offset += 1
    state.check_invariants()


def test_only_the_same_guard_verifies_and_the_sentinel_verifies_nothing():
    """PST-042: not even itself."""
    first, second = VerificationGuard(), VerificationGuard()
    assert first.verify(first)
    assert not first.verify(second)
    assert not first.verify(NO_GUARD)
    assert not NO_GUARD.verify(first)
    assert not NO_GUARD.verify(NO_GUARD)
    assert first != second
    assert len({first, second, NO_GUARD}) == 3


def test_later_requests_get_the_first_ones_guard(state):
    """PST-042: until the entry is gone; the next one is another."""
    assert state.verifications.guard(PRODUCER) is NO_GUARD
    guard = start(state)
    assert guard is start(state, sequence=3) is state.verifications.guard(PRODUCER)
    assert state.verifications.guard(8) is NO_GUARD
    state.verifications.clear(PRODUCER)
    state.verifications.clear(PRODUCER)
    assert start(state) is not guard


@pytest.mark.parametrize("origin", ["client", "coordinator"])
def test_the_first_batch_of_a_transaction_needs_the_guard_and_later_ones_need_none(state, origin):
    """PST-041: an open transaction of that producer and epoch, or the guard that was handed out for it."""
    sequence = 0 if origin == "client" else -1
    with pytest.raises(
        InvalidTxnStateError,
        match=r"^producer 7 of orders-0: got a batch of epoch 0, wanted an open or verified transaction$",
    ):
        write(state, sequence=sequence, origin=origin)
    guard = start(state)
    for wrong in (NO_GUARD, VerificationGuard()):
        with pytest.raises(InvalidTxnStateError):
            write(state, wrong, sequence=sequence, origin=origin)
    write(state, guard, sequence=sequence, origin=origin)
    write(state, sequence=1 if origin == "client" else -1, origin=origin)
    assert state.has_ongoing_transaction(PRODUCER, 0)
    with pytest.raises(InvalidTxnStateError):
        write(state, epoch=1, origin=origin)  # open, but not in this epoch


def test_a_guard_from_before_an_end_marker_is_good_for_nothing(state):
    """PST-041, PST-042: the transaction it was verified for is over."""
    guard = start(state)
    write_marker(state, epoch=1, version=2)
    with pytest.raises(InvalidTxnStateError):
        write(state, guard, epoch=1)
    assert not start(state, epoch=1).verify(guard)


def test_no_guard_is_made_while_a_transaction_is_open(state):
    """PST-043: of that producer and epoch; of a later epoch one is."""
    write(state, start(state))
    assert start(state) is NO_GUARD
    assert len(state.verifications) == 0
    assert start(state, epoch=1) is not NO_GUARD


def test_a_stale_epoch_is_told_before_a_missing_verification(state):
    """PST-025: a client recovers from the first, and not from the second."""
    write_marker(state, epoch=5, version=0)
    message = r"^producer 7 of orders-0: got epoch 4, wanted 5 or higher$"
    with pytest.raises(InvalidProducerEpochError, match=message):
        start(state, epoch=4)
    with pytest.raises(InvalidProducerEpochError, match=message):
        state.check_verified(PRODUCER, 4)
    with pytest.raises(InvalidTxnStateError):
        state.check_verified(PRODUCER, 5)
    assert len(state.verifications) == 0


def test_an_entry_remembers_the_lowest_sequence_of_its_epoch():
    """PST-044: a lower one lowers it, a higher epoch replaces both, a lower epoch is ignored."""
    verifications = Verifications()

    def noted(sequence: int, producer_epoch: int) -> tuple[int, int]:
        entry = verifications.start(
            PRODUCER, sequence=sequence, producer_epoch=producer_epoch, supports_epoch_bump=True, now_ms=0
        )
        return entry.lowest_sequence, entry.producer_epoch

    assert noted(1, 0) == (1, 0)
    assert noted(0, 0) == (0, 0)
    assert noted(4, 0) == (0, 0)
    assert noted(2, 1) == (2, 1)
    assert noted(0, 0) == (2, 1)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_sequence_above_the_lowest_that_was_seen_has_to_wait(state, is_enabled):
    """PST-045: also if verification was switched off meanwhile."""
    guard = start(state, sequence=2, bump=False)
    state.is_verification_enabled = is_enabled
    with pytest.raises(
        OutOfOrderSequenceNumberError, match=r"got sequence 4, wanted at most 2, which has to be written first$"
    ):
        write(state, guard, sequence=4)
    assert state.verifications.guard(PRODUCER) is guard
    write(state, guard, sequence=2)
    write(state, sequence=3)


def test_a_transactional_batch_clears_the_entry_and_an_idempotent_one_does_not(state):
    """PST-046: what is not part of a transaction does not end its verification."""
    guard = start(state)
    write(state, sequence=0, is_transactional=False)
    assert state.verifications.guard(PRODUCER) is guard
    state.verifications.entry(PRODUCER).lowest_sequence = 1
    write(state, guard, sequence=1)
    assert state.verifications.entry(PRODUCER) is None


@pytest.mark.parametrize(("bump", "marker_epoch", "version"), [(True, 1, 2), (False, 0, 1), (False, 0, 0)])
def test_an_end_marker_clears_the_entry(state, bump, marker_epoch, version):
    """PST-046: with version 2 one of a higher epoch, before that any."""
    start(state, bump=bump)
    write_marker(state, epoch=marker_epoch, version=version)
    assert state.verifications.entry(PRODUCER) is None


def test_a_marker_of_the_entrys_epoch_ended_the_transaction_before(state):
    """PST-047: with version 2 each transaction has its own epoch."""
    guard = start(state, epoch=3)
    write_marker(state, epoch=3, version=2)
    assert state.verifications.guard(PRODUCER) is guard
    write(state, guard, epoch=3)


def test_what_is_cleared_is_cleared_by_the_update_only(state):
    """PST-014, PST-046: a candidate that is not put in force has done nothing."""
    guard = start(state)
    candidate = state.prepare(PRODUCER, "client")
    candidate.append(0, 0, 0, 0, 0, NOW_MS, True)
    assert state.verifications.guard(PRODUCER) is guard
    state.update(candidate)
    assert state.verifications.guard(PRODUCER) is NO_GUARD


def test_an_unused_entry_expires_and_is_not_renewed_by_use(state):
    """PST-048: producer.id.expiration.ms after it was made."""
    state.producer_id_expiration_ms = 1000
    guard = start(state, now_ms=0)
    assert start(state, now_ms=900) is guard
    assert state.remove_expired(999) == 0
    assert state.verifications.guard(PRODUCER) is guard
    state.remove_expired(1000)
    assert state.verifications.entry(PRODUCER) is None


@pytest.mark.parametrize("bump", [True, False])
def test_without_verification_a_batch_needs_no_guard_and_clears_the_entry(state, bump):
    """PST-049: it is written, and what was being verified is done with."""
    start(state, bump=bump)
    state.is_verification_enabled = False
    write(state)
    assert state.has_ongoing_transaction(PRODUCER, 0)
    assert len(state.verifications) == 0


def test_check_invariants_finds_a_guard_that_two_have():
    verifications = Verifications()
    for producer_id in (1, 2):
        verifications.start(producer_id, sequence=0, producer_epoch=0, supports_epoch_bump=True, now_ms=0)
    verifications.check_invariants()
    verifications.entry(1).guard = verifications.entry(2).guard
    with pytest.raises(InvariantError, match="guards"):
        verifications.check_invariants()
