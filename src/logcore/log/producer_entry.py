"""What is known of one producer: its epoch, its last five batches, its open transaction.

Entries never change; an append puts a new one in place of the old (producers.py). -1 stands for what is not there in
numbers that go to a snapshot as they are: an epoch, a sequence, an offset or timestamp of a producer without any.
Kafka: ProducerStateEntry, BatchMetadata.
"""

from typing import NamedTuple

from .snapshot import SnapshotEntry

BATCHES_MAX = 5  # as many as a client may have in flight, so that a repeated one is always among them

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1
SEQUENCE_MAX = 0x7FFFFFFF


class BatchMetadata(NamedTuple):
    """A batch that was appended: enough to recognise it when it is sent again, and to answer as the first time."""

    last_sequence: int
    last_offset: int
    offset_delta: int  # from its first offset to its last
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Of its first record; the sequence before 0 is 2147483647."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        """Of its first record."""
        return self.last_offset - self.offset_delta


# A BatchMetadata, not yet called by its name: one is made for each batch that is appended, and hardly any is asked for.
Kept = tuple[int, int, int, int]


class ProducerEntry(NamedTuple):
    """A producer, and its last batches, oldest first: at most BATCHES_MAX, all of its present epoch."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int  # of its last batch or marker
    current_txn_first_offset: int | None
    kept: tuple[Kept, ...]

    @property
    def batches(self) -> list[BatchMetadata]:
        """The batches that are kept, oldest first."""
        return [BatchMetadata._make(batch) for batch in self.kept]

    @property
    def first_sequence(self) -> int:
        """Of the oldest batch that is kept; -1 if none is."""
        return BatchMetadata._make(self.kept[0]).first_sequence if self.kept else NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """Of the last batch; -1 if none is kept."""
        return self.kept[-1][0] if self.kept else NO_SEQUENCE

    @property
    def first_data_offset(self) -> int:
        """Of the oldest batch that is kept; -1 if none is."""
        return BatchMetadata._make(self.kept[0]).first_offset if self.kept else NO_OFFSET

    @property
    def last_data_offset(self) -> int:
        """Of the last batch; -1 if none is kept. A marker is no data."""
        return self.kept[-1][1] if self.kept else NO_OFFSET

    def find_duplicate(self, producer_epoch: int, base_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The kept batch with exactly this epoch and these sequences; None if there is none.

        >>> entry = ProducerEntry(7, 0, -1, 1600, None, kept=((4, 104, 4, 1500), (9, 112, 4, 1600)))
        >>> entry.find_duplicate(0, 0, 4)
        BatchMetadata(last_sequence=4, last_offset=104, offset_delta=4, timestamp=1500)
        >>> entry.find_duplicate(0, 1, 4)
        """
        if producer_epoch == self.producer_epoch:
            for batch in self.kept:
                if batch[0] == last_sequence:
                    found = BatchMetadata._make(batch)
                    if found.first_sequence == base_sequence:
                        return found
        return None

    def to_snapshot(self) -> SnapshotEntry:
        """As a snapshot has it: of the batches only the last."""
        last_sequence, last_offset, offset_delta, _ = self.kept[-1] if self.kept else (NO_SEQUENCE, NO_OFFSET, 0, 0)
        return SnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            NO_OFFSET if self.current_txn_first_offset is None else self.current_txn_first_offset,
        )

    @classmethod
    def from_snapshot(cls, stored: SnapshotEntry) -> "ProducerEntry":
        """From a snapshot, which knows of one timestamp only: after a marker it is the batch's too."""
        batch = stored.last_sequence, stored.last_offset, stored.offset_delta, stored.timestamp
        first_offset = stored.current_txn_first_offset
        return cls(
            stored.producer_id,
            stored.producer_epoch,
            stored.coordinator_epoch,
            stored.timestamp,
            first_offset if first_offset >= 0 else None,
            (batch,) if stored.last_offset >= 0 else (),
        )


# What is known of a producer of which nothing is known.
UNKNOWN = ProducerEntry(-1, NO_PRODUCER_EPOCH, -1, NO_TIMESTAMP, None, ())
