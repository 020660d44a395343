"""The producers of a partition: what idempotence and transactions need to know, kept in memory and in snapshots.

    producers       by id: epoch, coordinator epoch, the last five batches, the open transaction (producer_entry.py)
    transactions    open ones, and ended ones that the high watermark has not passed (transactions.py)
    verifications   transactions whose coordinator is being asked (verification.py); these are in memory only
    snapshots       the state at some offsets, in files of the log's directory (snapshot_files.py)

The state is that of the log before `map_end_offset`. It can always be made again: from the newest good snapshot, and
the batches from there on. How an append goes:

    candidate = state.prepare(producer_id, "client")     once a producer
    candidate.append(…)                                  once a batch: checks, and changes the candidate only
    … the batches are written …
    state.update(candidate)
    for each transaction that append_control() gave back:
        … state.last_stable_offset(completed) goes to the transaction index …
        state.complete_transaction(completed)
    state.map_end_offset = …                             also when no batch had a producer

Replicas and recovery do the same with "replication", which checks next to nothing: the leader did.

One thread changes a state. Time is handed in, and so is the disk. Kafka: ProducerStateManager.
"""

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from logcore.errors import (
    CorruptionReason,
    CorruptSnapshot,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    InvariantError,
    UsageError,
)

from .disk import Disk
from .producer_append import Origin, ProducerAppend
from .producer_entry import BATCHES_MAX, UNKNOWN, ProducerEntry
from .snapshot_files import SnapshotFiles
from .transactions import CompletedTxn, LogOffsetMetadata, Transactions, TxnMetadata, UnreplicatedTransactions
from .verification import NO_GUARD, VerificationGuard, Verifications

PRODUCER_ID_EXPIRATION_MS = 86_400_000  # Kafka's producer.id.expiration.ms
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = 600_000  # how often the owner is to call remove_expired()
MAX_TRANSACTION_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms
LATE_TRANSACTION_BUFFER_MS = 300_000  # what the coordinator may take to abort a transaction whose time is over


class LastRecord(NamedTuple):
    """What compaction has to keep of a producer: the batch with its last data, if any is known, and its epoch."""

    last_data_offset: int | None
    producer_epoch: int


class ProducerState:
    """The producers of the partition in `directory`. It begins empty, at offset 0, knowing which snapshots there are.

    names: what the directory holds, if that has been listed already
    read_only: never write, rename or remove a file
    map_end_offset: the offset behind the last batch that the state has seen; its owner sets it
    producer_id_expiration_ms, max_transaction_timeout_ms, is_verification_enabled: may be set at any time

    >>> from logcore.log.disk import SYSTEM_DISK
    >>> state = ProducerState(SYSTEM_DISK, "orders-0", names=[])
    >>> candidate = state.prepare(7, "client")
    >>> candidate.append(0, base_sequence=0, last_sequence=4, base_offset=100, last_offset=104, max_timestamp=1600)
    >>> state.update(candidate)
    >>> state.last_entry(7).find_duplicate(0, 0, 4).first_offset
    100
    >>> state.prepare(7, "client").append(0, 6, 6, 105, 105, 1700)
    Traceback (most recent call last):
        ...
    logcore.errors.OutOfOrderSequenceNumberError: producer 7, batch at offset 105 of orders-0: got sequence 6, wanted 5
    """

    __slots__ = (
        "_last_snapshot_offset",
        "_ongoing",
        "_producers",
        "_snapshots",
        "_unreplicated",
        "_where",
        "is_verification_enabled",
        "map_end_offset",
        "max_transaction_timeout_ms",
        "producer_id_expiration_ms",
        "verifications",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        names: Iterable[str] | None = None,
        read_only: bool = False,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        is_verification_enabled: bool = True,
    ) -> None:
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self.is_verification_enabled = is_verification_enabled
        self.verifications = Verifications()
        self.map_end_offset = 0
        # Of the snapshot that the state was last written to or read from, or where it began without one.
        self._last_snapshot_offset = 0
        self._producers: dict[int, ProducerEntry] = {}
        # Each is the current one of its producer, and each current one is here; from update() to
        # complete_transaction() also those that the update has ended.
        self._ongoing = Transactions()
        self._unreplicated = UnreplicatedTransactions()
        self._snapshots = SnapshotFiles(disk, directory, names=names, read_only=read_only)
        self._where = os.path.basename(directory) or directory

    # ------------------------------------------------------------------------------------------------------ producers

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known, and no transaction waits for the high watermark."""
        return not self._producers and not self._unreplicated

    @property
    def active_producers(self) -> Mapping[int, ProducerEntry]:
        """All that are known, by id, in the order in which they came. A view."""
        return MappingProxyType(self._producers)

    def last_entry(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer; None if nothing is."""
        return self._producers.get(producer_id)

    def last_records(self) -> dict[int, LastRecord]:
        """For compaction: of each producer the offset of its last data, None if it has none, and its epoch."""
        return {
            producer_id: LastRecord(entry.kept[-1][1] if entry.kept else None, entry.producer_epoch)
            for producer_id, entry in self._producers.items()
        }

    def prepare(self, producer_id: int, origin: Origin) -> ProducerAppend:
        """A candidate for what an append will make of a producer. It changes nothing until update()."""
        if producer_id < 0:
            raise UsageError("producer_id", where=self._where, got=producer_id, wanted="0 or higher")
        return ProducerAppend(
            producer_id,
            self._producers.get(producer_id, UNKNOWN),
            origin,
            self.verifications.entry(producer_id),
            self._where,
        )

    def update(self, candidate: ProducerAppend) -> None:
        """Put a candidate in force. It must be the only one of its producer since prepare()."""
        producer_id = candidate.producer_id
        current = candidate.current
        if self._producers.get(producer_id, UNKNOWN) is not current:
            raise UsageError(
                "candidate",
                where=f"producer {producer_id} of {self._where}",
                got="an outdated one",
                wanted="the latest",
            )
        if candidate.started is not None:
            self._start(candidate.started)
        kept = tuple(candidate.kept)
        # Batches of an older epoch go. But if the epoch went up and down again within the append, as only replicas
        # let it, Kafka keeps those from before, and so does this.
        if candidate.producer_epoch == current.producer_epoch:
            kept = (current.kept + kept)[-BATCHES_MAX:]
        self._producers[producer_id] = tuple.__new__(  # twice as fast as by its name, and once a batch
            ProducerEntry,
            (
                producer_id,
                candidate.producer_epoch,
                candidate.coordinator_epoch,
                candidate.last_timestamp,
                candidate.current_txn_first_offset,
                kept,
            ),
        )
        if candidate.ends_verification:
            self.verifications.clear(producer_id)

    def remove_expired(self, now_ms: int) -> int:
        """Drop producers that are idle for too long, and verifications. Returns how many producers these were.

        A producer with an open transaction stays.
        """
        expired = [found for found, entry in self._producers.items() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        self.verifications.remove_expired(now_ms, self.producer_id_expiration_ms)
        return len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return (
            entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= self.producer_id_expiration_ms
        )

    # --------------------------------------------------------------------------------------------------- transactions

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer and epoch is open."""
        entry = self._producers.get(producer_id)
        return (
            entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch
        )

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the oldest open transaction should have been ended long ago.

        To be exact: whether its producer's last batch is older than a transaction may get.
        """
        oldest = self._ongoing.lowest()
        entry = None if oldest is None else self._producers.get(oldest.producer_id)
        return (
            entry is not None
            and entry.last_timestamp > 0
            and now_ms - entry.last_timestamp > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        )

    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None if none is open."""
        oldest = self._ongoing.lowest()
        return None if oldest is None else oldest.first_offset

    def first_unstable_offset(self) -> LogOffsetMetadata | None:
        """The lowest first offset of transactions that are open, or ended at or above the high watermark.

        None if there is none: then all below the high watermark is stable.
        """
        undecided, unreplicated = self._ongoing.lowest(), self._unreplicated.lowest()
        if undecided is None or (unreplicated is not None and unreplicated.first_offset <= undecided.first_offset):
            return None if unreplicated is None else unreplicated.first_offset_metadata
        return undecided.first_offset_metadata

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """What the last stable offset will be when `completed` is completed, as the transaction index has it."""
        for txn in self._ongoing:
            if txn.producer_id != completed.producer_id:
                return txn.first_offset
        return completed.last_offset + 1

    def complete_transaction(self, completed: CompletedTxn) -> None:
        """End a transaction. It counts as unstable until the high watermark passes its marker."""
        txn = self._ongoing.remove(completed.first_offset)
        if txn is None:
            raise UsageError(
                "transaction",
                where=f"producer {completed.producer_id} of {self._where}",
                got=f"the end of one from offset {completed.first_offset}",
                wanted="an open one",
            )
        self._unreplicated.put(txn, completed.last_offset)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forget the ended transactions that the high watermark has passed."""
        self._unreplicated.remove_ended_before(high_watermark)

    def _start(self, started: list[TxnMetadata]) -> None:
        first_offsets = {txn.first_offset for txn in started}
        if len(first_offsets) < len(started) or any(offset in self._ongoing for offset in first_offsets):
            raise UsageError(
                "transaction",
                where=f"producer {started[0].producer_id} of {self._where}",
                got=f"one from {sorted(first_offsets)}, where another begins",
                wanted="one an offset",
            )
        for txn in started:
            self._ongoing.put(txn)

    # --------------------------------------------------------------------------------------------------- verification

    def start_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """The guard that the first append to a transaction has to show; NO_GUARD if one is open already.

        supports_epoch_bump: transaction version 2. InvalidProducerEpochError if the epoch is an old one.
        """
        self._check_fenced(producer_id, producer_epoch)
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return NO_GUARD
        return self.verifications.start(
            producer_id,
            sequence=sequence,
            producer_epoch=producer_epoch,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=now_ms,
        ).guard

    def check_verified(
        self, producer_id: int, producer_epoch: int, guard: VerificationGuard = NO_GUARD, *, is_control: bool = False
    ) -> None:
        """Check a transactional batch that a client or coordinator appends, before its candidate does.

        Passed if its transaction is open, or `guard` is the one of start_verification(), or verification is off.
        InvalidProducerEpochError, which a client recovers from, and only then InvalidTxnStateError, which it does not.
        """
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return
        self._check_fenced(producer_id, producer_epoch)
        if self.is_verification_enabled and not is_control and not self.verifications.guard(producer_id).verify(guard):
            raise InvalidTxnStateError(
                f"producer {producer_id} of {self._where}: got a batch of epoch {producer_epoch}, "
                "wanted an open or verified transaction"
            )

    def _check_fenced(self, producer_id: int, producer_epoch: int) -> None:
        entry = self._producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id} of {self._where}: got epoch {producer_epoch}, "
                f"wanted {entry.producer_epoch} or higher"
            )

    # ------------------------------------------------------------------------------------------------------ snapshots

    @property
    def snapshots(self) -> SnapshotFiles:
        """The files: which there are, and what of them has to be synced."""
        return self._snapshots

    def move_to(self, directory: str) -> None:
        """The log's directory was renamed."""
        self._snapshots.directory = directory
        self._where = os.path.basename(directory) or directory

    def take_snapshot(self, *, sync: bool) -> str | None:
        """Write a snapshot at `map_end_offset`, and return its path; None if there is one of this state already."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        entries = [entry.to_snapshot() for entry in self._producers.values()]
        path = self._snapshots.write(self.map_end_offset, entries, sync=sync)
        self._last_snapshot_offset = self.map_end_offset
        return path

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest good snapshot in (log_start_offset, log_end_offset], and remove those outside.

        The caller brings in the batches from `map_end_offset` on. If the state is that of `log_end_offset` already, it
        is kept. A damaged snapshot is removed, and the one before it tried; without any the state is empty, and that
        of `log_start_offset`. Producers that have expired are left out.

        The end must not lie above the high watermark: ended transactions are forgotten.
        """
        self._snapshots.remove_outside(log_start_offset, log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        while (offset := self._snapshots.latest()) is not None:
            try:
                loaded = self._load(offset, now_ms)
            except CorruptSnapshot:
                loaded = None
            if loaded is not None:
                self._reset(offset, offset, *loaded)
                return
            self._snapshots.remove(offset)
        self._reset(log_start_offset, log_start_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget all producers and remove all snapshots; the state is that of `offset`."""
        for found in self._snapshots.offsets:
            self._snapshots.remove(found)
        self._reset(offset, 0)

    def truncate_fully_and_reload_snapshots(self, names: Iterable[str] | None = None) -> None:
        """Forget all, remove the snapshots that are known, and take those that the directory holds then."""
        self.truncate_fully_and_start_at(0)
        self._snapshots.reload(names)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """The log begins later now. Producers stay, whatever was deleted of them."""
        self._unreplicated.remove_ended_before(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self._snapshots.latest()
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int], names: Iterable[str] | None = None) -> None:
        """Remove snapshots that belong to no segment. See SnapshotFiles.remove_stray()."""
        self._snapshots.remove_stray(segment_base_offsets, names)

    def delete_snapshots_before(self, offset: int) -> None:
        """Remove the snapshots below `offset`."""
        self._snapshots.remove_before(offset)

    def mark_snapshot_for_deletion(self, offset: int) -> str | None:
        """Rename a snapshot to .deleted and forget it. Its path then; None if it was gone."""
        return self._snapshots.mark_deleted(offset)

    def _load(self, offset: int, now_ms: int) -> tuple[dict[int, ProducerEntry], Transactions] | None:
        """The producers and open transactions of a snapshot; None if its file is gone."""
        stored = self._snapshots.read(offset)
        if stored is None:
            return None
        producers: dict[int, ProducerEntry] = {}
        ongoing = Transactions()
        for entry in map(ProducerEntry.from_snapshot, stored):
            # A right checksum over what cannot be true: to believe it would leave transactions that nothing ends.
            first_offset = entry.current_txn_first_offset
            if entry.producer_id in producers:
                raise self._malformed(offset, f"producer {entry.producer_id} twice")
            if first_offset is not None and (first_offset >= offset or first_offset in ongoing):
                raise self._malformed(offset, f"a transaction of producer {entry.producer_id} from {first_offset}")
            if self._is_expired(entry, now_ms):
                continue
            producers[entry.producer_id] = entry
            if first_offset is not None:
                ongoing.put(TxnMetadata(entry.producer_id, LogOffsetMetadata(first_offset)))
        return producers, ongoing

    def _malformed(self, offset: int, got: str) -> CorruptSnapshot:
        return CorruptSnapshot(
            "entries",
            reason=CorruptionReason.MALFORMED,
            got=got,
            wanted=f"each producer once, and transactions that begin one by one before {offset}",
            path=self._snapshots.path(offset),
        )

    def _reset(
        self,
        map_end_offset: int,
        last_snapshot_offset: int,
        producers: dict[int, ProducerEntry] | None = None,
        ongoing: Transactions | None = None,
    ) -> None:
        self.map_end_offset = map_end_offset
        self._last_snapshot_offset = last_snapshot_offset
        self._producers = {} if producers is None else producers
        self._ongoing = Transactions() if ongoing is None else ongoing
        self._unreplicated = UnreplicatedTransactions()

    # ----------------------------------------------------------------------------------------------------- invariants

    def check_invariants(self) -> None:
        """Walk all of it, and raise InvariantError at what cannot be. For when no append is under way."""
        for producer_id, entry in self._producers.items():
            self._expect(f"producer at {producer_id}", entry.producer_id, producer_id)
            self._expect(f"batches of producer {producer_id}", len(entry.kept[:BATCHES_MAX]), len(entry.kept))
        current = {
            entry.current_txn_first_offset: producer_id
            for producer_id, entry in self._producers.items()
            if entry.current_txn_first_offset is not None
        }
        self._expect("open transactions", {txn.first_offset: txn.producer_id for txn in self._ongoing}, current)
        self._expect("ends of open transactions", [txn for txn in self._ongoing if txn.last_offset is not None], [])
        self._ongoing.check_invariants()
        self._unreplicated.check_invariants()
        self.verifications.check_invariants()
        self._snapshots.check_invariants()

    def _expect(self, what: str, got: object, wanted: object) -> None:
        if got != wanted:
            raise InvariantError(f"producers of {self._where}: {what} got {got}, wanted {wanted}")
