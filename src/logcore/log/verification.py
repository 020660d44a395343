"""Verification of transactions: no record of a transaction is written that its coordinator does not know of.

Before the first record of a transaction is written to a partition, the broker asks the coordinator whether the
partition is part of it. Meanwhile the partition holds an entry with a guard, which the append has to show:

    none  ── first request ────────────────────────────> entry, with a new guard; later requests get the same one
    entry ── a transactional batch is written ─────────> none
    entry ── an end marker is written ─────────────────> none, unless the marker is the previous transaction's
    entry ── producer.id.expiration.ms are over ───────> none

A guard is good for one transaction: one that was verified before an abort marker, and shown after it, is not the
partition's any more. The entry also keeps the lowest sequence that was seen: were a higher one written first, the
lower one could never follow. Kafka: VerificationStateEntry, VerificationGuard (KIP-890).
"""

from logcore.errors import InvariantError


class VerificationGuard:
    """Shows that a transaction was verified. It is told from others by being itself."""

    __slots__ = ()

    def verify(self, guard: "VerificationGuard") -> bool:
        """Whether `guard` is this one. NO_GUARD verifies nothing, not even itself."""
        return guard is self and self is not NO_GUARD


NO_GUARD = VerificationGuard()  # Kafka's SENTINEL: of a request that has none, and of a producer without an entry


class VerificationEntry:
    """A transaction that is being verified."""

    __slots__ = ("created_ms", "guard", "lowest_sequence", "producer_epoch", "supports_epoch_bump")

    def __init__(self, created_ms: int, sequence: int, producer_epoch: int, supports_epoch_bump: bool) -> None:
        self.created_ms = created_ms
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.producer_epoch = producer_epoch
        self.supports_epoch_bump = supports_epoch_bump  # transaction version 2: each transaction has its own epoch

    def note(self, sequence: int, producer_epoch: int) -> None:
        """Another request of the producer: a new epoch begins anew, an old one is ignored."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
        elif producer_epoch == self.producer_epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence

    def is_ended_by(self, producer_epoch: int, is_control: bool) -> bool:
        """Whether a transactional batch of the producer, once it is written, makes this entry needless.

        With version 2 an end marker has a higher epoch than its transaction. One of this entry's epoch ended the
        transaction before.
        """
        return not (is_control and self.supports_epoch_bump and producer_epoch == self.producer_epoch)


class Verifications:
    """The transactions of a partition that are being verified, by producer. An entry is not renewed by being used.

    >>> verifications = Verifications()
    >>> guard = verifications.start(7, sequence=0, producer_epoch=0, supports_epoch_bump=True, now_ms=0).guard
    >>> verifications.guard(7).verify(guard), verifications.guard(8).verify(guard)
    (True, False)
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, VerificationEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def start(
        self, producer_id: int, *, sequence: int, producer_epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationEntry:
        """The producer's entry: a new one, or the one there is, which takes note of sequence and epoch."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = VerificationEntry(now_ms, sequence, producer_epoch, supports_epoch_bump)
            self._entries[producer_id] = entry
        else:
            entry.note(sequence, producer_epoch)
        return entry

    def entry(self, producer_id: int) -> VerificationEntry | None:
        """The producer's entry; None if nothing is being verified."""
        return self._entries.get(producer_id)

    def guard(self, producer_id: int) -> VerificationGuard:
        """The producer's guard; NO_GUARD if nothing is being verified."""
        entry = self._entries.get(producer_id)
        return NO_GUARD if entry is None else entry.guard

    def clear(self, producer_id: int) -> None:
        """Drop the producer's entry, if there is one."""
        self._entries.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Drop what was begun `expiration_ms` ago or earlier."""
        expired = [found for found, entry in self._entries.items() if now_ms - entry.created_ms >= expiration_ms]
        for producer_id in expired:
            del self._entries[producer_id]

    def check_invariants(self) -> None:
        """Raise InvariantError at what cannot be."""
        guards = {id(entry.guard) for entry in self._entries.values()} | {id(NO_GUARD)}
        if len(guards) != len(self._entries) + 1:
            raise InvariantError(f"verifications: got {len(guards) - 1} guards, wanted {len(self._entries)}")
