"""Columns in: Arrow-shaped memory straight into v2 batches, no Python object per record.

_table turns whatever the caller has into rows of plain C. They are written batch after batch into one bytes object: a
batch is closed when the next record would push it over `batch_bytes`. Each batch is sealed while it is still in the
cache. Compressed batches are written to a scratch buffer first. All of it runs without the GIL but for memory,
compression and errors.
"""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from logcore._arguments cimport check_range, close_type
from logcore._batch cimport BATCH_HEADER_SIZE, CONTROL, CONTROL_KEY_SIZE, Header, seal, sequence_after, write_header
from logcore._buffer cimport Memory, NewBytes
from logcore._bytes cimport COPY_SLACK, add64, likely, put_varint, sub64, unlikely, varint_bytes, zigzag
from logcore._compression cimport compress_span
from logcore._options cimport BatchOptions
from logcore._table cimport (
    KIND_BINARY, SIZE_BAD, SIZE_NULL, BytesInput, HeadersInput, Rows, Span, Table, bytes_at, data_bytes, is_valid, tables_of,
)
from logcore._write cimport Measured, measure_record, put_record

import cython

from logcore.errors import MessageTooLargeError, UsageError

cdef enum:
    BATCH_BYTES = 1024 * 1024
    RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5   # every field of a record but key, value and headers
    RECORD_OVERHEAD_GUESS = 16


cdef enum Pause:
    PAUSE_END          # all rows are written
    PAUSE_FULL         # the batch has no room for the next row
    PAUSE_ROOM         # the output has not
    PAUSE_BAD          # a column contradicts itself
    PAUSE_OFFSET       # offsets go back
    PAUSE_TIMESTAMP    # a timestamp below -1
    PAUSE_HEADER_NAME  # a header that is null or has no name
    PAUSE_CONTROL      # a control record whose key is none
    PAUSE_TOO_LARGE    # a record of 2^31 bytes


# A batch while it is written, and where.
cdef struct Open:
    uint8_t* out               # the next byte; the batch's header lies BATCH_HEADER_SIZE before its first record
    uint8_t* out_end           # COPY_SLACK before the end of the memory
    int64_t size               # of the batch so far, header included
    int64_t size_cut           # close it rather than grow beyond
    int64_t count
    int64_t base_offset
    int64_t previous           # offset of the last row written, of this batch or the one before
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t now_ms
    int64_t delete_horizon
    bint is_control


cdef Pause encode_rows(const Rows* rows, int64_t* next_row, Open* batch) noexcept nogil:
    """Write rows from next_row[0] on until something stops it.

    What it writes may alias anything, so everything the loop needs is in locals. Plain binary columns without nulls,
    by far the most common, are read right here; every other kind through bytes_at().
    """
    cdef int64_t row = next_row[0], stop = rows.count
    cdef int64_t timestamp, offset, key_size, value_size, total, headers_size, begin
    cdef int64_t previous = batch.previous, size = batch.size, size_cut = batch.size_cut, written = batch.count
    cdef int64_t base_offset = batch.base_offset
    cdef int64_t base_timestamp = batch.base_timestamp, max_timestamp = batch.max_timestamp
    cdef const int64_t* timestamps = rows.timestamps
    cdef const int64_t* offsets = rows.offsets
    cdef const int32_t* key_ends = plain_ends(&rows.key)
    cdef const int32_t* value_ends = plain_ends(&rows.value)
    cdef const uint8_t* key_data = rows.key.data
    cdef const uint8_t* value_data = rows.value.data
    cdef ptrdiff_t key_bytes = rows.key.data_end - key_data, value_bytes = rows.value.data_end - value_data
    cdef Measured measured
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef Span span
    cdef ptrdiff_t key_room = 0, value_room = 0
    cdef uint8_t* out = batch.out
    cdef uint8_t* out_end = batch.out_end
    cdef bint with_headers = rows.headers.given
    cdef Pause pause = PAUSE_END
    while row < stop:
        timestamp = timestamps[row] if timestamps != NULL else batch.now_ms
        offset = offsets[row] if offsets != NULL else add64(previous, 1)
        if unlikely(written == 0):
            if base_offset < 0:
                base_offset = offset
            base_timestamp = batch.delete_horizon if batch.delete_horizon >= 0 else timestamp
            max_timestamp = -1
        if unlikely(offset <= previous or offset < base_offset):
            pause = PAUSE_OFFSET
            break
        if unlikely(timestamp < -1):
            pause = PAUSE_TIMESTAMP
            break
        if likely(key_ends != NULL):
            begin = key_ends[row]
            key_size = key_ends[row + 1] - begin
            key = key_data + begin
            key_room = key_bytes - begin
            if unlikely(key_size < 0 or begin < 0 or key_size > key_room):
                pause = PAUSE_BAD
                break
        else:
            key_size = bytes_at(&rows.key, row, &span)
            key, key_room = span.data, span.room
        if likely(value_ends != NULL):
            begin = value_ends[row]
            value_size = value_ends[row + 1] - begin
            value = value_data + begin
            value_room = value_bytes - begin
            if unlikely(value_size < 0 or begin < 0 or value_size > value_room):
                pause = PAUSE_BAD
                break
        else:
            value_size = bytes_at(&rows.value, row, &span)
            value, value_room = span.data, span.room
        if unlikely(key_size == SIZE_BAD or value_size == SIZE_BAD):
            pause = PAUSE_BAD
            break
        if unlikely(batch.is_control and (key_size < CONTROL_KEY_SIZE or key[0] & 0x80)):
            pause = PAUSE_CONTROL
            break
        headers_size = 1
        if unlikely(with_headers):
            headers_size = headers_bytes(&rows.headers, row)
            if headers_size < 0:
                pause = PAUSE_HEADER_NAME if headers_size == SIZE_NULL else PAUSE_BAD
                break
        total = measure_record(&measured, sub64(timestamp, base_timestamp), offset - base_offset, key_size, value_size,
                               headers_size)
        if unlikely(size + total > size_cut or offset - base_offset > 0x7FFFFFFF):
            if written:
                pause = PAUSE_FULL
                break
            if offset - base_offset > 0x7FFFFFFF:
                pause = PAUSE_OFFSET
                break
            if total > 0x7FFFFFFF - BATCH_HEADER_SIZE:
                pause = PAUSE_TOO_LARGE
                break
        if unlikely(total > out_end - out):
            pause = PAUSE_ROOM
            break
        out = put_record(out, &measured, key, key_size, key_room, value, value_size, value_room)
        if unlikely(with_headers):
            out = put_headers(out, &rows.headers, row)
        else:
            out[0] = 0
            out += 1
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        size += total
        written += 1
        previous = offset
        row += 1
    next_row[0] = row
    batch.out = out
    batch.previous = previous
    batch.size = size
    batch.count = written
    batch.base_offset = base_offset
    batch.base_timestamp = base_timestamp
    batch.max_timestamp = max_timestamp
    return pause


cdef const int32_t* plain_ends(const BytesInput* column) noexcept nogil:
    """The ends of a binary column without nulls, for its first row on; NULL for any other."""
    if column.kind != KIND_BINARY or column.validity != NULL:
        return NULL
    return column.ends32 + column.first


cdef int header_span(const HeadersInput* headers, int64_t row, int64_t* begin, int64_t* end) noexcept nogil:
    """Which entries are the headers of a row; -1 if the list contradicts itself."""
    row += headers.first
    begin[0] = end[0] = 0
    if headers.validity != NULL and not is_valid(headers.validity, row):
        return 0
    if headers.ends32 != NULL:
        begin[0], end[0] = headers.ends32[row], headers.ends32[row + 1]
    else:
        begin[0], end[0] = headers.ends64[row], headers.ends64[row + 1]
    return 0 if 0 <= begin[0] <= end[0] <= headers.entries else -1


cdef int64_t headers_bytes(const HeadersInput* headers, int64_t row) noexcept nogil:
    """The encoded size of a row's headers, count included; SIZE_NULL for a null header or name, or SIZE_BAD."""
    cdef int64_t begin, end, at, size, total
    cdef Span span
    if header_span(headers, row, &begin, &end):
        return SIZE_BAD
    total = varint_bytes(zigzag(end - begin))
    for at in range(begin, end):
        if not is_valid(headers.entries_validity, headers.entries_first + at):
            return SIZE_NULL
        size = bytes_at(&headers.name, at, &span)
        if size < 0:
            return size
        total += varint_bytes(zigzag(size)) + size
        size = bytes_at(&headers.value, at, &span)
        if size == SIZE_BAD:
            return SIZE_BAD
        total += varint_bytes(zigzag(size)) + max(size, 0)
    return total


cdef uint8_t* put_headers(uint8_t* out, const HeadersInput* headers, int64_t row) noexcept nogil:
    """Write what headers_bytes() has measured."""
    cdef int64_t begin, end, at, size, field
    cdef Span span
    header_span(headers, row, &begin, &end)
    out = put_varint(out, zigzag(end - begin))
    for at in range(begin, end):
        for field in range(2):
            size = bytes_at(&headers.value if field else &headers.name, at, &span)
            out = put_varint(out, zigzag(size))
            if size > 0:
                memcpy(out, span.data, <size_t>size)
                out += size
    return out


@cython.final
cdef class Encoder:
    """One run of encode_columns()."""
    cdef BatchOptions options
    cdef Open batch
    cdef int32_t sequence
    cdef NewBytes out              # the open batch of an uncompressed run lies behind what is used of it
    cdef Memory scratch            # where the records of a compressed batch are collected

    def __cinit__(self, BatchOptions options, Py_ssize_t room, int64_t size_cut):
        self.options = options
        self.out = NewBytes.new(max(room, 4096))
        self.sequence = options.base_sequence
        self.batch.size_cut = size_cut
        self.batch.now_ms = options.now_ms
        self.batch.delete_horizon = options.delete_horizon
        self.batch.is_control = options.attributes & CONTROL
        self.batch.base_offset = options.base_offset
        self.batch.previous = max(options.base_offset, 0) - 1
        if options.codec:
            self.scratch = Memory.new(min(size_cut, <int64_t>room) + 4096)
        self.begin()

    cdef void begin(self) noexcept nogil:
        """Open the next batch at the end of what is written."""
        self.batch.size = BATCH_HEADER_SIZE
        self.batch.count = 0
        self.place()

    cdef void place(self) noexcept nogil:
        """Set the pointers of the open batch after memory has moved."""
        if self.options.codec:
            self.batch.out = self.scratch.data + (self.batch.size - BATCH_HEADER_SIZE)
            self.batch.out_end = self.scratch.data + self.scratch.capacity - COPY_SLACK
        else:
            self.batch.out = self.out.data + self.out.used + self.batch.size
            self.batch.out_end = self.out.data + self.out.capacity - COPY_SLACK

    cdef int grow(self, int64_t more) except -1:
        """Room for `more` bytes behind the open batch."""
        if self.options.codec:
            self.scratch.reserve(max(self.batch.size + more + COPY_SLACK,
                                     self.scratch.capacity + self.scratch.capacity // 2))
        else:
            self.out.reserve(self.batch.size + more + COPY_SLACK)
        self.place()
        return 0

    cdef void seal_batch(self, int64_t last_offset) noexcept nogil:
        """Write the header of the open batch, whose bytes lie in `out`, checksum it, and open the next."""
        cdef Header header
        cdef uint8_t* start = self.out.data + self.out.used
        self.options.fill(&header)
        header.base_offset = self.batch.base_offset
        header.last_offset = last_offset
        header.base_sequence = self.sequence
        header.count = <int32_t>self.batch.count
        header.base_timestamp = self.batch.base_timestamp
        header.max_timestamp = self.options.append_time if self.options.append_time >= 0 else self.batch.max_timestamp
        header.size_in_bytes = <int32_t>self.batch.size
        write_header(start, &header)
        seal(start, header.size_in_bytes)
        self.out.used += self.batch.size
        if self.sequence >= 0:
            self.sequence = sequence_after(self.sequence, <int32_t>(last_offset - self.batch.base_offset + 1))
        self.batch.base_offset = -1     # the next begins with its first row
        self.begin()

    cdef int close(self, bint is_last) except -1:
        """Compress the open batch if it is to be, see that it is not too large, and seal it."""
        cdef bytes packed
        cdef int64_t last_offset = self.batch.previous
        if is_last and self.options.last_offset >= 0:
            if self.options.last_offset < last_offset or (
                    self.options.last_offset - self.batch.base_offset > 0x7FFFFFFF):
                end = min(<object>self.batch.base_offset + 0x7FFFFFFF, 2**63 - 1)
                raise UsageError("last_offset", got=self.options.last_offset,
                                 wanted=f"{last_offset}, that of the last record, to {end}")
            last_offset = self.options.last_offset
        if self.options.codec:
            packed = compress_span(self.options.codec, self.scratch.data, self.batch.size - BATCH_HEADER_SIZE,
                                   self.options.level, 2)
            self.batch.size = BATCH_HEADER_SIZE + len(packed)
            memcpy(self.out.reserve(self.batch.size) + BATCH_HEADER_SIZE, <const char*>packed, <size_t>len(packed))
        if self.batch.size > self.options.batch_bytes_max:
            raise MessageTooLargeError(
                f"batch of encode_columns, from offset {self.batch.base_offset}: got {self.batch.size} bytes, "
                f"wanted at most {self.options.batch_bytes_max}")
        with nogil:
            self.seal_batch(last_offset)
        return 0

    cdef Pause run(self, const Rows* rows, int64_t* row) noexcept nogil:
        """encode_rows(), closing batches on the way as long as that needs no Python."""
        cdef Pause pause = encode_rows(rows, row, &self.batch)
        while pause == PAUSE_FULL and not self.options.codec and self.batch.size <= self.options.batch_bytes_max:
            self.seal_batch(self.batch.previous)
            pause = encode_rows(rows, row, &self.batch)
        return pause

    cdef int add(self, Table table, int64_t rows_before) except -1:
        """Write the rows of one chunk, closing batches as they fill."""
        cdef int64_t row = 0
        cdef Pause pause
        while True:
            with nogil:
                pause = self.run(&table.rows, &row)
            if pause == PAUSE_END:
                return 0
            if pause == PAUSE_FULL:
                self.close(False)
            elif pause == PAUSE_ROOM:
                self.grow(self.row_bytes_max(&table.rows, row))
            else:
                raise self.refusal(pause, &table.rows, row, rows_before)

    cdef int64_t row_bytes_max(self, const Rows* rows, int64_t row) noexcept:
        cdef Span span
        return (RECORD_OVERHEAD_MAX + max(bytes_at(&rows.key, row, &span), 0)
                + max(bytes_at(&rows.value, row, &span), 0)
                + (headers_bytes(&rows.headers, row) if rows.headers.given else 0))

    cdef object refusal(self, Pause pause, const Rows* rows, int64_t row, int64_t rows_before):
        where = f"row {rows_before + row}"
        if pause == PAUSE_OFFSET:
            next_offset = <object>self.batch.previous + 1
            low = min(max(next_offset, self.batch.base_offset, 0), 2**63 - 1)
            return UsageError("offset", where=where, got=rows.offsets[row] if rows.offsets != NULL else next_offset,
                              wanted=f"{low} to {min(max(self.batch.base_offset, low) + 0x7FFFFFFF, 2**63 - 1)}")
        if pause == PAUSE_TIMESTAMP:
            return UsageError("timestamp", where=where, got=rows.timestamps[row], wanted="-1 or more")
        if pause == PAUSE_HEADER_NAME:
            return UsageError("header name", where=where, got="null", wanted="text")
        if pause == PAUSE_CONTROL:
            return UsageError("key of a control record", where=where, got="null, short, or of a negative version",
                              wanted="int16 version, int16 type")
        if pause == PAUSE_TOO_LARGE:
            return MessageTooLargeError(f"record, {where}: got 2^31 bytes or more, wanted less")
        return UsageError("columns", where=where, got="Arrow offsets or views that point outside their buffers",
                          wanted="well-formed arrays")

    cdef bytes finish(self):
        if self.batch.count:
            self.close(True)
        return self.out.finish()


close_type(Encoder)


def encode_columns(
    columns, *, batch_bytes=BATCH_BYTES, base_offset=None, last_offset=None, compression="none", level=None,
    timestamp_type="create_time", log_append_time_ms=None, now_ms=None, producer_id=-1, producer_epoch=-1,
    base_sequence=-1, leader_epoch=-1, is_transactional=False, is_control=False, delete_horizon_ms=None,
    batch_bytes_max=None, renumber=False,
) -> bytes:
    """Write columns as one v2 batch or more, end to end.

    columns: a Columns, any Arrow table, record batch, struct array or stream of them, or a dict of Arrow arrays; the
        names are offset, timestamp, key, value and headers, and all but one may be missing
    batch_bytes: begin a new batch before one grows beyond this (1 MiB; before compression); a record larger than that
        gets a batch of its own
    renumber: True numbers the rows from base_offset on, whatever offsets they have
    the others: as in encode_batch(); base_sequence counts on from batch to batch, last_offset is that of the last

    >>> from logcore import decode_columns, encode_batch
    >>> data = encode_batch([(b"k", b"v" * 50)] * 1000)
    >>> encode_columns(decode_columns(data)) == data
    True
    """
    cdef BatchOptions options = BatchOptions.new(
        base_offset, last_offset, compression, level, timestamp_type, log_append_time_ms, now_ms, producer_id,
        producer_epoch, base_sequence, leader_epoch, is_transactional, is_control, delete_horizon_ms, 2, batch_bytes_max)
    cdef Encoder encoder
    cdef Table table
    cdef int64_t rows = 0, room = 0
    batch_bytes = check_range("batch_bytes", batch_bytes, 1, 0x7FFFFFFF)
    tables = tables_of(columns, options.now_ms)
    for table in tables:
        rows += table.rows.count
        room += (data_bytes(&table.rows.key, table.rows.count) + data_bytes(&table.rows.value, table.rows.count)
                 + RECORD_OVERHEAD_GUESS * table.rows.count)
    if not rows:
        raise UsageError("columns", got="no rows", wanted="at least one: Kafka has no empty batch to write")
    encoder = Encoder.__new__(Encoder, options, room + BATCH_HEADER_SIZE * (room // batch_bytes + 1) + 4096, batch_bytes)
    rows = 0
    for table in tables:
        if renumber:
            table.rows.offsets = NULL
        encoder.add(table, rows)
        rows += table.rows.count
    return encoder.finish()
