"""LogRoot: many partitions, topics, keyed appends, and what is kept of them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logcore
from logcore import open_log, open_root
from logcore.errors import StorageError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, UsageError
from logcore.log.disk import SystemDisk

NOW = 1_700_000_000_000


def opened(path: Path, **options: object) -> logcore.LogRoot:
    return logcore.open_root(path, clock=lambda: NOW, **options)


def test_topics_are_made_appended_to_by_key_and_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as root:
        topic_id = root.create_topic("orders", 4)
        root.create_topic("a.b_c-d", 1)
        assert root.topics() == ["a.b_c-d", "orders"]
        assert root.partitions("orders") == [0, 1, 2, 3]
        assert root.partitions("nothing") == []
        assert {root.log("orders", n).topic_id for n in range(4)} == {topic_id}
        rows = [(b"key-%d" % n, b"%d" % n) for n in range(200)]
        results = root.append("orders", rows)
        assert sum(result.record_count or 0 for result in results.values()) == 200
        for number in range(4):
            for record in root.log("orders", number).read(0):
                assert logcore.partition_for_key(record.key, 4) == number
        first, second = root.append("orders", [(None, b"x")] * 3), root.append("orders", [(None, b"x")] * 3)
        assert len(first) == len(second) == 1
        assert first.keys() != second.keys(), "records without a key go to the partitions in turn"
        with pytest.raises(TopicAlreadyExistsError):
            root.create_topic("orders", 1)
        with pytest.raises(UnknownTopicOrPartitionError):
            root.append("nothing", rows)
        with pytest.raises(UnknownTopicOrPartitionError):
            root.log("orders", 4)
        assert root.log("orders", 4, create=True).topic_id == topic_id
        root.delete_topic("orders")
        assert root.topics() == ["a.b_c-d"]
        with pytest.raises(UnknownTopicOrPartitionError):
            root.delete_topic("orders")
        assert root.create_topic("orders", 1) != topic_id
        assert root.log("orders").log_end_offset == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["a.b_c-d-0", "orders-0"]


def test_a_flush_of_a_root_flushes_every_open_log(tmp_path: Path) -> None:
    with opened(tmp_path) as root:
        root.create_topic("orders", 3)
        root.append("orders", [(b"key-%d" % n, b"v") for n in range(100)])
        root.log("orders", 2).close()
        root.flush()
        for number in (0, 1):
            log = root.log("orders", number)
            assert log.flush() == log.log_end_offset
        root.checkpoint()
        text = (tmp_path / "recovery-point-offset-checkpoint").read_text("ascii")
        ends = [root.log("orders", number).log_end_offset for number in range(3)]
        assert sorted(text.splitlines()[2:]) == [f"orders {number} {end}" for number, end in enumerate(ends)]
    with pytest.raises(UsageError, match="wanted none after close"):
        root.flush()


def test_a_root_that_is_opened_again_has_what_it_had_and_needs_no_repair(tmp_path: Path) -> None:
    with opened(tmp_path, config={"compression.type": "lz4"}) as root:
        root.create_topic("orders", 2, config={"internal.segment.bytes": 1000})
        for _ in range(10):
            root.append("orders", [(b"%d" % n, b"x" * 50) for n in range(20)])
        ends = [root.log("orders", n).log_end_offset for n in range(2)]
        root.log("orders", 1).delete_records(7)
        assert root.log("orders", 0).config.compression_type == "lz4"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with opened(tmp_path) as root:
        assert [root.log("orders", n).log_end_offset for n in range(2)] == ends
        assert [bool(root.log("orders", n).recovery) for n in range(2)] == [False, False]
        assert root.log("orders", 1).log_start_offset == 7
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_root_is_clean_again_only_when_every_partition_was_put_in_order(tmp_path: Path) -> None:
    with opened(tmp_path) as root:
        root.create_topic("orders", 2)
        root.append("orders", [(b"%d" % n, b"x") for n in range(20)])
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with logcore.open_log(tmp_path / "orders-0") as log:
        assert not log.recovery.was_clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with logcore.open_log(tmp_path / "orders-1"), logcore.open_log(tmp_path / "orders-0"):
        pass
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_directories_that_are_no_logs_are_passed_over(tmp_path: Path) -> None:
    with opened(tmp_path) as root:
        root.create_topic("orders", 1)
    for name in ("orders-1.0123456789abcdef0123456789abcdef-delete", "orders-2.0123456789abcdef0123456789abcdef-future",
                 "orders-3.0123456789abcdef0123456789abcdef-stray", "no-partition", "orders-7.tmp"):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(b"")
    (tmp_path / "orders-5").write_bytes(b"a file")
    with opened(tmp_path) as root:
        assert root.partitions("orders") == [0]
    assert not (tmp_path / "orders-1.0123456789abcdef0123456789abcdef-delete").exists()
    assert (tmp_path / "orders-2.0123456789abcdef0123456789abcdef-future").exists()
    assert (tmp_path / "orders-3.0123456789abcdef0123456789abcdef-stray").exists()


def test_a_read_only_root_has_no_lock_and_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as writer:
        writer.create_topic("orders", 2)
        writer.append("orders", [(b"%d" % n, b"x") for n in range(20)])
        with opened(tmp_path, read_only=True) as root:
            assert root.topics() == ["orders"]
            assert sum(len(root.log("orders", n)) for n in range(2)) == 20
            for use in (
                lambda: root.create_topic("x"),
                lambda: root.delete_topic("orders"),
                lambda: root.append("orders", []),
                root.checkpoint,
            ):
                with pytest.raises(UsageError, match="wanted one not opened with read_only"):
                    use()
            with pytest.raises(UnknownTopicOrPartitionError):
                root.log("orders", 9)
    with pytest.raises(logcore.StorageError):
        opened(tmp_path / "missing", read_only=True)


def test_wrong_names_and_numbers_are_told(tmp_path: Path) -> None:
    with opened(tmp_path) as root:
        for topic in ("", ".", "a/b", "x" * 250, "ä"):
            with pytest.raises(UsageError, match="topic: got"):
                root.create_topic(topic)
        with pytest.raises(UsageError, match="partitions: got 0, wanted 1 to"):
            root.create_topic("orders", 0)
        with pytest.raises(UsageError, match="log config"):
            root.create_topic("orders", 1, config={"segment.bites": 1})
        assert root.topics() == []
    with pytest.raises(UsageError, match="wanted none after close"):
        root.topics()
    with pytest.raises(UsageError, match="partition directory: got 'orders'"):
        logcore.open_log(tmp_path / "orders")


def test_a_checkpoint_lets_recovery_begin_later(tmp_path: Path) -> None:
    config = {"internal.segment.bytes": 1000}
    root = opened(tmp_path, config=config)
    log = root.log("orders", create=True)
    for _ in range(20):
        log.append([(None, b"x" * 100)] * 5)
    log.flush()
    root.checkpoint()
    log.append([(None, b"y" * 100)] * 5)
    log._core.segments.close()
    root._shared.root._lock.release()  # as if the process had died here
    logcore.library.roots._registry.clear()
    with opened(tmp_path, config=config) as root:
        log = root.log("orders")
        assert not log.recovery.was_clean
        assert log.recovery.segments_read <= 2
        assert log.log_end_offset == 105


def test_recovery_tells_how_far_it_has_come(tmp_path: Path) -> None:
    with opened(tmp_path, config={"internal.segment.bytes": 2000}) as root:
        root.create_topic("orders", 2)
        for _ in range(20):
            root.append("orders", [(b"%d" % n, b"x" * 50) for n in range(20)])
        sizes = [root.log("orders", number).size_in_bytes for number in range(2)]
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    with opened(tmp_path, config={"internal.segment.bytes": 2000}) as root:
        for number, size in enumerate(sizes):
            told: list[int] = []
            log = root.log("orders", number, progress=told.append)
            assert log.recovery.bytes_read == sum(told) >= size
            assert len(told) >= len(log.segments) > 1


def test_deleting_a_topic_removes_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    root_path = tmp_path / "root"
    with open_root(root_path) as root:
        root.create_topic("orders")
        (root_path / "orders-0" / "link").symlink_to(elsewhere)
        (root_path / "linked-0").symlink_to(elsewhere)
        root.delete_topic("orders")
        root.delete_topic("linked")
        assert root.topics() == []
    left_over = root_path / "orders-0.0f3cd5b8a1e94c6f8d2b7a6e5c4d3b2a-delete"
    left_over.mkdir()
    (left_over / "link").symlink_to(elsewhere)
    file = root_path / "notes-0.txt-delete"
    file.touch()
    with open_root(root_path):
        assert not left_over.exists()
        assert file.exists()
    assert os.listdir(elsewhere) == ["precious"]


def test_a_topic_that_is_made_anew_begins_at_0_though_the_old_one_went_without_a_word(tmp_path: Path) -> None:
    with open_root(tmp_path) as root:
        root.create_topic("orders")
        root.append("orders", [(b"k", b"v")] * 10)
        root.log("orders").delete_records(7)
    assert "orders 0 7" in (tmp_path / "log-start-offset-checkpoint").read_text()
    shutil.rmtree(tmp_path / "orders-0")
    with open_root(tmp_path) as root:
        root.create_topic("orders")
        assert (root.log("orders").log_start_offset, root.log("orders").log_end_offset) == (0, 0)


def test_a_partition_whose_making_failed_is_made_durable_when_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_root(tmp_path) as root:
        with monkeypatch.context() as patched:

            def refuse(*_: object) -> None:
                raise StorageError("rename", errno=errno.ENOSPC, path=str(tmp_path))

            patched.setattr(SystemDisk, "rename", refuse)
            with pytest.raises(StorageError, match="No space left"):
                root.log("orders", create=True)
        assert root.partitions("orders") == [0]
        synced: list[str] = []
        sync_directory = SystemDisk.sync_directory

        def note(disk: SystemDisk, path: str) -> None:
            synced.append(path)
            sync_directory(disk, path)

        with monkeypatch.context() as patched:
            patched.setattr(SystemDisk, "sync_directory", note)
            log = root.log("orders")
            log.append([(b"k", b"v")])
            log.flush()
        assert str(tmp_path) in synced


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (7, "path: got int, wanted a str"),
        ("data\0/orders-0", "path: got 'data\\x00/orders-0', wanted one that a file can have"),
        ("data\ud800/orders-0", "path: got 'data\\ud800/orders-0', wanted one that a file can have"),
    ],
)
@pytest.mark.parametrize("opening", [open_log, open_root])
def test_what_is_no_path_is_told(opening: Callable[..., object], path: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        opening(path)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("name", ["orders-00", "orders-+0", "orders-٣"])
@pytest.mark.parametrize("read_only", [False, True])
def test_another_directory_of_a_partition_is_not_taken_for_its_own(tmp_path: Path, name: str, read_only: bool) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=r"partition directory: got 'orders-.*', wanted 'orders-[03]'"):
        open_log(tmp_path / name, read_only=read_only)
    assert os.listdir(tmp_path) == [name]


def test_a_path_of_any_name_that_files_can_have_will_do(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xc3\xa4/" + b"t" * 249 + b"-0")
    with open_log(path) as log:
        log.append([(b"k", b"v")])
    with open_log(path, read_only=True) as log:
        assert [record.value for record in log.read(0)] == [b"v"]
        assert log.topic == "t" * 249


def test_partitions_that_are_no_numbers_make_no_directory(tmp_path: Path) -> None:
    with opened(tmp_path) as root:
        root.create_topic("orders")
        for partition in (None, "0", 1.5, -1, 1 << 31):
            with pytest.raises(UsageError, match=r"partition.*: got"):
                root.log("orders", partition, create=True)
        with pytest.raises(UsageError, match="partitions: got float, wanted an int"):
            root.create_topic("more", 1.5)
        for records in (7, [7], [[]], [{}], "x"):
            with pytest.raises(UsageError):
                root.append("orders", records)
        assert root.topics() == ["orders"]
    assert (tmp_path / ".kafka_cleanshutdown").exists()
