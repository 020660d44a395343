"""Putting new segments in the place of old ones, so that a crash leaves the one or the other.

    .cleaned    the new segment is being written. After a crash it goes
    .swap       all of it is on the disk. After a crash it takes the place of the old ones
    .deleted    the old ones, until they are removed
    (none)      the new one has its name

Several new ones are renamed to .swap from the last on: a loader that finds a .cleaned takes every .swap behind it for
not done. Between each step and the next the directory is synced: a file system may do renames in any order.
"""

from .disk import Disk
from .names import DELETED, SWAP
from .segment import Segment
from .segments import Segments


def swap_in(disk: Disk, directory: str, segments: Segments, old: list[Segment], new: list[Segment]) -> None:
    """Replace `old`, which get the suffix .deleted, by `new`, which are synced and have the suffix .cleaned.

    For readers it is one step. Old ones that are out of the log already, because retention was faster, stay out.
    """
    disk.sync_directory(directory)
    for segment in sorted(new, key=lambda segment: -segment.base_offset):
        segment.rename(SWAP)
        disk.sync_directory(directory)
    current = [one for one in old if any(one is known for known in segments)]
    segments.replace(current, new)
    for segment in current:
        segment.rename(DELETED)
    disk.sync_directory(directory)
    for segment in sorted(new, key=lambda segment: segment.base_offset):
        segment.rename("")
    disk.sync_directory(directory)
