"""Index files that are looked into where they lie find what an index in memory finds."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcore._index import OffsetIndex, TimeIndex
from logcore.log.disk import SYSTEM_DISK
from logcore.log.index_file import IndexFile, open_index_file
from logcore.log.names import INDEX, TIME_INDEX


class Bytes:
    """A file in memory, which counts what is read of it."""

    path = "bytes"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.reads = 0

    def read(self, position: int, size: int) -> bytes:
        self.reads += size
        return self.data[position : position + size]

    def close(self) -> None:
        self.data = b""


steps = st.lists(st.integers(1, 50), max_size=40)


@given(steps=steps, unused=st.integers(0, 30), asked=st.integers(-1, 2100))
def test_an_offset_index_is_searched_as_in_memory(steps: list[int], unused: int, asked: int) -> None:
    keys = [sum(steps[: number + 1]) for number in range(len(steps))]
    data = b"".join(struct.pack(">ii", key, 100 * (number + 1)) for number, key in enumerate(keys)) + bytes(8 * unused)
    with IndexFile(Bytes(data), INDEX) as file:  # type: ignore[arg-type]
        assert file.count == len(keys)
        assert file.all() == data[: 8 * len(keys)]
        assert file.count_up_to(asked) == sum(key <= asked for key in keys)
        assert [file.offset_at(number) for number in range(len(keys))] == keys
        assert not file.has(len(keys))
        assert not file.has(-1)
        one = OffsetIndex(file.entry_before(file.count_up_to(asked)), 1000)
        assert one.lookup(1000 + asked) == OffsetIndex(data[: 8 * len(keys)], 1000).lookup(1000 + asked)


@given(steps=steps, unused=st.integers(0, 30), asked=st.integers(-1, 2100))
def test_a_time_index_is_searched_as_in_memory(steps: list[int], unused: int, asked: int) -> None:
    times = [sum(steps[: number + 1]) for number in range(len(steps))]
    data = b"".join(struct.pack(">qi", time, number) for number, time in enumerate(times)) + bytes(12 * unused)
    with IndexFile(Bytes(data), TIME_INDEX) as file:  # type: ignore[arg-type]
        assert file.count == len(times)
        one = TimeIndex(file.entry_before(file.count_up_to(asked)), 1000)
        assert one.lookup(asked) == TimeIndex(data[: 12 * len(times)], 1000).lookup(asked)


def test_a_search_of_a_million_entries_reads_two_hundred_bytes() -> None:
    file = Bytes(b"".join(struct.pack(">ii", key, key) for key in range(1, 1_000_001)))
    assert IndexFile(file, INDEX).count_up_to(777_777) == 777_777  # type: ignore[arg-type]
    assert file.reads <= 200


@pytest.mark.parametrize("kind", [INDEX, TIME_INDEX])
def test_where_there_is_no_file_there_are_no_entries(tmp_path: Path, kind: str) -> None:
    with open_index_file(SYSTEM_DISK, str(tmp_path / f"0{kind}"), kind) as file:
        assert (file.count, file.all(), file.entry_before(0), file.has(0)) == (0, b"", b"", False)
