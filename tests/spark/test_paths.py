"""The option path, and which partitions of which roots are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import logcore
from logcore.errors import StorageError, UnknownTopicOrPartitionError, UsageError
from logcore.log.disk import SYSTEM_DISK
from logcore.log.names import TopicPartition
from pyspark_logcore.paths import find_roots
from pyspark_logcore.replicas import Replicas
from tests.spark.layouts import numbered, planned, ranges, write


def made(*paths: Path) -> list[Path]:
    for path in paths:
        path.mkdir(parents=True)
    return list(paths)


def found(*paths: object) -> list[str]:
    return find_roots(SYSTEM_DISK, tuple(map(str, paths)))


def test_one_path_or_several_in_each_way_of_writing_them(tmp_path: Path) -> None:
    one, two = made(tmp_path / "disk1/kafka", tmp_path / "disk2/kafka")
    both = [str(one), str(two)]
    assert found(one) == [str(one)]
    assert found(f"{one}, {two}") == both
    assert found(json.dumps(both)) == both
    assert found(tmp_path / "disk?/kafka") == both
    assert found(tmp_path / "disk[12]/kafka") == both
    assert found(one.as_uri(), two) == both
    assert found(f"{tmp_path}/disk*/kafka,{one}/") == both


def test_a_relative_path_becomes_an_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "logs")
    monkeypatch.chdir(tmp_path)
    assert found("logs") == [str(tmp_path / "logs")]


def test_a_name_that_is_there_is_taken_literally(tmp_path: Path) -> None:
    strange = made(tmp_path / "a,b*[c] d")[0]
    assert found(strange) == [str(strange)]
    assert found(strange.as_uri()) == [str(strange)]


def test_two_names_of_one_directory_are_one_root(tmp_path: Path) -> None:
    one = made(tmp_path / "one")[0]
    (tmp_path / "two").symlink_to(one)
    assert found(f"{one},{tmp_path / 'two'}") == [str(one)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing", "nothing, which is not there"),
        ("file", "file, which is a file"),
        ("none*", "none*, which matches no directory"),
        ("fil*", "fil*, which matches no directory"),
        ("here,nothing", "nothing, which is not there"),
        (",", "got ,, wanted a log root"),
        ('["here"', 'got ["here"'),
        ("[1]", "[1], which matches no directory"),
        ("hdfs://host/logs", "got hdfs://host/logs, wanted a directory that this machine"),
        ("x" * 5000, "got xxx"),
    ],
)
def test_a_path_that_leads_to_no_directory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "here")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        found(text)
    assert str(caught.value).startswith("option path: got ")
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 600


def test_the_directory_of_a_partition_is_no_root(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(1))
    with pytest.raises(UsageError, match=rf"a partition, wanted the log root it lies in, {tmp_path}$"):
        found(tmp_path / "orders-0")


def test_what_a_broker_leaves_behind_is_no_partition(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(5))
    unique = "0f3cd5b8a1e94c6f8d2b7a6e5c4d3b2a"
    for name in (f"gone-0.{unique}-delete", f"moved-0.{unique}-future", f"lost-0.{unique}-stray"):
        shutil.copytree(tmp_path / "orders-0", tmp_path / name)
    for name in ("remote-log-index-cache", "lost+found", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "payments-0").write_text("a file")
    first = next((tmp_path / "orders-0").glob("*.log"))
    for name in (
        "00000000000000000900.log.deleted",
        "00000000000000000900.log.cleaned",
        "00000000000000000900.log.tmp",
    ):
        shutil.copy(first, first.with_name(name))
    assert planned(tmp_path) == [("orders-0", 0, 5)]


def test_internal_topics_match_no_pattern_and_are_read_by_name(tmp_path: Path) -> None:
    for topic in ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__mine"):
        write(tmp_path, f"{topic}-0", numbered(1))
    assert planned(tmp_path, subscribePattern="__.*") == [("__mine-0", 0, 1)]
    assert planned(tmp_path, subscribe="__consumer_offsets") == [("__consumer_offsets-0", 0, 1)]


def test_a_pattern_is_looked_for_anywhere_in_a_name_and_may_match_nothing(tmp_path: Path) -> None:
    for topic in ("orders", "reorders", "payments"):
        write(tmp_path, f"{topic}-0", numbered(1))
    assert [one[0] for one in planned(tmp_path, subscribePattern="order")] == ["orders-0", "reorders-0"]
    assert [one[0] for one in planned(tmp_path, subscribePattern="^order")] == ["orders-0"]
    assert planned(tmp_path, subscribePattern="refunds") == []


def test_partitions_are_read_by_topic_or_as_assigned(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "payments-0"):
        write(tmp_path, name, numbered(1))
    assert [one[0] for one in planned(tmp_path, subscribe="payments,orders")] == ["orders-0", "orders-1", "payments-0"]
    assert [one[0] for one in planned(tmp_path, assign='{"payments": [0], "orders": [1]}')] == [
        "orders-1",
        "payments-0",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "orders,refunds"}, "option subscribe: got refunds, wanted topics that have a partition in"),
        ({"assign": '{"orders": [0, 7]}'}, "option assign: got orders-7, wanted partitions that are in"),
    ],
)
def test_a_topic_or_partition_that_is_not_there_is_told(tmp_path: Path, options: dict[str, str], expected: str) -> None:
    write(tmp_path, "orders-0", numbered(1))
    with pytest.raises(UnknownTopicOrPartitionError, match=expected):
        planned(tmp_path, **options)


def test_partitions_of_one_topic_may_lie_in_several_roots(tmp_path: Path) -> None:
    write(tmp_path / "disk1", "orders-0", numbered(2))
    write(tmp_path / "disk2", "orders-1", numbered(3))
    found = ranges(f"{tmp_path}/disk*")
    assert [(one.root, str(one.partition), one.end) for one in found] == [
        (str(tmp_path / "disk1"), "orders-0", 2),
        (str(tmp_path / "disk2"), "orders-1", 3),
    ]


def test_of_replicas_the_one_of_the_highest_epoch_is_read_and_of_those_the_longest(tmp_path: Path) -> None:
    def replica(root: str, *batches: tuple[int, int]) -> Path:
        with logcore.open_log(tmp_path / root / "orders-0") as log:
            for epoch, count in batches:
                for _ in range(count):
                    at = log.log_end_offset
                    batch = logcore.encode_batch([(b"k", root.encode())], base_offset=at, leader_epoch=epoch)
                    log.append_batches(batch, leader_epoch=epoch, origin="follower")
        return tmp_path / root

    long_but_old = replica("a", (0, 9))
    ahead = replica("b", (0, 2), (1, 4))
    behind = replica("c", (0, 2), (1, 3))
    for order in ((long_but_old, ahead, behind), (behind, ahead, long_but_old)):
        [found] = ranges(",".join(map(str, order)))
        assert (found.root, found.end) == (str(ahead), 6)
    [found] = ranges(f"{behind},{long_but_old}")
    assert (found.root, found.end) == (str(behind), 5)


def test_of_equal_replicas_the_first_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a", "orders-0", numbered(2))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert ranges(f"{tmp_path}/b,{tmp_path}/a")[0].root == str(tmp_path / "b")


def test_a_replica_that_vanishes_before_it_is_opened_leaves_the_other(tmp_path: Path) -> None:
    write(tmp_path / "a", "orders-0", numbered(3))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    replicas = Replicas(SYSTEM_DISK, [str(tmp_path / "a"), str(tmp_path / "b")], 0)
    shutil.rmtree(tmp_path / "a" / "orders-0")
    log = replicas.open(TopicPartition("orders", 0))
    assert log.root == str(tmp_path / "b")
    log.close()
    shutil.rmtree(tmp_path / "b" / "orders-0")
    with pytest.raises(StorageError):
        replicas.open(TopicPartition("orders", 0))


def test_two_directories_of_one_partition_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "orders-0", numbered(1))
    shutil.copytree(tmp_path / "orders-0", tmp_path / "orders-00")
    with pytest.raises(UsageError, match="wanted one directory for orders-0"):
        planned(tmp_path)
