"""Which transactional batches a compaction may drop: it meets them in the order of the log, markers last.

    batch of an aborted transaction      goes
    abort marker                         goes, once no batch of its transaction was met; until then it is kept, and so
                                         is its entry in the transaction index
    batch of a committed transaction     is compacted like any other
    commit marker                        goes, once no batch of its transaction was met

A marker that may go gets a delete horizon first, and goes in a later pass: somebody may be reading the transaction.
Kafka: CleanedTransactionMetadata.
"""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from logcore._record import Batch

from .txnindex import AbortedTransaction


class CleanedTransactions:
    """The transactions of one pass. `keep` is told of each aborted transaction that the new segment's index needs."""

    def __init__(self) -> None:
        self.keep: Callable[[AbortedTransaction], None] | None = None
        self._to_come: list[tuple[int, AbortedTransaction]] = []  # by first offset
        self._noted: set[AbortedTransaction] = set()
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer, those that have begun
        self._seen: set[int] = set()  # producers of which a batch of the aborted transaction was met
        self._committed: set[int] = set()  # producers of which a batch of a transaction was met that is not aborted

    def add(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Aborted transactions that touch what is read next. One that is known already may come again."""
        for transaction in transactions:
            if transaction not in self._noted:
                self._noted.add(transaction)
                heappush(self._to_come, (transaction.first_offset, transaction))

    def may_discard(self, batch: Batch) -> bool:
        """Whether a batch may go with all its records, as far as transactions go."""
        while self._to_come and self._to_come[0][0] <= batch.last_offset:
            _, transaction = heappop(self._to_come)
            self._aborted.setdefault(transaction.producer_id, transaction)
        if batch.is_control:
            return self._may_discard_control(batch)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._seen.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def _may_discard_control(self, batch: Batch) -> bool:
        markers = batch.control_records()
        if not markers:
            return True
        producer_id = batch.producer_id
        if markers[0].type == "ABORT":
            transaction = self._aborted.pop(producer_id, None)
            if transaction is None or producer_id not in self._seen:
                return True
            self._seen.discard(producer_id)
            if self.keep is not None:
                self.keep(transaction)
            return False
        if markers[0].type == "COMMIT":
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_seen
        return False
