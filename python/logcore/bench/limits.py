"""What this machine can do: memcpy, CRC-32C, the same loop in plain C, and the compression libraries alone.

CRC-32C is measured twice, by the routine that the core uses and by the package that Python programs use.

limits.c is compiled at -O3 with the C compiler found at run time, and kept in the user's cache directory under a name
that has its sources, compiler and flags in it. It is called through ctypes, once a fetch, with memory that is made
once and used again and again, as a loop in C would have it.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import crc32c
import numpy as np
import numpy.typing as npt

from logcore import BinaryColumn, InvariantError, UsageError, split_batches
from logcore._compression import check_level, codec_id
from logcore.bench.measure import Task
from logcore.bench.operations import task
from logcore.bench.workload import Fetch, Workload

C_LOOP = "C loop"
CRC_ALONE = "CRC-32C"
CRC_PACKAGE = "crc32c package"
MEMCPY = "memcpy"

LIMIT_ENCODE = "encode columns"
LIMIT_DECODE = "decode columns"
LIMIT_CRC = "CRC of each batch"
LIMIT_COPY = "copy the bytes"
LIBRARY_COMPRESS = "compress the records"
LIBRARY_DECOMPRESS = "decompress the records"
_CRC_BEGIN = 21  # the first byte of a v2 batch that its checksum covers
_SNAPPY_HEADER_BYTES = 16
_SNAPPY_BLOCK_BYTES = 32 << 10
LIBRARIES = {"gzip": "zlib", "snappy": "cramjam", "lz4": "lz4", "zstd": "zstandard"}

Array: TypeAlias = npt.NDArray[Any]

_SOURCES = (Path(__file__).with_name("limits.c"), Path(__file__).with_name("checksum.h"))
_FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC")


@cache
def load_limits() -> ctypes.CDLL:
    """limits.c, compiled and loaded; raises UsageError if there is no C compiler, or it refuses."""
    command = [*_compiler(), *_FLAGS]
    digest = hashlib.blake2b(digest_size=12)
    for part in (*(path.read_bytes() for path in _SOURCES), repr(command).encode(), platform.machine().encode()):
        digest.update(part)
    library = _cache_directory() / f"limits-{digest.hexdigest()}.so"
    if not library.exists():
        # Under a name of its own first: another process may be doing the same.
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            built = Path(scratch) / library.name
            run = subprocess.run([*command, "-o", str(built), str(_SOURCES[0])], capture_output=True, text=True)
            if run.returncode:
                complaint = (run.stderr.strip() or f"exit code {run.returncode}").splitlines()[0]
                raise UsageError("limits.c", where=command[0], got=complaint, wanted="a C compiler that takes it")
            os.replace(built, library)
    limits = ctypes.CDLL(str(library))
    address, size = ctypes.c_void_p, ctypes.c_size_t
    limits.lc_limit_memcpy.argtypes = [address, ctypes.c_char_p, size]
    limits.lc_limit_memcpy.restype = None
    limits.lc_limit_crc.argtypes = [ctypes.c_char_p, size]
    limits.lc_limit_decode.argtypes = [ctypes.c_char_p, size, *[address] * 8]
    limits.lc_limit_encode.argtypes = [address, ctypes.c_int64, ctypes.c_int64, *[address] * 5]
    limits.lc_limit_write.argtypes = [ctypes.c_int, ctypes.c_char_p, size]
    limits.lc_limit_read.argtypes = [ctypes.c_int, address, size]
    limits.lc_limit_append.argtypes = [ctypes.c_int, *limits.lc_limit_encode.argtypes]
    limits.lc_limit_fetch.argtypes = [ctypes.c_int, address, size, *[address] * 8]
    limits.lc_limit_points.argtypes = [ctypes.c_int, address, ctypes.c_int64, address, address]
    for name in ("crc", "decode", "encode", "write", "read", "append", "fetch", "points"):
        limits[f"lc_limit_{name}"].restype = ctypes.c_int64
    limits.lc_limit_init()
    return limits


def _compiler() -> list[str]:
    """The command of a C compiler: CC, the one that Python was built with, or a usual name."""
    configured = shlex.split(sysconfig.get_config_var("CC") or "")[:1]
    for command in (shlex.split(os.environ.get("CC", "")), configured, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    raise UsageError("the C loop", got="no C compiler on PATH", wanted="one (Debian: apt install gcc; or set CC)")


def _cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(root) / "logcore"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="logcore-"))


def limit_tasks(workload: Workload) -> list[Task]:
    """memcpy and CRC-32C of the stored bytes; for uncompressed batches without headers the C loop too.

    Raises UsageError without a C compiler.
    """
    limits = load_limits()
    room = np.empty(max(len(fetch.stored) for fetch in workload.fetches), np.uint8)

    def copy_call(fetch: Fetch) -> Callable[[], object]:
        return partial(limits.lc_limit_memcpy, room.ctypes.data_as(ctypes.c_void_p), fetch.stored, len(fetch.stored))

    tasks = [
        task(workload, LIMIT_COPY, MEMCPY, copy_call),
        task(
            workload, LIMIT_CRC, CRC_ALONE, lambda fetch: partial(limits.lc_limit_crc, fetch.stored, len(fetch.stored))
        ),
        task(workload, LIMIT_CRC, CRC_PACKAGE, lambda fetch: partial(_checksums, split_batches(fetch.stored))),
    ]
    if workload.case.codec == "none" and not workload.has_headers:
        loop = CLoop(workload)
        tasks.append(task(workload, LIMIT_ENCODE, C_LOOP, loop.encode_call))
        tasks.append(task(workload, LIMIT_DECODE, C_LOOP, loop.decode_call))
    return tasks


def _checksums(batches: list[memoryview]) -> None:
    for batch in batches:
        crc32c.crc32c(batch[_CRC_BEGIN:])


class CLoop:
    """The loops of limits.c, with room for the largest fetch of a workload."""

    def __init__(self, workload: Workload) -> None:
        self._limits = load_limits()
        self._batch_bytes = workload.case.batch_bytes
        rows = max(fetch.records for fetch in workload.fetches)
        size = max(len(fetch.plain) for fetch in workload.fetches)
        self.encoded = np.empty(2 * size + 4096, np.uint8)
        self.offset = np.empty(rows, np.int64)
        self.timestamp = np.empty(rows, np.int64)
        self.key, self.value = np.empty(size, np.uint8), np.empty(size, np.uint8)
        self.key_ends, self.value_ends = np.empty(rows + 1, np.int32), np.empty(rows + 1, np.int32)
        # A null clears its bit: ones to begin with.
        self.key_validity = np.full(rows // 8 + 1, 0xFF, np.uint8)
        self.value_validity = np.full(rows // 8 + 1, 0xFF, np.uint8)

    def decode_call(self, fetch: Fetch) -> Callable[[], int]:
        """A call that decodes `fetch` into this object's arrays and returns the number of records."""
        arrays: tuple[Array, ...] = (
            *(self.offset, self.timestamp),
            *(self.key, self.key_ends, self.key_validity),
            *(self.value, self.value_ends, self.value_validity),
        )
        call = partial(self._limits.lc_limit_decode, fetch.plain, len(fetch.plain), *map(pointer, arrays))
        if call() != fetch.records:
            raise InvariantError(f"the C loop decodes {call()} of {fetch.records} records")
        return call

    def encode_call(self, fetch: Fetch) -> Callable[[], int]:
        """A call that encodes the columns of `fetch` into `encoded` and returns the number of bytes."""
        key, value = fetch.columns.key, fetch.columns.value
        if not isinstance(key, BinaryColumn) or not isinstance(value, BinaryColumn):
            raise InvariantError("the columns of a fetch have the binary layout")
        arrays: tuple[Array, ...] = (fetch.columns.timestamp, key.data, key.offsets, value.data, value.offsets)
        call = partial(
            self._limits.lc_limit_encode,
            pointer(self.encoded),
            fetch.records,
            self._batch_bytes,
            *map(pointer, arrays),
        )
        if call() != len(fetch.plain):
            raise InvariantError(f"the C loop encodes {call()} bytes, logcore {len(fetch.plain)}")
        return call


def pointer(array: Array) -> ctypes.c_void_p:
    """The array's address; data_as() keeps the array alive with it."""
    return array.ctypes.data_as(ctypes.c_void_p)


def library_tasks(workload: Workload) -> list[Task]:
    """The compression library alone, on the record bytes of each batch, with the settings that the codec uses."""
    codec = workload.case.codec
    compress, decompress = library_calls(codec, workload.case.level)
    by = LIBRARIES[codec]

    def each(call: Callable[..., object], items: list[Any]) -> None:
        for item in items:
            call(*item)

    def compress_call(fetch: Fetch) -> Callable[[], object]:
        return partial(each, compress, [(piece,) for payload in fetch.payloads for piece in _pieces(codec, payload)])

    def decompress_call(fetch: Fetch) -> Callable[[], object]:
        return partial(each, decompress, [(piece,) for stream in fetch.streams for piece in _blocks(codec, stream)])

    return [
        task(workload, LIBRARY_COMPRESS, by, compress_call),
        task(workload, LIBRARY_DECOMPRESS, by, decompress_call),
    ]


def _pieces(codec: str, payload: bytes) -> list[bytes]:
    """What the library is given at a time: all of it, or the 32-KiB blocks that Kafka's snappy has."""
    if codec != "snappy":
        return [payload]
    return [payload[at : at + _SNAPPY_BLOCK_BYTES] for at in range(0, len(payload), _SNAPPY_BLOCK_BYTES)]


def _blocks(codec: str, stream: bytes) -> list[bytes]:
    """The parts of a stored stream that the library alone can read: all of it, or the raw blocks of Kafka's snappy."""
    if codec != "snappy":
        return [stream]
    blocks = []
    at = _SNAPPY_HEADER_BYTES
    while at < len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        blocks.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return blocks


def library_calls(codec: str, level: int | None) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
    """compress(plain) and decompress(stream) of the library behind `codec`, in one call each."""
    level = check_level(codec_id(codec), level)
    if codec == "gzip":

        def gzip_compress(plain: bytes) -> bytes:
            deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
            return deflate.compress(plain) + deflate.flush()

        return gzip_compress, lambda stream: zlib.decompress(stream, 31)
    if codec == "snappy":
        import cramjam

        return cramjam.snappy.compress_raw, cramjam.snappy.decompress_raw
    if codec == "lz4":
        import lz4.frame

        # Kafka's 9 is the fast compressor, its other levels the high one.
        frame_level = 0 if level is None or level == 9 else min(max(level, 3), 12)
        compress = partial(
            lz4.frame.compress,
            compression_level=frame_level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return compress, lz4.frame.decompress
    import zstandard

    compressor = zstandard.ZstdCompressor(level=3 if level is None else level)
    decompressor = zstandard.ZstdDecompressor()
    return compressor.compress, decompressor.decompress
