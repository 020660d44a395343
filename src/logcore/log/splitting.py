"""Splitting a segment whose offsets are too far apart for its indexes.

An index entry has 32 bits for an offset's distance from the segment's base. Kafka did not always mind; such a segment
is copied into several that fit, which then take its place in the same way as compacted ones do (see compaction.md).
"""

from logcore.errors import CorruptBatch, CorruptionReason, UsageError

from .disk import Disk
from .names import CLEANED
from .segment import OFFSET_SPAN_MAX, OpenSegments, Segment
from .segments import Segments
from .swapping import swap_in

COPY_BYTES = 1 << 20


def split_segment(
    disk: Disk,
    directory: str,
    segments: Segments,
    segment: Segment,
    now_ms: int,
    opened: OpenSegments | None = None,
) -> list[Segment]:
    """Put segments that fit in the place of one that does not; returns them. The old one has the suffix .deleted then.

    opened: is told when they are opened
    """
    made: list[Segment] = []
    position, size = 0, segment.size
    try:
        while position < size:
            first = segment.log.find(-1, position, size)
            if first is None:
                raise CorruptBatch(
                    "size", reason=CorruptionReason.TRUNCATED, got=f"{size - position} bytes", wanted="a whole batch",
                    path=segment.path, position=position,
                )  # fmt: skip
            part = Segment(
                disk, directory, first.base_offset, segment.config, created_ms=now_ms, suffix=CLEANED, opened=opened
            )
            part.create()
            made.append(part)
            position = copy_batches(segment, position, size, part)
        if len(made) == 1 and made[0].base_offset == segment.base_offset:
            raise UsageError("segment to split", got=repr(segment), wanted="one whose offsets do not fit")
        for part in made:
            part.seal()
            part.sync()
            part.set_modified(segment.modified_ms)
    except BaseException:
        for part in made:
            part.delete()
        raise
    swap_in(disk, directory, segments, [segment], made)
    return made


def copy_batches(source: Segment, position: int, end: int, target: Segment) -> int:
    """Append batches of one segment to another, as far as they fit; returns the position of the first that does not."""
    while position < end:
        data, scan = source.log.chunk(position, end, COPY_BYTES)
        if scan.error is not None and not len(scan):
            raise scan.error
        fitting = scan.headers["last_offset"] - target.base_offset <= OFFSET_SPAN_MAX
        count = len(fitting) if fitting.all() else int(fitting.argmin())
        if not count:
            return position
        last = scan.headers[count - 1]
        size = int(last["position"]) + int(last["size_in_bytes"])
        target.append([memoryview(data)[:size]], scan.headers[:count])
        position += size
        if count < len(fitting):
            return position
    return position
