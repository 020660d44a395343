"""Eight threads on the same and on different buffers get what one thread gets.

Large batches are in the mix on purpose: those are checksummed, (de)compressed and decoded without the GIL.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logcore import (
    CorruptBatch,
    Record,
    assign_offsets,
    decode_batches,
    decode_columns,
    encode_batch,
    encode_columns,
    find_batch,
    scan_batches,
    split_batches,
)
from tests.helpers import CODECS_BY_MAGIC, replaced, rows

THREADS = 8
ROUNDS = 4


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(job: Callable[[int], Any]) -> list[Any]:
    """What `job` returned in each of the threads, all of which begin at once; the first exception is raised here."""
    results: list[Any] = [None] * THREADS
    failures: list[BaseException] = []
    barrier = threading.Barrier(THREADS, timeout=60)

    def run(index: int) -> None:
        try:
            barrier.wait()
            results[index] = [job(index) for _ in range(ROUNDS)]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a thread did not come back"
    if failures:
        raise failures[0]
    return results


def records_for(seed: int, magic: int, count: int = 400) -> list[Record]:
    """Half small batches, half well above the size at which the GIL is let go."""
    size = 20 if seed % 2 else 700
    return [
        Record(
            offset=index * 2,
            timestamp=-1 if magic == 0 else 1_700_000_000_000 + index * seed,
            key=None if index % 7 == 0 else b"key-%d-%d" % (seed, index),
            value=None if index % 11 == 0 else (b"value %d " % (seed * index)) * (size // 8),
            headers=[("h", b"x" * (index % 5)), ("n", None)] if magic == 2 and index % 3 == 0 else (),
        )
        for index in range(count)
    ]


def everything(data: bytes) -> list[Any]:
    """What every reader says of a buffer, as plain values."""
    binary, view = decode_columns(data), decode_columns(data, layout="view")
    scan = scan_batches(data)
    return [
        rows(data),
        list(binary),
        list(view),
        binary.offset.tolist(),
        decode_columns(data, columns=("value",)).value.offsets.tolist(),
        [len(chunk) for chunk in decode_columns(data, chunk_bytes_max=5000).chunks],
        scan.headers.tolist(),
        [bytes(part) for part in split_batches(data)],
        find_batch(data, position=1),
    ]


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_threads_that_share_a_buffer_all_read_what_one_reads(magic: int, codec: str) -> None:
    data = b"".join(encode_batch(records_for(seed, magic), magic=magic, compression=codec) for seed in (1, 2))
    expected = everything(data)
    for results in in_threads(lambda _: everything(data)):
        assert results == [expected] * ROUNDS


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_threads_with_buffers_of_their_own_write_and_read_what_one_does(magic: int, codec: str) -> None:
    def job(index: int) -> list[Any]:
        records = records_for(index, magic)
        data = encode_batch(records, magic=magic, compression=codec)
        found = [data, rows(data) == records]
        if magic == 2:
            found.append(encode_columns(decode_columns(data), compression=codec, batch_bytes=10_000))
            found.append(encode_columns(decode_columns(data, layout="view"), compression=codec))
        return found

    expected = [job(index) for index in range(THREADS)]
    assert all(found[1] for found in expected)
    assert in_threads(job) == [[one] * ROUNDS for one in expected]


def test_threads_encode_the_same_records_and_columns_to_the_same_bytes() -> None:
    records = records_for(2, 2, count=1500)
    columns = decode_columns(encode_batch(records))

    def job(_: int) -> list[bytes]:
        return [
            encode(given, compression=codec)
            for codec in ("none", "zstd", "lz4", "snappy", "gzip")
            for encode, given in ((encode_batch, records), (encode_columns, columns))
        ]

    expected = job(0)
    for results in in_threads(job):
        assert results == [expected] * ROUNDS


def test_threads_share_the_batches_and_columns_of_one_decoding() -> None:
    """A Batch and a Columns may be used by many threads at once; an iterator belongs to the one that made it."""
    records = records_for(2, 2, count=1000)
    data = encode_batch(records, compression="zstd")
    batch = next(decode_batches(data))
    columns = decode_columns(data, layout="view")

    def job(_: int) -> bool:
        return list(batch) == records and list(columns) == records and bytes(batch.data) == data

    assert in_threads(job) == [[True] * ROUNDS] * THREADS


def test_damage_is_told_alike_in_every_thread() -> None:
    whole = encode_batch(records_for(2, 2), compression="lz4")
    buffers = [replaced(whole, 70 + index, bytes([whole[70 + index] ^ 0xFF])) for index in range(THREADS)]

    def refused(read: Callable[[bytes], Any], data: bytes) -> str:
        with pytest.raises(CorruptBatch) as caught:
            read(data)
        return str(caught.value)

    def job(index: int) -> list[str]:
        return [refused(rows, buffers[index]), refused(decode_columns, buffers[index])]

    expected = [job(index) for index in range(THREADS)]
    assert len({text for found in expected for text in found}) >= THREADS
    assert in_threads(job) == [[one] * ROUNDS for one in expected]


def test_threads_number_buffers_of_their_own() -> None:
    whole = b"".join(encode_batch(records_for(seed, 2, count=50)) for seed in range(1, 6))

    def job(index: int) -> tuple[int, bytes]:
        data = bytearray(whole)
        return assign_offsets(data, 1000 * index, leader_epoch=index), bytes(data)

    expected = [job(index) for index in range(THREADS)]
    assert in_threads(job) == [[one] * ROUNDS for one in expected]
