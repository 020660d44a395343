"""A log as columns: whole batches a read at a time, decoded without a Python object for each record."""

import errno
from collections.abc import Iterator, Sequence

import numpy as np

from logcore._batch import first_batch_size, scan_batches
from logcore._columns import Columns, ColumnsStream
from logcore._decode import decode_columns
from logcore.errors import CorruptBatch, CorruptionReason, StorageError
from logcore.log.appending import Headers
from logcore.log.disk import DiskFile
from logcore.log.partition import PartitionLog
from logcore.log.readonly import ReadOnlyLog
from logcore.log.segment import Segment
from logcore.log.txnindex import AbortedTransaction
from logcore.log.view import LogView

# Of one read, and about what a Columns holds; a batch that is larger comes whole. On a quiet machine 1 to 4 MiB are
# alike; where others use the processor's last cache too, more than 2 MiB get slower.
CHUNK_BYTES = 2 << 20

AnyLog = PartitionLog | ReadOnlyLog


def read_columns(
    log: AnyLog,
    view: LogView,
    offset: int,
    end_offset: int,
    *,
    columns: Sequence[str] | None,
    layout: str,
    is_committed: bool,
    bytes_max: int | None,
    chunk_bytes: int = CHUNK_BYTES,
) -> ColumnsStream:
    """The records with offsets of [offset, end_offset) as a stream of Columns. Control records are left out."""
    view.check_offset(offset)
    empty = decode_columns(b"", columns=columns, layout=layout)
    chunks = _chunks(log, view, offset, end_offset, empty, is_committed, bytes_max, chunk_bytes)
    return ColumnsStream(chunks, empty)


def _chunks(
    log: AnyLog,
    view: LogView,
    offset: int,
    end_offset: int,
    empty: Columns,
    is_committed: bool,
    bytes_max: int | None,
    chunk_bytes: int,
) -> Iterator[Columns]:
    left = bytes_max
    while offset < end_offset:
        try:
            for segment, file, position, limit, aborted in _spans(view, offset, end_offset, is_committed):
                at, wanted = position, chunk_bytes
                last_offset = segment.base_offset - 1  # of the batch before
                while at < limit:
                    if log.generation != view.generation:
                        log.check_cut(view.generation, end_offset)
                    data = file.read(at, min(wanted, limit - at))
                    try:
                        headers = _check_order(data, at, last_offset)
                        made, consumed = _decode(data, at, offset, end_offset, empty, aborted)
                    except CorruptBatch as error:
                        log.check_cut(view.generation, end_offset)
                        raise error.at_path(segment.path, 0) from None
                    if not consumed:
                        wanted = _longer(log, view, segment, data, at, limit, end_offset)
                        if not wanted:
                            return
                        continue
                    # What lies behind the range was looked at, and is not consumed.
                    passed = int(np.searchsorted(headers["position"], consumed))
                    if passed:
                        last_offset = int(headers[passed - 1]["last_offset"])
                        offset = max(offset, last_offset + 1)
                    at, wanted = at + consumed, chunk_bytes
                    if len(made):
                        yield made
                    if offset >= end_offset:
                        return
                    if left is not None:
                        left -= consumed
                        if left <= 0:
                            return
                offset = max(offset, _segment_end(view, segment))
            return
        except StorageError as error:
            # A segment was deleted before it was opened: by compaction, which has left another, or by retention.
            if error.errno != errno.ENOENT:
                raise
            log.check_cut(view.generation, end_offset)
            view = log.view_from(offset)


def _spans(
    view: LogView, offset: int, end_offset: int, is_committed: bool
) -> Iterator[tuple[Segment, DiskFile, int, int, list[AbortedTransaction]]]:
    """The segments that have offsets of the range: where to begin and to end in each, and what was aborted in it."""
    segments, bases = view.segments
    for index in range(max(view.segments.floor_index(offset), 0), len(segments)):
        if bases[index] >= end_offset:
            return
        aborted: list[AbortedTransaction] = []
        if is_committed:
            behind = bases[index + 1] if index + 1 < len(bases) else end_offset
            aborted = view.aborted(max(offset, bases[index]), max(behind, offset))
        # Held from here on: a segment that is deleted meanwhile lets go of its file.
        segment, file = segments[index], segments[index].file
        limit = view.end_in(index, file.size)
        yield segment, file, segment.start_for(max(offset, bases[index]), limit), limit, aborted


def _segment_end(view: LogView, segment: Segment) -> int:
    """The offset behind a segment of the view."""
    index = view.segments.segments.index(segment) + 1
    return view.segments.base_offsets[index] if index < len(view.segments.base_offsets) else view.log_end_offset


def _longer(
    log: AnyLog, view: LogView, segment: Segment, data: bytes, position: int, limit: int, end_offset: int
) -> int:
    """How much to read, when what was read holds no whole batch; 0 if its first one is behind the range."""
    size = first_batch_size(data) if len(data) >= 17 else None
    if size is not None and size <= len(data):
        return 0
    if size is None or size > limit - position:
        log.check_cut(view.generation, end_offset)
        raise CorruptBatch(
            "size", reason=CorruptionReason.TRUNCATED, got=f"{limit - position} bytes",
            wanted="a whole batch" if size is None else size, path=segment.path, position=position,
        )  # fmt: skip
    return size


def _check_order(data: bytes, position: int, last_offset: int) -> Headers:
    """Raise CorruptBatch unless offsets go up from `last_offset` on; returns the headers of the whole batches.

    Batches outside of what is wanted are skipped by what their headers say, unchecked. So a batch with a damaged offset
    must not pass for one of them.
    """
    headers = scan_batches(data, verify_crc=False).headers
    lasts = headers["last_offset"]
    if len(lasts):
        behind = np.concatenate(([last_offset], lasts[:-1]))
        if (lasts <= behind).any():
            scan = scan_batches(data, verify_crc=True)
            if scan.error is not None:
                raise scan.error.at_path("", position)
            first = int(np.argmax(lasts <= behind))
            raise CorruptBatch(
                "offsets", reason=CorruptionReason.OFFSET_ORDER, got=f"up to {lasts[first]}",
                wanted=f"more than {behind[first]}", position=position + int(scan.headers[first]["position"]),
            )  # fmt: skip
    return headers


def _decode(
    data: bytes, position: int, offset: int, end_offset: int, empty: Columns, aborted: list[AbortedTransaction]
) -> tuple[Columns, int]:
    """The columns of a piece of a segment, and how much of it they are of."""
    consumed = None
    if aborted:
        data, consumed = _without_aborted(data, aborted)
    made = decode_columns(
        data,
        columns=empty.names,
        layout=empty.layout,
        base_position=position,
        include_control=False,
        first_offset=offset,
        end_offset=end_offset,
    )
    return made, made.consumed if consumed is None else consumed


def _without_aborted(data: bytes, aborted: list[AbortedTransaction]) -> tuple[bytes, int]:
    """The whole batches of `data` but for those of aborted transactions, and how long they were with them."""
    scan = scan_batches(data, verify_crc=False)
    headers = scan.headers
    is_aborted = np.zeros(len(headers), dtype=bool)
    is_transactional = (headers["attributes"] & 0x10 != 0) & (headers["magic"] == 2)
    for one in aborted:
        is_aborted |= (
            is_transactional
            & (headers["producer_id"] == one.producer_id)
            & (headers["base_offset"] >= one.first_offset)
            & (headers["last_offset"] < one.last_offset)
        )
    if not is_aborted.any():
        return data[: scan.consumed] if scan.error is None else data, scan.consumed
    view = memoryview(data)
    kept = [
        view[at : at + size]
        for at, size, gone in zip(
            headers["position"].tolist(), headers["size_in_bytes"].tolist(), is_aborted.tolist(), strict=True
        )
        if not gone
    ]
    return b"".join(kept), scan.consumed
