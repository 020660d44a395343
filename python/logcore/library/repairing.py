"""Carrying out what logcore.log.repair has planned, under the root's lock."""

import os
from collections.abc import Callable

from logcore.log.config import LogConfig
from logcore.log.disk import SYSTEM_DISK
from logcore.log.loader import Recovery
from logcore.log.names import parse_directory
from logcore.log.repair import Plan

from . import roots
from .clock import Clock, system_clock
from .log import open_shared
from .roots import Config


def remove_checkpoints(root: str, paths: list[str]) -> None:
    """Remove checkpoints that cannot be read; no root can be opened with them, so its lock is taken by hand."""
    lock = SYSTEM_DISK.lock(f"{root}/.lock")
    try:
        for path in paths:
            SYSTEM_DISK.unlink(path)
        SYSTEM_DISK.sync_directory(root)
    finally:
        lock.release()


def repair_partition(
    plan: Plan,
    *,
    config: Config | None = None,
    clock: Clock = system_clock,
    progress: Callable[[int], None] | None = None,
) -> Recovery:
    """Do what a plan says, and return what recovery did. The plan must not be refused."""
    root, name = os.path.split(os.path.abspath(plan.directory))
    partition, _ = parse_directory(name)
    shared = roots.enter(root, clock)
    try:
        with shared.lock:
            if plan.is_reread:
                shared.root.distrust(partition)
            for path in plan.files:
                SYSTEM_DISK.unlink(path)
            if plan.files:
                SYSTEM_DISK.sync_directory(plan.directory)
        log = open_shared(
            shared,
            partition,
            LogConfig.of(config),
            create=False,
            repair=plan.is_cut,
            progress=progress,
            on_close=shared.leave,
        )
    except BaseException:
        shared.leave()
        raise
    log.close()
    return log.recovery
