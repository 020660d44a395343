"""From the headers of batches to the state of their producers: for appends, recovery and reloading alike."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from typing_extensions import Buffer

from logcore._record import decode_batches

from .appending import Headers
from .producer_append import EndTxnMarker, ProducerAppend
from .producers import ProducerState
from .transactions import CompletedTxn
from .txnindex import AbortedTransaction

TRANSACTIONAL = 0x10
CONTROL = 0x20
_SEQUENCES = 1 << 31


class ProducerBatch(NamedTuple):
    """A batch that has a producer."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    is_transactional: bool
    is_control: bool
    marker: EndTxnMarker | None  # of a control batch that still has its record
    position: int  # among the batches it came with

    def feed(
        self,
        candidate: ProducerAppend,
        *,
        transaction_version: int | None = None,
        segment_base_offset: int | None = None,
        position: int | None = None,
    ) -> CompletedTxn | None:
        """Let a candidate check it and take it in; returns the transaction that it ends."""
        if self.is_control:
            return candidate.append_control(
                self.producer_epoch,
                self.base_offset,
                self.marker,
                transaction_version=transaction_version,
                is_transactional=self.is_transactional,
            )
        candidate.append(
            self.producer_epoch,
            self.base_sequence,
            self.last_sequence,
            self.base_offset,
            self.last_offset,
            self.max_timestamp,
            self.is_transactional,
            segment_base_offset,
            position,
        )
        return None


# What gives the bytes of a batch, for who has headers only: by its position behind that of the first, and its size.
ReadBatch = Callable[[int, int], Buffer]


def producer_batches(headers: Headers, data: Buffer | ReadBatch) -> Iterator[ProducerBatch]:
    """The batches among `headers` that have a producer. `data` is the batches, of which headers[0] is the first.

    Only control batches are looked into: who has not read the batches hands in what reads one.
    """
    if len(headers) == 1:
        found = [0] if headers[0]["producer_id"] >= 0 else []
    else:
        found = np.flatnonzero(headers["producer_id"] >= 0).tolist()
    if not found:
        return
    origin = int(headers[0]["position"])
    for index in found:
        header = headers[index]
        attributes, base_sequence = int(header["attributes"]), int(header["base_sequence"])
        base_offset, last_offset = int(header["base_offset"]), int(header["last_offset"])
        position = int(header["position"]) - origin
        is_control = bool(attributes & CONTROL)
        marker = None
        if is_control:
            size = int(header["size_in_bytes"])
            marker = _marker(data(position, size) if callable(data) else memoryview(data)[position : position + size])
        yield ProducerBatch(
            int(header["producer_id"]),
            int(header["producer_epoch"]),
            base_sequence,
            -1 if base_sequence == -1 else (base_sequence + last_offset - base_offset) % _SEQUENCES,
            base_offset,
            last_offset,
            int(header["max_timestamp"]),
            bool(attributes & TRANSACTIONAL),
            is_control,
            marker,
            position,
        )


def _marker(data: Buffer) -> EndTxnMarker | None:
    """What a control batch says; None if its record was compacted away, or ends no transaction."""
    for batch in decode_batches(data, verify_crc=False):
        for record in batch.control_records():
            if record.coordinator_epoch is not None:
                return EndTxnMarker(record.type == "ABORT", record.coordinator_epoch, record.timestamp)
    return None


def replay(producers: ProducerState, headers: Headers, data: Buffer | ReadBatch) -> list[AbortedTransaction]:
    """Take batches of the log into the state, as replicas do; returns the transactions that they abort."""
    aborted = []
    for batch in producer_batches(headers, data):
        candidate = producers.prepare(batch.producer_id, "replication")
        completed = batch.feed(candidate)
        producers.update(candidate)
        if completed is not None:
            if completed.is_aborted:
                aborted.append(aborted_transaction(producers, completed))
            producers.complete_transaction(completed)
    return aborted


def aborted_transaction(producers: ProducerState, completed: CompletedTxn) -> AbortedTransaction:
    """What the transaction index is told of an aborted transaction, before it is completed."""
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, producers.last_stable_offset(completed)
    )
