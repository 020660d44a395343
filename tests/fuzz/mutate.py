"""Cases for the fuzzer: bytes that look more or less like record batches.

A case is a pure function of (seed, number), so that a failure is told by two integers. Sources are batches of Apache
Kafka (tests/golden), what Kafka has refused before, batches made on the fly, and monsters: lengths near 2^31, negative
and huge counts, varints without end, compression inside compression, bombs in every codec. Half of all cases have
their checksums mended, and some are mutated before they are compressed, so that the parser behind both is reached.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import cramjam
import crc32c
import lz4.block
import xxhash
import zstandard

GOLDEN = Path(__file__).parent.parent / "golden"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADER_BYTES = 61
SEED_BYTES_MAX = 1200  # small cases are many cases
BOMB_BYTES = 8 << 20  # twice what targets.py lets a batch decompress to

INTERESTING = (0, 1, 2, 7, 13, 14, 61, 63, 64, 127, 128, 255, 256, 4095, 8191, 8192, 65535, 65536, 2**20)
NEAR_LIMITS = (2**31 - 1, 2**31 - 12, 2**31 - 13, 2**31, 2**31 + 1, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
NASTY = (
    b"\xff" * 11, b"\x80" * 10, b"\x80" * 5 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\x80\x00",
    b"\xff" * 9 + b"\x01", b"\x01", b"\x00" * 16, b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00",
)  # fmt: skip
# Where the fields of a v2 header and of a v0/v1 message lie: position and width.
V2_FIELDS = ((0, 8), (8, 4), (12, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4))
LEGACY_FIELDS = ((0, 8), (8, 4), (16, 1), (17, 1), (18, 8), (18, 4), (22, 4), (26, 4), (30, 4))


class Case(NamedTuple):
    """One buffer, and how it came about."""

    kind: str
    buffer: bytes


def make_case(seed: int, number: int) -> Case:
    """Case `number` of the run `seed`."""
    rng = random.Random(seed << 40 | number)
    kind, make = rng.choices(_KINDS, _SHARES)[0]
    buffer = make(rng)
    if rng.random() < 0.5:
        return Case(f"{kind}, mended", mend(buffer, rng.random() < 0.7))
    return Case(kind, bytes(buffer))


def mend(buffer: bytes | bytearray, with_size: bool) -> bytes:
    """Make the checksums right as far as sizes lead, and the size of a last batch that is cut, if asked."""
    out = bytearray(buffer)
    position = 0
    while len(out) - position >= 17:
        size = int.from_bytes(out[position + 8 : position + 12], "big", signed=True)
        end = position + 12 + size
        if size < 14 or out[position + 16] > 2:
            break
        if end > len(out):
            if not with_size:
                break
            end = len(out)
            out[position + 8 : position + 12] = (end - position - 12).to_bytes(4, "big")
        if out[position + 16] == 2:
            if end - position < HEADER_BYTES:
                break
            out[position + 17 : position + 21] = crc32c.crc32c(bytes(out[position + 21 : end])).to_bytes(4, "big")
        else:
            out[position + 12 : position + 16] = zlib.crc32(out[position + 16 : end]).to_bytes(4, "big")
        position = end
    return bytes(out)


# --- compression, by the libraries alone ------------------------------------------------------------------------------


def compress(codec: int, data: bytes, magic: int = 2) -> bytes:
    """A stream that Kafka's readers accept."""
    if codec == 1:
        return gzip.compress(data, 1, mtime=0)
    if codec == 2:
        blocks = [cramjam.snappy.compress_raw(data[at : at + 32768]) for at in range(0, len(data), 32768)]
        framed = b"".join(len(block).to_bytes(4, "big") + bytes(block) for block in blocks)
        return b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + framed
    if codec == 3:
        head = b"\x04\x22\x4d\x18\x60\x40"
        out = head + bytes([xxhash.xxh32_intdigest(head if magic == 0 else head[4:]) >> 8 & 0xFF])
        for at in range(0, len(data), 65536):
            piece = data[at : at + 65536]
            block = lz4.block.compress(piece, store_size=False)
            if len(block) < len(piece):
                out += len(block).to_bytes(4, "little") + block
            else:
                out += (len(piece) | 1 << 31).to_bytes(4, "little") + piece
        return out + bytes(4)
    if codec == 4:
        return zstandard.ZstdCompressor(level=1).compress(data)
    return data


def v2_batch(body: bytes, *, attributes: int = 0, count: int = 1, base_offset: int = 0, last_delta: int = 0) -> bytes:
    """A v2 batch around `body`, sealed."""
    rest = struct.pack(">hiqqqhii", attributes, last_delta, 1000, 1009, -1, -1, -1, count) + body
    head = struct.pack(">qiib", base_offset, HEADER_BYTES - 12 + len(body), 0, 2)
    return head + crc32c.crc32c(rest).to_bytes(4, "big") + rest


def message(body: bytes | None, *, magic: int, attributes: int = 0, offset: int = 0, key: bytes | None = None) -> bytes:
    """A message of magic 0 or 1 with the value `body`, sealed."""
    rest = struct.pack(">bB", magic, attributes) + (struct.pack(">q", 1000) if magic else b"")
    for field in (key, body):
        rest += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest)) + rest


def varint(value: int) -> bytes:
    """Zig-zag, of any signed integer."""
    raw = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# --- sources ----------------------------------------------------------------------------------------------------------


@cache
def seeds() -> tuple[bytes, ...]:
    """Small buffers of Kafka's own, good and refused, and the small monsters."""
    found = []
    for name in ("batches.jsonl.gz", "verdicts.jsonl.gz"):
        with gzip.open(GOLDEN / name, "rt") as lines:
            found += [bytes.fromhex(json.loads(line)["hex"]) for line in lines]
    small = [buffer for buffer in found if 0 < len(buffer) <= SEED_BYTES_MAX]
    return tuple(small) + tuple(buffer for buffer in monsters() if len(buffer) <= SEED_BYTES_MAX)


@cache
def monsters() -> tuple[bytes, ...]:
    """What nobody would write by accident."""
    record = b"\x0c\x00\x00\x00\x01\x01\x00"  # length 6, deltas 0, null key, null value, no headers
    made = [bytes(size) for size in (0, 1, 11, 12, 16, 17, 61, 200)]
    for count in (-1, -(2**31), 2**31 - 1, 2**30, 2, 0):
        made.append(v2_batch(record, count=count))
        made.append(v2_batch(compress(4, record), count=count, attributes=4))
    made += [v2_batch(nasty + record, count=2) for nasty in NASTY]
    for field in range(6):  # each varint of a record in turn without end, or as large as it gets
        fields = [b"\x00", b"\x00", b"\x02k", b"\x02v", b"\x02", b"\x02h\x02v"]
        for nasty in (*NASTY, varint(2**31 - 1), varint(-(2**31)), varint(2**40)):
            body = b"\x00" + b"".join([*fields[:field], nasty, *fields[field + 1 :]])
            made.append(v2_batch(varint(len(body)) + body))
    for length in (2**31 - 1, 2**31 - 12, 2**31 - 13, -1, -(2**31), 13, 14, 48, 49):
        made.append(struct.pack(">qi", 0, length) + v2_batch(record)[12:])
    for magic in (0, 1):
        inner = b"".join(message(b"v%d" % i, magic=magic, offset=i, key=b"k") for i in range(3))
        for codec in range(1, 8):
            packed = compress(codec, inner, magic)
            made.append(message(packed, magic=magic, attributes=codec, offset=2))
            nested = message(packed, magic=magic, attributes=codec, offset=2)
            made.append(
                message(compress(codec % 3 + 1, nested, magic), magic=magic, attributes=codec % 3 + 1, offset=2)
            )
        made.append(message(None, magic=magic, attributes=1))
        made.append(message(compress(1, b""), magic=magic, attributes=1))
        for length in (2**31 - 1, -2, -(2**31)):
            body = inner[:-6] + struct.pack(">i", length) + inner[-2:]
            made.append(message(compress(1, body), magic=magic, attributes=1, offset=2))
    for codec in range(1, 5):
        twice = compress(codec, compress(codec, record))
        made.append(v2_batch(twice, attributes=codec))
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 7)
    body = b"\x00\x00\x00" + varint(len(key)) + key + varint(len(value)) + value + b"\x00"
    made.append(v2_batch(varint(len(body)) + body, attributes=0x30))
    # zstd frames that ask for a window of 128 MiB, of 2 GiB, and for 2^63 bytes of content
    for window in (0x88, 0xA8, 0xFF):
        made.append(v2_batch(b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + b"\x01\x00\x00", attributes=4))
    made.append(v2_batch(b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**63 - 1) + b"\x01\x00\x00", attributes=4))
    # a snappy block that says 2^31 - 1 bytes, an lz4 frame of 4-MiB blocks that are not there
    made.append(v2_batch(b"\xff\xff\xff\xff\x07\x00", attributes=2))
    made.append(v2_batch(b"\x04\x22\x4d\x18\x60\x70\x73\xff\xff\xff\x7f", attributes=3))
    return tuple(made)


@cache
def bombs() -> tuple[bytes, ...]:
    """A few hundred bytes that want to be megabytes, in every codec and magic."""
    plain = bytes(BOMB_BYTES)
    many = b"\x0c\x00\x00\x00\x01\x01\x00" * 3000
    made = []
    for codec in range(1, 5):
        made.append(v2_batch(compress(codec, plain), attributes=codec, count=2**20))
        made.append(v2_batch(compress(codec, many), attributes=codec, count=3000))
        made.append(b"".join([v2_batch(compress(codec, plain[: 1 << 20]), attributes=codec)] * 5))
    for magic in (0, 1):
        for codec in range(1, 4):
            made.append(message(compress(codec, plain, magic), magic=magic, attributes=codec))
            run = message(b"", magic=magic) * 1000
            made.append(message(compress(codec, run, magic), magic=magic, attributes=codec, offset=9))
    return tuple(made)


# --- mutation ---------------------------------------------------------------------------------------------------------


def _number(rng: random.Random, width: int) -> bytes:
    value = rng.choice(INTERESTING) if rng.random() < 0.6 else rng.choice(NEAR_LIMITS)
    value = -value if rng.random() < 0.3 else value
    return (value % 2 ** (8 * width)).to_bytes(width, rng.choice(("big", "big", "little")))


def _flip(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _add(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at] = (data[at] + rng.choice((-2, -1, 1, 2, 16, -16))) % 256


def _overwrite(rng: random.Random, data: bytearray) -> None:
    number = _number(rng, rng.choice((2, 4, 4, 8)))
    at = rng.randrange(len(data))
    data[at : at + len(number)] = number[: len(data) - at]


def _overwrite_field(rng: random.Random, data: bytearray) -> None:
    at, width = rng.choice(V2_FIELDS if len(data) > 16 and data[16] == 2 else LEGACY_FIELDS)
    if at + width <= len(data):
        data[at : at + width] = _number(rng, width)


def _insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(NASTY) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 9))


def _remove(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 1, 2, 4, rng.randrange(1, 40)))]


def _copy(rng: random.Random, data: bytearray) -> None:
    begin, at = rng.randrange(len(data)), rng.randrange(len(data))
    piece = data[begin : begin + rng.randrange(1, 40)]
    data[at : at + (len(piece) if rng.random() < 0.5 else 0)] = piece


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _nasty(rng: random.Random, data: bytearray) -> None:
    nasty = rng.choice(NASTY)
    at = rng.randrange(len(data))
    data[at : at + len(nasty)] = nasty[: len(data) - at]


_MUTATIONS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip, _flip, _flip, _set, _set, _add, _overwrite, _overwrite_field, _overwrite_field, _insert, _remove, _copy,
    _copy, _nasty, _cut,
)  # fmt: skip


def mutate(rng: random.Random, buffer: bytes | bytearray) -> bytearray:
    """A few changes, most often one."""
    data = bytearray(buffer)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        if not data:
            break
        rng.choice(_MUTATIONS)(rng, data)
    return data


# --- kinds ------------------------------------------------------------------------------------------------------------


def _mutated(rng: random.Random) -> bytes | bytearray:
    return mutate(rng, rng.choice(seeds()))


def _spliced(rng: random.Random) -> bytes | bytearray:
    one, two = rng.choice(seeds()), rng.choice(seeds())
    if rng.random() < 0.5:
        return mutate(rng, one + two)
    return one[: rng.randrange(len(one) + 1)] + two[rng.randrange(len(two) + 1) :]


def _records(rng: random.Random) -> tuple[bytes, int]:
    """Records made on the fly, and how many: mostly well formed, sometimes with a lie in one field."""
    out, count = bytearray(), rng.choice((1, 1, 2, 3, 8, 20))
    for index in range(count):
        fields = [varint(rng.choice((0, 0, 5, -5, 2**40, -(2**63)))), varint(index)]
        for _ in range(2):
            size = rng.choice((-1, 0, 1, 5, 12, 13, 40, 300))
            fields.append(varint(size) + rng.randbytes(max(size, 0)))
        headers = rng.choice((0, 0, 0, 1, 3))
        fields.append(varint(headers))
        for _ in range(headers):
            name, size = rng.choice((b"", b"trace", b"\xff\xfe", b"\xe2\x82")), rng.choice((-1, 0, 3, 20))
            fields.append(varint(len(name)) + name + varint(size) + rng.randbytes(max(size, 0)))
        if rng.random() < 0.15:
            lie = rng.choice((varint(rng.choice((-1, -2, 2**31 - 1, -(2**31), 70, 2**20))), rng.choice(NASTY)))
            fields[rng.randrange(len(fields))] = lie
        body = b"\x00" + b"".join(fields)
        out += varint(len(body) + (rng.choice((-1, 1, 5)) if rng.random() < 0.05 else 0)) + body
    return bytes(out), count


def _made(rng: random.Random) -> bytes | bytearray:
    """A v2 batch made on the fly, its records perhaps hurt before they are compressed."""
    body, count = _records(rng)
    if rng.random() < 0.5:
        body = bytes(mutate(rng, body))
    codec = rng.choice((0, 0, 1, 2, 3, 4))
    packed = compress(codec, body)
    if codec and rng.random() < 0.3:
        packed = bytes(mutate(rng, packed))
    attributes = codec | rng.choice((0, 0, 0x08, 0x10, 0x30, 0x40, 0x80))
    if rng.random() < 0.1:
        count = rng.choice((0, -1, count + 1, count - 1, 2**31 - 1))
    offset = rng.choice((0, 0, 7, 2**63 - 1, -1, -(2**63)))
    return v2_batch(
        packed, attributes=attributes, count=count, base_offset=offset, last_delta=max(count - 1, 0) % 2**31
    )


def _made_legacy(rng: random.Random) -> bytes | bytearray:
    """A compressed set of magic 0 or 1, its messages perhaps hurt before they are compressed."""
    magic = rng.randrange(2)
    count = rng.choice((1, 2, 5))
    first = rng.choice((0, 0, 100, -5, 2**63 - 3))
    inner: bytes | bytearray = b""
    for index in range(count):
        inner += message(
            rng.choice((None, b"", b"value", rng.randbytes(30))),
            magic=magic,
            offset=(first + index + 2**63) % 2**64 - 2**63,
            key=rng.choice((None, b"", b"key")),
            attributes=rng.choice((0, 0, 0, 8, 1)) if magic else 0,
        )
    if rng.random() < 0.5:
        inner = mutate(rng, inner)
    codec = rng.choice((0, 1, 2, 3, 4))
    if codec == 0:
        return inner
    packed = compress(codec, bytes(inner), magic)
    if rng.random() < 0.3:
        packed = bytes(mutate(rng, packed))
    offset = rng.choice((count - 1, count - 1, 0, 2**63 - 1, -1))
    return message(packed, magic=magic, attributes=codec | rng.choice((0, 0, 8)), offset=offset)


def _random(rng: random.Random) -> bytes | bytearray:
    """Noise, under a header that lets it in."""
    body = rng.randbytes(rng.choice((0, 1, 7, 14, 40, 200)))
    if rng.random() < 0.3:
        body = bytes(byte & 0x1F for byte in body)
    if rng.random() < 0.2:
        return body
    if rng.random() < 0.3:
        return struct.pack(">qiIb", 0, 4 + 1 + len(body), 0, rng.randrange(2)) + body
    return v2_batch(body, attributes=rng.randrange(8), count=rng.choice((1, 2, 5)))


def _monster(rng: random.Random) -> bytes | bytearray:
    buffer = rng.choice(monsters())
    return mutate(rng, buffer) if rng.random() < 0.5 else buffer


def _bomb(rng: random.Random) -> bytes | bytearray:
    buffer = rng.choice(bombs())
    return mutate(rng, buffer) if rng.random() < 0.5 else buffer


_KINDS: tuple[tuple[str, Callable[[random.Random], bytes | bytearray]], ...] = (
    ("mutated", _mutated),
    ("spliced", _spliced),
    ("made", _made),
    ("made of magic 0 or 1", _made_legacy),
    ("random", _random),
    ("monster", _monster),
    ("bomb", _bomb),
)
_SHARES = (400, 80, 260, 100, 90, 68, 2)  # in a thousand
KIND_NAMES = tuple(name for name, _ in _KINDS)
