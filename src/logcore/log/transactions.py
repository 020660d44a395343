"""Transactions of a partition: open ones, and ended ones whose marker is not yet replicated.

    open          ── its marker is appended ────────────────────────> unreplicated
    unreplicated  ── the high watermark passes its marker ──────────> forgotten

Both kinds are asked for the one with the lowest first offset: it bounds the last stable offset. Kafka: TxnMetadata,
CompletedTxn, LogOffsetMetadata.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from logcore.errors import InvariantError


class LogOffsetMetadata(NamedTuple):
    """An offset and, where it is known, its place: the segment, and the byte in it where the offset's batch begins."""

    offset: int
    segment_base_offset: int | None = None
    position: int | None = None


class TxnMetadata(NamedTuple):
    """A transaction; `last_offset` is its marker's, None as long as there is none."""

    producer_id: int
    first_offset_metadata: LogOffsetMetadata
    last_offset: int | None = None

    @property
    def first_offset(self) -> int:
        """Of its first batch."""
        return self.first_offset_metadata.offset


class CompletedTxn(NamedTuple):
    """A transaction with records that a marker has ended: first offset of its records, offset of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Transactions:
    """Transactions by their first offset, lowest first.

    >>> open_ones = Transactions()
    >>> open_ones.put(TxnMetadata(7, LogOffsetMetadata(30)))
    >>> open_ones.put(TxnMetadata(8, LogOffsetMetadata(20)))
    >>> [txn.producer_id for txn in open_ones]
    [8, 7]
    >>> open_ones.remove(20)
    TxnMetadata(producer_id=8, first_offset_metadata=LogOffsetMetadata(offset=20, ...), last_offset=None)
    >>> open_ones.lowest().producer_id
    7
    """

    __slots__ = ("_by_first_offset", "_first_offsets")

    def __init__(self) -> None:
        self._by_first_offset: dict[int, TxnMetadata] = {}
        self._first_offsets: list[int] = []  # the keys, sorted

    def __len__(self) -> int:
        return len(self._first_offsets)

    def __contains__(self, first_offset: object) -> bool:
        return first_offset in self._by_first_offset

    def __iter__(self) -> Iterator[TxnMetadata]:
        return map(self._by_first_offset.__getitem__, self._first_offsets)

    def lowest(self) -> TxnMetadata | None:
        """The one with the lowest first offset; None if there is none."""
        return self._by_first_offset[self._first_offsets[0]] if self._first_offsets else None

    def get(self, first_offset: int) -> TxnMetadata | None:
        """The one that begins at `first_offset`; None if none does."""
        return self._by_first_offset.get(first_offset)

    def put(self, txn: TxnMetadata) -> None:
        """Take one in, in place of one that began at the same offset."""
        first_offset = txn.first_offset
        if first_offset not in self._by_first_offset:
            insort(self._first_offsets, first_offset)
        self._by_first_offset[first_offset] = txn

    def remove(self, first_offset: int) -> TxnMetadata | None:
        """Take out the one that begins at `first_offset`; None if none does."""
        txn = self._by_first_offset.pop(first_offset, None)
        if txn is not None:
            del self._first_offsets[bisect_left(self._first_offsets, first_offset)]
        return txn

    def check_invariants(self) -> None:
        """Raise InvariantError at what cannot be."""
        if self._first_offsets != sorted(self._by_first_offset):
            raise InvariantError(f"transactions: order got {self._first_offsets}, wanted {self._by_first_offset}")
        for first_offset, txn in self._by_first_offset.items():
            if txn.first_offset != first_offset:
                raise InvariantError(f"transactions: {txn} got in the place of {first_offset}")


class UnreplicatedTransactions:
    """Transactions that a marker has ended, until the high watermark passes the marker."""

    __slots__ = ("_by_last_offset", "_transactions")

    def __init__(self) -> None:
        self._transactions = Transactions()
        # A heap of last and first offsets: of all of them, and of what another took the place of.
        self._by_last_offset: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._transactions)

    def __iter__(self) -> Iterator[TxnMetadata]:
        return iter(self._transactions)

    def lowest(self) -> TxnMetadata | None:
        """The one with the lowest first offset; None if there is none."""
        return self._transactions.lowest()

    def put(self, txn: TxnMetadata, last_offset: int) -> None:
        """Take in one whose marker lies at `last_offset`."""
        self._transactions.put(txn._replace(last_offset=last_offset))
        heappush(self._by_last_offset, (last_offset, txn.first_offset))

    def remove_ended_before(self, offset: int) -> None:
        """Forget those whose marker lies before `offset`."""
        while self._by_last_offset and self._by_last_offset[0][0] < offset:
            last_offset, first_offset = heappop(self._by_last_offset)
            txn = self._transactions.get(first_offset)
            if txn is not None and txn.last_offset == last_offset:
                self._transactions.remove(first_offset)

    def check_invariants(self) -> None:
        """Raise InvariantError at what cannot be."""
        self._transactions.check_invariants()
        missing = {(txn.last_offset, txn.first_offset) for txn in self} - set(self._by_last_offset)
        if missing:
            raise InvariantError(f"transactions: ends got without {sorted(missing)}, wanted {self._by_last_offset}")
