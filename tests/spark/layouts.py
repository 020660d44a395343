"""Log roots for the tests of the Spark source: small, of many segments, batches and transactions."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import logcore
from logcore.bench.footprint import CountingDisk
from logcore.log.disk import SYSTEM_DISK
from pyspark_logcore.bounds import Range
from pyspark_logcore.options import parse_options
from pyspark_logcore.planning import plan
from pyspark_logcore.pushdown import Wanted

GOLDEN = Path(__file__).parents[1] / "golden" / "logdirs"

# Small segments and an index entry for each batch but the first; any timestamp is taken.
SMALL = {
    "internal.segment.bytes": 2000,
    "index.interval.bytes": 1,
    "segment.index.bytes": 1200,
    "message.timestamp.after.max.ms": 2**63 - 1,
}


def expected_of(isolation: str) -> list[dict[str, Any]]:
    """What Kafka's own consumer read of both: a partition each, with topic, partition, start, end and records.

    With read_committed, too, of those without transactions, which it was asked for once.
    """
    found: dict[tuple[str, int], dict[str, Any]] = {}
    with gzip.open(GOLDEN / "logdir-expected.jsonl.gz", "rt") as lines:
        for one in map(json.loads, lines):
            if "records" in one and one["isolation"] in ("read_uncommitted", isolation):
                key = (one["topic"], one["partition"])
                if key not in found or one["isolation"] == isolation:
                    found[key] = one
    return list(found.values())


def unpacked(kind: str, where: Path) -> Path:
    """The log.dirs of an Apache Kafka broker: "clean" or "crashed"."""
    with tarfile.open(GOLDEN / f"logdir-{kind}.tar.gz") as archive:
        archive.extractall(where, filter="data")
    return where / "logs"


def write(
    root: Path, partition: str, batches: Iterable[list[tuple[Any, ...]]], config: Mapping[str, Any] | None = None
) -> Path:
    """Append batches of (key, value, timestamp[, headers]) to a partition such as orders-0, and close it."""
    with logcore.open_log(root / partition, config={**SMALL, **(config or {})}) as log:
        for records in batches:
            log.append(records)
    return root


def numbered(count: int, per_batch: int = 5, *, size: int = 20, first: int = 0) -> list[list[tuple[Any, ...]]]:
    """Batches of records whose values tell their offsets and whose times are ten times as much."""
    offsets = range(first, first + count)
    return [
        [(b"k%d" % offset, b"v%d" % offset + b"." * size, 10 * offset) for offset in offsets[at : at + per_batch]]
        for at in range(0, count, per_batch)
    ]


def planned(
    root: Path | str, *, wanted: Wanted | None = None, disk: Any = SYSTEM_DISK, **options: str
) -> list[tuple[str, int, int]]:
    """The splits of a read: partition, start, end."""
    found = ranges(root, wanted=wanted, disk=disk, **options)
    return [(str(one.partition), one.start, one.end) for one in found]


def ranges(root: Path | str, *, wanted: Wanted | None = None, disk: Any = SYSTEM_DISK, **options: str) -> list[Range]:
    """Likewise, with all there is to know of them."""
    given = {"path": str(root), **options}
    if not {name.lower() for name in given} & {"subscribe", "subscribepattern", "assign"}:
        given["subscribePattern"] = ".*"
    return plan(parse_options(given), wanted or Wanted(), 0, disk)


def bytes_read(disk: CountingDisk) -> int:
    """How much was read of files."""
    return sum(size for _, _, size in disk.read)
