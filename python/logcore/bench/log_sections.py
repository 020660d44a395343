"""What is measured of the log: sections, each with tasks that are timed in the same rounds.

    rows      append and read of rows, in batches of 1000, beside other stores
    columns   append_columns and read_columns, beside encode + write and read + decode in C
    flush     append and flush of each batch, beside write + fdatasync of the same bytes
    points    one record by its offset, in a short log and in one a hundred times as long
    compact   compaction, beside read_columns + append_columns of the same records
    timers    timers added and cancelled, beside heapq with lazy deletion; among few others and among many

Whoever appends starts again with nothing after some slices, all at the same ones, so that no file becomes larger than
the kernel's cache; that is off the clock.
"""

import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import numpy as np

from logcore import Log, UsageError, decode_columns, encode_batch, scan_batches
from logcore._timingwheel import TimingWheel
from logcore.bench import stores
from logcore.bench.data import FIRST_TIMESTAMP, synthetic_rows
from logcore.bench.disk_limits import CFile, LimitFile
from logcore.bench.measure import Task
from logcore.bench.operations import LOGCORE
from logcore.bench.stores import LogStore, Rows, Store, open_peer
from logcore.bench.timers import FEW, MANY, STEPS, BrokersSecond, CancelledAtOnce, Heap

KEY_BYTES, VALUE_BYTES = 10, 100
RECORD_BYTES = KEY_BYTES + VALUE_BYTES + 8  # about, as stored
BATCH_RECORDS = 1000
SMALL_BATCH_BYTES = 4096
LARGE_BATCH_BYTES = 1 << 20
PIECE_BYTES = 2 << 20  # of one pread(2) in C

# How much of each: the tests have less.
SLICE_BATCHES = 20
RESTART_SLICES = 10
SCAN_RECORDS = 200_000
COLUMNS_BYTES = 64 << 20
POINT_RECORDS = 50_000
TIMES_LONGER = 100
POINTS_A_CALL = 500
COMPACT_RECORDS = 2_000_000
FEW_TIMERS, MANY_TIMERS = FEW, MANY

SYSTEM = "write(2), pread(2)"
C_LOOP = "C loop"

APPEND_ROWS, READ_ROWS = "append rows", "read rows"
APPEND_COLUMNS, READ_COLUMNS = "append_columns", "read_columns"
APPEND_AND_FLUSH = "append and flush"
SMALL_POINT, SMALL_POINT_LONG = "point, 4-KiB batches", "point, 4-KiB batches, long log"
POINT, POINT_LONG = "point, 1000 a batch", "point, 1000 a batch, long log"
COMPACT, COMPACT_DISTINCT = "compact, a tenth stays", "compact, all stays"
COPY = "read_columns + append_columns"
TIMERS = "timers of a broker"
TIMER_FEW, TIMER_MANY = "timers, few pending", "timers, many pending"
HEAPQ = "heapq"


class Scratch(NamedTuple):
    """What a section is given: where to make files, whom to measure, and what closes it."""

    directory: str
    with_peers: bool
    skipped: dict[str, None]  # what could not be measured, in order
    stack: ExitStack

    def path(self, name: str) -> str:
        """A place for files of that name."""
        return os.path.join(self.directory, name)

    def attempt(self, make: Callable[[], Sequence[Task]]) -> list[Task]:
        """The tasks of somebody who may not be installed."""
        try:
            return list(make())
        except UsageError as missing:
            self.skipped[str(missing)] = None
            return []


def row_batches(count: int) -> list[Rows]:
    """`count` batches of rows, synthetic."""
    rows = synthetic_rows(VALUE_BYTES, KEY_BYTES, plain_bytes=count * BATCH_RECORDS * (KEY_BYTES + VALUE_BYTES + 8))
    return [
        [row[:2] for row in rows[at : at + BATCH_RECORDS]]  # type: ignore[misc]
        for at in range(0, count * BATCH_RECORDS, BATCH_RECORDS)
    ]


def key_columns(count: int, distinct: int, piece: int = 100_000) -> Iterator[dict[str, object]]:
    """`count` records with `distinct` keys in no order, as columns, some megabytes at a time."""
    rows = synthetic_rows(VALUE_BYTES, plain_bytes=min(count, piece) * (KEY_BYTES + VALUE_BYTES + 8))
    values = decode_columns(encode_batch(rows))
    for first in range(0, count, piece):
        size = min(piece, count - first)
        # An odd multiplier that the number of keys has no divisor of walks all of them.
        numbers = (np.arange(first, first + size, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(distinct)
        keys = decode_columns(encode_batch([(b"%010d" % number, None) for number in numbers.tolist()]))
        taken = values if size == len(values) else decode_columns(encode_batch(rows[:size]))
        yield {"key": keys.key, "value": taken.value}


class _Appender:
    """Appends the same batches slice after slice; begins anew after RESTART_SLICES of them."""

    def __init__(self, open_store: Callable[[], Store], batches: Sequence[Rows]) -> None:
        self._open = open_store
        self._store = open_store()
        self._batches = [self._store.batch(rows) for rows in batches]
        self._slices = 0

    def prepare(self) -> None:
        if self._slices == RESTART_SLICES:
            self._store.close()
            self._store = self._open()
            self._slices = 0
        self._slices += 1

    def run(self) -> None:
        append = self._store.append
        for batch in self._batches:
            append(batch)

    def close(self) -> None:
        self._store.close()


def _append_task(scratch: Scratch, by: str, open_store: Callable[[], Store], batches: Sequence[Rows]) -> Task:
    one = _Appender(open_store, batches)
    scratch.stack.callback(one.close)
    return Task(APPEND_ROWS, by, [one.run], [sum(map(len, batches))], prepare=one.prepare)


def rows_section(scratch: Scratch) -> list[Task]:
    """Rows, beside other stores and the system's calls alone."""
    batches = row_batches(SLICE_BATCHES)
    tasks = [_append_task(scratch, LOGCORE, lambda: LogStore(scratch.path("append")), batches)]
    log = LogStore(scratch.path("read"))
    scratch.stack.callback(log.close)
    tasks.append(_scan_task(log, batches))
    if not scratch.with_peers:
        return tasks

    def peer(name: str) -> list[Task]:
        made = [_append_task(scratch, name, lambda: open_peer(name, scratch.path(f"append-{name}")), batches)]
        if name != stores.LMDB_BULK:  # it reads as lmdb does
            store = open_peer(name, scratch.path(f"read-{name}"))
            scratch.stack.callback(store.close)
            made.append(_scan_task(store, batches))
        return made

    for name in stores.PEERS:
        tasks += scratch.attempt(partial(peer, name))
    return tasks + scratch.attempt(lambda: _system_tasks(scratch, batches, log.log))


def _scan_task(store: Store, batches: Sequence[Rows]) -> Task:
    shaped = [store.batch(rows) for rows in batches]
    count = 0
    while count < SCAN_RECORDS:
        for batch in shaped:
            store.append(batch)
            count += len(batch)
    return Task(READ_ROWS, store.name, [store.scan], [count])


def _system_tasks(scratch: Scratch, batches: Sequence[Rows], log: Log) -> list[Task]:
    encoded = [encode_batch(rows, now_ms=FIRST_TIMESTAMP) for rows in batches]
    file = LimitFile(scratch.path("limit"))
    scratch.stack.callback(file.close)
    limit = sum(map(len, encoded)) * RESTART_SLICES

    def prepare() -> None:
        if file.size >= limit:
            file.restart()

    def write() -> None:
        for data in encoded:
            file.write(data)

    fd = _open_log_file(scratch, log)
    read = CFile(1, PIECE_BYTES).read_call(fd)
    return [
        Task(APPEND_ROWS, SYSTEM, [write], [sum(map(len, batches))], prepare=prepare),
        Task(READ_ROWS, SYSTEM, [read], [len(log)]),
    ]


def _open_log_file(scratch: Scratch, log: Log) -> int:
    [segment] = log.segments
    fd = os.open(segment.path, os.O_RDONLY)
    scratch.stack.callback(os.close, fd)
    return fd


def columns_section(scratch: Scratch) -> list[Task]:
    """Columns, beside the same loop in C."""
    rows = synthetic_rows(VALUE_BYTES, KEY_BYTES, plain_bytes=4 << 20)
    data = encode_batch(rows)
    count = len(rows) // 4
    parts = [decode_columns(encode_batch(rows[at : at + count])) for at in range(0, 4 * count, count)]
    slices = max(COLUMNS_BYTES // len(data), 1)

    def columns_task(by: str, append: Callable[[], None], restart: Callable[[], None]) -> Task:
        done = 0

        def prepare() -> None:
            nonlocal done
            if done == slices:
                restart()
                done = 0
            done += 1

        return Task(APPEND_COLUMNS, by, [append], [4 * count], prepare=prepare)

    held: dict[str, LogStore] = {"append": LogStore(scratch.path("append"))}
    scratch.stack.callback(lambda: held["append"].close())

    def append() -> None:
        for columns in parts:
            held["append"].log.append_columns(columns)

    def restart() -> None:
        held["append"].close()
        held["append"] = LogStore(scratch.path("append"))

    log = LogStore(scratch.path("read"))
    scratch.stack.callback(log.close)
    for _ in range(slices):
        for columns in parts:
            log.fill(columns)
    tasks = [
        columns_task(LOGCORE, append, restart),
        Task(READ_COLUMNS, LOGCORE, [lambda: deque(log.log.read_columns(0), maxlen=0)], [len(log.log)]),
    ]
    if not scratch.with_peers:
        return tasks

    def limits() -> list[Task]:
        loop = CFile(PIECE_BYTES // (KEY_BYTES + VALUE_BYTES), PIECE_BYTES)
        file = LimitFile(scratch.path("limit"))
        scratch.stack.callback(file.close)
        calls = [loop.append_call(file, columns, LARGE_BATCH_BYTES) for columns in parts]

        def append_all() -> None:
            for call in calls:
                call()

        fetch = loop.fetch_call(_open_log_file(scratch, log.log))
        return [
            columns_task(C_LOOP, append_all, file.restart),
            Task(READ_COLUMNS, C_LOOP, [fetch], [len(log.log)]),
        ]

    return tasks + scratch.attempt(limits)


def flush_section(scratch: Scratch) -> list[Task]:
    """A flush for each batch. The two files grow alike, on the same file system, in turn."""
    [rows] = row_batches(1)
    data = encode_batch(rows, now_ms=FIRST_TIMESTAMP)
    log = LogStore(scratch.path("flush"))
    scratch.stack.callback(log.close)

    def append_and_flush() -> None:
        log.append(rows)
        log.log.flush()

    tasks = [Task(APPEND_AND_FLUSH, LOGCORE, [append_and_flush], [len(rows)], prepare=_nothing, waits=True)]
    if scratch.with_peers:
        file = LimitFile(scratch.path("limit"))
        scratch.stack.callback(file.close)
        sync = partial(file.write_and_sync, data)
        tasks.append(Task(APPEND_AND_FLUSH, SYSTEM, [sync], [len(rows)], prepare=_nothing, waits=True))
    return tasks


def _nothing() -> None:
    """For a task of one call a slice."""


def points_section(scratch: Scratch) -> list[Task]:
    """Single records by offset, at random."""
    tasks: list[Task] = []
    long_records = POINT_RECORDS * TIMES_LONGER
    for operation, count, batch_bytes in (
        (SMALL_POINT, POINT_RECORDS, SMALL_BATCH_BYTES),
        (SMALL_POINT_LONG, long_records, SMALL_BATCH_BYTES),
        (POINT, POINT_RECORDS, None),
        (POINT_LONG, long_records, None),
    ):
        batches = row_batches(10)
        log = LogStore(scratch.path(operation), batch_bytes=batch_bytes or LARGE_BATCH_BYTES)
        scratch.stack.callback(log.close)
        _fill(log.log, batches, count, is_cut=batch_bytes is not None)
        offsets = _offsets(len(log.log))
        tasks.append(_points_task(operation, log, offsets))
        if not scratch.with_peers:
            continue
        tasks += scratch.attempt(partial(_limit_points, scratch, operation, log.log, offsets))
        if operation == SMALL_POINT:
            table = open_peer(stores.SQLITE3, scratch.path("sqlite3"))
            scratch.stack.callback(table.close)
            for _ in range(0, len(log.log), len(batches) * BATCH_RECORDS):
                for batch in batches:
                    table.append(batch)
            tasks.append(_points_task(operation, table, offsets))
    return tasks


def _fill(log: Log, batches: Sequence[Rows], count: int, *, is_cut: bool) -> None:
    """Append about `count` records: batch by batch, or cut by the log's own limit."""
    columns = [decode_columns(encode_batch(rows, now_ms=FIRST_TIMESTAMP)) for rows in batches]
    while len(log) < count:
        for one, rows in zip(columns, batches, strict=True):
            if is_cut:
                log.append_columns(one)
            else:
                log.append(rows)


def _offsets(count: int) -> list[list[int]]:
    rng = random.Random(5)
    return [[rng.randrange(count) for _ in range(POINTS_A_CALL)] for _ in range(16)]


def _points_task(operation: str, store: Store, offsets: list[list[int]]) -> Task:
    def call(wanted: list[int]) -> None:
        get = store.get
        for offset in wanted:
            get(offset)

    return Task(operation, store.name, [partial(call, wanted) for wanted in offsets], [POINTS_A_CALL] * len(offsets))


def _limit_points(scratch: Scratch, operation: str, log: Log, offsets: list[list[int]]) -> list[Task]:
    """pread(2) and CRC of the batch that has the record, whose place is known beforehand."""
    [segment] = log.segments
    with open(segment.path, "rb") as file:
        headers = scan_batches(file.read()).headers
    loop = CFile(1, int(headers["size_in_bytes"].max()))
    fd = _open_log_file(scratch, log)
    calls = []
    for wanted in offsets:
        found = headers[np.searchsorted(headers["last_offset"], wanted)]
        calls.append(loop.points_call(fd, found["position"].tolist(), found["size_in_bytes"].tolist()))
    return [Task(operation, C_LOOP, calls, [POINTS_A_CALL] * len(calls))]


class _Compaction:
    """Compacts a log that is filled anew for each slice."""

    def __init__(self, path: str, pieces: Sequence[dict[str, object]]) -> None:
        self._path = path
        self._pieces = pieces
        self._log: LogStore | None = None

    def prepare(self) -> None:
        self.close()
        self._log = LogStore(self._path, policy="compact")
        for piece in self._pieces:
            self._log.fill(piece)
        self._log.log.roll()
        self._log.log.flush()

    def run(self) -> None:
        assert self._log is not None
        self._log.log.compact()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def compact_section(scratch: Scratch) -> list[Task]:
    """Compaction, and what it cannot do without: reading and writing the records."""
    tasks = []
    for operation, distinct in ((COMPACT, COMPACT_RECORDS // 10), (COMPACT_DISTINCT, COMPACT_RECORDS)):
        work = _Compaction(scratch.path(operation), list(key_columns(COMPACT_RECORDS, distinct)))
        scratch.stack.callback(work.close)
        tasks.append(Task(operation, LOGCORE, [work.run], [COMPACT_RECORDS], prepare=work.prepare))
    source = LogStore(scratch.path("source"))
    scratch.stack.callback(source.close)
    for piece in key_columns(COMPACT_RECORDS, COMPACT_RECORDS):
        source.fill(piece)
    held: list[LogStore] = []
    scratch.stack.callback(lambda: held[0].close() if held else None)

    def prepare() -> None:
        if held:
            held.pop().close()
        held.append(LogStore(scratch.path("copy")))

    def copy() -> None:
        append = held[0].log.append_columns
        for columns in source.log.read_columns(0):
            append(columns)

    tasks.append(Task(COPY, LOGCORE, [copy], [COMPACT_RECORDS], prepare=prepare))
    return tasks


def timers_section(scratch: Scratch) -> list[Task]:
    """Timers that are cancelled; what a heap keeps of them goes between the slices."""

    def one(operation: str, by: str, work: CancelledAtOnce) -> Task:
        return Task(operation, by, [work.run], [STEPS], prepare=work.rest)

    tasks = [
        one(TIMERS, LOGCORE, BrokersSecond(TimingWheel, FEW_TIMERS)),
        one(TIMER_FEW, LOGCORE, CancelledAtOnce(TimingWheel, FEW_TIMERS)),
        one(TIMER_MANY, LOGCORE, CancelledAtOnce(TimingWheel, MANY_TIMERS)),
    ]
    if scratch.with_peers:
        tasks.append(one(TIMERS, HEAPQ, BrokersSecond(Heap, FEW_TIMERS)))
    return tasks


SECTIONS: dict[str, Callable[[Scratch], list[Task]]] = {
    "rows": rows_section,
    "columns": columns_section,
    "flush": flush_section,
    "points": points_section,
    "compact": compact_section,
    "timers": timers_section,
}
