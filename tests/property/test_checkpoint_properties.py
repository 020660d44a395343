"""Every parser of a log's small files: what is written is read again, and any bytes give a result or a typed error."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcore.errors import CorruptCheckpoint
from logcore.log.checkpoints import EpochEntry, format_epochs, format_offsets, parse_epochs, parse_offsets
from logcore.log.epochs import LeaderEpochCache
from logcore.log.names import TopicPartition
from logcore.log.partition_metadata import format_partition_metadata, parse_partition_metadata
from logcore.log.root_files import (
    MetaProperties,
    format_clean_shutdown,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_properties,
)
from logcore.log.uuids import bytes_of, parse_uuid, uuid_of
from tests.helpers import GOLDEN

FILES = GOLDEN / "checkpoints"

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)

# What the parsers look for, put where it does not belong.
CHARACTERS = b'0 1 9 - + \t \n \r \x0b \x0c : = \\ # ! " { } [ ] , . / _ \x00 \x85 \xff \xc3'.split(b" ")
WORDS = rb"\u0041 \ud83d == null NaN 1e9 version AAAAAAAAAAA 9999999999999999999999999".split(b" ")
PIECES = st.sampled_from([*CHARACTERS, *WORDS, b" ", b"\r\n", b"\\\n", b"\xc3\xa9"])


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes of a good file, cut, doubled and spoilt in a few places."""
    data = whole
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 6)))
        middle = draw(st.one_of(PIECES, st.binary(max_size=3), st.just(b""), st.just(data[start:end] * 2)))
        data = data[:start] + middle + data[end:]
    return data


def format_properties(found: MetaProperties) -> bytes:
    """What Kafka would write, but for the order: only tests write this file."""
    pairs = {
        "version": str(found.version),
        "cluster.id": found.cluster_id,
        "node.id" if found.version else "broker.id": found.node_id,
        "directory.id": found.directory_id,
    }
    return "".join(f"{key}={escaped(str(value))}\n" for key, value in pairs.items() if value is not None).encode(
        "ascii"
    )


def escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


PARSERS: dict[str, tuple[Callable[[bytes, str], Any], Callable[[Any], bytes], str]] = {
    "offsets": (parse_offsets, format_offsets, "recovery-point-offset-checkpoint"),
    "epochs": (parse_epochs, format_epochs, "trimmed-0/leader-epoch-checkpoint"),
    "metadata": (parse_partition_metadata, format_partition_metadata, "trimmed-0/partition.metadata"),
    "shutdown": (parse_clean_shutdown, format_clean_shutdown, ".kafka_cleanshutdown"),
    "properties": (parse_meta_properties, format_properties, "meta.properties"),
}


@pytest.mark.parametrize("kind", PARSERS)
@given(data=st.data())
def test_any_bytes_are_refused_or_read_as_what_can_be_written_again(kind: str, data: st.DataObject) -> None:
    parse, format_, name = PARSERS[kind]
    raw = data.draw(st.binary(max_size=80) | damaged((FILES / name).read_bytes()) | damaged(format_smallest(kind)))
    try:
        found = parse(raw, "some-file")
    except CorruptCheckpoint as error:
        assert error.path == "some-file"
        assert len(str(error)) < 700
        return
    again = format_(found)
    assert parse(again, "some-file") == found
    assert format_(parse(again, "some-file")) == again


def format_smallest(kind: str) -> bytes:
    """A file so small that most damage hits what matters."""
    return {
        "offsets": b"0\n2\na 0 5\nb-c 1 70\n",
        "epochs": b"0\n3\n0 0\n1 5\n4 9\n",
        "metadata": b"version: 0\ntopic_id: G6yKAFZ_QT2Z-XISta5K6w",
        "shutdown": b'{"version":0,"brokerEpoch":3}',
        "properties": b"version=1\nnode.id=5\ncluster.id=a\\\n b",
    }[kind]


@given(st.data())
def test_any_epochs_that_are_read_make_a_sound_cache(data: st.DataObject) -> None:
    raw = data.draw(damaged(format_smallest("epochs")))
    try:
        entries = parse_epochs(raw, "some-file")
    except CorruptCheckpoint:
        return
    LeaderEpochCache("some-file", entries).check_invariants()


TOPICS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\x0b\x0c\r"), max_size=12)


@given(st.dictionaries(st.builds(TopicPartition, TOPICS, INTS), LONGS, max_size=8))
def test_offsets_come_back(offsets: dict[TopicPartition, int]) -> None:
    data = format_offsets(offsets)
    assert parse_offsets(data, "x") == offsets
    assert format_offsets(dict(reversed(offsets.items()))) == data
    for end in (b"\r\n", b"\r"):
        assert parse_offsets(data.replace(b"\n", end), "x") == offsets


@given(st.lists(st.builds(EpochEntry, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=8))
def test_epochs_come_back(entries: list[EpochEntry]) -> None:
    assert parse_epochs(format_epochs(entries), "x") == entries


@given(LONGS)
def test_a_broker_epoch_comes_back(epoch: int) -> None:
    assert parse_clean_shutdown(format_clean_shutdown(epoch), "x") == epoch


@given(st.binary(min_size=16, max_size=16))
def test_an_id_comes_back(data: bytes) -> None:
    uuid = uuid_of(data)
    assert bytes_of(uuid) == data
    assert len(uuid) == 22
    assert parse_uuid(uuid) == parse_uuid(uuid + "==") == uuid


@given(st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=5))
def test_properties_come_back_however_they_are_escaped(pairs: dict[str, str]) -> None:
    lines = "".join(f"{escaped(key)}={escaped(value)}{os.linesep}" for key, value in pairs.items())
    assert parse_properties(lines.encode("ascii"), "x") == pairs
    assert parse_properties(lines.replace("\\u", "\\\r\n  \\u").encode("ascii"), "x") == pairs
