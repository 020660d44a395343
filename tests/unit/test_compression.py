"""Kafka's codecs: what is written, what is read, and what hostile streams may cost.

The golden streams were written by Apache Kafka 4.3.1 (`Compression.of(...).build().wrapForOutput`, JDK 17, snappy-java
1.1.10.7, lz4-java 1.8.1, zstd-jni 1.5.6-10) from TEXT, at default levels unless told, and read back by its readers.
"""

import gzip
import random
import subprocess
import sys
import textwrap
import threading
import zlib

import cramjam
import lz4.frame
import numpy as np
import pytest
import xxhash
import zstandard

from logcore._compression import CODECS, check_level, codec_id, codec_name, compress, decompress
from logcore.errors import CorruptBatch, CorruptionReason, UsageError, UsageTypeError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
STREAMED = (GZIP, SNAPPY, LZ4, ZSTD)
LEVELS = {
    NONE: (None,),
    GZIP: (None, -1, 1, 2, 6, 9),
    SNAPPY: (None,),
    LZ4: (None, *range(1, 18)),
    ZSTD: (None, -131072, -5, 1, 3, 9, 22),
}
SIZES = (0, 1, 32767, 32768, 32769, 65535, 65536, 65537, 1 << 20)
CAP = 1 << 20
TEXT = b"logcore logcore logcore: the quick brown fox, the quick brown dog\n" * 4
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"

# (codec, magic, content, stream)
GOLDEN = (
    (GZIP, 2, b"", "1f8b08000000000000ff03000000000000000000"),
    (SNAPPY, 2, b"", "82534e41505059000000000100000001"),
    (LZ4, 0, b"", "04224d1860401a00000000"),
    (LZ4, 2, b"", "04224d1860408200000000"),
    (ZSTD, 2, b"", "28b52ffd2000010000"),
    (
        GZIP,
        2,
        TEXT,
        "1f8b08000000000000ffcbc94f4fce2f4a55c841a5ad144a3252150a4b3393b315928af2cbf314d2f22b74300453f2d3b97286850900cf34"
        "920508010000",
    ),
    (
        SNAPPY,
        2,
        TEXT,
        "82534e415050590000000001000000010000003b88021c6c6f67636f7265203a0800543a2074686520717569636b2062726f776e20666f78"
        "2c4215000c646f670a3a3a00114afe4200fe4200ba4200",
    ),
    (
        LZ4,
        0,
        TEXT,
        "04224d1860401a390000008b6c6f67636f7265200800fd073a2074686520717569636b2062726f776e20666f782c15004b646f670a3a0004"
        "4a000f4200975020646f670a00000000",
    ),
    (
        LZ4,
        2,
        TEXT,
        "04224d18604082390000008b6c6f67636f7265200800fd073a2074686520717569636b2062726f776e20666f782c15004b646f670a3a0004"
        "4a000f4200975020646f670a00000000",
    ),
    (  # level 17
        LZ4,
        2,
        TEXT,
        "04224d18604082330000008b6c6f67636f7265200800fd073a2074686520717569636b2062726f776e20666f782c15004f646f670a4200ae"
        "5020646f670a00000000",
    ),
    (
        ZSTD,
        2,
        TEXT,
        "28b52ffd0058a4010024026c6f67636f7265203a2074686520717569636b2062726f776e20666f782c646f670a0500ac22283481005d7504"
        "ceb9ad2b5c010000",
    ),
)


def sample(size: int, seed: int = 7) -> bytes:
    """Half text, half noise, so that every codec has something to find and something to store."""
    rng = random.Random(seed)
    parts = [rng.choice((b"order", b"user", b"click", b"value")) + rng.randbytes(4) for _ in range(size // 8 + 1)]
    return b"".join(parts)[:size]


def refusal(codec: int, stream: bytes, *, bytes_max: int = CAP, magic: int = 2) -> CorruptBatch:
    with pytest.raises(CorruptBatch) as caught:
        decompress(codec, stream, bytes_max, magic=magic)
    return caught.value


def lz4_frame(*blocks: bytes, flg: int = 0x60, bd: int = 0x40, size: bytes = b"", end: bytes = bytes(4)) -> bytes:
    """A frame around blocks that already have their length, with a right header checksum."""
    descriptor = bytes((flg, bd)) + size
    checksum = xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF
    return b"\x04\x22\x4d\x18" + descriptor + bytes((checksum,)) + b"".join(blocks) + end


def stored(data: bytes) -> bytes:
    return (len(data) | 1 << 31).to_bytes(4, "little") + data


def xerial(*blocks: bytes) -> bytes:
    return XERIAL + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


# ------------------------------------------------------------------------------------------------- names and levels


def test_codec_ids_are_kafkas():
    """REC-122: none 0, gzip 1, snappy 2, lz4 3, zstd 4; any other name or id is refused."""
    assert [codec_id(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]
    assert [codec_name(number) for number in range(5)] == list(CODECS)
    with pytest.raises(UsageError, match="got 'brotli', wanted none, gzip, snappy, lz4 or zstd"):
        codec_id("brotli")
    with pytest.raises(UsageTypeError, match="got bytes, wanted str"):
        codec_id(b"gzip")
    with pytest.raises(UsageError, match="got 5"):
        compress(5, b"")
    assert refusal(5, b"").reason is CorruptionReason.UNKNOWN_CODEC
    assert refusal(1 << 70, b"").reason is CorruptionReason.UNKNOWN_CODEC


def test_an_unknown_codec_id_has_a_name_to_print():
    assert codec_name(5) == "unknown-5"
    assert codec_name(7) == "unknown-7"
    with pytest.raises(UsageTypeError, match="got str"):
        codec_name("gzip")


@pytest.mark.parametrize(
    ("codec", "default", "good", "bad", "wanted"),
    [
        (GZIP, -1, (-1, 1, 9), (-2, 0, 10), "-1 or 1 to 9"),
        (LZ4, 9, (1, 9, 17), (-1, 0, 18), "1 to 17"),
        (ZSTD, 3, (-131072, -1, 0, 22), (-131073, 23, 1 << 80), "-131072 to 22"),
    ],
)
def test_levels_have_kafkas_ranges_and_defaults(codec, default, good, bad, wanted):
    """REC-120: gzip 1..9 or -1 (default -1), lz4 1..17 (default 9), zstd -131072..22 (default 3)."""
    assert check_level(codec, None) == default
    for level in good:
        assert check_level(codec, level) == level
        assert check_level(codec, np.int64(level)) == level
    for level in bad:
        with pytest.raises(UsageError) as caught:
            check_level(codec, level)
        assert str(caught.value) == f"compression level, {codec_name(codec)}: got {level}, wanted {wanted}"
        with pytest.raises(UsageError):
            compress(codec, b"", level)


@pytest.mark.parametrize("codec", [NONE, SNAPPY])
def test_none_and_snappy_have_no_level(codec):
    """REC-120: snappy has no level."""
    assert check_level(codec, None) is None
    with pytest.raises(UsageError, match="got 1, wanted None"):
        check_level(codec, 1)


@pytest.mark.parametrize("level", ["3", 3.0, True, b"3"])
def test_a_level_that_is_no_integer_is_a_type_error(level):
    with pytest.raises(UsageTypeError, match=f"compression level, zstd: got {type(level).__name__}, wanted an int"):
        compress(ZSTD, b"", level)


def test_lz4_level_nine_is_the_fast_compressor_and_one_the_high_one():
    data = sample(60000)
    assert compress(LZ4, data) == compress(LZ4, data, 9)
    assert len(compress(LZ4, data, 1)) < len(compress(LZ4, data, 9))
    assert compress(LZ4, data, 12) == compress(LZ4, data, 17)


# ------------------------------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_what_was_compressed_comes_back(codec, size):
    for data in (sample(size), bytes(size), random.Random(1).randbytes(size)):
        for level in LEVELS[codec] if size <= 65537 else (None,):
            for magic in (0, 1, 2) if codec == LZ4 and level is None else (2,):
                stream = compress(codec, data, level, magic=magic)
                assert decompress(codec, stream, size, magic=magic) == data


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_any_contiguous_buffer_is_read(codec):
    stream = compress(codec, TEXT)
    for kind in (bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)):
        assert compress(codec, kind(TEXT)) == stream
        assert decompress(codec, kind(stream), len(TEXT)) == TEXT
    framed = memoryview(b"xx" + stream + b"yy")[2:-2]
    assert decompress(codec, framed, len(TEXT)) == TEXT
    words = np.arange(100, dtype=">i8").reshape(10, 10)
    assert decompress(codec, compress(codec, words), 800) == words.tobytes()
    assert decompress(codec, compress(codec, np.empty(0, np.uint8)), 0) == b""


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_what_is_no_contiguous_buffer_is_refused_with_a_typed_error(codec):
    released = memoryview(b"abc")
    released.release()
    for bad in ("text", None, 5, [1, 2], memoryview(b"abcdef")[::2], np.arange(9)[::3]):
        for call in (lambda data: compress(codec, data), lambda data: decompress(codec, data, 10)):
            with pytest.raises(UsageError, match=r"^data: got "):
                call(bad)
    with pytest.raises(UsageTypeError, match="got str"):
        compress(codec, "text")
    for call in (lambda data: compress(codec, data), lambda data: decompress(codec, data, 10)):
        with pytest.raises(UsageError, match="released"):
            call(released)


@pytest.mark.parametrize("bad", [-1, 1 << 63])
def test_a_cap_out_of_range_is_refused(bad):
    with pytest.raises(UsageError, match=f"bytes_max: got {bad}"):
        decompress(GZIP, b"", bad)


@pytest.mark.parametrize("bad", ["1", 1.5, None, True])
def test_numbers_of_another_type_are_refused(bad):
    with pytest.raises(UsageTypeError, match=r"^bytes_max"):
        decompress(GZIP, b"", bad)
    with pytest.raises(UsageTypeError, match=r"^codec"):
        decompress(bad, b"", 1)
    with pytest.raises(UsageTypeError, match=r"^codec"):
        compress(bad, b"")
    with pytest.raises(UsageTypeError, match=r"^magic"):
        compress(LZ4, b"", magic=bad)


@pytest.mark.parametrize("bad", [-1, 3])
def test_a_magic_that_kafka_does_not_have_is_refused(bad):
    with pytest.raises(UsageError, match=f"magic: got {bad}, wanted 0, 1 or 2"):
        compress(LZ4, b"", magic=bad)
    with pytest.raises(UsageError, match=f"magic: got {bad}, wanted 0, 1 or 2"):
        decompress(LZ4, b"", 1, magic=bad)


# ----------------------------------------------------------------------------------------------------- Kafka's bytes


@pytest.mark.parametrize(("codec", "magic", "content", "stream"), GOLDEN)
def test_streams_that_kafka_wrote_are_read(codec, magic, content, stream):
    """REC-118, REC-119, REC-121."""
    assert decompress(codec, bytes.fromhex(stream), len(content), magic=magic) == content


@pytest.mark.parametrize(
    ("codec", "magic", "stream"), [(c, m, s) for c, m, data, s in GOLDEN if not data and c != ZSTD]
)
def test_an_empty_stream_is_byte_for_byte_kafkas(codec, magic, stream):
    assert compress(codec, b"", magic=magic).hex() == stream


@pytest.mark.parametrize("level", LEVELS[GZIP])
def test_a_gzip_header_names_neither_time_nor_level_nor_system(level):
    assert compress(GZIP, TEXT, level)[:10] == bytes.fromhex("1f8b08000000000000ff")


def test_snappy_is_written_in_xerial_blocks_of_32_kib():
    """REC-121: a 16-byte header, then int32 length-prefixed blocks."""
    data = sample(70000)
    stream = compress(SNAPPY, data)
    assert stream[:16] == XERIAL
    position, plain = 16, []
    while position < len(stream):
        length = int.from_bytes(stream[position : position + 4], "big")
        plain.append(bytes(cramjam.snappy.decompress_raw(stream[position + 4 : position + 4 + length])))
        position += 4 + length
    assert [len(block) for block in plain] == [32768, 32768, 4464]
    assert b"".join(plain) == data


@pytest.mark.parametrize("level", LEVELS[LZ4])
def test_lz4_is_written_in_independent_blocks_of_64_kib_with_an_end_mark(level):
    """REC-119: 64 KiB blocks, independent, no content size, no checksums, end mark of four zero bytes."""
    data = sample(150000)
    stream = compress(LZ4, data, level)
    assert stream[:7] == b"\x04\x22\x4d\x18\x60\x40\x82"
    position, lengths = 7, []
    while (length := int.from_bytes(stream[position : position + 4], "little") & 0x7FFFFFFF) != 0:
        lengths.append(length)
        position += 4 + length
    assert len(lengths) == 3
    assert max(lengths) <= 65536
    assert position + 4 == len(stream)
    info = lz4.frame.get_frame_info(stream)
    assert (info["block_size"], info["block_linked"], info["content_size"]) == (65536, False, 0)


def test_lz4_of_magic_0_has_the_broken_header_checksum():
    """REC-118: in magic 0 the hash includes the 4 magic bytes, and is not compared when read; later it is."""
    old, new = compress(LZ4, TEXT, magic=0), compress(LZ4, TEXT, magic=1)
    assert old[6] == xxhash.xxh32_intdigest(old[:6]) >> 8 & 0xFF
    assert new[6] == xxhash.xxh32_intdigest(new[4:6]) >> 8 & 0xFF
    assert old[6] != new[6]
    assert old[:6] + old[7:] == new[:6] + new[7:]
    for wrong in (old, new[:6] + b"\x00" + new[7:]):
        assert decompress(LZ4, wrong, CAP, magic=0) == TEXT
        for magic in (1, 2):
            error = refusal(LZ4, wrong, magic=magic)
            assert (error.reason, error.at) == (CorruptionReason.DECOMPRESSION, 6)
            assert error.what == "lz4 header checksum"


def test_the_header_checksum_of_magic_0_is_ignored_over_many_blocks_too():
    """REC-118: also where a whole frame could be handed to the library, which would compare it."""
    data = sample(200000)
    assert decompress(LZ4, compress(LZ4, data, magic=0), CAP, magic=0) == data


def test_zstd_is_written_as_one_frame_with_its_size():
    stream = compress(ZSTD, TEXT)
    parameters = zstandard.get_frame_parameters(stream)
    assert parameters.content_size == len(TEXT)
    assert not parameters.has_checksum


@pytest.mark.parametrize("codec", STREAMED, ids=CODECS[1:])
def test_the_same_bytes_give_the_same_stream(codec):
    data = sample(100000)
    assert compress(codec, data) == compress(codec, data)


# ------------------------------------------------------------------------------------------- streams of other writers


@pytest.mark.parametrize("options", [{"content_checksum": True}, {"store_size": True}, {"block_checksum": True}])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("size", [0, 1, 5000, 300000])
def test_lz4_frames_of_other_writers_are_read(options, block_size, size):
    data = sample(size)
    stream = lz4.frame.compress(data, block_linked=False, block_size=block_size, **{"store_size": False, **options})
    assert decompress(LZ4, stream, size) == data


def test_lz4_content_checksum_and_size_are_not_compared_as_kafka_does_not():
    data = sample(200000)
    stream = lz4.frame.compress(data, block_linked=False, content_checksum=True, store_size=False)
    assert decompress(LZ4, stream[:-4] + bytes(4), CAP) == data
    assert decompress(LZ4, lz4_frame(stored(b"abc"), flg=0x68, size=(1 << 60).to_bytes(8, "little")), CAP) == b"abc"


@pytest.mark.parametrize("data", [TEXT, sample(200000)], ids=["one block", "four blocks"])
def test_bytes_behind_the_lz4_end_mark_are_ignored(data):
    stream = compress(LZ4, data)
    assert decompress(LZ4, stream + b"anything" + stream, CAP) == data


def test_gzip_members_are_read_one_behind_the_other():
    named = gzip.compress(b"two", mtime=1)
    named = named[:3] + b"\x1c" + named[4:10] + b"\x02\x00xx" + b"name\x00" + b"comment\x00" + named[10:]
    stream = compress(GZIP, b"one") + named + compress(GZIP, b"") + compress(GZIP, sample(9_000_000))
    assert decompress(GZIP, stream, 10_000_000) == b"onetwo" + sample(9_000_000)


def test_bytes_behind_the_last_gzip_member_are_ignored_as_java_does():
    member = compress(GZIP, TEXT)
    header_with_wrong_crc = b"\x1f\x8b\x08\x02" + bytes(6) + b"\xff\xff" + bytes(20)
    for rest in (b"\x00", bytes(100), b"PK\x03\x04" + bytes(40), member[:18], header_with_wrong_crc):
        assert decompress(GZIP, member + rest, CAP) == TEXT


def test_a_further_gzip_member_that_begins_must_also_end():
    member = compress(GZIP, TEXT)
    assert "whole member" in str(refusal(GZIP, member + member[:-1]))
    crc = (zlib.crc32(b"\x1f\x8b\x08\x02" + bytes(6)) & 0xFFFF).to_bytes(2, "little")
    broken = member + b"\x1f\x8b\x08\x02" + bytes(6) + crc + bytes(20)
    assert refusal(GZIP, broken).reason is CorruptionReason.DECOMPRESSION


def test_a_gzip_stream_larger_than_its_first_room_is_read():
    stream = compress(GZIP, bytes(150_000_000), 1)
    for bytes_max in (150_000_000, 1 << 62):
        plain = decompress(GZIP, stream, bytes_max)
        assert len(plain) == 150_000_000
        assert not plain.strip(b"\x00")
    assert refusal(GZIP, stream, bytes_max=149_999_999).reason is CorruptionReason.DECOMPRESSED_SIZE


def test_many_small_gzip_members_cost_no_more_than_they_are():
    """Each member's rest is copied by zlib: with steps of megabytes this would be 60,000 copies of a megabyte."""
    assert decompress(GZIP, compress(GZIP, b"") * 60_000, 0) == b""


def test_snappy_streams_are_read_one_behind_the_other_and_bare_blocks_too():
    """REC-121: xerial's framing is recognised by its magic; anything else is one raw block."""
    assert decompress(SNAPPY, compress(SNAPPY, b"one") + compress(SNAPPY, TEXT), CAP) == b"one" + TEXT
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), CAP) == TEXT
    assert decompress(SNAPPY, b"\x00", 0) == b""
    assert decompress(SNAPPY, compress(SNAPPY, TEXT) + b"\x00\x00\x01", CAP) == TEXT


def test_zstd_frames_are_read_one_behind_the_other_and_skippable_ones_skipped():
    skippable = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)
    assert decompress(ZSTD, skippable + compress(ZSTD, TEXT) + skippable, len(TEXT)) == TEXT
    assert decompress(ZSTD, unsized + skippable + compress(ZSTD, b"") + unsized, 2 * len(TEXT)) == TEXT + TEXT
    assert decompress(ZSTD, b"", 0) == b""
    assert decompress(ZSTD, skippable, 0) == b""


@pytest.mark.parametrize("size", [0, 1, 131071, 131072, 131073, 1 << 20])
def test_zstd_frames_without_a_content_size_are_read(size):
    data = sample(size)
    for checksum in (False, True):
        options = zstandard.ZstdCompressor(write_content_size=False, write_checksum=checksum)
        assert decompress(ZSTD, options.compress(data), size) == data


# ----------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("stream", "at", "what"),
    [
        (b"\x04\x22\x4d", 0, "lz4 frame"),
        (b"\x04\x22\x4d\x19\x60\x40\x82" + bytes(4), 0, "lz4 frame magic"),
        (lz4_frame(flg=0x61), 4, "lz4 reserved bits of the frame's flags"),
        (lz4_frame(flg=0x40), 4, "lz4 block mode"),
        (lz4_frame(flg=0xA0), 4, "lz4 frame version"),
        (lz4_frame(bd=0x30), 5, "lz4 block descriptor"),
        (lz4_frame(bd=0xC0), 5, "lz4 block descriptor"),
        (lz4_frame(bd=0x41), 5, "lz4 block descriptor"),
        (lz4_frame(flg=0x68)[:6], 6, "lz4 frame"),
        (lz4_frame(stored(bytes(65537))), 7, "lz4 block size"),
        (lz4_frame(stored(b"abc"), end=b""), 14, "lz4 frame"),
        (lz4_frame(stored(b"abc"), end=b"\x00\x00\x00"), 14, "lz4 frame"),
        (lz4_frame(stored(b"abc"), flg=0x64), 18, "lz4 frame"),
        (lz4_frame(stored(b"abcdef")[:-1], end=b""), 11, "lz4 frame"),
        (lz4_frame(stored(b"abc") + bytes(4), flg=0x70), 7, "lz4 block checksum"),
        (lz4_frame(stored(b"abc"), b"\x02\x00\x00\x00\xf0\xff"), 18, "lz4 block"),
    ],
)
def test_lz4_damage_is_told_with_its_byte(stream, at, what):
    """REC-119: a wrong magic, a block above the frame's maximum, a missing end and everything else Kafka refuses."""
    error = refusal(LZ4, stream)
    assert (error.reason, error.at, error.what) == (CorruptionReason.DECOMPRESSION, at, what)


def test_an_lz4_block_that_decodes_to_more_than_the_frames_maximum_is_refused():
    """REC-119: blocks decode to at most the size that BD names."""
    big = lz4.frame.compress(bytes(65537), block_size=5, block_linked=False, store_size=False)
    assert decompress(LZ4, big, CAP) == bytes(65537)
    assert refusal(LZ4, lz4_frame(big[7:-4])).what == "lz4 block"


def test_a_wrong_block_in_a_long_lz4_frame_is_told_with_its_byte():
    stream = bytearray(compress(LZ4, sample(400000)))
    second = 11 + int.from_bytes(stream[7:11], "little")
    stream[second + 4 : second + 10] = b"\xf0\xff\xff\xff\xff\xff"
    error = refusal(LZ4, bytes(stream))
    assert (error.what, error.at) == ("lz4 block", second + 4)


@pytest.mark.parametrize(
    ("stream", "at", "what"),
    [
        (b"", 0, "snappy stream"),
        (XERIAL + b"\x00\x00\x00\x05ab", 20, "snappy stream"),
        (XERIAL + b"\xff\xff\xff\xff", 16, "snappy block size"),
        (XERIAL + b"\x20\x00\x00\x01", 16, "snappy block size"),
        (XERIAL + XERIAL[:15], 16, "snappy stream"),
        (XERIAL + XERIAL[:7] + b"\x01" + XERIAL[8:], 16, "snappy header of a further stream"),
        (XERIAL + XERIAL[:11] + b"\x00" + XERIAL[12:], 24, "snappy stream version"),
        (xerial(b""), 20, "snappy length before the block"),
        (xerial(b"\x80\x80\x80\x80\x80\x80"), 20, "snappy length before the block"),
        (xerial(b"\x17\x00"), 20, "snappy length before the block"),
        (xerial(b"\x01\x00a", b"\x02\x00a"), 27, "snappy block"),
    ],
)
def test_snappy_damage_is_told_with_its_byte(stream, at, what):
    """REC-121: the framing's lengths are believed only as far as there are bytes."""
    error = refusal(SNAPPY, stream)
    assert (error.reason, error.at, error.what) == (CorruptionReason.DECOMPRESSION, at, what)


ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@pytest.mark.parametrize(
    ("stream", "at", "what"),
    [
        (ZSTD_MAGIC, 0, "zstd frame"),
        (b"\x27\xb5\x2f\xfd\x00", 0, "zstd frame magic"),
        (ZSTD_MAGIC + b"\x08\x00", 4, "zstd reserved bit of the frame header"),
        (ZSTD_MAGIC + b"\xc0\x00", 0, "zstd frame"),
        (ZSTD_MAGIC + b"\x00\x89" + b"\x01\x00\x00", 5, "zstd window"),
        (ZSTD_MAGIC + b"\x00\x58" + b"\x01\x00", 6, "zstd frame"),
        (ZSTD_MAGIC + b"\x00\x58" + b"\x07\x00\x00", 6, "zstd block type"),
        (ZSTD_MAGIC + b"\x00\x58" + b"\x09\x00\x10" + bytes(131073), 6, "zstd block size"),
        (ZSTD_MAGIC + b"\x00\x58" + b"\x11\x00\x00a", 9, "zstd frame"),
        (ZSTD_MAGIC + b"\x04\x58" + b"\x01\x00\x00" + bytes(3), 9, "zstd frame"),
        (ZSTD_MAGIC + b"\xa0\x00\x00\x00\x04" + b"\x03\x00\x00a", 5, "zstd content size"),
        (ZSTD_MAGIC + b"\x20\x00\x01\x00\x00" + b"tail", 9, "zstd frame"),
        (b"\x50\x2a\x4d\x18\x03\x00\x00\x00ab", 8, "zstd frame"),
        (b"\x50\x2a\x4d\x18\x03\x00\x00", 0, "zstd frame"),
    ],
)
def test_zstd_damage_is_told_with_its_byte(stream, at, what):
    error = refusal(ZSTD, stream)
    assert (error.reason, error.at, error.what) == (CorruptionReason.DECOMPRESSION, at, what)


def test_a_zstd_frame_that_only_says_it_is_empty_is_refused():
    """The library's one-call reader believes the header; the block behind it holds a byte."""
    lie = ZSTD_MAGIC + b"\x80\x58\x00\x00\x00\x00" + b"\x09\x00\x00a"
    assert refusal(ZSTD, lie).reason is CorruptionReason.DECOMPRESSION


def test_a_wrong_zstd_checksum_is_refused_even_where_the_content_fills_the_cap():
    stream = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(TEXT)
    wrong = stream[:-1] + bytes((stream[-1] ^ 1,))
    for bytes_max in (len(TEXT), CAP):
        assert "checksum" in str(refusal(ZSTD, wrong, bytes_max=bytes_max))


def test_damaged_gzip_is_told_in_zlibs_words():
    stream = compress(GZIP, TEXT)
    assert "incorrect data check" in str(refusal(GZIP, stream[:-8] + bytes(8)))
    assert "incorrect header check" in str(refusal(GZIP, b"no gzip at all"))
    error = refusal(GZIP, b"")
    assert (error.reason, error.at) == (CorruptionReason.DECOMPRESSION, 0)


@pytest.mark.parametrize("codec", STREAMED, ids=CODECS[1:])
@pytest.mark.parametrize("data", [TEXT, sample(150)], ids=["text", "noise"])
def test_every_truncation_is_an_error_or_a_shorter_result(codec, data):
    stream = compress(codec, data)
    for size in range(len(stream)):
        try:
            plain = decompress(codec, stream[:size], CAP)
        except CorruptBatch as error:
            assert error.reason is CorruptionReason.DECOMPRESSION
        else:
            # Only xerial's framing has no end of its own, and only zstd reads nothing as nothing.
            assert plain == b""
            assert (codec, size) in ((SNAPPY, 16), (SNAPPY, 17), (SNAPPY, 18), (SNAPPY, 19), (ZSTD, 0))


@pytest.mark.parametrize("codec", STREAMED, ids=CODECS[1:])
@pytest.mark.parametrize("data", [TEXT, b"", sample(150), sample(70000)], ids=["text", "empty", "noise", "blocks"])
def test_every_flipped_byte_is_an_error_or_some_bytes_within_the_cap(codec, data):
    cap = len(data) + 10
    stream = bytearray(compress(codec, data))
    rng = random.Random(3)
    positions = range(len(stream)) if len(stream) < 1000 else rng.sample(range(len(stream)), 1000)
    refused = 0
    for position in positions:
        for flip in {0xFF, 1 << rng.randrange(8), rng.randrange(1, 256)}:
            stream[position] ^= flip
            try:
                assert len(decompress(codec, stream, cap)) <= cap
            except CorruptBatch as error:
                refused += 1
                assert error.reason in (CorruptionReason.DECOMPRESSION, CorruptionReason.DECOMPRESSED_SIZE)
                assert error.at is None or 0 <= error.at <= len(stream)
            stream[position] ^= flip
    assert refused > 0
    assert decompress(codec, stream, cap) == data


@pytest.mark.parametrize("codec", STREAMED, ids=CODECS[1:])
def test_random_bytes_behind_a_right_beginning_are_an_error_or_bytes(codec):
    rng = random.Random(11)
    beginnings = {
        GZIP: (b"\x1f\x8b\x08\x00" + bytes(6),),
        SNAPPY: (XERIAL, XERIAL + b"\x00\x00\x00\x20", b"\x20"),
        LZ4: (lz4_frame(end=b""), lz4_frame(end=b"\x20\x00\x00\x00"), lz4_frame(flg=0x70, end=b"\x10\x00\x00\x00")),
        ZSTD: (ZSTD_MAGIC, ZSTD_MAGIC + b"\x00\x58", ZSTD_MAGIC + b"\x00\x58\x05\x01\x00", b"\x50\x2a\x4d\x18"),
    }[codec]
    outcomes = set()
    for _ in range(3000):
        stream = rng.choice(beginnings) + rng.randbytes(rng.randrange(64)) + bytes(rng.choice((0, 4)))
        try:
            outcomes.add(type(decompress(codec, stream, 4096)))
        except CorruptBatch as error:
            outcomes.add(error.reason)
    assert outcomes >= {CorruptionReason.DECOMPRESSION}
    assert outcomes <= {CorruptionReason.DECOMPRESSION, CorruptionReason.DECOMPRESSED_SIZE, bytes}


# ---------------------------------------------------------------------------------------------------------- the cap


@pytest.mark.parametrize("size", [1, 1000, 65536, 200000, 1 << 20, 4194303, 4194304, 4194305, 9_000_000])
@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_exactly_the_cap_is_read_and_one_byte_more_is_refused(codec, size):
    data = bytes(size // 2) + random.Random(5).randbytes(size - size // 2)
    stream = compress(codec, data)
    assert decompress(codec, stream, size) == data
    error = refusal(codec, stream, bytes_max=size - 1)
    assert error.reason is CorruptionReason.DECOMPRESSED_SIZE
    assert error.wanted == f"at most {size - 1}"
    assert int(error.got.split()[-2]) >= size


def test_the_cap_holds_over_several_members_and_frames():
    for codec in (GZIP, SNAPPY, ZSTD):
        stream = compress(codec, TEXT) * 3
        assert decompress(codec, stream, 3 * len(TEXT)) == TEXT * 3
        assert refusal(codec, stream, bytes_max=3 * len(TEXT) - 1).reason is CorruptionReason.DECOMPRESSED_SIZE


def test_the_cap_holds_for_zstd_frames_that_do_not_tell_their_size():
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(sample(300000))
    assert decompress(ZSTD, stream, 300000) == sample(300000)
    assert refusal(ZSTD, stream, bytes_max=299999).reason is CorruptionReason.DECOMPRESSED_SIZE


def run_with_little_memory(body: str) -> str:
    """Run `body` in a process whose address space may grow by `room` bytes only, from where `limit(room)` is called."""
    script = textwrap.dedent(
        """
        import resource, zlib
        import lz4.frame, zstandard
        from logcore._compression import compress, decompress
        from logcore.errors import CorruptBatch
        MIB = 1 << 20

        def limit(room):
            with open("/proc/self/statm") as statm:
                used = int(statm.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))

        def told(codec, stream, bytes_max):
            try:
                return len(decompress(codec, stream, bytes_max))
            except CorruptBatch as error:
                return error.reason.name

        """
    ) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="measures address space through /proc and RLIMIT_AS")


@linux_only
@pytest.mark.parametrize("codec", STREAMED, ids=CODECS[1:])
def test_a_bomb_is_refused_in_the_memory_of_the_cap(codec):
    """128 MiB of zeros against a cap of 1 MiB, with room for that and the constant that the module states."""
    printed = run_with_little_memory(
        f"""
        bombs = [compress({codec}, bytes(128 * MIB))]
        if {codec} == 4:
            unsized = zstandard.ZstdCompressor(write_content_size=False)
            bombs += [unsized.compress(bytes(128 * MIB)), unsized.compress(bytes(16 * MIB)) * 8]
            rle = b"\\x28\\xb5\\x2f\\xfd\\x00\\x58" + (b"\\x02\\x00\\x10\\x00" * 1024) + b"\\x01\\x00\\x00"
            bombs += [rle]
        if {codec} == 1:
            bombs += [compress(1, bytes(MIB // 2)) * 100]
        limit(17 * MIB)
        print(*(told({codec}, bomb, MIB) for bomb in bombs))
        """
    )
    assert set(printed.split()) == {"DECOMPRESSED_SIZE"}


@linux_only
def test_a_few_bytes_that_claim_much_get_no_memory_for_it():
    """Against a cap of 1 TiB, in a process that may grow by 32 MiB: no length and no header is believed."""
    printed = run_with_little_memory(
        """
        cap = 1 << 40
        streams = [
            (2, b"\\xff\\xff\\xff\\xff\\x0f" + bytes(8)),
            (2, compress(2, b"") + b"\\x00\\x00\\x00\\x06\\xff\\xff\\xff\\xff\\x0f\\x00"),
            (3, lz4.frame.compress(b"a", block_linked=False, block_size=7, store_size=False)),
            (4, b"\\x28\\xb5\\x2f\\xfd\\xc0\\x58" + (1 << 39).to_bytes(8, "little") + b"\\x03\\x00\\x00a"),
            (4, b"\\x28\\xb5\\x2f\\xfd\\xe0" + (1 << 39).to_bytes(8, "little") + b"\\x03\\x00\\x00a"),
            (1, zlib.compress(b"a", 9)[:1] + b"no gzip"),
            (1, compress(1, b"a")[:-4] + b"\\xff\\xff\\xff\\xff"),
            (1, compress(1, b"a") * 2),
        ]
        limit(32 * MIB)
        print(*(told(codec, stream, cap) for codec, stream in streams))
        """
    )
    refused = "DECOMPRESSION"
    assert printed.split() == [refused, refused, "1", refused, refused, refused, refused, "2"]


# ---------------------------------------------------------------------------------------------------------- threads


def test_eight_threads_compress_and_decompress_at_once():
    contents = [sample(size, seed) for seed, size in enumerate((100, 5000, 70000, 300000))]
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(60):
                data, codec = rng.choice(contents), rng.choice(STREAMED)
                stream = compress(codec, data, rng.choice((None, 1)) if codec in (LZ4, ZSTD) else None)
                if decompress(codec, stream, len(data)) != data:
                    wrong.append((codec, len(data)))
                with pytest.raises(CorruptBatch):
                    decompress(codec, stream[:-5], len(data))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
