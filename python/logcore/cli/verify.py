"""`logcore verify DIR`: every damage in a partition or a log root, with file and position. It writes nothing.

With --repair it says what it would do, does it, and looks again.
"""

import argparse
import os
from collections.abc import Iterator

from logcore import LogcoreError, UsageError
from logcore.cli._logs import add_settings, check_exists, clock_of, print_fields, print_json
from logcore.cli._printers import json_name, text_name
from logcore.cli._progress import Progress
from logcore.cli.command import EXIT_DAMAGE, one_line, tell
from logcore.library.repairing import remove_checkpoints, repair_partition
from logcore.log.disk import SYSTEM_DISK
from logcore.log.finding import Finding
from logcore.log.repair import CHECKPOINT_LOSSES, Plan, damaged_checkpoints, plan_partition
from logcore.log.verify import PartitionCheck, RootCheck, check_of, log_bytes

DESCRIPTION = """\
Look for damage in a partition's directory, or in a log root and all partitions in it. Nothing is written.

Read and compared are: every batch (size, checksum, offsets that go forward) and every record in it; each
entry of the indexes with the log; transaction indexes with the markers; producer snapshots; leader epochs
with the batches; and the checkpoints of the root with where its logs begin and end.

It can be used while another process writes.
"""

EPILOG = """\
what is told:
  damage  bytes that no writer leaves, whatever happens to it
  note    what a crash or a writer at work leaves: torn ends, files of an interrupted compaction, a root that
          was not closed. Nothing flushed is lost; the text says what opening the log does about it

repair:
  --repair says what it will do, does it, and verifies again. It takes the root's lock, so no writer may run.
    Indexes, transaction indexes, snapshots and leader epochs are made again from the batches.
    A checkpoint of the root that cannot be read is removed; what that costs is said.
    Batches that were not flushed when the writer died are cut off, as every open does.
  Damage in batches that had been flushed cannot be mended: the bytes are gone. So --repair leaves such a
  partition alone. Copy what can still be read out of it first (logcore dump --salvage --json SEGMENT.log).
  --cut-at-damage then makes it a log again: it ends before the first bad batch, and EVERYTHING BEHIND IT IS
  LOST, good batches and whole segments too. A Kafka replica would fetch them from its leader.

json:
  An object a line: {"type": "damage" | "note", path, position, offset, reason, text}, then a
  {"type": "partition", …} for each; with --repair also "plan" and "repaired".

exit codes:
  0  no damage (notes may have been told)
  1  damage was found; with --repair: is left
  2  wrong use, or a file that cannot be read

examples:
  logcore verify data                               a whole root
  logcore verify data/orders-0 --json | jq -r 'select(.type == "damage") | .path'
  logcore verify data/orders-0 --repair
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `logcore verify`."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.set_defaults(run=run)
    add = parser.add_argument
    add("directory", metavar="DIR", help="a partition's directory, such as data/orders-0, or a log root")
    add("--json", action="store_true", help="one JSON object a line")
    add("--repair", action="store_true", help="say what can be mended, mend it, verify again")
    add(
        "--cut-at-damage",
        action="store_true",
        help="with --repair: end logs before their first bad batch, and lose all that lies behind it",
    )
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Verify `args.directory`; 1 if there is damage, else 0."""
    check_exists(args.directory)
    if args.cut_at_damage and not args.repair:
        raise UsageError("--cut-at-damage", got="no --repair", wanted="both: it is a part of it")
    verifier = Verifier(args.directory, is_json=args.json)
    verifier.run()
    if args.repair and (verifier.damages or verifier.notes):
        repair(verifier, args)
        verifier = Verifier(args.directory, is_json=args.json)
        verifier.run()
    return EXIT_DAMAGE if verifier.damages else 0


class Verifier:
    """One check, printed as it goes."""

    def __init__(self, directory: str, *, is_json: bool) -> None:
        self.directory = directory
        self.is_json = is_json
        self.progress = Progress(log_bytes(SYSTEM_DISK, directory))
        self._done = 0
        self.check = check_of(SYSTEM_DISK, directory, self._advance)
        self.findings: list[Finding] = []

    @property
    def damages(self) -> int:
        """How many."""
        return sum(one.is_damage for one in self.findings)

    @property
    def notes(self) -> int:
        """How many."""
        return len(self.findings) - self.damages

    def _advance(self, more: int) -> None:
        self._done += more
        self.progress.update(self._done)

    def run(self) -> None:
        """Check all of it, and print what is found."""
        try:
            for one in self.check.run():
                self.findings.append(one)
                self.progress.clear()
                self._print(one)
        finally:
            self.progress.clear()
        for check in self.partitions():
            self._print_partition(check)

    def partitions(self) -> list[PartitionCheck]:
        """The partitions that were looked at."""
        return self.check.partitions if isinstance(self.check, RootCheck) else [self.check]

    def _shown(self, path: str) -> str:
        """A path as the user would write it: from where he is, if it is below."""
        relative = os.path.relpath(path)
        return path if relative.startswith("..") else relative

    def _print(self, one: Finding) -> None:
        path = self._shown(one.path)
        if self.is_json:
            print_json(
                {
                    "type": one.severity,
                    "path": json_name(path),
                    "position": one.position,
                    "offset": one.offset,
                    "reason": one.reason,
                    "text": one.text,
                }
            )
        else:
            place = "" if one.position is None else f" position={one.position}"
            print(f"{one.severity} {text_name(path)}{place}: {one_line(one.text)}")

    def _print_partition(self, check: PartitionCheck) -> None:
        found = [one for one in self.findings if one.path.startswith(check.directory + "/")]
        fields: dict[str, object] = {
            "log_start_offset": check.log_start_offset,
            "log_end_offset": check.log_end_offset,
            "segments": check.segment_count,
            "records": check.record_count,
            "size_in_bytes": check.size_in_bytes,
            "damages": sum(one.is_damage for one in found),
        }
        path = self._shown(check.directory)
        if self.is_json:
            print_json({"type": "partition", "path": json_name(path), **fields})
        else:
            print_fields(f"partition {text_name(path)}", fields)


def repair(verifier: Verifier, args: argparse.Namespace) -> None:
    """Say what will be done about what was found, and do it."""
    check = verifier.check
    root = check.directory if isinstance(check, RootCheck) else os.path.dirname(check.directory)
    checkpoints = damaged_checkpoints(verifier.findings, root) if isinstance(check, RootCheck) else []
    plans = list(_plans(verifier, cut=args.cut_at_damage))
    for path in checkpoints:
        _print_step(verifier, "plan", path, f"remove it: {CHECKPOINT_LOSSES[os.path.basename(path)]}")
    for plan in plans:
        for step in plan.steps:
            _print_step(verifier, "plan", plan.directory, step)
    if checkpoints:
        remove_checkpoints(root, checkpoints)
    for plan in plans:
        if plan.is_refused:
            continue
        progress = Progress(log_bytes(SYSTEM_DISK, plan.directory))
        done = 0

        def advance(more: int, progress: Progress = progress) -> None:
            nonlocal done
            done += more
            progress.update(done)

        try:
            recovery = repair_partition(plan, config=dict(args.set), clock=clock_of(args), progress=advance)
        except LogcoreError as error:
            progress.clear()
            tell(f"{type(error).__name__}: {error}")
            continue
        finally:
            progress.clear()
        text = (
            f"read {recovery.segments_read} segments, cut {recovery.bytes_cut} bytes and "
            f"{recovery.segments_deleted} segments; the log ends at {recovery.end_offset}"
        )
        _print_step(verifier, "repaired", plan.directory, text)


def _plans(verifier: Verifier, *, cut: bool) -> Iterator[Plan]:
    for check in verifier.partitions():
        below = [one for one in verifier.findings if one.path == check.directory or _is_below(one.path, check)]
        if below:
            yield plan_partition(check, below, cut=cut)


def _is_below(path: str, check: PartitionCheck) -> bool:
    return path.startswith(check.directory + "/")


def _print_step(verifier: Verifier, kind: str, path: str, text: str) -> None:
    shown = verifier._shown(path)
    if verifier.is_json:
        print_json({"type": kind, "path": json_name(shown), "text": text})
    else:
        print(f"{kind} {text_name(shown)}: {one_line(text)}")
