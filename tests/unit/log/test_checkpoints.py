"""Checkpoints of offsets and of leader epochs: their bytes, what is refused, and how a file is replaced."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from logcore._file import File
from logcore.errors import CorruptCheckpoint, CorruptionReason, StorageError, UsageError, UsageTypeError
from logcore.log import checkpoints
from logcore.log.checkpoints import (
    EpochEntry,
    format_epochs,
    format_offsets,
    parse_epochs,
    parse_offsets,
    read_epochs,
    read_offsets,
    write_epochs,
    write_offsets,
)
from logcore.log.disk import SYSTEM_DISK, SystemDisk
from logcore.log.names import TopicPartition


class RecordingDisk(SystemDisk):
    """The system's disk, which notes what happens to names and files, and fails what it is told to."""

    def __init__(self, **failing: int) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.failing = failing  # the name of a call, and the errno that it fails with

    def note(self, call: str, *paths: str) -> None:
        self.calls.append((call, *(Path(path).name for path in paths)))
        if call in self.failing:
            raise StorageError(call, errno=self.failing[call], path=paths[0])

    def open(self, path: str, *, is_writable: bool = False, create: bool = False) -> Any:
        self.note("open", path)
        return RecordingFile(self, path, is_writable=is_writable, create=create)

    def rename(self, source: str, target: str) -> None:
        self.note("rename", source, target)
        super().rename(source, target)

    def unlink(self, path: str) -> bool:
        self.note("unlink", path)
        return super().unlink(path)

    def sync_directory(self, path: str) -> None:
        self.note("sync_directory", path)
        super().sync_directory(path)


class RecordingFile:
    def __init__(self, disk: RecordingDisk, path: str, **options: bool) -> None:
        self.disk, self.path = disk, path
        self.file = File(path, **options)

    @property
    def size(self) -> int:
        return self.file.size

    def truncate(self, size: int) -> None:
        self.file.truncate(size)

    def append(self, parts: Iterable[bytes]) -> int:
        self.disk.note("append", self.path)
        return self.file.append(parts)

    def read(self, position: int, size: int) -> bytes:
        return self.file.read(position, size)

    def sync(self) -> None:
        self.disk.note("sync", self.path)
        self.file.sync()

    def close(self) -> None:
        self.file.close()


def refusal(parse: Any, data: bytes) -> CorruptCheckpoint:
    with pytest.raises(CorruptCheckpoint) as caught:
        parse(data, "some-checkpoint")
    assert caught.value.path == "some-checkpoint"
    return caught.value


# --------------------------------------------------------------------------------------------------------- offsets


def test_offsets_are_lines_of_topic_partition_and_offset():
    """LOG-138: behind a version and a count."""
    data = b"0\n3\n__consumer_offsets 2 11\norders 0 0\norders 10 9223372036854775807\n"
    offsets = {
        TopicPartition("orders", 10): 9223372036854775807,
        TopicPartition("__consumer_offsets", 2): 11,
        TopicPartition("orders", 0): 0,
    }
    assert parse_offsets(data, "x") == offsets
    assert format_offsets(offsets) == data
    assert format_offsets({}) == b"0\n0\n"


def test_offsets_are_written_by_topic_and_number_of_partition():
    partitions = [TopicPartition(topic, partition) for topic in ("b", "a", "a-1", "B") for partition in (10, 9, 2)]
    lines = format_offsets(dict.fromkeys(partitions, 7)).decode().splitlines()[2:]
    wanted = [f"{topic} {partition} 7" for topic in ("B", "a", "a-1", "b") for partition in (2, 9, 10)]
    assert lines == wanted


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n", b"0\r\n0\r\n", b"-0\n+0\n"])
def test_a_file_without_entries_is_an_empty_map(data):
    """LOG-139: an empty file too, which is what Kafka creates."""
    assert parse_offsets(data, "x") == {}
    assert parse_epochs(data, "x") == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b"orders 3 17", ("orders", 3, 17)),
        (b"orders\t+3 \x0b\x0c 0017  ", ("orders", 3, 17)),
        (b"orders -1 -17", ("orders", -1, -17)),
        (b" 3 17", ("", 3, 17)),
        ("b\u00e9b\u00e9\u0085\u2028\x1c 3 17".encode(), ("b\u00e9b\u00e9\u0085\u2028\x1c", 3, 17)),
        (b"a.B_c-9 2147483647 -9223372036854775808", ("a.B_c-9", 2147483647, -9223372036854775808)),
    ],
)
def test_an_entry_is_read_as_java_reads_it(line, wanted):
    topic, partition, offset = wanted
    offsets = parse_offsets(b"0\n1\n" + line, "x")
    assert offsets == {TopicPartition(topic, partition): offset}
    assert parse_offsets(format_offsets(offsets), "x") == offsets


def test_of_two_entries_for_one_partition_the_later_stays_and_both_are_counted():
    assert parse_offsets(b"0\n2\norders 0 5\norders 0 3\n", "x") == {TopicPartition("orders", 0): 3}
    assert refusal(parse_offsets, b"0\n1\norders 0 5\norders 0 3\n").reason is CorruptionReason.ENTRY_COUNT


@pytest.mark.parametrize(
    ("data", "reason", "message"),
    [
        (b"1\n0\n", "VERSION", "version in line 1 got 1, wanted 0"),
        (b"-1\n", "VERSION", "version in line 1 got -1, wanted 0"),
        (b"\n", "MALFORMED", "version in line 1 got '', wanted 0"),
        (b" 0\n0\n", "MALFORMED", "version in line 1 got ' 0', wanted 0"),
        (b"0\nx\na 0 0\n", "MALFORMED", "number of entries in line 2 got 'x', wanted 1"),
        (b"0\n2\na 0 0\n", "ENTRY_COUNT", "number of entries in line 2 got 2, wanted 1, which follow"),
        (b"0\n-1\n", "ENTRY_COUNT", "number of entries in line 2 got -1, wanted 0, which follow"),
        (b"0\n0\n\n", "ENTRY_COUNT", "number of entries in line 2 got 0, wanted 1, which follow"),
        (b"0\n1\n\n", "MALFORMED", "line 3 got '', wanted topic, partition and offset"),
        (b"0\n1\na 0\n", "MALFORMED", "line 3 got 'a 0', wanted topic, partition and offset"),
        (b"0\n2\na 0 0\n b 0 0\n", "MALFORMED", "line 4 got ' b 0 0', wanted topic, partition and offset"),
        (b"0\n1\na 2147483648 0\n", "MALFORMED", "partition in line 3 got '2147483648', wanted an int of 32 bits"),
        (b"0\n1\na 0 1_0\n", "MALFORMED", "offset in line 3 got '1_0', wanted an int of 64 bits"),
        (b"0\n1\na\xff 0 0\n", "MALFORMED", "byte 5 got 0xff, wanted UTF-8"),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_its_line(data, reason, message):
    """LOG-139: an unknown version, a malformed line, and a count that is not that of the lines."""
    error = refusal(parse_offsets, data)
    assert (error.reason.name, str(error)) == (reason, f"checkpoint in some-checkpoint: {message}")


def test_a_message_shows_no_more_than_the_beginning_of_a_line():
    error = refusal(parse_offsets, b"0\n1\n" + b"\x1b" * 5000)
    assert error.got == repr("\x1b" * 80) + "… (5000 characters)"


def test_numbers_of_a_million_digits_take_no_time():
    assert parse_offsets(b"0\n1\na 0 " + b"0" * 1_000_000 + b"5\n", "x") == {TopicPartition("a", 0): 5}
    assert refusal(parse_offsets, b"0\n1\na 0 " + b"9" * 1_000_000).reason is CorruptionReason.MALFORMED
    assert refusal(parse_offsets, b"0" * 1_000_000 + b"x").reason is CorruptionReason.MALFORMED


@pytest.mark.parametrize(
    ("partition", "offset", "message"),
    [
        (TopicPartition("a b", 0), 0, "topic, offset checkpoint: got 'a b', wanted no white space"),
        (TopicPartition("a\n", 0), 0, "topic, offset checkpoint: got 'a\\n', wanted no white space"),
        (TopicPartition("a\udc80", 0), 0, "topic: got '\\udc80', wanted text"),
        (TopicPartition("a", 1 << 31), 0, "partition: got 2147483648, wanted -2147483648 to 2147483647"),
        (
            TopicPartition("a", 0),
            1 << 63,
            "offset: got 9223372036854775808, wanted -9223372036854775808 to 9223372036854775807",
        ),
    ],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path, partition, offset, message):
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    write_offsets(SYSTEM_DISK, path, {TopicPartition("a", 0): 1})
    with pytest.raises(UsageError) as caught:
        write_offsets(SYSTEM_DISK, path, {TopicPartition("b", 0): 2, partition: offset})
    assert str(caught.value) == message
    assert read_offsets(SYSTEM_DISK, path) == {TopicPartition("a", 0): 1}


def test_an_offset_that_is_no_int_is_not_written():
    for offset in (1.0, "1", None, True):
        with pytest.raises(UsageTypeError):
            format_offsets({TopicPartition("a", 0): offset})  # type: ignore[dict-item]


# ---------------------------------------------------------------------------------------------------- leader epochs


def test_epochs_are_lines_of_epoch_and_start_offset():
    """LOG-138."""
    entries = [EpochEntry(0, 40), EpochEntry(2, 160)]
    assert format_epochs(entries) == b"0\n2\n0 40\n2 160\n"
    assert parse_epochs(format_epochs(entries), "x") == entries
    assert format_epochs([]) == b"0\n0\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1", "line 3 got '1', wanted epoch and start offset"),
        (b"1 2 3", "line 3 got '1 2 3', wanted epoch and start offset"),
        (b" 2", "epoch in line 3 got '', wanted a number of 31 bits"),
        (b"-1 2", "epoch in line 3 got '-1', wanted a number of 31 bits"),
        (b"2147483648 2", "epoch in line 3 got '2147483648', wanted a number of 31 bits"),
        (b"1 -2", "start offset in line 3 got '-2', wanted a number of 63 bits"),
    ],
)
def test_an_epoch_that_cannot_be_is_refused_with_its_line(line, message):
    """LOG-139: Kafka's file reader takes negative ones, but its cache does not, and the log is not opened."""
    error = refusal(parse_epochs, b"0\n1\n" + line + b"\n")
    assert str(error) == f"checkpoint in some-checkpoint: {message}"


@pytest.mark.parametrize("entry", [EpochEntry(-1, 0), EpochEntry(0, -1), EpochEntry(1 << 31, 0)])
def test_an_epoch_that_cannot_be_is_not_written(entry):
    with pytest.raises(UsageError):
        format_epochs([entry])


# ------------------------------------------------------------------------------------------------------------ files


def test_a_file_that_is_not_there_has_no_entries_and_is_not_made(tmp_path):
    assert read_offsets(SYSTEM_DISK, str(tmp_path / "recovery-point-offset-checkpoint")) == {}
    assert read_epochs(SYSTEM_DISK, str(tmp_path / "leader-epoch-checkpoint")) == []
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_written_beside_the_old_one_synced_and_renamed(tmp_path):
    """LOG-140: and the directory is synced, as by Kafka, so that the new one stays."""
    disk = RecordingDisk()
    path = str(tmp_path / "leader-epoch-checkpoint")
    write_epochs(disk, path, [EpochEntry(0, 0)])
    temporary = "leader-epoch-checkpoint.tmp"
    assert disk.calls == [
        ("open", temporary),
        ("append", temporary),
        ("sync", temporary),
        ("rename", temporary, "leader-epoch-checkpoint"),
        ("sync_directory", tmp_path.name),
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["leader-epoch-checkpoint"]
    assert read_epochs(disk, path) == [EpochEntry(0, 0)]


@pytest.mark.parametrize("call", ["open", "append", "sync", "rename"])
def test_a_checkpoint_that_could_not_be_written_is_the_old_one(tmp_path, call):
    """LOG-140."""
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    write_offsets(SYSTEM_DISK, path, {TopicPartition("a", 0): 1})
    with pytest.raises(StorageError) as caught:
        write_offsets(RecordingDisk(**{call: errno.EIO}), path, {TopicPartition("a", 0): 2})
    assert caught.value.errno == errno.EIO
    assert read_offsets(SYSTEM_DISK, path) == {TopicPartition("a", 0): 1}
    write_offsets(SYSTEM_DISK, path, {TopicPartition("a", 0): 3})  # what the failed one left does no harm
    assert read_offsets(SYSTEM_DISK, path) == {TopicPartition("a", 0): 3}


def test_a_file_that_is_too_long_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "OFFSETS_BYTES_MAX", 16)
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(b"0\n2\na 0 1\nb 0 2\n")
    assert len(read_offsets(SYSTEM_DISK, str(path))) == 2
    path.write_bytes(b"0\n2\na 0 1\nb 0 22\n")
    with pytest.raises(CorruptCheckpoint, match="size got a longer file, wanted at most 16 bytes"):
        read_offsets(SYSTEM_DISK, str(path))


def test_a_disk_that_fails_is_no_damage(tmp_path):
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.mkdir()
    with pytest.raises(StorageError) as caught:
        read_offsets(SYSTEM_DISK, str(path))
    assert caught.value.errno == errno.EISDIR
