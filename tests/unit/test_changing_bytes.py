"""Bytes that somebody writes to while they are read: a wrong answer may come of it, or a refusal, never a crash.

Two ways to write at the worst moment. A garbage collection runs the caller's code in the middle of ours, whenever an
object is made (up to Python 3.11): here it writes at each such moment in turn. And where the GIL is let go, threads do.
"""

from __future__ import annotations

import gc
import itertools
import struct
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from logcore import (
    LogcoreError,
    UsageError,
    convert_batches,
    decode_batches,
    decode_columns,
    encode_batch,
    find_batch,
    scan_batches,
    validate,
    validate_and_assign,
)
from logcore._compression import compress, decompress
from logcore._filter import filter_batches, filter_batches_by
from logcore._offsetmap import OffsetMap, map_keys

RUNS_CODE_INSIDE = sys.version_info < (3, 12)
GZIP = 1

HEADERS = [(f"n{index}", b"x" * 3) for index in range(40)]
PLAIN = encode_batch([(b"k", b"v" * 30, 1, HEADERS), (None, b"w", 2), (b"k", None, 3, HEADERS[:2])])
PACKED = encode_batch([(b"k", b"v" * 30, 1, HEADERS), (None, b"w", 2)], compression="gzip")
MESSAGES = encode_batch([(b"k", b"v" * 30, 1), (None, b"w", 2)], magic=1)
SET = encode_batch([(None, b"v" * 50, 1)] * 20, magic=1, compression="gzip")


def damaged_set() -> bytes:
    """A compressed set whose first message inside claims a longer key than there is."""
    plain = bytearray(decompress(GZIP, SET[34:], 1 << 20, magic=1))
    plain[26:30] = struct.pack(">i", 10**6)
    value = compress(GZIP, bytes(plain), magic=1)
    body = struct.pack(">bbqii", 1, GZIP, 0, -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def compacted(data: Any) -> bytes:
    offset_map = OffsetMap(24 * 64, seed=bytes(16))
    map_keys(data, offset_map, first_offset=0)
    offset_map.check_invariants()
    return filter_batches(data, offset_map, now_ms=5, delete_retention_ms=5).output


USES: dict[str, Callable[[Any], Any]] = {
    "rows": lambda data: [record for batch in decode_batches(data) for record in batch],
    "rows, unchecked": lambda data: [record for batch in decode_batches(data, verify_crc=False) for record in batch],
    "columns": lambda data: list(decode_columns(data)),
    "views": lambda data: list(decode_columns(data, layout="view", verify_crc=False)),
    "chunks": lambda data: list(decode_columns(data, chunk_bytes_max=1, verify_crc=False)),
    "scan": scan_batches,
    "search": find_batch,
    "validate": lambda data: validate(data, now_ms=5, verify_crc=False),
    "validate for a compacted topic": lambda data: validate(data, now_ms=5, compacted=True, verify_crc=False),
    "validate in magic 1": lambda data: validate(data, now_ms=5, magic=1, verify_crc=False),
    "patch": lambda data: validate_and_assign(data, now_ms=5, first_offset=7, verify_crc=False),
    "rebuild": lambda data: validate_and_assign(data, now_ms=5, first_offset=7, verify_crc=False, compression="lz4"),
    "compact": compacted,
    "filter": lambda data: filter_batches_by(data, lambda batch: "delete_empty", lambda batch, record: record.key),
    "convert up": lambda data: convert_batches(data, 2, compression="lz4", verify_crc=False),
    "convert down": lambda data: convert_batches(data, 1, compression="none", verify_crc=False),
}
CHANGES: dict[str, Callable[[bytearray], None]] = {
    "long lengths": lambda data: data.__setitem__(slice(61, None), b"\xfe\xff\xff\xff\x0f" * len(data)),
    "ones": lambda data: data.__setitem__(slice(12, None), b"\xff" * (len(data) - 12)),
    "zeros": lambda data: data.__setitem__(slice(12, None), bytes(len(data) - 12)),
    "long key of a message": lambda data: data.__setitem__(slice(26, 30), b"\x7f\xff\xff\xf0"),
    "another magic": lambda data: data.__setitem__(16, 3 - data[16]),
    "a long batch": lambda data: data.__setitem__(slice(8, 12), b"\x7f\xff\xff\x00"),
}


def written_in_a_collection(data: bytes, use: Callable[[Any], Any], change: Callable[[bytearray], None]) -> list[Any]:
    """What came of each run: one for every collection during it at which `change` may strike, and one without."""
    results = []
    for strike in itertools.count(1):
        buffer = bytearray(data)
        seen = 0

        def collecting(phase: str, info: dict[str, int], strike: int = strike, buffer: bytearray = buffer) -> None:
            nonlocal seen
            seen += phase == "start"
            if seen == strike and phase == "start":
                changed = bytearray(buffer)
                change(changed)
                memoryview(buffer)[:] = changed[: len(buffer)]

        pairs = [(index, index) for index in range(4000)]  # what Python keeps to reuse would count as no allocation
        before = gc.get_threshold()
        gc.freeze()  # so that each of the many collections has nothing to look at
        gc.callbacks.append(collecting)
        gc.set_threshold(1, 1 << 30, 1 << 30)
        try:
            results.append(use(buffer))
        except (LogcoreError, UnicodeError) as error:
            results.append(error)
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(collecting)
            gc.unfreeze()
            del pairs
        if seen < strike:
            return results
    return results


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("use", USES)
def test_bytes_written_in_a_garbage_collection_never_crash(use, change):
    struck = 0
    for data in (PLAIN, PACKED, MESSAGES, SET, damaged_set()):
        struck += len(written_in_a_collection(data, USES[use], CHANGES[change])) - 1
    if RUNS_CODE_INSIDE and use not in ("scan", "search"):
        assert struck > 0


@pytest.mark.skipif(not RUNS_CODE_INSIDE, reason="a garbage collection waits for the interpreter")
@pytest.mark.parametrize("use", ["rows, unchecked", "columns", "views"])
def test_headers_that_change_between_two_walks_are_told(use):
    results = written_in_a_collection(PLAIN, USES[use], CHANGES["long lengths"])
    told = [error for error in results if isinstance(error, UsageError)]
    assert told
    assert {str(error) for error in told} == {
        "buffer: got bytes that changed while they were read, wanted a buffer left alone"
    }


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_bytes_written_by_a_thread_never_crash(use, codec):
    headers = [("n", b"xxx")] * 500
    good = encode_batch([(b"k", b"v" * 90, 1, headers)] * 30, compression=codec)
    buffer = np.frombuffer(bytearray(good), np.uint8)
    whole = np.frombuffer(good, np.uint8)
    # Lengths of header values become huge; numpy writes them in one step, at times while the GIL is let go.
    places = np.arange(2000 if codec == "none" else 70, len(good) - 10, 977 if codec == "none" else 5)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for shift in range(5):
                buffer[places + shift] = 0xFF
            buffer[61:] = whole[61:]

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(20):
            try:
                USES[use](buffer)
            except LogcoreError:
                continue
    finally:
        stop.set()
        thread.join()
