"""CleanedTransactions: which batches and markers of transactions may go."""

from __future__ import annotations

import logcore
from logcore.log.cleaned_transactions import CleanedTransactions
from logcore.log.txnindex import AbortedTransaction


def data(producer_id: int, offset: int, *, is_transactional: bool = True) -> logcore.Batch:
    encoded = logcore.encode_batch(
        [(b"k", b"v", 0)], base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0,
        is_transactional=is_transactional,
    )  # fmt: skip
    return next(iter(logcore.decode_batches(encoded)))


def marker(producer_id: int, offset: int, *, commit: bool) -> logcore.Batch:
    encoded = logcore.encode_transaction_marker(producer_id, 0, commit=commit, coordinator_epoch=0, offset=offset)
    return next(iter(logcore.decode_batches(encoded)))


def test_a_marker_may_go_when_nothing_of_its_transaction_was_met() -> None:
    """CLN-044: of a commit and of an abort alike; each transaction counts by itself."""
    seen = CleanedTransactions()
    assert seen.may_discard(marker(7, 0, commit=True))
    assert seen.may_discard(marker(7, 1, commit=False))
    assert not seen.may_discard(data(7, 2))
    assert seen.may_discard(marker(8, 3, commit=True))
    assert not seen.may_discard(marker(7, 4, commit=True))
    assert seen.may_discard(marker(7, 5, commit=True))


def test_an_aborted_transaction_is_kept_in_the_index_if_its_data_was_met() -> None:
    """CLN-045: told once, with the marker; known transactions may be added again."""
    kept: list[AbortedTransaction] = []
    seen = CleanedTransactions()
    seen.keep = kept.append
    first, second = AbortedTransaction(7, 2, 4, 2), AbortedTransaction(8, 5, 6, 5)
    for _ in range(2):
        seen.add([second, first])
    assert not seen.may_discard(data(7, 1))
    assert not seen.may_discard(marker(7, 1, commit=True))
    assert seen.may_discard(data(7, 2))
    assert not seen.may_discard(data(7, 3, is_transactional=False))
    assert not seen.may_discard(marker(7, 4, commit=False))
    assert kept == [first]
    assert seen.may_discard(marker(8, 6, commit=False))
    assert kept == [first]
    assert not seen.may_discard(data(7, 7))


def test_an_empty_control_batch_may_go() -> None:
    """CLN-049: it has no marker that could end something."""
    encoded = logcore.encode_empty_batch(3, 3, producer_id=7, producer_epoch=0, is_transactional=True, is_control=True)
    seen = CleanedTransactions()
    assert not seen.may_discard(data(7, 2))
    assert seen.may_discard(next(iter(logcore.decode_batches(encoded))))
    assert not seen.may_discard(marker(7, 4, commit=True))
