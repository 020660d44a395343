"""Transactions by their first offset, and how they are forgotten."""

from __future__ import annotations

import pytest

from logcore.errors import InvariantError
from logcore.log.transactions import LogOffsetMetadata, Transactions, TxnMetadata, UnreplicatedTransactions


def txn(first_offset: int, producer_id: int = 7) -> TxnMetadata:
    return TxnMetadata(producer_id, LogOffsetMetadata(first_offset))


def test_the_lowest_first_offset_comes_first_whatever_the_order_they_came_in():
    transactions = Transactions()
    assert transactions.lowest() is None
    for first_offset in (30, 10, 20):
        transactions.put(txn(first_offset))
    assert [found.first_offset for found in transactions] == [10, 20, 30]
    assert (len(transactions), transactions.lowest()) == (3, txn(10))
    assert 20 in transactions
    assert transactions.remove(20) == txn(20)
    assert transactions.remove(20) is None
    assert [found.first_offset for found in transactions] == [10, 30]
    transactions.check_invariants()


def test_of_two_that_begin_at_one_offset_the_later_counts():
    transactions = Transactions()
    transactions.put(txn(10, 7))
    transactions.put(txn(10, 8))
    assert list(transactions) == [txn(10, 8)]
    transactions.check_invariants()


def test_ended_ones_go_in_the_order_of_their_markers():
    ended = UnreplicatedTransactions()
    for first_offset, last_offset in ((10, 90), (20, 50), (30, 70)):
        ended.put(txn(first_offset), last_offset)
    assert ended.lowest() == txn(10)._replace(last_offset=90)
    ended.remove_ended_before(50)
    assert len(ended) == 3
    ended.remove_ended_before(71)
    assert [found.first_offset for found in ended] == [10]
    ended.check_invariants()
    ended.remove_ended_before(91)
    assert (len(ended), ended.lowest()) == (0, None)


def test_an_ended_one_whose_offset_another_took_does_not_take_that_with_it():
    ended = UnreplicatedTransactions()
    ended.put(txn(10, 7), 20)
    ended.put(txn(10, 8), 40)
    ended.remove_ended_before(30)
    assert [found.producer_id for found in ended] == [8]
    ended.check_invariants()
    ended.remove_ended_before(41)
    assert len(ended) == 0


def test_check_invariants_finds_what_cannot_be():
    transactions = Transactions()
    transactions.put(txn(10))
    transactions._first_offsets.append(5)
    with pytest.raises(InvariantError, match="order"):
        transactions.check_invariants()
    transactions = Transactions()
    transactions.put(txn(10))
    transactions._by_first_offset[10] = txn(11)
    with pytest.raises(InvariantError, match="in the place of 10"):
        transactions.check_invariants()
    ended = UnreplicatedTransactions()
    ended.put(txn(10), 20)
    ended._by_last_offset.clear()
    with pytest.raises(InvariantError, match="ends"):
        ended.check_invariants()
