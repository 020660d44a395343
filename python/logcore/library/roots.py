"""Log roots that are open for writing in this process, by directory: each once, with its lock, however often it is
asked for.

A POSIX lock belongs to a process, and goes when the process closes any descriptor of the file. So there is one object a
root, and it counts its users; the last one closes it.

Locks of threads: a log has one, held by whoever changes it; the root has one for its checkpoints. A thread that has a
log's lock may take the root's, never the other way round.
"""

import os
import threading
from collections.abc import Mapping

from logcore.errors import LogcoreError, UsageError
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK, Disk
from logcore.log.loader import Recovery
from logcore.log.names import TopicPartition
from logcore.log.partition import PartitionLog
from logcore.log.recovery import Progress
from logcore.log.root import Root
from logcore.log.uuids import TopicId

from .clock import SYSTEM_CHANCE, Clock
from .directories import check_root

Config = Mapping[str, str | int | bool | float]

_registry: "dict[str, SharedRoot]" = {}
_registry_lock = threading.Lock()


class LockedKeeper:
    """The root's checkpoints, for logs whose threads do not know of each other."""

    def __init__(self, root: Root, lock: threading.RLock) -> None:
        self._root = root
        self._lock = lock

    def lower_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """See Keeper."""
        with self._lock:
            self._root.lower_recovery_point(partition, offset)

    def lower_cleaned_offset(self, partition: TopicPartition, offset: int) -> None:
        """See Keeper."""
        with self._lock:
            self._root.lower_cleaned_offset(partition, offset)

    def write_log_start_offset(self, partition: TopicPartition, offset: int) -> None:
        """See Keeper."""
        with self._lock:
            self._root.write_log_start_offset(partition, offset)


class SharedRoot:
    """A log root of this process, and how many use it."""

    def __init__(self, key: str, directory: str, clock: Clock, disk: Disk) -> None:
        self.key = key
        self.pid = os.getpid()
        self.clock = clock
        self.lock = threading.RLock()
        self.root = Root(disk, directory, SYSTEM_CHANCE, clock())
        self.root.keeper = LockedKeeper(self.root, self.lock)
        self.users = 0

    def check_ours(self) -> None:
        """A forked child has a copy of this object, and not the lock."""
        if self.pid != os.getpid():
            raise UsageError(
                "log root",
                where=self.root.directory,
                got=f"a use by process {os.getpid()}",
                wanted=f"only process {self.pid}, which opened it",
            )

    def open(
        self,
        partition: TopicPartition,
        config: LogConfig,
        *,
        create: bool,
        topic_id: TopicId | None = None,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[PartitionLog, Recovery]:
        """Open a partition's log."""
        with self.lock:
            self.check_ours()
            return self.root.open(
                partition,
                config,
                now_ms=self.clock(),
                create=create,
                topic_id=topic_id,
                repair=repair,
                progress=progress,
            )

    def close_log(self, log: PartitionLog) -> None:
        """Close a log in order. Its lock is held."""
        self.check_ours()
        try:
            log.close(self.clock())
        except BaseException:
            with self.lock:
                self.root.note_failed(log)
            raise
        with self.lock:
            self.root.note_closed(log)

    def checkpoint(self, logs: "list[tuple[PartitionLog, threading.RLock]]") -> None:
        """Write down up to where each of these logs is on the disk. The first that has failed is raised at the end."""
        failures: list[LogcoreError] = []
        for log, lock in logs:
            with lock:
                if self.root.logs.get(log.partition) is log:
                    try:
                        log.sync_sealed()
                    except LogcoreError as error:
                        failures.append(error)  # what is written down of it already still holds
                        continue
                    with self.lock:
                        self.root.note(log)
        with self.lock:
            self.root.write(self.clock())
        if failures:
            raise failures[0]

    def leave(self) -> None:
        """One user less. The last one closes the root; a forked child only forgets it."""
        with _registry_lock:
            self.users -= 1
            if self.users:
                return
            if self.pid == os.getpid():
                _registry.pop(self.key, None)
                self.root.close(self.clock())
            else:
                self.root.abandon()


def enter(directory: str, clock: Clock, disk: Disk = SYSTEM_DISK) -> SharedRoot:
    """The root of a directory, opened if this process has not got it open. Each use of it ends with leave()."""
    key = os.path.realpath(directory)
    with _registry_lock:
        shared = _registry.get(key)
        if shared is None:
            check_root(directory, disk)
            shared = _registry[key] = SharedRoot(key, directory, clock, disk)
        shared.users += 1
        return shared


def _begin_anew() -> None:
    """A forked child has no root open, and will be told who has the lock; whoever held ours here is not there."""
    global _registry_lock
    _registry_lock = threading.Lock()
    _registry.clear()


os.register_at_fork(after_in_child=_begin_anew)
