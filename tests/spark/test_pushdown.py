"""Filters that spare reading: what is left of a read, and that no wanted record is left out."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logcore
from logcore.bench.footprint import CountingDisk
from logcore.log.names import RECOVERY_CHECKPOINT
from pyspark_logcore.pushdown import Condition, Wanted
from tests.conftest import FULL, SHORT
from tests.spark.layouts import SMALL, numbered, planned, write


def wanted(*conditions: tuple[Any, ...]) -> tuple[Wanted, list[bool]]:
    found, done = Wanted(), []
    for condition in conditions:
        found, is_done = found.narrow(Condition(*condition))
        done.append(is_done)
    return found, done


def at(ms: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("orders-0", "orders-1", "payments-0"):
        write(tmp_path, name, numbered(200))
    return tmp_path


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([("EqualTo", "topic", "orders")], ["orders-0", "orders-1"]),
        ([("EqualTo", "topic", "orders", True)], ["payments-0"]),
        ([("In", "topic", ("payments", "refunds"))], ["payments-0"]),
        ([("StringStartsWith", "topic", "pay")], ["payments-0"]),
        ([("StringEndsWith", "topic", "s")], ["orders-0", "orders-1", "payments-0"]),
        ([("StringContains", "topic", "rde")], ["orders-0", "orders-1"]),
        ([("GreaterThan", "topic", "orders")], ["payments-0"]),
        ([("EqualTo", "partition", 1)], ["orders-1"]),
        ([("EqualTo", "partition", 1, True)], ["orders-0", "payments-0"]),
        ([("LessThan", "partition", 1), ("EqualNullSafe", "topic", "orders")], ["orders-0"]),
        ([("GreaterThanOrEqual", "partition", 2)], []),
    ],
)
def test_partitions_are_left_out_and_that_is_all_there_is_to_it(
    root: Path, conditions: list[tuple[Any, ...]], expected: list[str]
) -> None:
    found, done = wanted(*conditions)
    disk = CountingDisk()
    assert [one[0] for one in planned(root, wanted=found, disk=disk)] == expected
    assert all(done)
    assert disk.opened.count("00000000000000000000.log") <= len(expected)


@pytest.mark.parametrize(
    ("conditions", "expected", "is_done"),
    [
        ([("EqualTo", "offset", 7)], [(7, 8)], True),
        ([("GreaterThan", "offset", 7)], [(8, 200)], True),
        ([("GreaterThanOrEqual", "offset", 7), ("LessThan", "offset", 9)], [(7, 9)], True),
        ([("LessThanOrEqual", "offset", 9)], [(0, 10)], True),
        ([("In", "offset", (9, 3, 5))], [(3, 10)], False),
        ([("EqualTo", "offset", 7, True)], [(0, 200)], False),
        ([("GreaterThan", "offset", 999)], [], True),
        ([("LessThan", "offset", -5)], [], True),
    ],
)
def test_offsets_are_narrowed(
    root: Path, conditions: list[tuple[Any, ...]], expected: list[tuple[int, int]], is_done: bool
) -> None:
    found, done = wanted(*conditions)
    assert [one[1:] for one in planned(root, wanted=found, subscribe="payments")] == expected
    assert set(done) == {is_done}


@pytest.mark.parametrize(
    ("kind", "time", "least", "most"),
    [
        ("GreaterThanOrEqual", at(1500), 120, 150),
        ("GreaterThan", at(1500), 120, 151),
        ("EqualTo", at(1500), 120, 150),
        ("GreaterThanOrEqual", at(1500.001), 120, 151),
        ("GreaterThanOrEqual", at(-5), 0, 0),
        ("LessThan", at(5), 0, 0),
    ],
)
def test_from_a_time_on_the_log_is_read_from_about_there(
    root: Path, kind: str, time: datetime, least: int, most: int
) -> None:
    found, done = wanted((kind, "timestamp", time))
    [(_, start, end)] = planned(root, wanted=found, subscribe="payments")
    assert least <= start <= most
    assert (end, done) == (200, [False])


def test_a_time_behind_the_last_record_leaves_nothing(root: Path) -> None:
    assert planned(root, wanted=wanted(("GreaterThan", "timestamp", at(1991)))[0]) == []


def test_segments_whose_latest_record_is_older_are_left_out_wherever_they_lie(tmp_path: Path) -> None:
    with logcore.open_log(tmp_path / "orders-0", config=SMALL) as log:
        for time in (10, 500, 20, 30, 600, 40):
            log.append([(b"k", b"v", time), (b"k", b"v", 5)])
            log.roll()
    found, _ = wanted(("GreaterThanOrEqual", "timestamp", at(400)))
    assert planned(tmp_path, wanted=found) == [("orders-0", 2, 4), ("orders-0", 8, 10)]


def test_a_segment_whose_time_index_may_be_short_is_read(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(200))
    found, _ = wanted(("GreaterThanOrEqual", "timestamp", at(1990)))
    assert planned(tmp_path, wanted=found)[0][1] > 150
    (tmp_path / RECOVERY_CHECKPOINT).unlink()  # so the machine may have died before the indexes were on the disk
    for index in sorted((tmp_path / "orders-0").glob("*.timeindex"))[1:3]:
        index.write_bytes(index.read_bytes()[:12])
    assert sum(end - start for _, start, end in planned(tmp_path, wanted=found)) > 150
    (tmp_path / RECOVERY_CHECKPOINT).write_text("damaged")
    assert sum(end - start for _, start, end in planned(tmp_path, wanted=found)) > 150


@pytest.mark.parametrize(
    ("condition", "is_done"),
    [
        (("IsNotNull", "offset"), True),
        (("IsNotNull", "timestamptype"), True),
        (("IsNotNull", "key"), False),
        (("IsNotNull", "offset", None, True), False),
        (("IsNull", "offset"), False),
        (("EqualTo", "value", b"v"), False),
        (("EqualTo", "offset", None), False),
        (("EqualTo", "topic", 5), False),
        (("In", "partition", (1, None)), False),
        (("In", "offset", ()), False),
        (("StringLike", "topic", "o%"), False),
        (("GreaterThan", "timestamp", 5), False),
        (("GreaterThan", "timestamp", at(5), True), False),
    ],
)
def test_what_spares_nothing_is_left_to_spark(root: Path, condition: tuple[Any, ...], is_done: bool) -> None:
    found, done = wanted(condition)
    assert done == [is_done]
    assert planned(root, wanted=found) == planned(root)


@settings(max_examples=200 if FULL else 8 if SHORT else 20)
@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    rolls=st.sets(st.integers(0, 60)),
    since=st.integers(0, 62),
    first=st.integers(0, 60),
    end=st.integers(0, 62),
)
def test_no_wanted_record_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], rolls: set[int], since: int, first: int, end: int
) -> None:
    root = tmp_path_factory.mktemp("root")
    with logcore.open_log(root / "orders-0", config=SMALL) as log:
        for offset, time in enumerate(times):
            log.append([(b"k", b"v" * 100, time)])
            if offset in rolls:
                log.roll()
    found, _ = wanted(
        ("GreaterThanOrEqual", "timestamp", at(since)),
        ("GreaterThanOrEqual", "offset", first),
        ("LessThan", "offset", end),
    )
    read = [offset for _, low, high in planned(root, wanted=found) for offset in range(low, high)]
    assert len(set(read)) == len(read)
    assert {at for at, time in enumerate(times) if time >= since and first <= at < end} <= set(read)
    assert set(read) <= set(range(first, end))
