"""CRC-32C and CRC-32 against the packages that are known for them, murmur2 against Kafka's published values."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator

import crc32c as package
import pytest

from logcore import UsageError, crc32c, decode_batches, encode_batch, murmur2, partition_for_key
from logcore._checksum import crc32, crc32c_routines, use_crc32c_routine
from tests.reference import checksum
from tests.reference import murmur2 as reference

Checksum = Callable[..., int]
# Around every boundary that a routine could have: three interleaved streams, folds of 64 and 256 bytes, 8-byte words.
SIZES = sorted(
    {
        size + near
        for size in (0, 8, 16, 24, 64, 256, 512, 576, 768, 832, 1536, 3072, 4096, 24576, 65536)
        for near in range(-9, 10)
    }
    - set(range(-9, 0))
)
NOISE = random.Random(5).randbytes(SIZES[-1] + 64)


@pytest.fixture(params=crc32c_routines(), autouse=True)
def _routine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test of this file with every routine that the machine has."""
    use_crc32c_routine(request.param)
    yield
    use_crc32c_routine(crc32c_routines()[-1])


@pytest.mark.parametrize(("ours", "theirs"), [(crc32c, package.crc32c), (crc32, zlib.crc32)], ids=["crc32c", "crc32"])
def test_checksums_are_the_packages_at_every_size_and_alignment(ours: Checksum, theirs: Checksum) -> None:
    view = memoryview(NOISE)
    for size in SIZES:
        for start in (0, 1, 3, 7, 8, 13):
            piece = view[start : start + size]
            assert ours(piece) == theirs(piece), (size, start)


@pytest.mark.parametrize(("ours", "theirs"), [(crc32c, package.crc32c), (crc32, zlib.crc32)], ids=["crc32c", "crc32"])
def test_a_checksum_goes_on_from_another(ours: Checksum, theirs: Checksum) -> None:
    for cut in (0, 1, 7, 8, 1000, 4095, 4096, 60_000):
        assert ours(NOISE[cut:], ours(NOISE[:cut])) == theirs(NOISE)
        assert ours(NOISE[cut:], theirs(NOISE[:cut])) == theirs(NOISE)
    assert ours(b"", 0xFFFFFFFF) == 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_crc32c_has_its_published_values(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected == checksum.crc32c(data)


def test_crc32_has_its_published_value() -> None:
    assert crc32(b"123456789") == 0xCBF43926


@pytest.mark.parametrize(("magic", "expected"), [(0, 1978725405), (1, 109425508), (2, 3851219455)])
def test_the_checksums_of_two_records_are_those_that_kafka_pins(magic: int, expected: int) -> None:
    """REC-123: uncompressed, for each magic; in the old formats that of the first message."""
    data = encode_batch([(b"key1", b"value1", 283843), (b"key2", b"value2", 1234)], magic=magic)
    assert next(decode_batches(data)).crc == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_murmur2_and_the_partition_are_the_references() -> None:
    for size in range(70):
        key = NOISE[size : 2 * size]
        assert murmur2(key) == reference.murmur2(key)
        for count in (1, 2, 7, 50, 2**31 - 1):
            assert partition_for_key(key, count) == reference.partition(key, count)
            assert 0 <= partition_for_key(key, count) < count


def test_an_unknown_routine_is_refused_and_changes_nothing() -> None:
    with pytest.raises(UsageError, match="got vector, wanted tables"):
        use_crc32c_routine("vector")
    assert crc32c(NOISE) == package.crc32c(NOISE)
