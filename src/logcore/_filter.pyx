"""Batches without the records that compaction drops.

    filter_batches(buffer, offset_map)      what a log's cleaner keeps: the latest record of each key
    filter_batches_by(buffer, …)            what two callables keep

Both are one machine: a decision on the batch, a judgement of each record (a byte: kept or not), and then

    all kept, no new delete horizon    magic 2: the batch as it is, byte for byte
    some kept                          written anew, as magic 2, under the same codec (_rewrite.pyx)
    none kept                          nothing; or, if the batch has to stay, its 61-byte header

The *delete horizon* of a batch is the time from which on its tombstones, or the marker of an emptied transaction, may
go. The first pass that keeps them sets it, in place of the base timestamp; it stays from then on.

Uncompressed v2 batches outside transactions go through run() without the GIL and without an object; others come back
for what needs Python. Memory beside the input: the output, and the plain records of one batch twice. The output is at
most the input, and for each record that is written anew up to 16 bytes more (a horizon makes timestamps longer), for a
message of magic 0 or 1 up to 70.

Kafka: MemoryRecords.filterTo; checkBatchRetention and shouldRetainRecord of Cleaner.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from logcore._arguments cimport check_callable, check_optional, check_range, close_type
from logcore._batch cimport (
    BATCH_HEADER_SIZE, CODEC_MASK, CONTROL, LOG_APPEND_TIME, STEP_BATCH, STEP_END, TRANSACTIONAL, Fields, Header, Step,
    check_count, read_header, read_record, seal, write_header,
)
from logcore._buffer cimport GIL_RELEASE_BYTES, Memory, NewBytes, Source, frozen
from logcore._bytes cimport COPY_SLACK, add64
from logcore._compression cimport compress_span, level_for
from logcore._convert cimport OpenBatch, open_batch
from logcore._fault cimport FAULT_CRC, FAULT_OFFSET_NEGATIVE, FAULT_OFFSET_ORDER, Fault, corrupt_batch, fail
from logcore._legacy cimport Message
from logcore._offsetmap cimport KEYS_AHEAD, OffsetMap, Table, digest_of, find_offset, is_noted, is_plain, is_superseded, is_worth_the_gil
from logcore._payload cimport decompressed_limit
from logcore._record cimport Batch, Record
from logcore._rewrite cimport (
    GROWTH_MAX, Rewrite, begin_rewrite, end_rewrite, has_delete_horizon, put_messages, put_records, write_emptied,
)
from logcore._siphash cimport Digest

from collections.abc import Mapping
from operator import itemgetter

import cython

from logcore.errors import MessageTooLargeError, UsageError, UsageTypeError

cdef enum:
    BATCH_BYTES_MAX = 0x7FFFFFFF

cdef enum Retention:
    DELETE             # goes, and its records are not looked at
    DELETE_EMPTY       # goes if no record is kept
    RETAIN_EMPTY       # stays, as a header if no record is kept

cdef enum Rule:
    KEEP_NONE
    KEEP_ALL
    KEEP_LATEST        # by the offset map

cdef dict RETENTIONS = {"delete": DELETE, "delete_empty": DELETE_EMPTY, "retain_empty": RETAIN_EMPTY}


# ---------------------------------------------------------------------------------------------------------- judging

cdef struct Waiting:
    Digest digest
    int64_t offset
    int64_t index              # of the record in its batch
    bint has_value


# What is known of the records of one batch.
cdef struct Judged:
    Rule rule
    const Table* table
    int64_t latest_offset      # what lies behind it is kept
    bint retain_deletes        # whether tombstones are kept
    uint8_t* kept              # a byte a record
    int64_t read
    int64_t kept_count
    int64_t invalid_count      # records without key, which are dropped
    int64_t max_offset         # of what is kept; -1: none
    bint has_tombstones        # among what is kept
    int held
    Waiting waiting[KEYS_AHEAD]


cdef inline void keep(Judged* judged, int64_t index, int64_t offset, bint has_value) noexcept nogil:
    judged.kept[index] = 1
    judged.kept_count += 1
    if offset > judged.max_offset:
        judged.max_offset = offset
    if not has_value:
        judged.has_tombstones = True


cdef void judge_waiting(Judged* judged) noexcept nogil:
    """Look up the keys that were hashed."""
    cdef int index
    cdef Waiting* waiting
    for index in range(judged.held):
        waiting = &judged.waiting[index]
        if waiting.offset >= find_offset(judged.table, waiting.digest):
            keep(judged, waiting.index, waiting.offset, waiting.has_value)
    judged.held = 0


cdef inline void judge(
    Judged* judged, int64_t index, int64_t offset, const uint8_t* key, int64_t key_size, bint has_value,
) noexcept nogil:
    """Decide on a record, now or when the memory of its slot has come."""
    cdef Waiting* waiting
    judged.kept[index] = 0
    if judged.rule != KEEP_LATEST or offset > judged.latest_offset:
        if judged.rule != KEEP_NONE:
            keep(judged, index, offset, has_value)
    elif key_size < 0:
        judged.invalid_count += 1
    elif not has_value and not judged.retain_deletes:
        return
    elif is_noted(judged.table, offset):
        if not is_superseded(judged.table, offset):
            keep(judged, index, offset, has_value)
    else:
        waiting = &judged.waiting[judged.held]
        waiting.digest = digest_of(judged.table, key, key_size)
        waiting.offset = offset
        waiting.index = index
        waiting.has_value = has_value
        judged.held += 1
        if judged.held == KEYS_AHEAD:
            judge_waiting(judged)


cdef const uint8_t* judge_records(
    Judged* judged, const uint8_t* pos, const uint8_t* end, const Header* header,
) noexcept nogil:
    """Judge the records of a v2 batch; returns where it stopped, at `end` unless they are damaged."""
    cdef Fields record
    cdef const uint8_t* after
    cdef int64_t index = 0, count = header.count, base_offset = header.base_offset
    while index < count:
        after = read_record(pos, end, &record)
        if after == NULL:
            break
        judge(judged, index, add64(base_offset, record.offset_delta), record.key, record.key_size, record.value_size >= 0)
        pos = after
        index += 1
    judge_waiting(judged)
    judged.read = index
    return pos


cdef void judge_messages(Judged* judged, const Message* messages, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        judge(judged, index, messages[index].offset, messages[index].key, messages[index].key_size,
              messages[index].value_size >= 0)
    judge_waiting(judged)
    judged.read = count


# -------------------------------------------------------------------------------------------------------- producers

cdef struct LastRecord:
    int64_t producer_id
    int64_t last_data_offset   # -1: none
    int16_t producer_epoch


@cython.final
cdef class LastRecords:
    """LastRecords(last_records)\n--\n
    Of each active producer its last record, in a form that is looked up without the GIL.

    last_records: producer id -> (last_data_offset or None, producer_epoch)

    A batch that ends at the last data offset of its producer has the producer's last sequence. Where only a marker is
    left of a producer, there is no such offset, and the marker has its epoch. Without the one or the other, a producer
    that goes on would be taken for one that lost records, or a fenced one for one that may write.
    """
    cdef Memory memory
    cdef Py_ssize_t count

    def __cinit__(self, last_records):
        cdef LastRecord* one
        cdef list rows
        if not isinstance(last_records, Mapping):
            raise UsageTypeError("last_records", got=type(last_records).__name__, wanted="a mapping of producer ids")
        rows = [(check_range("producer id", producer_id, 0, 0x7FFFFFFFFFFFFFFF), row)
                for producer_id, row in last_records.items()]
        rows.sort(key=itemgetter(0))
        self.memory = Memory.new(<Py_ssize_t>sizeof(LastRecord) * len(rows))
        for producer_id, row in rows:
            if not isinstance(row, tuple) or len(row) != 2:
                raise UsageTypeError("last record", where=f"producer {producer_id}", got=type(row).__name__,
                                     wanted="a tuple of last_data_offset and producer_epoch")
            one = &(<LastRecord*>self.memory.data)[self.count]
            one.producer_id = producer_id
            last_data_offset = check_optional("last_data_offset", row[0], 0, 0x7FFFFFFFFFFFFFFF)
            one.last_data_offset = -1 if last_data_offset is None else last_data_offset
            one.producer_epoch = check_range("producer_epoch", row[1], -1, 0x7FFF)
            self.count += 1

    def __len__(self):
        return self.count

    cdef bint has_last(self, const Header* header) noexcept nogil:
        """Whether the batch is what has to stay of its producer."""
        cdef const LastRecord* rows = <const LastRecord*>self.memory.data
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = low + (high - low) // 2
            if rows[middle].producer_id < header.producer_id:
                low = middle + 1
            else:
                high = middle
        if low == self.count or rows[low].producer_id != header.producer_id:
            return False
        if rows[low].last_data_offset >= 0:
            return header.last_offset == rows[low].last_data_offset
        return header.attributes & CONTROL != 0 and header.producer_epoch == rows[low].producer_epoch


# ------------------------------------------------------------------------------------------------------------ a run

cdef enum Pause:
    PAUSE_END          # no whole batch is left, or the output is as large as it may get
    PAUSE_FAULT        # damage, described in the fault
    PAUSE_RECORDS      # damage in the records
    PAUSE_BATCH        # a batch that needs Python, or more room

cdef enum Fate:
    FATE_NONE          # nothing of the batch stays
    FATE_COPY          # it stays as it is
    FATE_HEADER        # only its header stays
    FATE_REWRITE       # it is written anew


@cython.final
cdef class Filtering:
    """One run of filter_batches() or filter_batches_by()."""
    cdef Source source
    cdef NewBytes out
    cdef Memory kept                 # a byte a record of a batch
    cdef Memory scratch              # records of a batch that is to be compressed
    cdef Py_ssize_t position, output_bytes_max
    cdef int64_t bytes_max, shift
    cdef Header header               # of the batch at `position`
    cdef Judged judged
    cdef Fault fault
    cdef const uint8_t* stopped      # where its records are damaged

    # What Kafka's RecordFilter is told.
    cdef int64_t now_ms, delete_retention_ms
    cdef object check_batch_retention, should_retain_record       # None: by the offset map, with what follows
    cdef OffsetMap offset_map
    cdef object should_discard_batch
    cdef LastRecords last_records    # None: no active producer
    cdef bint retain_legacy_deletes, has_upper_bound
    cdef int64_t upper_bound_offset

    # The decision on the batch.
    cdef Retention retention
    cdef bint contains_marker_for_empty_txn

    # The result.
    cdef int64_t messages_read, messages_retained, invalid_messages_read
    cdef int64_t max_offset, max_timestamp, shallow_offset_of_max_timestamp

    # ------------------------------------------------------------------------------------------- without the GIL

    cdef Pause run(self) noexcept nogil:
        """Filter by the map the uncompressed v2 batches outside transactions, until something needs Python."""
        cdef const uint8_t* start = self.source.data
        cdef const uint8_t* end = start + self.source.size
        cdef Header* header = &self.header
        cdef Step step
        while self.out.used <= self.output_bytes_max:
            step = read_header(start, start + self.position, end, BATCH_BYTES_MAX, True, header, &self.fault)
            if step != STEP_BATCH:
                return PAUSE_END if step == STEP_END else PAUSE_FAULT
            if self.offset_map is None or not is_plain(header):
                return PAUSE_BATCH
            if check_count(header, header.size_in_bytes - BATCH_HEADER_SIZE, &self.fault):
                return PAUSE_FAULT
            if header.count > self.kept.capacity:
                return PAUSE_BATCH
            self.decide(False)
            if not self.judge_plain(start + self.position + BATCH_HEADER_SIZE,
                                    start + self.position + header.size_in_bytes):
                return PAUSE_RECORDS
            if self.room_needed(header.size_in_bytes) > min(self.out.capacity - self.out.used, <Py_ssize_t>BATCH_BYTES_MAX):
                return PAUSE_BATCH
            if not self.write_plain():
                return PAUSE_FAULT
        return PAUSE_END

    cdef void decide(self, bint can_discard) noexcept nogil:
        """Decide on the batch, by the map. Kafka: checkBatchRetention of Cleaner.

        can_discard: whether its transaction was aborted or, of a marker, whether nothing of its transaction is left
        """
        cdef Header* header = &self.header
        cdef bint is_control = header.magic == 2 and header.attributes & CONTROL != 0
        cdef bint has_horizon = has_delete_horizon(header)
        cdef bint discard = can_discard and (not is_control or (has_horizon and header.base_timestamp <= self.now_ms))
        if self.has_upper_bound and add64(header.last_offset, 1) == self.upper_bound_offset:
            self.retention = RETAIN_EMPTY
        elif self.last_records is not None and self.last_records.has_last(header):
            self.retention = RETAIN_EMPTY
        else:
            self.retention = DELETE if discard else DELETE_EMPTY
        self.contains_marker_for_empty_txn = can_discard and is_control
        self.judged.rule = KEEP_NONE if discard else KEEP_ALL if is_control else KEEP_LATEST
        self.judged.retain_deletes = (
            not has_horizon or self.now_ms < header.base_timestamp if header.magic == 2 else self.retain_legacy_deletes)

    cdef void begin_judging(self) noexcept nogil:
        self.judged.kept = self.kept.data
        self.judged.read = self.judged.kept_count = self.judged.invalid_count = 0
        self.judged.max_offset = -1
        self.judged.has_tombstones = False
        self.judged.held = 0

    cdef bint judge_plain(self, const uint8_t* begin, const uint8_t* end) noexcept nogil:
        """Judge the records of a v2 batch that lie there; False if they are damaged."""
        self.begin_judging()
        if not self.header.count:      # a count of 0 means: do not look
            return True
        self.stopped = judge_records(&self.judged, begin, end, &self.header)
        return self.stopped == end and self.judged.read == self.header.count

    cdef bint needs_horizon(self) noexcept nogil:
        """Whether the batch has to be told from when on its tombstones, or its marker, may go."""
        return (self.judged.has_tombstones or self.contains_marker_for_empty_txn) and (
            not has_delete_horizon(&self.header))

    cdef Fate fate(self) noexcept nogil:
        """What becomes of the batch, now that its records are judged."""
        if not self.judged.kept_count:
            return FATE_HEADER if self.retention == RETAIN_EMPTY else FATE_NONE
        if self.header.magic < 2 or self.judged.kept_count != self.judged.read or self.needs_horizon():
            return FATE_REWRITE
        return FATE_COPY

    cdef Py_ssize_t room_needed(self, Py_ssize_t plain_bytes) noexcept nogil:
        """The most that what becomes of the batch takes, before compression."""
        cdef Fate fate = self.fate()
        if fate == FATE_NONE:
            return 0
        if fate == FATE_COPY:
            return self.header.size_in_bytes
        return BATCH_HEADER_SIZE + COPY_SLACK + (
            plain_bytes + GROWTH_MAX * self.judged.kept_count if fate == FATE_REWRITE else 0)

    cdef bint write_plain(self) noexcept nogil:
        """Write what becomes of an uncompressed v2 batch, for which there is room; False if it cannot be."""
        cdef const uint8_t* batch = self.source.data + self.position
        cdef Rewrite made
        cdef Fate fate = self.fate()
        if fate == FATE_REWRITE:
            self.begin_rewrite(&made, self.out.data + self.out.used + BATCH_HEADER_SIZE)
            return self.is_in_order(&made, put_records(
                &made, batch + BATCH_HEADER_SIZE, batch + self.header.size_in_bytes, &self.header, self.judged.kept,
            )) and self.finish_rewrite(&made, made.out - (self.out.data + self.out.used))
        return self.write_whole(fate)

    cdef bint write_whole(self, Fate fate) noexcept nogil:
        """Write what becomes of a batch of which all stays, or nothing, or the header."""
        cdef uint8_t* out = self.out.data + self.out.used
        if fate == FATE_NONE:
            self.count_batch()
            return True
        if not self.note_retained(self.header.max_timestamp, self.header.last_offset, self.header.last_offset):
            return False
        if fate == FATE_COPY:
            memcpy(out, self.source.data + self.position, <size_t>self.header.size_in_bytes)
            self.out.used += self.header.size_in_bytes
        else:
            write_emptied(out, &self.header)
            self.out.used += BATCH_HEADER_SIZE
        self.count_batch()
        return True

    cdef void begin_rewrite(self, Rewrite* made, uint8_t* out) noexcept nogil:
        cdef int64_t horizon = -1
        if self.needs_horizon():
            horizon = add64(self.now_ms, self.delete_retention_ms)
        elif has_delete_horizon(&self.header):
            horizon = self.header.base_timestamp
        begin_rewrite(made, &self.header, horizon, self.judged.kept_count, out)

    cdef bint is_in_order(self, const Rewrite* made, Py_ssize_t refused) noexcept nogil:
        if refused < 0:
            return True
        fail(&self.fault, FAULT_OFFSET_ORDER, -1, made.refused_offset, made.last_offset)
        self.fault.record_index = refused
        return False

    cdef bint finish_rewrite(self, Rewrite* made, Py_ssize_t size) noexcept nogil:
        """Write the header of the batch of `size` bytes whose records lie behind it in the output."""
        cdef Header* header = &made.header
        cdef uint8_t* out = self.out.data + self.out.used
        end_rewrite(made, &self.header)
        if not self.note_retained(
            header.max_timestamp,
            -1 if header.max_timestamp == -1 and not header.attributes & LOG_APPEND_TIME else header.last_offset,
            self.judged.max_offset,
        ):
            return False
        header.size_in_bytes = <int32_t>size
        write_header(out, header)
        seal(out, header.size_in_bytes)
        self.out.used += size
        self.count_batch()
        return True

    cdef bint note_retained(self, int64_t max_timestamp, int64_t shallow_offset, int64_t max_offset) noexcept nogil:
        if max_offset < 0 or (max_timestamp != -1 and shallow_offset < 0):
            fail(&self.fault, FAULT_OFFSET_NEGATIVE, -1, min(max_offset, shallow_offset), 0)
            return False
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.shallow_offset_of_max_timestamp = shallow_offset
        self.max_offset = max(self.max_offset, max_offset)
        return True

    cdef void count_batch(self) noexcept nogil:
        """Count the batch, of which all is written that will be, and go past it."""
        self.messages_read += self.judged.read
        self.messages_retained += self.judged.kept_count
        self.invalid_messages_read += self.judged.invalid_count
        self.position += self.header.size_in_bytes

    # ---------------------------------------------------------------------------------------------- with the GIL

    cdef int filter_batch(self) except -1:
        """Any batch, with what needs Python: callables, decompression, messages of magic 0 and 1, memory."""
        cdef Header* header = &self.header
        cdef OpenBatch opened = None
        cdef Batch batch = None
        cdef bint is_good = True
        if self.offset_map is None:
            batch = Batch.new(self.source, header, self.bytes_max, self.shift)
            self.ask_retention(batch)
        else:
            self.decide(self.ask_discard())
        self.begin_judging()
        if self.retention == DELETE:
            self.count_batch()
            return 0
        if header.magic < 2 or header.count:
            opened = open_batch(self.source, header, self.bytes_max, self.shift)
            self.kept.reserve(opened.count())
            if batch is not None:
                self.ask_records(batch)
            elif opened.plain_bytes() < GIL_RELEASE_BYTES:
                is_good = self.judge_opened(opened)
            else:
                with nogil:
                    is_good = self.judge_opened(opened)
            if not is_good:
                raise opened.refusal(self.stopped, self.judged.read)
        self.write_opened(opened)
        return 0

    cdef bint ask_discard(self) except -1:
        if self.header.magic < 2 or not self.header.attributes & (TRANSACTIONAL | CONTROL):
            return False
        return self.should_discard_batch is not None and bool(self.should_discard_batch(
            Batch.new(self.source, &self.header, self.bytes_max, self.shift)))

    cdef int ask_retention(self, Batch batch) except -1:
        answer = self.check_batch_retention(batch)
        retention, contains_marker = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, False)
        if not isinstance(retention, str) or retention not in RETENTIONS:
            raise UsageError("check_batch_retention", where=f"batch at position {batch.position}",
                             got=repr(retention) if isinstance(retention, str) else type(retention).__name__,
                             wanted='"delete", "delete_empty" or "retain_empty", or a tuple of it and a bool')
        self.retention = RETENTIONS[retention]
        self.contains_marker_for_empty_txn = contains_marker
        return 0

    cdef int ask_records(self, Batch batch) except -1:
        """Judge the records by the caller's callable."""
        cdef Py_ssize_t index = 0
        cdef Record record
        self.begin_judging()
        for record in batch:
            self.kept.data[index] = 0
            if self.should_retain_record(batch, record):
                keep(&self.judged, index, record.offset, record.value is not None)
            index += 1
        self.judged.read = index
        return 0

    cdef bint judge_opened(self, OpenBatch opened) noexcept nogil:
        """Judge the records; False if they are damaged."""
        if opened.messages is None:
            return self.judge_plain(opened.plain.data + opened.begin, opened.plain.data + opened.end)
        self.begin_judging()
        judge_messages(&self.judged, opened.messages.messages, opened.messages.count)
        return True

    cdef bint put_opened(self, Rewrite* made, OpenBatch opened, uint8_t* out) noexcept nogil:
        """Write the kept records at `out`; False if their offsets do not fit together."""
        self.begin_rewrite(made, out)
        if opened.messages is None:
            return self.is_in_order(made, put_records(
                made, opened.plain.data + opened.begin, opened.plain.data + opened.end, &self.header, self.judged.kept))
        return self.is_in_order(made, put_messages(
            made, opened.messages.messages, opened.messages.count, self.judged.kept))

    cdef int write_opened(self, OpenBatch opened) except -1:
        """Write what becomes of a batch whose records are judged; `opened` is None if it has none."""
        cdef Header* header = &self.header
        cdef Fate fate = self.fate()
        if fate == FATE_REWRITE:
            return self.rewrite_opened(opened)
        if fate == FATE_HEADER and header.magic < 2:
            raise UsageError("batch that must stay", where=f"batch at position {header.position + self.shift}",
                             got=f"none of its records kept, in magic {header.magic}", wanted="magic 2")
        self.out.reserve(self.room_needed(0))
        if not self.write_whole(fate):
            raise self.refusal(PAUSE_FAULT)
        return 0

    cdef int rewrite_opened(self, OpenBatch opened) except -1:
        cdef Header* header = &self.header
        cdef int codec = header.attributes & CODEC_MASK
        cdef Py_ssize_t size = opened.plain_bytes(), needed = self.room_needed(size)
        cdef Rewrite made
        cdef uint8_t* begin
        cdef bytes packed
        cdef bint is_written
        if codec:
            self.scratch.reserve(needed)
            begin = self.scratch.data
        else:
            begin = self.out.reserve(needed) + BATCH_HEADER_SIZE
        if size < GIL_RELEASE_BYTES:
            is_written = self.put_opened(&made, opened, begin)
        else:
            with nogil:
                is_written = self.put_opened(&made, opened, begin)
        if is_written:
            size = made.out - begin
            if codec:
                packed = compress_span(codec, begin, size, level_for(codec, None), 2)
                size = len(packed)
                memcpy(self.out.reserve(BATCH_HEADER_SIZE + size) + BATCH_HEADER_SIZE, <const char*>packed, <size_t>size)
            if size > BATCH_BYTES_MAX - BATCH_HEADER_SIZE:
                raise MessageTooLargeError(f"batch at position {header.position + self.shift}: size got {size}, "
                                           f"wanted at most {BATCH_BYTES_MAX - BATCH_HEADER_SIZE} and a header")
            is_written = self.finish_rewrite(&made, BATCH_HEADER_SIZE + size)
        if not is_written:
            raise self.refusal(PAUSE_FAULT)
        return 0

    cdef object refusal(self, Pause pause):
        """The exception for what was met. A batch whose header or checksum is wrong has no offset to speak of."""
        if pause == PAUSE_RECORDS:
            return open_batch(self.source, &self.header, self.bytes_max, self.shift).refusal(
                self.stopped, self.judged.read)
        return corrupt_batch(&self.fault, self.position + self.shift,
                             None if self.fault.kind <= FAULT_CRC else self.header.base_offset)

    cdef object finish(self):
        """Filter all that there is."""
        cdef Pause pause
        self.out = NewBytes.new(min(self.source.size, self.output_bytes_max) + BATCH_HEADER_SIZE + COPY_SLACK)
        self.kept = Memory.new(4096)
        self.scratch = Memory.new(0)
        self.max_offset = self.max_timestamp = self.shallow_offset_of_max_timestamp = -1
        while True:
            if self.offset_map is not None and is_worth_the_gil(self.source, self.position):
                with nogil:
                    pause = self.run()
            else:
                pause = self.run()
            if pause == PAUSE_END:
                break
            if pause != PAUSE_BATCH:
                raise self.refusal(pause)
            self.filter_batch()
        return FilterResult(self.out.finish(), self.position, self.messages_read, self.messages_retained,
                            self.invalid_messages_read, self.max_offset, self.max_timestamp,
                            self.shallow_offset_of_max_timestamp)


close_type(Filtering)


# ------------------------------------------------------------------------------------------------ what Python sees

class FilterResult:
    """What filter_batches() and filter_batches_by() made.

    output: the batches that stay
    consumed: the bytes read; where the next call goes on
    messages_read, messages_retained: records, without those of batches that were deleted unread
    invalid_messages_read: records that were dropped because they have no key
    max_offset: the largest offset in the output, -1 if it is empty. Of a batch that was written anew that of its last
        record, which may be less than its last offset
    max_timestamp, shallow_offset_of_max_timestamp: the largest timestamp, and the last offset of the first batch that
        has it; -1 for none
    """

    __slots__ = ("consumed", "invalid_messages_read", "max_offset", "max_timestamp", "messages_read",
                 "messages_retained", "output", "shallow_offset_of_max_timestamp")

    def __init__(self, output, consumed, messages_read, messages_retained, invalid_messages_read, max_offset,
                 max_timestamp, shallow_offset_of_max_timestamp):
        self.output = output
        self.consumed = consumed
        self.messages_read = messages_read
        self.messages_retained = messages_retained
        self.invalid_messages_read = invalid_messages_read
        self.max_offset = max_offset
        self.max_timestamp = max_timestamp
        self.shallow_offset_of_max_timestamp = shallow_offset_of_max_timestamp

    def __repr__(self):
        return (f"FilterResult({self.messages_retained} of {self.messages_read} records, {len(self.output)} of "
                f"{self.consumed} bytes, max_offset={self.max_offset})")


cdef Filtering filtering_of(buffer, now_ms, delete_retention_ms, output_bytes_max, base_position, max_decompressed_bytes):
    """A run with what both functions are told."""
    cdef Filtering run = Filtering.__new__(Filtering)
    now_ms = check_range("now_ms", now_ms, 0, 0x7FFFFFFFFFFFFFFF)
    delete_retention_ms = check_range("delete_retention_ms", delete_retention_ms, 0, 0x7FFFFFFFFFFFFFFF)
    output_bytes_max = check_optional("output_bytes_max", output_bytes_max, 0, 0x7FFFFFFFFFFFFFFF)
    run.source = frozen(Source(buffer))
    base_position = check_range("base_position", base_position, 0, 0x7FFFFFFFFFFFFFFF - run.source.size)
    run.now_ms = now_ms
    run.delete_retention_ms = delete_retention_ms
    run.output_bytes_max = 0x7FFFFFFFFFFFFFFF if output_bytes_max is None else output_bytes_max
    run.shift = base_position
    run.bytes_max = decompressed_limit(max_decompressed_bytes)
    return run


def filter_batches(
    buffer, OffsetMap offset_map not None, *, now_ms, delete_retention_ms, should_discard_batch=None,
    last_records=None, retain_legacy_deletes=True, upper_bound_offset=None, output_bytes_max=None, base_position=0,
    max_decompressed_bytes=None,
):
    """The batches of `buffer` as a cleaner leaves them: of each key the latest record.

    A record stays if it lies behind the map's latest offset; or if it has a key, no later offset of it is in the map,
    and it has a value. Without a value it is a tombstone, which stays until its batch's delete horizon has come (in
    magic 0 and 1: as `retain_legacy_deletes` says).

    now_ms, delete_retention_ms: tombstones and markers without a delete horizon get their sum for one; those whose
        horizon is at most now_ms go
    should_discard_batch: called with each transactional and each control Batch, in order: whether the transaction of a
        data batch was aborted, or whether a marker has nothing left that needs it (Kafka: CleanedTransactionMetadata).
        Without it none was, and none has
    last_records: what has to stay of each active producer, if only as a header: LastRecords, or what they are made of
    upper_bound_offset: of this round of cleaning; the batch that ends just before it stays too
    output_bytes_max: stop with the batch that makes the output larger, and go on from `.consumed` in the next call
    base_position: where `buffer` begins in what it was read from; added to positions in errors
    max_decompressed_bytes: the most that one batch may decompress to (128 MiB)

    A partial last batch is left. Damage raises CorruptBatch. A batch of magic 0 or 1 cannot stay empty: where one
    would have to, UsageError. Bytes are read where they are, other buffers are copied.

    >>> from logcore import decode_batches, encode_batch
    >>> from logcore._offsetmap import OffsetMap, map_keys
    >>> offset_map = OffsetMap(1 << 20, seed=bytes(16))
    >>> data = encode_batch([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], base_offset=5)
    >>> _ = map_keys(data, offset_map, first_offset=0)
    >>> result = filter_batches(data, offset_map, now_ms=0, delete_retention_ms=86_400_000)
    >>> result
    FilterResult(2 of 3 records, 79 of 88 bytes, max_offset=7)
    >>> [(record.offset, record.value) for batch in decode_batches(result.output) for record in batch]
    [(6, b'2'), (7, b'3')]
    """
    cdef Filtering run = filtering_of(
        buffer, now_ms, delete_retention_ms, output_bytes_max, base_position, max_decompressed_bytes)
    upper_bound_offset = check_optional("upper_bound_offset", upper_bound_offset, 0, 0x7FFFFFFFFFFFFFFF)
    if should_discard_batch is not None:
        check_callable("should_discard_batch", should_discard_batch)
    run.has_upper_bound = upper_bound_offset is not None
    run.upper_bound_offset = upper_bound_offset or 0
    run.offset_map = offset_map
    run.should_discard_batch = should_discard_batch
    if last_records is not None:
        run.last_records = last_records if isinstance(last_records, LastRecords) else LastRecords(last_records)
    run.retain_legacy_deletes = retain_legacy_deletes
    run.judged.table = &offset_map.table
    run.judged.latest_offset = offset_map.latest_offset
    offset_map.begin_reading()
    try:
        return run.finish()
    finally:
        offset_map.end()


def filter_batches_by(
    buffer, check_batch_retention, should_retain_record, *, now_ms=0, delete_retention_ms=0, output_bytes_max=None,
    base_position=0, max_decompressed_bytes=None,
):
    """The batches of `buffer` with the records that the caller wants to keep; Kafka's RecordFilter.

    check_batch_retention: called with each Batch. "delete": it goes, and its records are not looked at; "delete_empty":
        it goes if no record is kept; "retain_empty": it stays, if only as a header. Or a tuple of one of these and
        whether it is the marker of a transaction of which nothing is left, which then gets a delete horizon
    should_retain_record: called with a Batch and each Record of it

    All else as in filter_batches().

    >>> from logcore import decode_batches, encode_batch
    >>> data = encode_batch([(None, b"1"), (b"b", b"2")])
    >>> filter_batches_by(data, lambda batch: "delete_empty", lambda batch, record: record.key is not None)
    FilterResult(1 of 2 records, 70 of 78 bytes, max_offset=1)
    """
    cdef Filtering run = filtering_of(
        buffer, now_ms, delete_retention_ms, output_bytes_max, base_position, max_decompressed_bytes)
    check_callable("check_batch_retention", check_batch_retention)
    check_callable("should_retain_record", should_retain_record)
    run.check_batch_retention = check_batch_retention
    run.should_retain_record = should_retain_record
    return run.finish()
