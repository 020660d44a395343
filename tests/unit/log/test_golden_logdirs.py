"""The log.dirs of an Apache Kafka broker, one shut down cleanly and one killed, opened as a library.

Every partition must read as Kafka's own consumer read it; recovery must find the end that Kafka found; and the indexes
and snapshots that we make again must be the ones that Kafka had.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import logcore
from logcore.log import snapshot
from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK
from logcore.log.epochs import LeaderEpochCache
from logcore.log.names import TopicPartition
from logcore.log.producers import ProducerState
from logcore.log.recovery import recover_segment
from logcore.log.root import list_partitions
from logcore.log.segment import Segment

GOLDEN = Path(__file__).parents[2] / "golden" / "logdirs"
NEVER_EXPIRE = {"producer.id.expiration.ms": 2**31 - 1}


@cache
def expected() -> dict[tuple[str, int, str], dict[str, Any]]:
    with gzip.open(GOLDEN / "logdir-expected.jsonl.gz", "rt") as lines:
        found = map(json.loads, lines)
        return {(one["topic"], one["partition"], one["isolation"]): one for one in found if "records" in one}


def unpacked(kind: str, where: Path) -> Path:
    with tarfile.open(GOLDEN / f"logdir-{kind}.tar.gz") as archive:
        archive.extractall(where, filter="data")
    return where / "logs"


@pytest.fixture(scope="module", params=["clean", "crashed"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Left as it is: for read-only opens."""
    return unpacked(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def root(source: Path, tmp_path: Path) -> Path:
    """A copy that may be written to."""
    return Path(shutil.copytree(source, tmp_path / "logs"))


def rows(records: Iterator[logcore.Record]) -> list[list[Any]]:
    return [
        [
            record.offset,
            record.timestamp,
            None if record.key is None else record.key.hex(),
            None if record.value is None else record.value.hex(),
            *(text for name, value in record.headers for text in (name, None if value is None else value.hex())),
        ]
        for record in records
    ]


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def check(log: logcore.Log, one: dict[str, Any]) -> None:
    assert (log.log_start_offset, log.log_end_offset) == (one["start"], one["end"])
    isolation = one["isolation"]
    assert rows(log.read(one["start"], isolation=isolation)) == one["records"]
    found = [row for columns in log.read_columns(one["start"], isolation=isolation) for row in rows(iter(columns))]
    assert found == one["records"]
    for index in range(0, len(one["records"]), max(len(one["records"]) // 7, 1)):
        offset = one["records"][index][0]
        assert rows([next(iter(log.read(offset, isolation=isolation)))]) == [one["records"][index]]
        assert next(log.read_columns(offset, isolation=isolation)).offset[0] == offset


@pytest.mark.parametrize("key", sorted(expected()), ids=lambda key: f"{key[0]}-{key[1]}-{key[2][5:]}")
def test_a_read_only_open_reads_what_kafkas_consumer_read_and_writes_nothing(
    source: Path, key: tuple[str, int, str]
) -> None:
    before = contents(source / f"{key[0]}-{key[1]}")
    with logcore.open_log(source / f"{key[0]}-{key[1]}", read_only=True) as log:
        check(log, expected()[key])
        if key[2] == "read_committed":
            assert log.last_stable_offset == log.log_end_offset
    assert contents(source / f"{key[0]}-{key[1]}") == before


@pytest.mark.parametrize("key", sorted(expected()), ids=lambda key: f"{key[0]}-{key[1]}-{key[2][5:]}")
def test_a_writable_open_recovers_what_kafka_recovered(root: Path, key: tuple[str, int, str]) -> None:
    with logcore.open_log(root / f"{key[0]}-{key[1]}", config=NEVER_EXPIRE) as log:
        check(log, expected()[key])
        assert not log.recovery.bytes_cut
        offset = log.append([(b"one", b"more")]).first_offset
        assert offset == expected()[key]["end"]
    with logcore.open_log(root / f"{key[0]}-{key[1]}", config=NEVER_EXPIRE) as log:
        assert not log.recovery
        [record] = log.read(offset)
        assert record.key == b"one"


def test_opening_and_closing_a_clean_root_changes_no_byte(tmp_path: Path) -> None:
    root = unpacked("clean", tmp_path)
    before = contents(root)
    for partition in list_partitions(SYSTEM_DISK, str(root)):
        if partition.topic == "__cluster_metadata":
            continue  # has snapshots where it has no segment, which any open of it removes
        with logcore.open_log(root / str(partition), config=NEVER_EXPIRE) as log:
            assert log.recovery.was_clean
            assert not log.recovery
    assert contents(root) == before


def rebuilt(path: Path, config: LogConfig, tmp_path: Path) -> None:
    """Make the indexes of a segment anew, in a copy, and compare them with Kafka's."""
    base_offset = int(path.stem)
    copy = tmp_path / path.parent.name
    shutil.copytree(path.parent, copy, dirs_exist_ok=True)
    producers = ProducerState(SYSTEM_DISK, str(copy), names=[], producer_id_expiration_ms=2**62)
    segment = Segment(SYSTEM_DISK, str(copy), base_offset, config, created_ms=0)
    done = recover_segment(segment, producers, LeaderEpochCache(str(copy / "epochs")), first_offset=base_offset)
    segment.close()
    assert (done.bytes_cut, done.outcome) == (0, "clean"), path
    for suffix in (".index", ".timeindex", ".txnindex"):
        kafkas, ours = path.with_suffix(suffix), copy / path.with_suffix(suffix).name
        stored = kafkas.read_bytes() if kafkas.exists() else b""
        made = ours.read_bytes() if ours.exists() else b""
        # Kafka leaves room behind the entries of the active segment when it is killed; and its time index then lacks
        # the entry that closing adds.
        assert stored[: len(made)].rstrip(b"\0") == made.rstrip(b"\0") or (
            suffix == ".timeindex" and len(stored) > len(made) and stored.startswith(made[:-12])
        ), (path, suffix)
        assert not stored[len(made) :].strip(b"\0"), (path, suffix)


def test_indexes_made_again_are_kafkas_to_the_byte(source: Path, tmp_path: Path) -> None:
    paths = sorted(source.glob("*/*.log"))
    assert len(paths) > 20
    for path in paths:
        if path.parent.name.startswith("__cluster_metadata"):
            continue  # Kafka's raft log makes its indexes in another interval
        fine = path.parent.name.startswith(("plain-", "txn-", "trimmed-"))
        rebuilt(path, LogConfig.of({"index.interval.bytes": 1024 if fine else 4096}), tmp_path)


def test_snapshots_made_again_are_kafkas_entry_for_entry(tmp_path: Path) -> None:
    root = unpacked("clean", tmp_path)
    compared = 0
    for path in sorted(root.glob("*/*.snapshot")):
        partition = TopicPartition(*((name, int(number)) if (name := path.parent.name.rpartition("-")[0]) and (
            number := path.parent.name.rpartition("-")[2]) else ("", 0)))  # fmt: skip
        stored = snapshot.parse(path.read_bytes())
        if not stored or partition.topic.startswith("__"):
            continue
        path.unlink()
        (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
        (root / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        with logcore.open_log(path.parent, config=NEVER_EXPIRE):
            pass
        made = snapshot.parse(path.read_bytes())
        assert sorted(made) == sorted(stored), path
        compared += len(stored)
    assert compared > 3
