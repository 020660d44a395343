"""One segment, read from its first byte to its last: batches, their records, and what the files beside it say of them.

Damage does not end the check: it goes on at the next batch whose checksum is right, as `logcore dump --salvage` does.
What a check learns of a segment that the next one needs (where offsets are, which transactions are open) is in `Sofar`.

Memory: a chunk of the log and its largest batch, the entries of the indexes, and a few words for each abort marker.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from logcore._batch import find_batch, first_batch_size
from logcore._decode import decode_columns
from logcore._record import decode_batches
from logcore._segment import BatchFile
from logcore.errors import CorruptBatch, CorruptIndex, CorruptionReason

from .appending import Headers
from .disk import Disk, DiskFile
from .epochs import LeaderEpochCache
from .feeding import CONTROL, TRANSACTIONAL
from .finding import SHOWN_MAX, Finding, damage, note, of_error
from .names import EPOCH_CHECKPOINT, INDEX, LOG, TIME_INDEX, file_name
from .segment import OFFSET_SPAN_MAX
from .txnindex import ENTRY_BYTES, AbortedTransaction, TransactionIndex
from .verify_index import Numbers, OffsetIndexCheck, TimeIndexCheck

CHUNK_BYTES = 4 << 20
SEARCH_BYTES = 8 << 20  # of one look for a good batch behind a bad one; half of it is the longest that is surely found
FINDINGS_MAX = 1000  # of a segment, that are told one by one
ATTEMPTS_MAX = 3  # at a segment that changes while it is read
_SIZE_UP_TO_MAGIC = 17

Progress = Callable[[int], None]  # told how many bytes more were read


@dataclass
class Sofar:
    """What the segments before have told."""

    next_offset: int = 0  # offsets must not be below it
    last_epoch: int = -1
    record_count: int = 0
    open: dict[int, int] = field(default_factory=dict)  # producer id -> first batch of its open transaction

    def copy(self) -> "Sofar":
        """For a check that may have to be done again."""
        return Sofar(self.next_offset, self.last_epoch, self.record_count, dict(self.open))


@dataclass(frozen=True)
class Marker:
    """The end of a transaction, as the log has it."""

    producer_id: int
    is_abort: bool | None  # None: the record was compacted away
    first_offset: int | None  # of the first batch that the log has of the transaction; None: it has none
    stable_offset_max: int  # the last stable offset cannot have been behind this


@dataclass(frozen=True)
class Surroundings:
    """What a segment's check has to know of its log."""

    log_start_offset: int
    recovery_point: int
    is_clean: bool  # the log was closed: nothing may be unfinished
    epochs: LeaderEpochCache | None  # None: its file cannot be read
    is_last: bool


class SegmentCheck:
    """The check of one segment."""

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, around: Surroundings, sofar: Sofar, progress: Progress
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.path = self._path(LOG)
        self.around = around
        self.sofar = sofar
        self.bad_position: int | None = None  # of the first batch that is not good
        self.bad_offset = 0  # what a batch there would have had at least
        self.size = 0
        self._progress = progress
        self._markers: dict[int, Marker] = {}  # by offset
        self._wrong_epochs = 0
        # What a crash can have left unfinished: recovery reads the segment, and makes its indexes again.
        self._is_unfinished = not around.is_clean and around.is_last

    def _path(self, kind: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, kind)}"

    def run(self) -> Iterator[Finding]:
        """Everything there is to find."""
        # The indexes first: beside a writer, the log then has all that they point to.
        status = self.disk.status(self.path)
        size = 0 if status is None else status.size
        self._offsets = OffsetIndexCheck(
            self.disk, self._path(INDEX), self.base_offset, size, may_have_zeros=self._is_unfinished
        )
        self._times = TimeIndexCheck(
            self.disk, self._path(TIME_INDEX), self.base_offset, size, may_have_zeros=self._is_unfinished
        )
        file = self.disk.open(self.path)
        try:
            self.size = file.size
            yield from self._check_batches(file)
            is_whole = self.bad_position is None
            for kind, index in ((INDEX, self._offsets.file), (TIME_INDEX, self._times.file)):
                if not index.exists and self.size:
                    yield self._missing(kind)
            yield from self._offsets.finish(self.size)
            yield from self._times.finish(
                self.sofar.next_offset if is_whole else 1 << 63, is_complete=is_whole and not self._is_unfinished
            )
            yield from self._check_transactions(file)
        finally:
            file.close()

    def _missing(self, kind: str) -> Finding:
        text = f"no {kind} file, which is made again from the log when it is opened"
        if self._is_unfinished:
            return note(self._path(kind), "missing", text)
        return damage(self._path(kind), CorruptionReason.TRUNCATED, text)

    # --- batches ----------------------------------------------------------------------------------------------------

    def _check_batches(self, file: DiskFile) -> Iterator[Finding]:
        log = BatchFile(file)
        position, is_behind_damage = 0, False
        while position < self.size:
            data, scan = log.chunk(position, self.size, CHUNK_BYTES)
            if len(scan):
                yield from self._check_chunk(data[: scan.consumed], scan.headers, position, is_behind_damage)
                self._progress(scan.consumed)
                position += scan.consumed
                is_behind_damage = False
                if scan.error is None:
                    continue
                scan.error.position = position
            following = self._next_good(file, position)
            if self.bad_position is None:
                self.bad_position, self.bad_offset = position, max(self.sofar.next_offset, self.base_offset)
            yield self._bad(file, position, following, scan.error)
            self._progress(following - position)
            position, is_behind_damage = following, True

    def _next_good(self, file: DiskFile, position: int) -> int:
        """Where the next good batch begins behind the bad one at `position`; the end of the file if there is none."""
        # Most often the inside is bad and the size is right. The inside may hold batches, as somebody's values.
        head = file.read(position, _SIZE_UP_TO_MAGIC)
        try:
            size = first_batch_size(head) if len(head) == _SIZE_UP_TO_MAGIC else None
        except CorruptBatch:
            size = None
        if size is not None:
            end = position + size
            if end == self.size or (end < self.size and len(BatchFile(file).chunk(end, self.size, CHUNK_BYTES)[1])):
                return end
        position += 1
        while position < self.size:
            window = file.read(position, min(SEARCH_BYTES, self.size - position))
            found = find_batch(window)
            if found is not None:
                return position + found
            if len(window) < SEARCH_BYTES:
                break
            position += SEARCH_BYTES // 2
        return self.size

    def _bad(self, file: DiskFile, position: int, following: int, error: CorruptBatch | None) -> Finding:
        """What the bytes between two good batches are, or those behind the last."""
        count = following - position
        is_end = following == self.size
        if is_end and self._is_unfinished and self.sofar.next_offset >= self.around.recovery_point:
            if self._is_zero(file, position):
                text = f"{count} zero bytes, as in a file that was allocated ahead; opening the log cuts them off"
                return note(self.path, "preallocated", text, position, self.sofar.next_offset)
            text = f"{count} bytes of an append that was not finished; opening the log cuts them off"
            return note(self.path, "torn", text, position, self.sofar.next_offset)
        where = "to the end of the file" if is_end else f"to the next good batch, at {following}"
        if error is None:
            text = f"size got {count} bytes {where}, wanted a whole batch"
            return damage(self.path, CorruptionReason.TRUNCATED, text, position, self.sofar.next_offset)
        found = of_error(error, self.path)
        return found._replace(
            position=position, offset=self.sofar.next_offset, text=f"{found.text}; {count} bytes {where}"
        )

    def _is_zero(self, file: DiskFile, position: int) -> bool:
        while position < self.size:
            part = file.read(position, min(CHUNK_BYTES, self.size - position))
            if not part or part.strip(b"\0"):
                return False
            position += len(part)
        return True

    def _check_chunk(self, data: bytes, headers: Headers, position: int, is_behind_damage: bool) -> Iterator[Finding]:
        lasts = headers["last_offset"].astype(np.int64)
        # Messages of magic 0 and 1 tell their last offset only.
        firsts = np.where(headers["magic"] < 2, lasts, headers["base_offset"]).astype(np.int64)
        first_wanted = max(self.sofar.next_offset, self.base_offset)
        wanted = np.maximum.accumulate(np.concatenate(([first_wanted], lasts[:-1] + 1)))
        is_bad = (firsts < wanted) | (lasts < firsts)
        for index in np.flatnonzero(is_bad).tolist()[:SHOWN_MAX]:
            yield self._damage(
                CorruptionReason.OFFSET_ORDER, headers, index, position,
                f"offsets got {firsts[index]} to {lasts[index]}, wanted {wanted[index]} or more",
            )  # fmt: skip
        if is_bad.any() and self.bad_position is None:
            index = int(np.flatnonzero(is_bad)[0])
            self.bad_position, self.bad_offset = position + int(headers[index]["position"]), int(wanted[index])
        if int(lasts.max()) - self.base_offset > OFFSET_SPAN_MAX:
            index = int(np.argmax(lasts - self.base_offset > OFFSET_SPAN_MAX))
            yield note(
                self.path, "offset_span", f"offset {lasts[index]} is too far from the segment's first for its index; "
                "recovery splits the segment", position + int(headers[index]["position"]), int(lasts[index]),
            )  # fmt: skip
        yield from self._check_records(data, headers, position)
        yield from self._check_epochs(headers, firsts, position)
        self._offsets.add(headers, position, position + len(data))
        if not is_bad.any():
            self._times.add(headers, firsts, is_behind_damage=is_behind_damage)
        self._note_transactions(data, headers)
        self.sofar.next_offset = max(first_wanted, int(lasts.max()) + 1)

    def _damage(self, reason: CorruptionReason, headers: Headers, index: int, position: int, text: str) -> Finding:
        header = headers[index]
        return damage(self.path, reason, text, position + int(header["position"]), int(header["base_offset"]))

    def _check_records(self, data: bytes, headers: Headers, position: int) -> Iterator[Finding]:
        """Every record is read. Only where that fails, batch by batch."""
        try:
            made = decode_columns(data, columns=["offset"], verify_crc=False, base_position=position)
            self.sofar.record_count += len(made)
            if not (headers["attributes"] & CONTROL).any():
                return
        except CorruptBatch:
            pass
        for batch in decode_batches(data, verify_crc=False, base_position=position):
            try:
                if batch.is_control:
                    batch.control_records()
                for _ in batch:
                    pass
            except CorruptBatch as error:
                yield of_error(error, self.path)

    def _check_epochs(self, headers: Headers, firsts: Numbers, position: int) -> Iterator[Finding]:
        """The leader epochs of batches do not go back, and are those of the checkpoint."""
        epochs = self.around.epochs
        known = headers["leader_epoch"].astype(np.int64)
        known[headers["magic"] < 2] = -1
        changes = (0, *(np.flatnonzero(known[1:] != known[:-1]) + 1).tolist())
        for index in changes:
            epoch, start = int(known[index]), self.around.log_start_offset
            if epoch < 0 or int(headers[index]["last_offset"]) < start:
                continue
            offset, wrong = max(int(firsts[index]), start), None
            if epoch < self.sofar.last_epoch:
                text = f"leader epoch got {epoch}, wanted {self.sofar.last_epoch} or more, as before it"
                wrong = self._damage(CorruptionReason.ENTRY_ORDER, headers, index, position, text)
            elif epochs is not None and (found := epochs.epoch_for_offset(offset)) != epoch:
                text = f"leader epoch of offset {offset} got {found}, wanted {epoch}, as the log has it"
                wrong = damage(
                    f"{self.directory}/{EPOCH_CHECKPOINT}", CorruptionReason.ENTRY_ORDER, text, offset=offset
                )
            self.sofar.last_epoch = max(epoch, self.sofar.last_epoch)
            if wrong is not None:
                self._wrong_epochs += 1
                if self._wrong_epochs <= SHOWN_MAX:
                    yield wrong

    # --- transactions -----------------------------------------------------------------------------------------------

    def _note_transactions(self, data: bytes, headers: Headers) -> None:
        attributes = headers["attributes"]
        found = np.flatnonzero((attributes & TRANSACTIONAL != 0) & (headers["producer_id"] >= 0)).tolist()
        opened = self.sofar.open
        for index in found:
            header = headers[index]
            producer_id, last_offset = int(header["producer_id"]), int(header["last_offset"])
            if not int(header["attributes"]) & CONTROL:
                opened.setdefault(producer_id, int(header["base_offset"]))
                continue
            at = int(header["position"])
            is_abort = _is_abort(data[at : at + int(header["size_in_bytes"])])
            first = opened.pop(producer_id, None)
            if is_abort is not False:
                stable = min(opened.values(), default=last_offset + 1)
                self._markers[last_offset] = Marker(producer_id, is_abort, first, stable)

    def _check_transactions(self, file: DiskFile) -> Iterator[Finding]:
        """Each aborted transaction that has records has an entry, and each entry a marker."""
        index = TransactionIndex(self.disk, self.directory, self.base_offset, is_writable=False)
        path, known = index.path, set()
        last_offset = self.base_offset - 1
        try:
            for number, entry in enumerate(index):
                position = number * ENTRY_BYTES
                if entry.last_offset <= last_offset:
                    text = f"entry got last offset {entry.last_offset}, wanted more than {last_offset}, as before it"
                    yield damage(path, CorruptionReason.ENTRY_ORDER, text, position)
                last_offset = entry.last_offset
                known.add(entry.last_offset)
                wrong = self._wrong_entry(file, entry)
                if wrong is not None:
                    yield damage(path, CorruptionReason.ENTRY_ORDER, f"entry {wrong}", position, entry.last_offset)
        except CorruptIndex as error:
            yield of_error(error, path)
        finally:
            index.close()
        for offset, marker in self._markers.items():
            if marker.is_abort and marker.first_offset is not None and offset not in known:
                yield damage(
                    path, CorruptionReason.ENTRY_COUNT, f"got no entry for the transaction of producer "
                    f"{marker.producer_id} that the marker at offset {offset} aborts, wanted one",
                    offset=offset,
                )  # fmt: skip

    def _wrong_entry(self, file: DiskFile, entry: AbortedTransaction) -> str | None:
        """What is wrong with an entry, or None."""
        if entry.last_offset >= self.sofar.next_offset and (self._is_unfinished or self.bad_position is not None):
            return None  # beside a writer: of a marker that was written since
        marker = self._markers.get(entry.last_offset)
        if marker is None:
            if self.bad_position is not None:
                return None
            return f"got last offset {entry.last_offset}, wanted that of an abort marker"
        if marker.producer_id != entry.producer_id:
            return f"got producer {entry.producer_id}, wanted {marker.producer_id}, as the marker says"
        first_max = entry.last_offset if marker.first_offset is None else marker.first_offset
        if not 0 <= entry.first_offset <= first_max:
            return f"got first offset {entry.first_offset}, wanted at most {first_max}"
        if marker.first_offset is not None and entry.first_offset != marker.first_offset:
            # A compaction may have removed the batch that it names. Then there is a gap.
            other = self._batch_of(file, entry.first_offset)
            if other is not None:
                return f"got first offset {entry.first_offset}, wanted {marker.first_offset}"
        if not 0 <= entry.last_stable_offset <= marker.stable_offset_max:
            return f"got last stable offset {entry.last_stable_offset}, wanted at most {marker.stable_offset_max}"
        return None

    def _batch_of(self, file: DiskFile, offset: int) -> int | None:
        """Where the batch lies that has `offset`, if this segment has it."""
        try:
            found = BatchFile(file).find(offset, 0, self.size) if offset >= self.base_offset else None
        except CorruptBatch:
            return None
        return found.position if found is not None and found.base_offset <= offset else None


def _is_abort(data: bytes) -> bool | None:
    """Whether a control batch ends a transaction by aborting it. None if it has no record, or one that cannot be read;
    False also if it ends none.
    """
    try:
        for batch in decode_batches(data, verify_crc=False):
            for record in batch.control_records():
                return bool(record.type == "ABORT")
    except CorruptBatch:
        pass
    return None


def check_segment(
    disk: Disk, directory: str, base_offset: int, around: Surroundings, sofar: Sofar, progress: Progress
) -> tuple[SegmentCheck, list[Finding]] | None:
    """Check a segment; None if it is gone. One that a writer replaces or cuts meanwhile is checked again."""
    found: tuple[SegmentCheck, list[Finding]] | None = None
    for _ in range(ATTEMPTS_MAX):
        check = SegmentCheck(disk, directory, base_offset, around, sofar.copy(), progress)
        before = disk.status(check.path)
        if before is None:
            return None
        try:
            findings = _bounded(check)
        except FileNotFoundError:
            continue
        found = check, findings
        after = disk.status(check.path)
        if not findings or (after is not None and after.inode == before.inode and after.size >= check.size):
            break
    return found


def _bounded(check: SegmentCheck) -> list[Finding]:
    findings: list[Finding] = []
    more = 0
    for one in check.run():
        if len(findings) < FINDINGS_MAX:
            findings.append(one)
        else:
            more += 1
    if more:
        text = f"{more} more findings in the files of this segment"
        findings.append(damage(check.path, CorruptionReason.MALFORMED, text))
    return findings
