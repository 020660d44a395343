"""What an append would do to a producer, before it is done: a candidate that is checked batch by batch.

ProducerState.prepare() makes one, append() and append_control() validate a batch each and change the candidate only,
ProducerState.update() puts it in force. A batch that is refused leaves the candidate as it was.

Who checks what, by origin (what is not checked is taken as it comes):

                    epoch      sequence    coordinator epoch    open transaction
    client          yes        yes         yes                  yes
    coordinator     yes        no          yes                  yes
    raft_leader     yes        no          yes                  yes
    replication     no         no          no                   yes                  log loading too

Kafka: ProducerAppendInfo.
"""

from typing import Literal, NamedTuple, NoReturn

from logcore.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
    UsageError,
)

from .producer_entry import BATCHES_MAX, NO_PRODUCER_EPOCH, NO_SEQUENCE, SEQUENCE_MAX, Kept, ProducerEntry
from .transactions import CompletedTxn, LogOffsetMetadata, TxnMetadata
from .verification import VerificationEntry

Origin = Literal["client", "coordinator", "raft_leader", "replication"]
ORIGINS: tuple[Origin, ...] = ("client", "coordinator", "raft_leader", "replication")

PRODUCER_EPOCH_MAX = 0x7FFF


class EndTxnMarker(NamedTuple):
    """What a control batch says that ends a transaction."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int  # of its record


class ProducerAppend:
    """A producer, as it will be after the append. Made by ProducerState.prepare().

    producer_epoch, coordinator_epoch, last_timestamp, current_txn_first_offset: as they will be
    kept: the batches of this append, the last BATCHES_MAX of them
    started: the transactions that begin in it
    ends_verification: whether what is being verified for the producer is done with
    """

    __slots__ = (
        "_last_sequence",
        "_origin",
        "_verification",
        "_where",
        "coordinator_epoch",
        "current",
        "current_txn_first_offset",
        "ends_verification",
        "kept",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "started",
    )

    def __init__(
        self,
        producer_id: int,
        current: ProducerEntry,
        origin: Origin,
        verification: VerificationEntry | None,
        where: str,
    ) -> None:
        if origin not in ORIGINS:
            raise UsageError("origin", got=repr(origin), wanted=", ".join(ORIGINS))
        self.producer_id = producer_id
        self.current = current
        (
            _,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.current_txn_first_offset,
            kept,
        ) = current
        self.kept: list[Kept] = []
        self.started: list[TxnMetadata] | None = None
        self.ends_verification = False
        self._origin = origin
        self._verification = verification
        self._where = where
        self._last_sequence = kept[-1][0] if kept else NO_SEQUENCE  # in producer_epoch

    def append(
        self,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        is_transactional: bool = False,
        segment_base_offset: int | None = None,
        position: int | None = None,
    ) -> None:
        """Check a batch of records, and take it in.

        segment_base_offset, position: where the batch will lie, if that is known; kept if it begins a transaction

        InvalidProducerEpochError, OutOfOrderSequenceNumberError, InvalidTxnStateError.
        """
        if self._origin != "replication":
            if producer_epoch < self.producer_epoch:
                self._refuse_epoch(producer_epoch, base_offset, f"{self.producer_epoch} or higher")
            if self._origin == "client" and (
                base_sequence != self._last_sequence + 1
                or producer_epoch != self.producer_epoch
                or self._verification is not None
            ):
                self._check_sequence(producer_epoch, base_sequence, base_offset)
        if is_transactional:
            if self.current_txn_first_offset is None:
                self._start(LogOffsetMetadata(base_offset, segment_base_offset, position))
            if self._verification is not None and self._verification.is_ended_by(producer_epoch, False):
                self.ends_verification = True
        elif self.current_txn_first_offset is not None:
            self._refuse(
                InvalidTxnStateError,
                base_offset,
                "got a batch without a transaction",
                f"one of the transaction from offset {self.current_txn_first_offset}",
            )
        if producer_epoch != self.producer_epoch:
            self._begin_epoch(producer_epoch)
        elif len(self.kept) == BATCHES_MAX:
            del self.kept[0]
        self.kept.append((last_sequence, last_offset, last_offset - base_offset, max_timestamp))
        self._last_sequence = last_sequence
        self.last_timestamp = max_timestamp

    def append_control(
        self,
        producer_epoch: int,
        offset: int,
        marker: EndTxnMarker | None,
        *,
        transaction_version: int | None = None,
        is_transactional: bool = True,
    ) -> CompletedTxn | None:
        """Check a control batch at `offset`, and take it in. Returns the transaction that it ends.

        None if that transaction has no records here. The caller completes what is returned, after the update.

        marker: None for a batch whose record was compacted away, with all of its transaction: it changes nothing
        transaction_version: the coordinator's, of which the rule for the epoch depends. Only a leader knows it, and a
        leader must; without it replicas take the rule of version 0, which lets pass all that a leader did

        InvalidProducerEpochError, TransactionCoordinatorFencedError.
        """
        completed: CompletedTxn | None = None
        if marker is not None:
            self._check_marker(producer_epoch, offset, marker, transaction_version)
            first_offset = self.current_txn_first_offset
            if first_offset is not None:
                completed = CompletedTxn(self.producer_id, first_offset, offset, marker.is_abort)
                self.current_txn_first_offset = None
            if producer_epoch != self.producer_epoch:
                self._begin_epoch(producer_epoch)
            self.coordinator_epoch = marker.coordinator_epoch
            self.last_timestamp = marker.timestamp
        if is_transactional and self._verification is not None:
            self.ends_verification |= self._verification.is_ended_by(producer_epoch, True)
        return completed

    def _start(self, first_offset_metadata: LogOffsetMetadata) -> None:
        self.current_txn_first_offset = first_offset_metadata.offset
        if self.started is None:
            self.started = []
        self.started.append(TxnMetadata(self.producer_id, first_offset_metadata))

    def _begin_epoch(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.kept.clear()
        self._last_sequence = NO_SEQUENCE

    def _check_sequence(self, producer_epoch: int, base_sequence: int, base_offset: int) -> None:
        verification = self._verification
        if verification is not None:
            if base_sequence != 0 and verification.supports_epoch_bump and not self.current.kept:
                self._refuse_sequence(base_sequence, base_offset, "0, as nothing is known of the producer")
            if base_sequence > verification.lowest_sequence:
                self._refuse_sequence(
                    base_sequence, base_offset, f"at most {verification.lowest_sequence}, which has to be written first"
                )
        if producer_epoch != self.producer_epoch:
            if base_sequence != 0 and self.producer_epoch != NO_PRODUCER_EPOCH:
                self._refuse_sequence(
                    base_sequence, base_offset, f"0, as epoch {producer_epoch} begins (it was {self.producer_epoch})"
                )
            return
        wanted = 0 if self._last_sequence == SEQUENCE_MAX else self._last_sequence + 1
        # The state of an unknown producer may have expired, or been deleted with its records: it goes on where it is.
        if base_sequence != wanted and self.current.producer_epoch != NO_PRODUCER_EPOCH:
            self._refuse_sequence(base_sequence, base_offset, str(wanted))

    def _check_marker(
        self, producer_epoch: int, offset: int, marker: EndTxnMarker, transaction_version: int | None
    ) -> None:
        if self._origin == "replication":
            return
        if transaction_version is None:
            raise UsageError(
                "transaction_version", where=self._place(offset), got="None", wanted="the version, to append a marker"
            )
        epoch = self.producer_epoch
        if transaction_version < 2:
            if producer_epoch < epoch:
                self._refuse_epoch(producer_epoch, offset, f"{epoch} or higher")
        elif producer_epoch <= epoch:
            # A marker is written again if its answer was lost; its transaction is over then. And an epoch that cannot
            # be raised must not leave a transaction open for ever.
            may_be_same = self.current_txn_first_offset is None or epoch == PRODUCER_EPOCH_MAX
            if producer_epoch < epoch or not may_be_same:
                self._refuse_epoch(producer_epoch, offset, f"{epoch if may_be_same else epoch + 1} or higher")
        if marker.coordinator_epoch < self.coordinator_epoch:
            self._refuse(
                TransactionCoordinatorFencedError,
                offset,
                f"got coordinator epoch {marker.coordinator_epoch}",
                f"{self.coordinator_epoch} or higher",
            )

    def _refuse_epoch(self, producer_epoch: int, offset: int, wanted: str) -> NoReturn:
        self._refuse(InvalidProducerEpochError, offset, f"got epoch {producer_epoch}", wanted)

    def _refuse_sequence(self, base_sequence: int, offset: int, wanted: str) -> NoReturn:
        self._refuse(OutOfOrderSequenceNumberError, offset, f"got sequence {base_sequence}", wanted)

    def _refuse(self, error: type[KafkaError], offset: int, got: str, wanted: str) -> NoReturn:
        raise error(f"{self._place(offset)}: {got}, wanted {wanted}")

    def _place(self, offset: int) -> str:
        return f"producer {self.producer_id}, batch at offset {offset} of {self._where}"
