"""What a caller hands in by mistake is told by its name before anything is done with it."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import logcore
from logcore.errors import UsageError, UsageTypeError

NOW = 1_700_000_000_000
ROWS = [(b"k%d" % n, b"v%d" % n, NOW + n) for n in range(10)]
WHOLE = {"got str, wanted an int": "1", "got float, wanted an int": 1.5, "got bool, wanted an int": True}

OFFSETS: dict[str, Callable[[Any, Any], object]] = {
    "read": lambda log, offset: log.read(offset),
    "read_columns": lambda log, offset: log.read_columns(offset),
    "end_offset of read_columns": lambda log, offset: log.read_columns(0, end_offset=offset),
    "follow": lambda log, offset: log.follow(offset),
    "follow_async": lambda log, offset: log.follow_async(offset),
    "truncate_to": lambda log, offset: log.truncate_to(offset),
    "delete_records": lambda log, offset: log.delete_records(offset),
}
NUMBERS: dict[str, Callable[[Any, Any], object]] = {
    "offset_for_timestamp": lambda log, number: log.offset_for_timestamp(number),
    "retain": lambda log, number: log.retain(number),
    "tick": lambda log, number: log.tick(number),
    "now_ms of compact": lambda log, number: log.compact(number),
    "memory_bytes of compact": lambda log, number: log.compact(memory_bytes=number),
    "producer_id": lambda log, number: log.append(ROWS, producer_id=number, producer_epoch=0, base_sequence=0),
    "producer_epoch": lambda log, number: log.append(ROWS, producer_id=1, producer_epoch=number, base_sequence=0),
    "base_sequence": lambda log, number: log.append(ROWS, producer_id=1, producer_epoch=0, base_sequence=number),
    "leader_epoch": lambda log, number: log.append_batches(b"", leader_epoch=number),
}


def opened(path: Path) -> logcore.Log:
    return logcore.open_log(path / "orders-0", config={"cleanup.policy": "compact"}, clock=lambda: NOW)


@pytest.mark.parametrize("call", OFFSETS.values(), ids=OFFSETS.keys())
@pytest.mark.parametrize(("words", "given"), WHOLE.items(), ids=WHOLE.keys())
def test_an_offset_is_an_int_and_a_wrong_one_changes_nothing(
    tmp_path: Path, call: Callable[[Any, Any], object], words: str, given: object
) -> None:
    with opened(tmp_path) as log:
        log.append(ROWS)
        with pytest.raises(UsageTypeError, match=words):
            call(log, given)
        assert [record.offset for record in log.read(0)] == list(range(10))
        assert (log.log_start_offset, log.log_end_offset) == (0, 10)
    with opened(tmp_path) as log:
        assert [record.offset for record in log.read(0)] == list(range(10))


@pytest.mark.parametrize("call", OFFSETS.values(), ids=OFFSETS.keys())
def test_an_offset_may_be_numpys(tmp_path: Path, call: Callable[[Any, Any], object]) -> None:
    with opened(tmp_path) as log:
        log.append(ROWS)
        call(log, np.int64(3))
        assert type(log.log_start_offset) is type(log.log_end_offset) is int


@pytest.mark.parametrize("call", NUMBERS.values(), ids=NUMBERS.keys())
@pytest.mark.parametrize(("words", "given"), WHOLE.items(), ids=WHOLE.keys())
def test_other_numbers_are_ints_too(
    tmp_path: Path, call: Callable[[Any, Any], object], words: str, given: object
) -> None:
    with opened(tmp_path) as log:
        log.append(ROWS)
        with pytest.raises(UsageTypeError, match=words):
            call(log, given)
        assert len(list(log.read(0))) == 10


def test_a_datetime_in_place_of_milliseconds_is_told_what_is_wanted(tmp_path: Path) -> None:
    with (
        opened(tmp_path) as log,
        pytest.raises(UsageTypeError, match="got datetime, wanted an int, milliseconds since"),
    ):
        log.offset_for_timestamp(datetime.datetime.now(datetime.timezone.utc))  # type: ignore[arg-type]


def test_a_timeout_is_a_number_of_seconds(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for follow in (log.follow, log.follow_async):
            with pytest.raises(UsageTypeError, match="timeout: got str, wanted a number of seconds, or None"):
                follow(0, timeout="1")  # type: ignore[arg-type]


def test_a_clock_is_a_function_that_returns_milliseconds(tmp_path: Path) -> None:
    for make in (
        lambda clock: logcore.open_log(tmp_path / "orders-0", clock=clock),
        lambda clock: logcore.open_root(tmp_path, clock=clock),
    ):
        with pytest.raises(UsageTypeError, match="clock: got int, wanted a function"):
            make(5)
        with pytest.raises(
            UsageTypeError, match=r"what clock\(\) returns: got float, wanted an int, milliseconds since"
        ):
            make(time.time)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (None, "records: got NoneType, wanted an iterable of records"),
        (b"key", "records: got bytes, wanted an iterable of records"),
        ({"key": b"k"}, "records: got dict, wanted an iterable of records"),
        ([(b"k", b"v"), b"value"], "record, record 1: got bytes, wanted a Record, or a tuple"),
        ([{"key": b"k"}], "record, record 0: got dict, wanted a Record, or a tuple"),
        ([()], "record, record 0: got tuple of 0, wanted a Record, or a tuple"),
        ([(b"k", b"v"), ("k", b"v")], "key, record 1: got str, wanted bytes.*: encode it"),
    ],
)
def test_what_is_no_record_is_told_before_a_partition_gets_anything(tmp_path: Path, records: Any, words: str) -> None:
    with logcore.open_root(tmp_path) as root:
        root.create_topic("orders", 2)
        with pytest.raises(UsageTypeError, match=words):
            root.append("orders", records)
        assert [root.log("orders", number).log_end_offset for number in (0, 1)] == [0, 0]


def test_partitions_are_counted_by_ints(tmp_path: Path) -> None:
    with logcore.open_root(tmp_path) as root:
        with pytest.raises(UsageTypeError, match="partitions: got str, wanted an int"):
            root.create_topic("orders", "3")  # type: ignore[arg-type]
        assert root.topics() == []
        root.create_topic("orders", 3)
        with pytest.raises(UsageTypeError, match="partition: got str, wanted an int"):
            root.log("orders", "0")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="partition, topic 'orders': got -1, wanted 0 to"):
            root.log("orders", -1)
        assert root.log("orders", np.int64(1)) is root.log("orders", 1)  # type: ignore[arg-type]
        root.checkpoint()
        root.delete_topic("orders")
