"""What does not show in a rate: how much a log's opening touches, and how much memory long work takes.

reopen   a log of a thousand segments that was closed: which files are opened and what is read of them, and the time
memory   the peak resident memory of a process of its own that reads, recovers or compacts a log, beside that of one
         which only opens an empty log

python -m logcore.bench.footprint WORK DIRECTORY     such a process; prints its peak in bytes
"""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from logcore import InvariantError, UsageError, open_log
from logcore.bench.log_sections import RECORD_BYTES, Scratch, key_columns
from logcore.library.clock import system_clock
from logcore.library.roots import enter
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK, DiskFile
from logcore.log.names import TopicPartition

SEGMENTS = 1000
SEGMENT_BYTES = 128 << 20
REOPENINGS = 5

# The peak beyond an open log, whatever the log's size. Reading columns and recovery hold a few chunks;
# compaction has its map (log.cleaner.dedupe.buffer.size, 128 MiB) besides.
MEMORY_BYTES_MAX = {"read": 16 << 20, "read_columns": 64 << 20, "recover": 64 << 20, "compact": (128 + 64) << 20}
WORKS = ("nothing", *MEMORY_BYTES_MAX)


class CountingDisk:
    """The system's disk, which notes what is opened and mapped, and what is read of the open files."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.mapped: list[str] = []
        self.read: list[tuple[str, int, int]] = []  # name, position, size

    def open(self, path: str, *, is_writable: bool = False, create: bool = False) -> "CountingFile":
        """See Disk."""
        self.opened.append(os.path.basename(path))
        return CountingFile(self, SYSTEM_DISK.open(path, is_writable=is_writable, create=create))

    def map(self, path: str, size_in_bytes: int, *, is_writable: bool = False) -> Any:
        """See Disk."""
        self.mapped.append(os.path.basename(path))
        return SYSTEM_DISK.map(path, size_in_bytes, is_writable=is_writable)

    def __getattr__(self, name: str) -> Any:
        return getattr(SYSTEM_DISK, name)


class CountingFile:
    """A file of a CountingDisk."""

    def __init__(self, disk: CountingDisk, file: DiskFile) -> None:
        self._disk = disk
        self._file = file

    def read(self, position: int, size: int) -> bytes:
        """See DiskFile."""
        self._disk.read.append((os.path.basename(self._file.path), position, size))
        return self._file.read(position, size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def make_segments(path: str, count: int) -> None:
    """A log of `count` segments, closed."""
    with open_log(path) as log:
        for number in range(count):
            if number:
                log.roll()
            log.append([(b"key %d" % number, b"value")] * 10)


def measure_reopening(scratch: Scratch, segments: int | None = None) -> dict[str, object]:
    """Open a closed log again and again; count what one opening touches."""
    path = scratch.path("many-0")
    count = SEGMENTS if segments is None else segments
    make_segments(path, count)
    taken = []
    for _ in range(REOPENINGS):
        start = time.perf_counter()
        log = open_log(path)
        taken.append(time.perf_counter() - start)
        log.close()
    disk = count_reopening(path)
    return {
        "segments": count,
        "seconds": min(taken),
        "logs_opened": sum(name.endswith(".log") for name in disk.opened),
        "indexes_opened": sum(name.endswith(("index",)) for name in disk.mapped),
        "bytes_read_of_logs": sum(size for name, _, size in disk.read if name.endswith(".log")),
    }


def count_reopening(path: str) -> CountingDisk:
    """Open a log on a CountingDisk, and close it; what closing does is not counted."""
    disk = CountingDisk()
    directory, name = os.path.split(path)
    topic, _, partition = name.rpartition("-")
    shared = enter(directory, system_clock, disk)
    try:
        core, _ = shared.open(TopicPartition(topic, int(partition)), LogConfig.of(None), create=False)
        counted = CountingDisk()
        counted.opened, counted.mapped, counted.read = list(disk.opened), list(disk.mapped), list(disk.read)
        shared.close_log(core)
    finally:
        shared.leave()
    return counted


def measure_memory(scratch: Scratch, size: int, tell: Callable[[float], None]) -> list[dict[str, object]]:
    """The peaks of processes that work on a log of `size` bytes."""
    if not os.path.exists("/proc/self/status"):
        raise UsageError("memory", got="no /proc/self/status", wanted="Linux")
    count = size // RECORD_BYTES
    directory = scratch.path("memory")
    path = os.path.join(directory, "bench-0")
    with open_log(path, config={"segment.bytes": SEGMENT_BYTES}) as log:
        for piece in key_columns(count, count):
            log.append_columns(piece)
            tell(0.4 * len(log) / count)
        log.roll()
        stored = log.size_in_bytes
    peaks = {}
    for number, work in enumerate(WORKS):
        peaks[work] = peak_of(work, path)
        tell(0.4 + 0.6 * (number + 1) / len(WORKS))
    return [
        {
            "work": work,
            "log_bytes": stored,
            "peak_bytes": peaks[work],
            "beyond_open_bytes": peaks[work] - peaks["nothing"],
            "at_most": limit,
            "is_met": peaks[work] - peaks["nothing"] <= limit,
        }
        for work, limit in MEMORY_BYTES_MAX.items()
    ]


def peak_of(work: str, path: str) -> int:
    """Do `work` with the log at `path` in a process of its own; returns its peak of resident memory in bytes."""
    command = [sys.executable, "-m", "logcore.bench.footprint", work, path]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise InvariantError(f"{work} of {path}: {run.stderr}")
    return int(run.stdout)


def _work(work: str, path: str) -> None:
    if work == "recover":
        # As after a crash before the first checkpoint: everything is read.
        root = os.path.dirname(path)
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            os.unlink(os.path.join(root, name))
    with open_log(path, config={"segment.bytes": SEGMENT_BYTES, "cleanup.policy": "compact"}) as log:
        if work == "read":
            deque(log.read(log.log_start_offset), maxlen=0)
        elif work == "read_columns":
            deque(log.read_columns(log.log_start_offset), maxlen=0)
        elif work == "compact":
            log.compact()


def _peak_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    raise UsageError("memory", got="no VmHWM in /proc/self/status", wanted="Linux")


if __name__ == "__main__":
    _work(sys.argv[1], sys.argv[2])
    print(_peak_bytes())
