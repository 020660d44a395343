"""Small files of a log as Apache Kafka writes and reads them: see checkpoints in tests/golden/README.md."""

from __future__ import annotations

from typing import Any

import pytest

from logcore.errors import CorruptCheckpoint, UsageError
from logcore.log.checkpoints import EpochEntry, format_epochs, format_offsets, parse_epochs, parse_offsets
from logcore.log.epochs import LeaderEpochCache
from logcore.log.names import TopicPartition
from logcore.log.partition_metadata import format_partition_metadata, parse_partition_metadata
from logcore.log.root_files import (
    MetaProperties,
    format_clean_shutdown,
    parse_clean_shutdown,
    parse_meta_properties,
)
from tests.helpers import GOLDEN, golden_lines

FILES = GOLDEN / "checkpoints"

PARTITION_COUNT_BY_FILE = {
    "recovery-point-offset-checkpoint": 28,
    "replication-offset-checkpoint": 28,
    "log-start-offset-checkpoint": 1,
    "cleaner-offset-checkpoint": 2,
}
EPOCHS_BY_PARTITION = {
    "__cluster_metadata-0": [(1, 0), (2, 306)],
    "empty-0": [(2, 0)],
    "plain-none-1": [(0, 0), (2, 16028)],
    "trimmed-0": [(0, 40), (2, 160)],
}
TOPIC_ID_BY_PARTITION = {
    "__cluster_metadata-0": "AAAAAAAAAAAAAAAAAAAAAQ",
    "empty-0": "8h33-TmpQFyUOdXgLs91lQ",
    "plain-none-1": "G6yKAFZ_QT2Z-XISta5K6w",
    "trimmed-0": "4pFWR669QF2bi5pEixPeBg",
}


@pytest.mark.parametrize("name", PARTITION_COUNT_BY_FILE)
def test_an_offset_checkpoint_of_kafka_has_the_lines_that_we_write(name):
    """LOG-138: the order, which is that of a hash table, apart."""
    data = (FILES / name).read_bytes()
    offsets = parse_offsets(data, name)
    assert len(offsets) == PARTITION_COUNT_BY_FILE[name]
    ours = format_offsets(offsets).splitlines(keepends=True)
    theirs = data.splitlines(keepends=True)
    assert ours[:2] == theirs[:2]
    assert sorted(ours[2:]) == sorted(theirs[2:])
    assert sum(map(len, ours)) == len(data)


def test_the_offsets_of_kafka_are_those_of_the_partitions():
    offsets = parse_offsets((FILES / "recovery-point-offset-checkpoint").read_bytes(), "x")
    assert offsets[TopicPartition("plain-none", 1)] == 16028
    assert offsets[TopicPartition("__transaction_state", 0)] == 37
    assert parse_offsets((FILES / "log-start-offset-checkpoint").read_bytes(), "x") == {
        TopicPartition("trimmed", 0): 40
    }


@pytest.mark.parametrize("partition", EPOCHS_BY_PARTITION)
def test_the_files_of_a_partition_are_written_as_by_kafka(partition):
    """LOG-135, LOG-138: byte for byte."""
    data = (FILES / partition / "leader-epoch-checkpoint").read_bytes()
    cache = LeaderEpochCache("x", parse_epochs(data, "x"))
    assert cache.entries == tuple(EPOCHS_BY_PARTITION[partition])
    assert not cache.is_dirty
    assert format_epochs(cache.entries) == data
    data = (FILES / partition / "partition.metadata").read_bytes()
    topic_id = parse_partition_metadata(data, "x")
    assert topic_id == TOPIC_ID_BY_PARTITION[partition]
    assert format_partition_metadata(topic_id) == data


def test_a_clean_shutdown_is_written_as_by_kafka():
    """LOG-143: byte for byte."""
    data = (FILES / ".kafka_cleanshutdown").read_bytes()
    assert parse_clean_shutdown(data, "x") == 354
    assert format_clean_shutdown(354) == data


def test_a_meta_properties_of_kafka_is_read():
    found = parse_meta_properties((FILES / "meta.properties").read_bytes(), "x")
    assert found == MetaProperties(1, "BeMU7GzZSzSGU12VFMhhAA", 1, "yG6BgJkGPyrNBtmDhYFd2w")


def read(kind: str, data: bytes) -> Any:
    """What we read, in the form of the golden lines."""
    if kind == "offsets":
        return sorted([*partition, offset] for partition, offset in parse_offsets(data, "x").items())
    if kind == "epochs":
        entries = parse_epochs(data, "x")
        return [[list(entry) for entry in found] for found in (entries, LeaderEpochCache("x", entries).entries)]
    if kind == "metadata":
        return parse_partition_metadata(data, "x")
    if kind == "shutdown":
        return parse_clean_shutdown(data, "x")
    return list(parse_meta_properties(data, "x"))


def is_refused_on_purpose(kind: str, error: CorruptCheckpoint) -> bool:
    """Where we are stricter than Kafka, and why."""
    if kind == "shutdown":  # Jackson makes a number of a string and of a fraction.
        return error.what in ("version", "brokerEpoch") and error.got in ("str", "float")
    if kind == "properties":  # A Java string may hold half a character.
        return error.what == "escape" and error.wanted == "text"
    if kind == "metadata":  # Kafka does not look at half a character at the end of a file.
        return error.wanted == "UTF-8"
    return False


@pytest.mark.parametrize("kind", ["offsets", "epochs", "metadata", "shutdown", "properties"])
def test_kafka_and_we_read_and_refuse_the_same_bytes(kind):
    """LOG-139: among them every kind of damage. What Kafka refuses, we refuse."""
    cases = [line for line in golden_lines("checkpoints.jsonl.gz") if line["kind"] == kind]
    assert len(cases) > 100
    on_purpose = 0
    for case in cases:
        data = bytes.fromhex(case["hex"])
        try:
            found = read(kind, data)
        except CorruptCheckpoint as error:
            if "value" in case:
                assert is_refused_on_purpose(kind, error), (data, str(error))
                on_purpose += 1
            continue
        assert "value" in case, (data, case["refused"], found)
        assert found == case["value"], data
    assert on_purpose < 10


def test_kafkas_cache_and_ours_answer_the_same_and_write_the_same_file():
    """LOG-092, LOG-093, LOG-094, LOG-095, LOG-096, LOG-097, LOG-098, LOG-099, LOG-100: on 300 random histories."""
    for line in golden_lines("epochs.jsonl.gz"):
        cache = LeaderEpochCache("x")
        for (name, *arguments), wanted in zip(line["calls"], line["results"], strict=True):
            assert answer(cache, name, arguments) == wanted, (name, arguments, cache.entries)
            cache.check_invariants()
        assert [list(entry) for entry in cache.entries] == line["entries"]
        # Kafka has made the file, empty, if nothing was ever assigned.
        assert format_epochs(cache.entries) == (line["file"].encode() or b"0\n0\n")


def answer(cache: LeaderEpochCache, name: str, arguments: list[int]) -> Any:
    if name == "reload":
        assert LeaderEpochCache("x", cache.entries).entries == cache.entries
        return None
    if name == "assign":
        try:
            cache.assign(*arguments)
        except UsageError:
            return "refused"
        return None
    attribute = getattr(cache, name)
    found = attribute(*arguments) if callable(attribute) else attribute
    if isinstance(found, tuple):
        return [list(part) if isinstance(part, EpochEntry) else part for part in found]
    return found
