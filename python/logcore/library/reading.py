"""A log as columns: whole batches a read at a time, decoded without a Python object for each record."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from logcore._batch import first_batch_size, scan_batches
from logcore._columns import Columns, ColumnsStream
from logcore._decode import decode_columns
from logcore.errors import CorruptBatch, CorruptionReason, OffsetOutOfRangeError, StorageError
from logcore.log.partition import PartitionLog
from logcore.log.readonly import ReadOnlyLog
from logcore.log.txnindex import AbortedTransaction
from logcore.log.view import LogView

CHUNK_BYTES = 4 << 20  # of one read, and about what a Columns holds; a batch that is larger comes whole

AnyLog = PartitionLog | ReadOnlyLog


def read_columns(
    log: AnyLog,
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
    view = log.view
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
    if offset >= end_offset:
        return
    left = bytes_max
    segments, bases = view.segments
    for index in range(max(view.segments.floor_index(offset), 0), len(segments)):
        segment = segments[index]
        if bases[index] >= end_offset:
            return
        try:
            position, limit = segment.start_for(offset), view.end_of(index)
        except StorageError as error:
            if not isinstance(error, FileNotFoundError):
                raise
            raise OffsetOutOfRangeError(
                f"read: got offset {offset}, whose segment {segment.path} was deleted meanwhile"
            ) from None
        aborted: list[AbortedTransaction] = []
        if is_committed:
            behind = bases[index + 1] if index + 1 < len(bases) else end_offset
            aborted = view.aborted(max(offset, bases[index]), max(behind, offset))
        wanted = chunk_bytes
        last_offset = bases[index] - 1  # of the batch before
        while position < limit:
            if log.generation != view.generation:
                log.check_cut(view.generation, end_offset)
            data = segment.file.read(position, min(wanted, limit - position))
            try:
                headers = _ordered(data, position, last_offset)
                made, consumed = _decode(data, position, offset, end_offset, empty, aborted)
            except CorruptBatch as error:
                log.check_cut(view.generation, end_offset)
                raise error.at_path(segment.path, 0) from None
            if not consumed:
                size = first_batch_size(data) if len(data) >= 17 else None
                if size is None or size <= len(data) or size > limit - position:
                    log.check_cut(view.generation, end_offset)
                    if size is not None and size <= len(data):
                        return  # the first batch begins at end_offset
                    raise CorruptBatch(
                        "size", reason=CorruptionReason.TRUNCATED, got=f"{limit - position} bytes",
                        wanted="a whole batch" if size is None else size, path=segment.path, position=position,
                    )  # fmt: skip
                wanted = size
                continue
            wanted = chunk_bytes
            position += consumed
            done = int(np.searchsorted(headers["position"] + headers["size_in_bytes"], consumed, side="right"))
            if done:
                last_offset = int(headers[done - 1]["last_offset"])
                offset = max(offset, last_offset + 1)
            if len(made):
                yield made
            if offset >= end_offset:
                return
            if left is not None:
                left -= consumed
                if left <= 0:
                    return


def _ordered(data: bytes, position: int, last_offset: int) -> npt.NDArray[np.void]:
    """The headers of the whole batches, whose offsets go up from `last_offset`; CorruptBatch if they do not.

    Batches outside of what is wanted are skipped by what their headers say, unchecked. So a batch with a damaged offset
    must not pass for one of them.
    """
    headers = scan_batches(data, verify_crc=False).headers
    lasts = headers["last_offset"]
    behind = np.concatenate(([last_offset], lasts[:-1])) if len(lasts) else lasts
    if (lasts <= behind).any():
        scan = scan_batches(data, verify_crc=True)
        if scan.error is not None:
            raise scan.error.at_path("", position)
        first = int(np.argmax(lasts <= behind))
        raise CorruptBatch(
            "offsets", reason=CorruptionReason.OFFSET_ORDER, got=f"up to {lasts[first]}",
            wanted=f"more than {behind[first]}", position=position + int(headers[first]["position"]),
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
