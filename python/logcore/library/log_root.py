"""LogRoot: a directory of partitions, as Kafka's log.dirs has them."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType

from typing_extensions import Self

from logcore._checksum import partition_for_key
from logcore.errors import (
    LogcoreError,
    StorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UsageError,
    UsageTypeError,
)
from logcore.log.appending import AppendResult
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK
from logcore.log.names import PARTITION_MAX, TopicPartition, check_topic
from logcore.log.root import list_partitions
from logcore.log.uuids import draw_topic_id, parse_topic_id

from . import roots
from .arguments import Row, check_clock, key_of, whole
from .background import Background
from .clock import Clock, system_clock
from .directories import absolute, check_root
from .log import Log, open_read_only, open_shared
from .roots import Config, SharedRoot

PARTITIONS_MAX = 10_000  # of a topic that create_topic() makes at once


class LogRoot:
    """A log root. Made by open_root(); a context manager that closes it, and all logs that were opened through it.

    Any thread may call it. A partition is opened once: log() gives every caller the same Log.
    """

    def __init__(
        self, path: str, config: LogConfig, clock: Clock, shared: SharedRoot | None, *, background: bool
    ) -> None:
        self._path = path
        self._config = config
        self._clock = clock
        self._shared = shared
        self._lock = threading.RLock()
        self._logs: dict[TopicPartition, Log] = {}
        self._uncompactable: dict[tuple[str, int], LogcoreError] = {}
        self._next_spread: dict[str, int] = {}  # where the next records without a key go, by topic
        self._is_closed = False
        self._background = Background(self._tick) if background else None

    @property
    def path(self) -> str:
        """The directory."""
        return self._path

    @property
    def read_only(self) -> bool:
        """Whether it was opened to be read only."""
        return self._shared is None

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._is_closed

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("log root", where=self._path, got="a call", wanted="none after close()")

    def _writable(self) -> SharedRoot:
        self._check_open()
        if self._shared is None:
            raise UsageError("log root", where=self._path, got="a write", wanted="one not opened with read_only")
        self._shared.check_ours()
        return self._shared

    # --- topics -----------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics, in order."""
        self._check_open()
        return sorted({partition.topic for partition in list_partitions(SYSTEM_DISK, self._path)})

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic that are here, in order; none if there is no such topic."""
        self._check_open()
        return [one.partition for one in list_partitions(SYSTEM_DISK, self._path) if one.topic == topic]

    def create_topic(
        self, topic: str, partitions: int = 1, *, config: Config | None = None, topic_id: str | None = None
    ) -> str:
        """Make the partitions of a new topic; returns its id. TopicAlreadyExistsError if there is one.

        config: opens its partitions with these settings, as log() does. It is not written down: Kafka keeps the
            settings of topics elsewhere, so they have to be given whenever the root is opened
        """
        check_topic(topic)
        partitions = whole("partitions", partitions)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise UsageError("partitions", got=partitions, wanted=f"1 to {PARTITIONS_MAX}")
        with self._lock:
            shared = self._writable()
            if self.partitions(topic):
                raise TopicAlreadyExistsError(f"topic {topic!r}: got partitions {self.partitions(topic)}, wanted none")
            given = draw_topic_id(os.urandom) if topic_id is None else parse_topic_id(topic_id)
            for number in range(partitions):
                partition = TopicPartition(topic, number)
                self._logs[partition] = open_shared(
                    shared,
                    partition,
                    self._settings(config),
                    create=True,
                    topic_id=given,
                    on_close=partial(self._forget, partition),
                )
        return given

    def delete_topic(self, topic: str) -> None:
        """Delete all partitions of a topic, for good."""
        shared = self._writable()
        numbers = self.partitions(topic)
        if not numbers:
            raise UnknownTopicOrPartitionError(f"topic {topic!r}: got no partition in {self._path}, wanted one")
        for number in numbers:
            partition = TopicPartition(topic, number)
            with self._lock:
                known = self._logs.get(partition)
            if known is not None:
                known.close()  # Without our lock: who closes a log, or is told of its compaction, may want it.
            with self._lock, shared.lock:
                shared.root.delete(partition)

    def _settings(self, config: Config | None) -> LogConfig:
        return self._config if config is None else self._config.with_changes(config)

    # --- logs -------------------------------------------------------------------------------------------------------

    def log(
        self,
        topic: str,
        partition: int = 0,
        *,
        create: bool = False,
        config: Config | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Log:
        """The log of a partition, opened the first time it is asked for.

        config: settings beside those of the root, the first time
        progress: as in open_log(): told how many bytes more recovery has read
        UnknownTopicOrPartitionError if there is none, and not create
        """
        check_topic(topic)
        partition = whole("partition", partition)
        if not 0 <= partition <= PARTITION_MAX:
            raise UsageError("partition", where=f"topic {topic!r}", got=partition, wanted=f"0 to {PARTITION_MAX}")
        key = TopicPartition(topic, partition)
        waited_for: Log | None = None
        while True:
            with self._lock:
                self._check_open()
                known = self._logs.get(key)
                if known is not None and not known.closed:
                    return known
                if known is None or known is waited_for:
                    self._logs[key] = self._open(key, self._settings(config), create=create, progress=progress)
                    return self._logs[key]
            # Somebody closes it just now. Without our lock, as in delete_topic().
            waited_for = known
            known.close()

    def _open(
        self, key: TopicPartition, settings: LogConfig, *, create: bool, progress: Callable[[int], None] | None
    ) -> Log:
        if self._shared is not None:
            return open_shared(
                self._writable(),
                key,
                settings,
                create=create,
                on_close=partial(self._forget, key),
                progress=progress,
            )
        if key.partition not in self.partitions(key.topic):
            raise UnknownTopicOrPartitionError(f"partition {key}: got none in {self._path}, wanted one")
        return open_read_only(self._path, key, settings, self._clock)

    def _forget(self, partition: TopicPartition) -> None:
        """A log of it was closed; another one may have been opened since."""
        with self._lock:
            known = self._logs.get(partition)
            if known is not None and known._is_done:
                del self._logs[partition]
                self._uncompactable.pop(partition, None)

    def append(
        self, topic: str, records: Iterable[Row], *, compression: str | None = None, timestamp_type: str | None = None
    ) -> dict[int, AppendResult]:
        """Append records to the partitions of a topic: by key as Kafka's producers do, without one in turn.

        Returns what each partition answered. All of a call's records without a key go to one partition, the next time
        to the next. Each partition is appended to by itself: if one fails, the ones before it have what they got.
        """
        self._writable()
        numbers = self.partitions(topic)
        if not numbers:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r}: got no partition in {self._path}, wanted one: create_topic() makes them"
            )
        with self._lock:
            spread = self._next_spread.get(topic, 0) % len(numbers)
            self._next_spread[topic] = spread + 1
        parts: dict[int, list[Row]] = {}
        for index, record in enumerate(_each(records)):
            key = key_of(record, index)
            try:
                number = numbers[spread if key is None else partition_for_key(key, len(numbers))]
            except UsageTypeError as error:
                raise UsageTypeError("key", where=f"record {index}", got=error.got, wanted=error.wanted) from None
            parts.setdefault(number, []).append(record)
        return {
            number: self.log(topic, number).append(part, compression=compression, timestamp_type=timestamp_type)
            for number, part in sorted(parts.items())
        }

    def flush(self) -> None:
        """Make all that was appended to its open logs survive the death of the machine, one log after the other."""
        self._writable()
        with self._lock:
            logs = list(self._logs.values())
        for log in logs:
            log._flush_if_open()

    # --- time, and the end ------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what time drives in every open log, and write the checkpoints if a minute has passed.

        A log that fails does not keep the others from it; the first failure is raised.
        """
        shared = self._writable()
        failures = self._failures(Log._tick_if_open)
        if self._clock() - shared.root.checkpointed_ms >= 60_000:
            failures += _failure_of(self.checkpoint)
        if failures:
            raise failures[0]

    def _failures(self, work: Callable[[Log], None]) -> list[LogcoreError]:
        """Do something with every open log. One that fails does not keep the others from it."""
        with self._lock:
            logs = list(self._logs.values())
        return [error for log in logs for error in _failure_of(partial(work, log))]

    def checkpoint(self) -> None:
        """Write down up to where each log is on the disk, so that less has to be read after a crash."""
        shared = self._writable()
        with self._lock:
            logs = [log._core_and_lock() for log in self._logs.values()]
        shared.checkpoint([one for one in logs if one is not None])

    @property
    def uncompactable(self) -> dict[tuple[str, int], LogcoreError]:
        """The partitions that the background does not compact any more, and why: damage was met.

        Log.compact() still tries. A partition that is closed or deleted is no longer among them.
        """
        with self._lock:
            return dict(self._uncompactable)

    def _tick(self) -> None:
        """What the background thread does: as tick(), and retention and compaction where they are due.

        A log that fails does not keep the others from it; the first failure is raised.
        """
        failures = _failure_of(self.tick)
        with self._lock:
            logs = list(self._logs.items())
        due: list[tuple[float, TopicPartition, Log]] = []
        for partition, log in logs:
            try:
                log._retain_if_open()
                ratio = None if partition in self._uncompactable else log._ratio_if_due()
            except LogcoreError as error:
                failures.append(self._noted(partition, error))
            else:
                if ratio is not None:
                    due.append((ratio, partition, log))
        for _, partition, log in sorted(due, key=lambda one: -one[0]):
            try:
                log._compact_if_open()
            except LogcoreError as error:
                failures.append(self._noted(partition, error))
        if failures:
            raise failures[0]

    def _noted(self, partition: TopicPartition, error: LogcoreError) -> LogcoreError:
        """Damage is there the next second, too; what the disk refuses may be over."""
        if not isinstance(error, StorageError):
            with self._lock:
                if partition in self._logs:
                    self._uncompactable[partition] = error
        return error

    def close(self) -> None:
        """Close all logs and the root. Again is harmless."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        failures: list[LogcoreError] = []
        try:
            if self._background is not None:
                self._background.stop()
            for log in list(self._logs.values()):
                try:
                    log.close()
                except LogcoreError as error:
                    failures.append(error)
        finally:
            if self._shared is not None:
                self._shared.leave()
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._logs)} logs open{', read only' * self.read_only}"
        return f"LogRoot({self._path!r}, {state})"


def _each(records: Iterable[Row]) -> Iterable[Row]:
    """`records`, if they can be gone through; of text and bytes each item would be a number or a letter."""
    if not isinstance(records, (str, bytes, bytearray, Mapping)) and hasattr(records, "__iter__"):
        return records
    raise UsageTypeError("records", got=type(records).__name__, wanted="an iterable of records")


def _failure_of(work: Callable[[], None]) -> list[LogcoreError]:
    try:
        work()
    except LogcoreError as error:
        return [error]
    return []


def open_root(
    path: str | os.PathLike[str],
    *,
    config: Config | None = None,
    read_only: bool = False,
    clock: Clock = system_clock,
    background: bool = False,
) -> LogRoot:
    """Open a log root: a directory such as Kafka's log.dirs, made if it is missing (not when read_only).

    config: settings of all its logs; log() and create_topic() can add to them
    read_only: without the lock, and without writing a byte
    clock: milliseconds since 1970 (default: the system's)
    background: run what time drives in a thread: flush.ms, segment.ms, retention, compaction, checkpoints

    LockedError if another process writes to it.
    """
    directory = absolute(path)
    settings = LogConfig.of(config)
    check_clock(clock)
    if read_only:
        SYSTEM_DISK.list(directory)
        check_root(directory)
        return LogRoot(directory, settings, clock, None, background=False)
    return LogRoot(directory, settings, clock, roots.enter(directory, clock), background=background)
