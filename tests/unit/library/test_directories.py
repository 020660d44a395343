"""A path that is not what it is taken for: told before a file is made."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import logcore
from logcore.errors import StorageError, UsageError


def names(path: Path) -> set[str]:
    return {str(found.relative_to(path)) for found in path.rglob("*")}


def test_a_partition_is_opened_by_the_name_that_it_has(tmp_path: Path) -> None:
    for name in ("orders-00", "orders-+0"):
        with pytest.raises(UsageError, match=f"got {name!r}, wanted 'orders-0', as its".replace("+", r"\+")):
            logcore.open_log(tmp_path / name)
    assert names(tmp_path) == set()


def test_a_log_root_in_place_of_a_partition_is_told_with_what_is_in_it(tmp_path: Path) -> None:
    with logcore.open_root(tmp_path / "data") as root:
        root.create_topic("orders", 5)
    wanted = "got a log root, wanted one of its partitions: orders-0, orders-1, orders-2, …"
    for read_only in (False, True):
        with pytest.raises(UsageError, match=wanted):
            logcore.open_log(tmp_path / "data", read_only=read_only)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_partition_in_place_of_a_log_root_is_told_and_gets_no_files_of_one(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "data" / "orders-0"
    logcore.open_log(path).close()
    before = names(tmp_path)
    with pytest.raises(UsageError, match=f"log root, {path}: got a partition's directory.*around it, {path.parent}$"):
        logcore.open_root(path, read_only=read_only)
    if not read_only:
        with pytest.raises(UsageError, match=f"log root, {path}: got a partition's directory"):
            logcore.open_log(path / "orders-0")
    assert names(tmp_path) == before


def test_a_file_in_place_of_a_log_root_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    for use in (lambda: logcore.open_root(tmp_path / "data"), lambda: logcore.open_log(tmp_path / "data" / "orders-0")):
        with pytest.raises(StorageError) as caught:
            use()
        assert caught.value.errno == errno.ENOTDIR


def test_a_path_may_be_bytes(tmp_path: Path) -> None:
    with logcore.open_log(os.fsencode(tmp_path / "orders-0")) as log:  # type: ignore[arg-type]
        assert log.path == str(tmp_path / "orders-0")


def test_a_second_open_says_what_to_do_instead(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    wanted = "use the Log that is open, close it first, or read with read_only=True"
    with logcore.open_log(path), pytest.raises(UsageError, match=wanted):
        logcore.open_log(path)
