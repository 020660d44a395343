"""The producers of a partition, from a list of all that happened, which is searched from end to end for every question.

A Known is what a snapshot had of a producer, a Forgotten that it expired. All else are batches. Epochs never go back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.reference.model import RefKafkaError


class Batch(NamedTuple):
    """last_sequence, last_offset, offset_delta, timestamp."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


@dataclass(frozen=True)
class Data:
    producer_id: int
    epoch: int
    base_sequence: int
    offset: int
    count: int
    timestamp: int
    is_transactional: bool

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.count - 1) % 2**31

    @property
    def last_offset(self) -> int:
        return self.offset + self.count - 1


@dataclass(frozen=True)
class Marker:
    producer_id: int
    epoch: int
    offset: int
    coordinator_epoch: int
    timestamp: int
    is_abort: bool
    version: int

    @property
    def last_offset(self) -> int:
        return self.offset


@dataclass(frozen=True)
class Known:
    producer_id: int
    epoch: int
    coordinator_epoch: int
    timestamp: int
    first_offset: int | None
    batch: Batch | None


@dataclass(frozen=True)
class Forgotten:
    producer_id: int


Event = Data | Marker | Known | Forgotten


class Producer(NamedTuple):
    """What is known, in the order of ProducerEntry."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    timestamp: int
    first_offset: int | None
    batches: tuple[Batch, ...]

    def known(self) -> Known:
        """As a snapshot keeps it."""
        batch = self.batches[-1]._replace(timestamp=self.timestamp) if self.batches else None
        return Known(self.producer_id, self.epoch, self.coordinator_epoch, self.timestamp, self.first_offset, batch)


def producers(history: list[Event]) -> dict[int, Producer]:
    found = {event.producer_id: producer(history, event.producer_id) for event in history}
    return {producer_id: one for producer_id, one in found.items() if one is not None}


def producer(history: list[Event], producer_id: int) -> Producer | None:
    events = [event for event in history if event.producer_id == producer_id]
    for at, event in enumerate(events):
        if isinstance(event, Forgotten):
            return producer(events[at + 1 :], producer_id)
    if not events:
        return None
    last = events[-1]
    batches = []
    for event in events:
        if event.epoch == last.epoch:
            if isinstance(event, Data):
                delta = event.count - 1
                batches.append(Batch(event.last_sequence, event.last_offset, delta, event.timestamp))
            elif isinstance(event, Known) and event.batch is not None:
                batches.append(event.batch)
    coordinators = [-1] + [event.coordinator_epoch for event in events if not isinstance(event, Data)]
    return Producer(producer_id, last.epoch, coordinators[-1], last.timestamp, open_since(events), tuple(batches[-5:]))


def open_since(events: list[Event]) -> int | None:
    """The first offset of the transaction that is open after these events of one producer."""
    first: int | None = None
    for event in events:
        if isinstance(event, Marker):
            first = None
        elif isinstance(event, Known):
            first = event.first_offset
        elif isinstance(event, Data) and event.is_transactional and first is None:
            first = event.offset
    return first


def ended(history: list[Event]) -> list[tuple[int, int, int, bool]]:
    """Producer, first offset, last offset and outcome of every transaction that a marker ended."""
    found = []
    for at, event in enumerate(history):
        if isinstance(event, Marker):
            before = producer(history[:at], event.producer_id)
            if before is not None and before.first_offset is not None:
                found.append((event.producer_id, before.first_offset, event.offset, event.is_abort))
    return found


def check(history: list[Event], batch: Data | Marker, *, was_known: bool) -> None:
    """RefKafkaError with the name of Kafka's error, if a leader would not append `batch`.

    was_known: whether anything was known of the producer before the append that the batch is part of
    """
    now = producer(history, batch.producer_id)
    if now is None:
        return
    if isinstance(batch, Marker):
        same_is_fine = batch.version < 2 or now.first_offset is None or now.epoch == 32767
        if batch.epoch < now.epoch or (batch.epoch == now.epoch and not same_is_fine):
            raise RefKafkaError("INVALID_PRODUCER_EPOCH")
        if batch.coordinator_epoch < now.coordinator_epoch:
            raise RefKafkaError("TRANSACTION_COORDINATOR_FENCED")
        return
    if batch.epoch < now.epoch:
        raise RefKafkaError("INVALID_PRODUCER_EPOCH")
    if batch.epoch > now.epoch:
        wanted = 0
    elif not was_known:
        wanted = batch.base_sequence
    else:
        wanted = (now.batches[-1].last_sequence + 1) % 2**31 if now.batches else 0
    if batch.base_sequence != wanted:
        raise RefKafkaError("OUT_OF_ORDER_SEQUENCE_NUMBER")
    if now.first_offset is not None and not batch.is_transactional:
        raise RefKafkaError("INVALID_TXN_STATE")
