"""What can honestly be done about damage that verify has found, decided before anything is touched.

    indexes, snapshots, leader epochs   are made again: all of it follows from the batches, which are read anew
    a checkpoint of the root            is removed, and what it said is found out or lost
    batches that were not flushed       are cut off, as every open does after a crash
    batches that had been flushed       stay as they are, unless the caller says `cut`: then the log ends before the
                                        first bad one, and every good one behind it is lost
    records that do not decode          in a batch whose checksum is right: stay. They were written so

Nothing here writes. Who carries a plan out holds the root's lock (logcore.library.repairing).
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from .finding import Finding
from .names import (
    CLEANER_CHECKPOINT,
    EPOCH_CHECKPOINT,
    INDEX,
    RECOVERY_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    SNAPSHOT,
    START_CHECKPOINT,
    TIME_INDEX,
    TXN_INDEX,
    parse_file_name,
)
from .verify import PartitionCheck

_DERIVED = (INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)

# What it costs to lose a checkpoint of the root.
CHECKPOINT_LOSSES = {
    RECOVERY_CHECKPOINT: "all logs of the root are read from their first byte the next time",
    START_CHECKPOINT: "logs begin at their first segment again: records deleted by delete_records() may come back",
    REPLICATION_CHECKPOINT: "high watermarks are the ends of the logs",
    CLEANER_CHECKPOINT: "compactions begin at the logs' starts again",
}


@dataclass
class Plan:
    """What to do about a partition. `is_refused`: nothing."""

    directory: str
    files: list[str] = field(default_factory=list)  # to be removed, because they are made again
    is_reread: bool = False  # all batches are read anew
    is_cut: bool = False  # from the first bad batch on
    is_refused: bool = False
    steps: list[str] = field(default_factory=list)  # in words


def plan_partition(check: PartitionCheck, findings: Iterable[Finding], *, cut: bool) -> Plan:
    """What to do about what was found in a partition. cut: also cut off batches that had been flushed."""
    plan = Plan(check.directory)
    damages = [one for one in findings if one.is_damage]
    plan.files = sorted({one.path for one in damages if _is_derived(one.path)})
    bad = check.first_bad
    if bad is not None and any((one.path, one.position) == bad[:2] for one in damages):
        path, position, offset = bad
        place = f"{os.path.basename(path)}, position {position}"
        is_flushed = check.known.is_clean or offset < (check.known.recovery_point or 0)
        if is_flushed and not cut:
            plan.is_refused = True
            plan.steps.append(
                f"nothing: batches that had been flushed are bad from offset {offset} on ({place}),"
                f" and the log goes on to {check.log_end_offset} behind them. They can only be cut off together, which "
                "--cut-at-damage does"
            )
            return plan
        plan.is_cut = True
        plan.steps.append(
            f"cut the log at offset {offset} ({place}); everything from there to "
            f"its end at {check.log_end_offset} is lost"
        )
    plan.steps += [f"make {os.path.basename(path)} again" for path in plan.files]
    plan.is_reread = bool(plan.files) or plan.is_cut
    if plan.is_reread:
        plan.steps.append(f"read all {check.segment_count} segments, {check.size_in_bytes} bytes")
    elif not check.known.is_clean:
        plan.steps.append("recover it, as every open does after a crash")
    return plan


def _is_derived(path: str) -> bool:
    name = os.path.basename(path)
    file = parse_file_name(name)
    return name == EPOCH_CHECKPOINT or (file is not None and file.kind in _DERIVED and not file.suffix)


def damaged_checkpoints(findings: Iterable[Finding], root: str) -> list[str]:
    """The checkpoints of a root that cannot be read, and so cannot be opened with."""
    unreadable = {"version", "entry_count", "malformed"}
    found = {
        one.path
        for one in findings
        if one.is_damage and one.reason in unreadable and not one.text.startswith("offset of ")
    }
    return [path for name in CHECKPOINT_LOSSES if (path := f"{root}/{name}") in found]
