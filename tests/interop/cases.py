"""Records and batches to ask Kafka about: chosen ones for each edge, and random ones from a seed."""

import itertools
import os
import random
import struct
from typing import Any

from logcore import Record, encode_batch
from tests.interop.kafka import content

MORE = 10 if os.environ.get("LOGCORE_FULL") == "1" else 1  # times as many random cases

LEVELS: dict[str, list[int | None]] = {
    "none": [None],
    "gzip": [None, -1, 1, 6, 9],
    "snappy": [None],
    "lz4": [None, *range(1, 18)],
    "zstd": [None, -131072, -7, -1, 1, 3, 9, 19, 22],
}
LEGACY_CODECS = ("none", "gzip", "snappy", "lz4")
NOISE = random.Random(1).randbytes(300_000)


def shapes() -> dict[str, list[Record]]:
    """Records of every size that a codec's blocks and a varint's lengths tell apart; headers and nulls of all kinds."""
    time = 1_700_000_000_000
    edges = (0, 1, 12, 13, 63, 64, 8191, 8192, 32767, 32768, 65535, 65536, 65537)
    return {
        "one": [Record(timestamp=time, key=b"k", value=b"v")],
        "nulls": [Record(), Record(key=b""), Record(value=b""), Record(key=b"k"), Record(value=b"v")],
        "times": [Record(timestamp=at, value=b"v") for at in (time, time - 5, -1, 0, time + 2**40, 2**63 - 1)],
        "many": [Record(timestamp=time + n, key=b"%d" % (n % 7), value=b"orders %d" % n) for n in range(3000)],
        "sizes": [Record(timestamp=time, key=NOISE[:size], value=bytes(size)) for size in edges],
        "noise": [Record(timestamp=time, value=NOISE)],
        "gaps": [Record(offset=at, timestamp=time, value=b"v") for at in (5, 6, 9, 1000, 2**31)],
        "headers": [
            Record(value=b"v", headers=[("a", b"1"), ("a", None), ("", b""), ("ü€😀", NOISE[:200])]),
            Record(value=b"v"),
            Record(key=b"k", headers=[(f"h{n}", b"%d" % n) for n in range(70)]),
        ],
    }


def expected(records: list[Record], *, timestamp: int | None = None, first: int = 0) -> list[list[Any]]:
    """What a reader must tell of `records`, numbered from `first` where they have no offset of their own."""
    told = []
    for index, record in enumerate(records):
        offset = record.offset if record.offset >= 0 else first + index
        told.append([offset, record.timestamp if timestamp is None else timestamp, *content(record)])
    return told


def with_control_key(record: Record, type_id: int) -> Record:
    """The record as one of a control batch, whose keys are a version and a type."""
    return Record(record.offset, record.timestamp, struct.pack(">hh", 0, type_id), record.value, record.headers)


class Dice:
    """Random batches with the shape that a writer could give them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def text(self, size_max: int) -> bytes:
        """Repetitive, so that a codec has something to find."""
        return bytes(self.random.choices(b"abc\x00\xff", k=self.random.randrange(size_max)))

    def maybe_text(self, size_max: int) -> bytes | None:
        return None if self.maybe(0.25) else self.text(size_max)

    def records(self, magic: int) -> list[Record]:
        base = self.random.choice([0, 0, 7, 2**31, 2**40])
        large = 70_000 if self.maybe(0.03) else 40
        offsets = itertools.accumulate(self.random.choices([1, 1, 1, 4], k=self.random.randrange(1, 12)), initial=base)
        return [
            Record(
                offset,
                self.random.choice([-1, 0, 5, 1_700_000_000_000 + self.random.randrange(1000)]),
                self.maybe_text(15),
                self.maybe_text(large),
                [] if magic < 2 else [
                    (self.random.choice(["", "a", "trace-id", "ü", "€", "😀"]), self.maybe_text(6))
                    for _ in range(self.random.choice([0, 0, 1, 3]))
                ],
            )
            for offset in offsets
        ]  # fmt: skip

    def options(self, magic: int, records: list[Record]) -> dict[str, Any]:
        codec = self.random.choice(list(LEVELS) if magic == 2 else LEGACY_CODECS)
        level = self.random.choice([level for level in LEVELS[codec] if level is None or level < 10])
        options: dict[str, Any] = {"magic": magic, "compression": codec, "level": level}
        if magic and self.maybe(0.3):
            options |= {"timestamp_type": "log_append_time", "log_append_time_ms": self.random.choice([0, 77, 2**41])}
        if magic < 2:
            return options
        if self.maybe(0.4):
            sequence = self.random.choice([0, 5, 2**31 - 2, 2**31 - 1])
            options |= {"producer_id": 9, "producer_epoch": self.random.choice([0, 32767]), "base_sequence": sequence}
            options["is_transactional"] = self.maybe(0.5)
        if self.maybe(0.2):
            options["delete_horizon_ms"] = self.random.choice([0, 500, 2**41])
        if self.maybe(0.2):
            options["last_offset"] = records[-1].offset + self.random.choice([0, 1, 1000])
        if self.maybe(0.2):
            options["base_offset"] = records[0].offset - min(records[0].offset, self.random.choice([0, 1, 1000]))
        return options | {"is_control": self.maybe(0.1), "leader_epoch": self.random.choice([-1, 0, 12])}

    def batch(self) -> tuple[list[Record], dict[str, Any], bytes]:
        magic = self.random.choice([0, 1, 2, 2, 2])
        records = self.records(magic)
        options = self.options(magic, records)
        if options.get("is_control"):
            records = [with_control_key(record, self.random.choice([0, 1, 2, 6, 7, 32767])) for record in records]
        return records, options, encode_batch(records, **options)
