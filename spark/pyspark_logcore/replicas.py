"""The partitions of all roots, each once.

Roots of several brokers have replicas of one partition. They are never merged: the one whose last leader epoch is the
highest is read, of those with the same epoch the longest, of those the first that was given. That is the replica which
an election among them would make the leader.

Directories that a broker has put aside are no partitions: -delete, -future, -stray (logcore.log.names).
"""

import errno
from dataclasses import dataclass

from logcore.errors import StorageError
from logcore.log.config import LogConfig
from logcore.log.disk import Disk
from logcore.log.names import TopicPartition
from logcore.log.readonly import ReadOnlyLog, StartOffsets
from logcore.log.root import list_partitions

_CONFIG = LogConfig.of(None)


@dataclass
class Root:
    """A log root, and what is shared by the logs that are opened in it."""

    directory: str
    starts: StartOffsets


class Replicas:
    """Which partitions there are, and in which roots; opens them to be read."""

    def __init__(self, disk: Disk, roots: list[str], now_ms: int) -> None:
        self._disk = disk
        self._now_ms = now_ms
        self._roots: dict[TopicPartition, list[Root]] = {}
        for directory in roots:
            root = Root(directory, StartOffsets(disk, directory))
            for partition in list_partitions(disk, directory):
                self._roots.setdefault(partition, []).append(root)

    @property
    def partitions(self) -> list[TopicPartition]:
        """All of them."""
        return sorted(self._roots)

    def open(self, partition: TopicPartition) -> ReadOnlyLog:
        """The replica that is read; the caller closes it. StorageError (ENOENT) if none is there any more."""
        best: ReadOnlyLog | None = None
        gone: StorageError | None = None
        for root in self._roots[partition]:
            try:
                log = ReadOnlyLog(
                    self._disk, root.directory, partition, _CONFIG, now_ms=self._now_ms, starts=root.starts
                )
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
                gone = error  # deleted since it was listed
                continue
            if best is None:
                best = log
            elif _rank(log) > _rank(best):
                best.close()
                best = log
            else:
                log.close()
        if best is None:
            assert gone is not None
            raise gone
        return best


def _rank(log: ReadOnlyLog) -> tuple[int, int]:
    return log.last_epoch, log.view.log_end_offset
