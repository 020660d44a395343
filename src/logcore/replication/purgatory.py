"""Delayed operations: parked under the keys that can complete them, completed once, by an event or by their deadline.

A produce with acks=all waits until its replicas have the records, a fetch until there is enough to read. Each is a
DelayedOperation: it is asked `can_complete`, and told `on_complete` once. The purgatory holds it meanwhile:

    key        ──> watch list: operations to be asked when something happens under the key, oldest first
    operation  ──> its entries in watch lists, and a timer on the wheel

    waiting    ── its key is checked, and it can complete ────> completed: on_complete
    waiting    ── its deadline is reached ────────────────────> completed: on_complete, then on_expiration
    waiting    ── somebody calls its complete() ──────────────> completed: on_complete
    waiting    ── cancel_for_key ─────────────────────────────> out of that key's list and without a deadline; still
                                                                completed by another key of its, or by complete()

**One thread** owns a purgatory and its operations: there is no lock, and none is needed. What Kafka's locks are for is
left in one form only: code of an operation runs inside the purgatory and calls it again. It may do so freely. Such a
call of check_and_complete() is noted, and made when the running call has come back to itself:

- No operation is asked while it is being asked, and a chain of operations that complete each other needs no stack.
- After an event that happens while an operation is asked, it is asked once more.
- An event that happens while an operation is handed in waits until it is watched, and so cannot be missed.

A completed operation leaves the timer at once, but its entries stay until their key is checked, or until there are more
than `purge_interval` of such entries: taking each out at once would cost a fetch of a thousand partitions a thousand
steps, most of which the next check of the key does anyway.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import Any, Generic, TypeVar

from logcore._timingwheel import DEBUG, Timer, TimingWheel
from logcore.errors import InvariantError, UsageError, UsageTypeError

PURGE_INTERVAL = 1000  # Kafka's: entries of completed operations, over which they are taken out of the watch lists

# Rounds of noted checks in a row that complete nothing, after which the rest waits for the next call. Only a
# can_complete() that checks keys itself can cause a second; one that always does would never give the thread back.
FRUITLESS_ROUNDS_MAX = 8

_CHECKED_COUNT_MAX = 256  # entries up to which a debug build walks them all after each change


class DelayedOperation(ABC):
    """Something that is to happen once: when it can, or when its time is over. Derive from it; no __init__ is needed.

    can_complete, on_complete and on_expiration may call the purgatory, also about this operation.
    """

    _is_completed = False
    _purgatory: "Purgatory[Any] | None" = None  # where it waits, or is being handed in
    _timer: Timer | None = None  # None once it is completed or cancelled
    _watched_keys: dict[Hashable, None]  # from when it is handed in: the keys whose lists have it

    @abstractmethod
    def can_complete(self, now_ms: int) -> bool:
        """Whether what it waits for has happened. Asked when it is handed in, and whenever a key of its is checked."""

    @abstractmethod
    def on_complete(self, now_ms: int) -> None:
        """Do it. Called exactly once, whatever the reason: in time or not, it is answered."""

    def on_expiration(self, now_ms: int) -> None:  # noqa: B027  # most need none
        """Called after on_complete if the deadline was the reason."""

    @property
    def is_completed(self) -> bool:
        """Whether it is over. True already while on_complete runs."""
        return self._is_completed

    def complete(self, now_ms: int) -> bool:
        """Complete it now, whatever can_complete says. True for the one call that does, False for all later ones."""
        if self._is_completed:
            return False
        self._is_completed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._purgatory is not None:
            self._purgatory._note_completed(self)
            self._purgatory = None
        self.on_complete(now_ms)
        return True


Operation = TypeVar("Operation", bound=DelayedOperation)


class Purgatory(Generic[Operation]):
    """Holds delayed operations until they are completed. See the module for how.

        start_ms          what the clock shows now
        purge_interval    entries of completed operations that may stay in watch lists

    If an operation's code raises, the others are asked and completed all the same, and then the error is raised; of
    several the last, with those before as its context. One that raised in can_complete is what it was before, one that
    raised in on_complete is completed. For one thread.

    >>> class Fetch(DelayedOperation):
    ...     def __init__(self, bytes_min):
    ...         self.bytes_min = bytes_min
    ...     def can_complete(self, now_ms):
    ...         return bytes_there >= self.bytes_min
    ...     def on_complete(self, now_ms):
    ...         print(f"{now_ms}: {bytes_there} of {self.bytes_min} bytes")
    >>> bytes_there = 0
    >>> purgatory = Purgatory(start_ms=0)
    >>> purgatory.try_complete_else_watch(Fetch(100), ["orders-0", "orders-1"], deadline_ms=500, now_ms=0)
    False
    >>> purgatory.try_complete_else_watch(Fetch(900), ["orders-0"], deadline_ms=500, now_ms=0)
    False
    >>> bytes_there = 120                                  # an append
    >>> purgatory.check_and_complete("orders-0", now_ms=30)
    30: 120 of 100 bytes
    1
    >>> purgatory.advance(now_ms=500)
    500: 120 of 900 bytes
    1
    """

    def __init__(self, start_ms: int, *, purge_interval: int = PURGE_INTERVAL) -> None:
        self._purge_interval = _checked_int("purge_interval", purge_interval)
        if purge_interval < 0:
            raise UsageError("purge_interval", got=purge_interval, wanted="0 or more")
        self._wheel: TimingWheel[Operation] = TimingWheel(start_ms)
        # A key is here if and only if its list has entries. Lists go by id: equal operations are not the same one.
        self._watched_by_key: dict[Hashable, dict[int, Operation]] = {}
        self._watched = 0  # the sum of the lists' lengths
        self._stale: dict[int, Operation] = {}  # completed operations that lists still have
        self._watched_stale = 0  # their entries, <= _watched
        self._completions = 0
        self._expirations = 0  # those of them that their deadline caused
        # What is to be done once nothing else is: keys to check, and operations that the wheel has handed out.
        self._triggered: dict[Hashable, None] = {}
        self._expired: deque[Operation] = deque()
        self._is_running = False
        self._errors: list[Exception] = []

    @property
    def watched(self) -> int:
        """Entries in watch lists: an operation under three keys counts three, a completed one until it is dropped."""
        return self._watched

    @property
    def delayed(self) -> int:
        """Operations that have their deadline still before them."""
        return len(self._wheel)

    def try_complete_else_watch(
        self, operation: Operation, keys: Iterable[Hashable], *, deadline_ms: int, now_ms: int
    ) -> bool:
        """Complete `operation` if it can be; otherwise hold it, under `keys` and until `deadline_ms`.

        Returns whether it is completed. A deadline that is not after the latest advance() is reached by the next one.
        An operation is handed in once: one that is completed, or waits already, is refused.
        """
        unique = _checked_keys(keys)
        _check_new(operation)
        _checked_int("deadline_ms", deadline_ms)
        if self._is_running:
            self._try_else_watch(operation, unique, deadline_ms, now_ms)
            return operation._is_completed
        self._is_running = True
        try:
            self._try_else_watch(operation, unique, deadline_ms, now_ms)
        except Exception as error:
            self._errors.append(error)
        finally:
            self._is_running = False
        self._run(now_ms)
        return operation._is_completed

    def check_and_complete(self, key: Hashable, now_ms: int) -> int:
        """Something happened under `key`: ask every operation there, and complete those that can be.

        Returns how many were completed, by this and by what it set off. Inside of another call, when code of an
        operation runs, it is noted and returns 0: the other call does it, before it returns.
        """
        is_watched = self._has(key)
        if self._is_running:
            self._triggered[key] = None
            return 0
        if not is_watched:
            return 0
        before = self._completions
        self._triggered[key] = None
        self._run(now_ms)
        return self._completions - before

    def advance(self, now_ms: int) -> int:
        """Complete every operation whose deadline is reached, none early. Returns how many these were.

        To be called when next_deadline_ms() is reached; sooner and more often is harmless, and so is time that goes
        back. Inside of another call it is noted and returns 0, as in check_and_complete().
        """
        self._expired.extend(self._wheel.advance(now_ms))
        if self._is_running:
            return 0
        before = self._expirations
        try:
            self._run(now_ms)
        finally:
            if self._watched_stale > self._purge_interval:
                self._purge()
        return self._expirations - before

    def next_deadline_ms(self) -> int | None:
        """Until when advance() has nothing to do; None if nothing waits. See TimingWheel.next_deadline_ms."""
        if self._triggered or self._expired:
            return self._wheel.now_ms
        return self._wheel.next_deadline_ms()

    def cancel_for_key(self, key: Hashable) -> list[Operation]:
        """Give back the operations that wait under `key`, not completed. They have no deadline any more.

        One that waits under other keys too still does. Whoever takes operations back answers for them: complete() one,
        or hand it in again if it waits nowhere.
        """
        cancelled: list[Operation] = []
        if not self._has(key):
            return cancelled
        for operation in list(self._watched_by_key[key].values()):
            self._unwatch(key, operation)
            if operation._is_completed:
                continue
            if operation._timer is not None:
                operation._timer.cancel()
                operation._timer = None
            if not operation._watched_keys:
                operation._purgatory = None
            cancelled.append(operation)
        self._check_in_debug()
        return cancelled

    def check_invariants(self) -> None:
        """Walk all of it, and raise InvariantError at what cannot be. Debug builds do so after each change."""
        entries = [(key, at, found) for key, watch in self._watched_by_key.items() for at, found in watch.items()]
        stale = [found for _, _, found in entries if found._is_completed]
        _expect("watched", self._watched, len(entries))
        _expect("watched of completed operations", self._watched_stale, len(stale))
        _expect("completed operations that are watched", self._stale.keys(), {id(found) for found in stale})
        _expect("keys without operations", [key for key, watch in self._watched_by_key.items() if not watch], [])
        for key, at, operation in entries:
            _expect(f"entry under {key!r}, its place", at, id(operation))
            _expect(f"entry under {key!r}, known to its operation", key in operation._watched_keys, True)
            _expect(
                f"entry under {key!r}, its purgatory", operation._purgatory, None if operation._is_completed else self
            )
        known = {id(found): len(found._watched_keys) for _, _, found in entries}
        _expect("keys that operations know of", sum(known.values()), len(entries))
        timers = {id(found): found._timer for _, _, found in entries if found._timer and found._timer.is_pending}
        _expect("delayed", len(self._wheel), len(timers))
        self._wheel.check_invariants()

    def _has(self, key: Hashable) -> bool:
        try:
            return key in self._watched_by_key
        except TypeError as error:
            raise UsageTypeError("key", got=str(error), wanted="a hashable key") from None

    def _try_else_watch(self, operation: Operation, keys: dict[Hashable, None], deadline_ms: int, now_ms: int) -> None:
        operation._purgatory = self
        operation._watched_keys = {}
        try:
            can_complete = operation.can_complete(now_ms)
        except BaseException:
            operation._purgatory = None
            raise
        if operation._is_completed:  # by its own code
            return
        if can_complete:
            operation.complete(now_ms)
            return
        operation._timer = self._wheel.add(deadline_ms, operation)
        operation._watched_keys = keys
        for key in keys:
            self._watched_by_key.setdefault(key, {})[id(operation)] = operation
        self._watched += len(keys)

    def _run(self, now_ms: int) -> None:
        """Do what is noted, and what is noted meanwhile: how every call from outside ends. Raises what was raised."""
        fruitless = 0
        self._is_running = True
        try:
            while (self._expired or self._triggered) and fruitless < FRUITLESS_ROUNDS_MAX:
                before = self._completions
                while self._expired:
                    self._expire(self._expired[0], now_ms)
                    self._expired.popleft()
                keys = list(self._triggered)
                self._triggered.clear()
                try:
                    for key in keys:
                        self._check(key, now_ms)
                except BaseException:  # An interrupt, since errors are kept: what happened under the keys is not lost.
                    self._triggered |= dict.fromkeys(keys)
                    raise
                fruitless = fruitless + 1 if self._completions == before else 0
        finally:
            self._is_running = False
        self._check_in_debug()
        if self._errors:
            self._raise_errors()

    def _check(self, key: Hashable, now_ms: int) -> None:
        """Ask the operations under `key`. Those that come meanwhile have been asked when they were handed in."""
        for operation in list(self._watched_by_key.get(key, {}).values()):
            if key not in operation._watched_keys:  # taken out meanwhile
                continue
            try:
                is_over = operation._is_completed or operation.can_complete(now_ms) or operation._is_completed
                if is_over and key in operation._watched_keys:
                    self._unwatch(key, operation)
                    operation.complete(now_ms)
            except Exception as error:
                self._errors.append(error)

    def _expire(self, operation: Operation, now_ms: int) -> None:
        if operation._timer is None or operation._timer.is_pending:
            return  # Since the wheel has handed it out, it was completed, cancelled, or handed in anew.
        self._expirations += 1
        try:
            operation.complete(now_ms)
            operation.on_expiration(now_ms)
        except Exception as error:
            self._errors.append(error)

    def _unwatch(self, key: Hashable, operation: Operation) -> None:
        watch = self._watched_by_key[key]
        del watch[id(operation)]
        if not watch:
            del self._watched_by_key[key]
        del operation._watched_keys[key]
        self._watched -= 1
        if operation._is_completed:
            self._watched_stale -= 1
            if not operation._watched_keys:
                del self._stale[id(operation)]

    def _note_completed(self, operation: Operation) -> None:
        self._completions += 1
        if operation._watched_keys:
            self._watched_stale += len(operation._watched_keys)
            self._stale[id(operation)] = operation

    def _purge(self) -> None:
        """Take completed operations out of all watch lists. It costs what they have there, not what the lists hold."""
        for operation in list(self._stale.values()):
            for key in list(operation._watched_keys):
                self._unwatch(key, operation)
        self._check_in_debug()

    def _raise_errors(self) -> None:
        errors, self._errors = self._errors, []
        for earlier, error in pairwise(errors):
            if error.__context__ is None and error is not earlier:
                error.__context__ = earlier
        raise errors[-1]

    def _check_in_debug(self) -> None:
        if DEBUG and self._watched <= _CHECKED_COUNT_MAX:
            self.check_invariants()


def _expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise InvariantError(f"purgatory: {what} got {got}, wanted {wanted}")


def _checked_int(what: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageTypeError(what, got=type(value).__name__, wanted="an int")
    if not -(1 << 63) <= value < 1 << 63:
        raise UsageError(what, got=value, wanted=f"{-(1 << 63)} to {(1 << 63) - 1}")
    return value


def _checked_keys(keys: Iterable[Hashable]) -> dict[Hashable, None]:
    if isinstance(keys, (str, bytes)):
        raise UsageTypeError("keys", got=type(keys).__name__, wanted="several keys, as in [key]")
    try:
        unique = dict.fromkeys(keys)
    except TypeError as error:
        raise UsageTypeError("keys", got=str(error), wanted="hashable keys") from None
    if not unique:
        raise UsageError("keys", got="none", wanted="a key or more: what no event reaches, only its deadline completes")
    return unique


def _check_new(operation: object) -> None:
    if not isinstance(operation, DelayedOperation):
        raise UsageTypeError("operation", got=type(operation).__name__, wanted="a DelayedOperation")
    if operation._is_completed:
        raise UsageError("operation", where=type(operation).__name__, got="a completed one", wanted="a new one")
    if operation._purgatory is not None:
        raise UsageError("operation", where=type(operation).__name__, got="one that waits", wanted="a new one")
