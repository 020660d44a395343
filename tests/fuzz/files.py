"""Hostile files: log roots of which some files were damaged, opened read-only and to be written, and read whole.

A case is a copy of a small root, made by logcore itself, and a few mutations of its files: bits, numbers, lengths,
names; of one file, or of several. What may come of it:

    a LogcoreError
    or rows whose offsets go up; and where no .log and no checkpoint was touched, the rows that were written

Most cases are played on a disk in memory, some on a real one, whose mapped files and system calls are other code.
"""

from __future__ import annotations

import random
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from logcore import encode_transaction_marker
from logcore._reader import read_records
from logcore.errors import LogcoreError
from logcore.library.reading import AnyLog, read_columns
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK, Disk
from logcore.log.names import TopicPartition
from logcore.log.readonly import ReadOnlyLog
from logcore.log.root import Chance, Root
from logcore.log.searching import find_max_timestamp, find_timestamp
from logcore.log.view import Isolation
from tests.disk.memory import MemoryDisk
from tests.fuzz import mutate

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("orders", 0)
REAL_EVERY = 20  # one case in so many is played on the real disk
SETTINGS: dict[str, Any] = {"internal.segment.bytes": 900, "index.interval.bytes": 150, "segment.index.bytes": 240}
CONFIGS = (
    LogConfig.of(SETTINGS),
    LogConfig.of({**SETTINGS, "cleanup.policy": "compact"}),
    LogConfig.of({**SETTINGS, "preallocate": True}),
)
DERIVED = (".index", ".timeindex", ".snapshot")

Tree = dict[str, bytes]
Row = tuple[int, bytes | None, bytes | None]


def _chance(seed: int) -> Chance:
    rng = random.Random(seed)
    return Chance(rng.randrange, rng.randbytes)


@cache
def sources() -> tuple[tuple[Tree, tuple[Row, ...]], ...]:
    """Roots, and what is in them: closed in order, and left as a crash leaves them."""
    found = []
    for is_closed in (True, False):
        for codec in ("none", "zstd"):
            disk = MemoryDisk(clock=lambda: NOW_MS)
            root = Root(disk, "/data", _chance(1), NOW_MS)
            log, _ = root.open(PARTITION, CONFIGS[0], now_ms=NOW_MS, create=True)
            log.producers.is_verification_enabled = False
            for number in range(24):
                is_transactional = number % 4 == 1
                log.append_records(
                    [(b"k%d" % (number % 5), b"value %d" % number * 4, NOW_MS + number)] * (1 + number % 3),
                    now_ms=NOW_MS + number,
                    compression=codec,
                    producer_id=number % 4 if number % 4 < 2 else -1,
                    producer_epoch=0 if number % 4 < 2 else -1,
                    base_sequence=_sequence(log, number % 4) if number % 4 < 2 else -1,
                    is_transactional=is_transactional,
                )
                if number % 8 == 5:
                    marker = encode_transaction_marker(1, 0, commit=number % 16 == 5, coordinator_epoch=1)
                    log.append_batches(
                        marker, leader_epoch=0, now_ms=NOW_MS, origin="coordinator", transaction_version=1
                    )
                if number == 12:
                    log.flush(NOW_MS)
                    root.checkpoint(NOW_MS)
            rows = tuple(_rows(log))
            if is_closed:
                root.close(NOW_MS)
            tree = {path: data for path, data in disk.tree("/data").items() if data is not None and path != ".lock"}
            found.append((tree, rows))
    return tuple(found)


def _sequence(log: Any, producer_id: int) -> int:
    entry = log.producers.last_entry(producer_id)
    return 0 if entry is None else entry.last_sequence + 1


# --- the cases --------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A damaged root; its rows, if they must still be those; whether a checksum was mended; what was done to it.

    A batch whose checksum was mended may say of its records what it likes, their offsets included.
    """

    tree: Tree
    rows: tuple[Row, ...] | None
    is_mended: bool
    told: str


def make_case(seed: int, number: int) -> Case:
    """Case `number` of the run `seed`."""
    rng = random.Random(f"files {seed} {number}")
    source, rows = rng.choice(sources())
    tree = dict(source)
    told = []
    is_derived, is_mended = True, False
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        path = rng.choice(sorted(tree))
        how = rng.choices(["bytes", "length", "name", "swap", "gone"], [12, 4, 3, 2, 2])[0]
        is_derived &= path.endswith(DERIVED) and how != "name"
        if how == "bytes":
            tree[path] = _mutated(rng, tree[path])
            if ".log" in path and rng.random() < 0.6:
                tree[path] = mutate.mend(bytearray(tree[path]), rng.random() < 0.7)
                is_mended = True
        elif how == "length":
            size = rng.randrange(len(tree[path]) + 1)
            tail = rng.choice([b"", bytes(rng.randrange(100)), rng.randbytes(rng.randrange(40))])
            tree[path] = tree[path][:size] + tail
        elif how == "name":
            tree[_renamed(rng, path)] = tree.pop(path) if rng.random() < 0.5 else tree[path]
        elif how == "swap":
            other = rng.choice(sorted(tree))
            is_derived &= other.endswith(DERIVED)
            tree[path], tree[other] = tree[other], tree[path]
        else:
            del tree[path]
        told.append(f"{how} of {path}")
        if not tree:
            break
    return Case(tree, rows if is_derived else None, is_mended, ", ".join(told))


def _mutated(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data or b"\0")
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(made))
        lot = rng.random()
        if lot < 0.4:
            made[at] ^= 1 << rng.randrange(8)
        elif lot < 0.7:
            width = rng.choice([2, 4, 8])
            value = rng.choice([*mutate.INTERESTING, *mutate.NEAR_LIMITS, rng.getrandbits(63)])
            made[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "big")
        elif lot < 0.8:
            made[at : at + rng.randrange(30)] = rng.choice(mutate.NASTY)
        elif lot < 0.9:
            end = at + rng.randrange(200)
            made[at:end] = bytes(len(made[at:end]))
        else:
            made[at:at] = made[at : at + rng.randrange(120)]
        made = made or bytearray(1)
    return bytes(made)


def _renamed(rng: random.Random, path: str) -> str:
    directory, _, name = path.rpartition("/")
    stem, dot, kind = name.partition(".")
    if stem.isdigit():
        offset = rng.choice([0, 3, int(stem) + 1, max(int(stem) - 1, 0), 2**31, 2**63 - 1])
        name = f"{rng.choice([int(stem), offset]):020}{dot}{kind}"
    name += rng.choice(["", "", ".swap", ".cleaned", ".deleted", ".tmp"])
    return f"{directory}/{name}" if directory else name


# --- what is done with them -------------------------------------------------------------------------------------------


def _rows(log: AnyLog, isolation: Isolation = "read_uncommitted") -> list[Row]:
    view, bound = log.bounded(isolation)
    found = []
    is_committed = isolation == "read_committed"
    for record in read_records(log, view, view.log_start_offset, bound, is_committed=is_committed):
        found.append((record.offset, record.key, record.value))
        if len(found) > 100_000:
            raise AssertionError("more rows than there were bytes")
    return found


def _columns(log: AnyLog) -> list[Row]:
    view = log.view
    found: list[Row] = []
    for part in read_columns(
        log,
        view,
        view.log_start_offset,
        view.high_watermark,
        columns=None,
        layout="binary",
        is_committed=False,
        bytes_max=None,
    ):
        found += [(record.offset, record.key, record.value) for record in part]
    return found


def _read_all(log: AnyLog, rows: tuple[Row, ...] | None, *, is_mended: bool) -> None:
    """By rows, columns, time, and from each offset; where one is refused, the next is tried."""
    results: list[list[Row] | None] = []
    for read in (_rows, _columns):
        try:
            results.append(read(log))
        except LogcoreError:
            results.append(None)
    for found in results:
        if found is not None and not is_mended:
            offsets = [row[0] for row in found]
            assert offsets == sorted(set(offsets)), f"offsets {offsets}"
    if None not in results and not is_mended:
        assert results[0] == results[1], f"rows {results[0]}, columns {results[1]}"
    if rows is not None:
        assert results == [list(rows), list(rows)], "other rows than were written"
    for question in (
        lambda: _rows(log, "read_committed"),
        lambda: find_timestamp(log.view, NOW_MS + 7),
        lambda: find_max_timestamp(log.view),
        lambda: next(read_records(log, log.view, log.view.log_end_offset // 2, log.view.log_end_offset), None),
    ):
        with suppress(LogcoreError):
            question()


def play(disk: Disk, root_path: str, number: int, case: Case) -> None:
    """Open, read and write a damaged root. Anything but a LogcoreError gets out of here."""
    config = CONFIGS[number % len(CONFIGS)]
    try:
        reader = ReadOnlyLog(disk, root_path, PARTITION, config, now_ms=NOW_MS)
    except LogcoreError:
        pass
    else:
        _read_all(reader, None, is_mended=case.is_mended)
        reader.close()
    for attempt in range(2):
        root = None
        try:
            root = Root(disk, root_path, _chance(number), NOW_MS)
            log, _ = root.open(PARTITION, config, now_ms=NOW_MS, create=False, repair=number % 3 == attempt)
            _read_all(log, case.rows if attempt == 0 else None, is_mended=case.is_mended)
            log.append_records([(b"key", b"value", NOW_MS)], now_ms=NOW_MS)
            log.roll(NOW_MS)
            log.append_records([(b"key", b"value", NOW_MS)], now_ms=NOW_MS)
        except LogcoreError:
            assert case.rows is None or attempt, "what can be made again was not"
        finally:
            if root is not None:
                with suppress(LogcoreError):
                    root.close(NOW_MS)


def _write(disk: Disk, root_path: str, tree: Tree) -> None:
    disk.make_directory(f"{root_path}/{PARTITION}")
    for path, data in tree.items():
        file = disk.open(f"{root_path}/{path}", is_writable=True, create=True)
        file.append([data])
        file.close()


def run_case(seed: int, number: int) -> str | None:
    """Play one case; what is wrong, or None."""
    case = make_case(seed, number)
    try:
        if number % REAL_EVERY == 0:
            with tempfile.TemporaryDirectory() as directory:
                _write(SYSTEM_DISK, directory, case.tree)
                play(SYSTEM_DISK, directory, number, case)
        else:
            disk = MemoryDisk(clock=lambda: NOW_MS)
            _write(disk, "/data", case.tree)
            play(disk, "/data", number, case)
    except Exception:
        return f"{case.told}\n{traceback.format_exc()}"
    return None
