"""decode_columns(): a buffer of batches straight into Arrow-shaped memory, no Python object per record.

A pass over the headers says how much memory the uncompressed batches need at most (a value cannot be longer than the
batch it lies in). Then, batch by batch, the checksum is verified and the records are decoded while their bytes are still
in the cache, all without the GIL. It comes back for compressed batches, for magic 0 and 1, and for memory. Records with
headers are walked a second time, once their number is known.

While it decodes it holds at most 8 x the plain bytes of the records + 220 bytes a record, of which what was not used
goes back at the end. A record has 7 plain bytes at least, so a count in a header cannot ask for more.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from logcore._arguments cimport check_optional, check_range, close_type
from logcore._batch cimport (
    ATTRIBUTES, BATCH_HEADER_SIZE, CODEC_MASK, CONTROL, CRC, LOG_APPEND_TIME, STEP_BATCH, STEP_END, STEP_FAULT, Fields,
    Header, Step, check_count, diagnose_record, read_header, read_record, read_record_ahead, read_record_checked,
    size_limit, verify_checksum,
)
from logcore._buffer cimport GIL_RELEASE_BYTES, Memory, Source, changed_buffer
from logcore._bytes cimport COPY_SLACK, VARINT_BYTES_MAX, Varint, copy_short, likely, read_varint, unlikely, unzigzag
from logcore._columns cimport VIEW_INLINE_MAX, BinaryColumn, Columns, HeadersColumn, ViewColumn
from logcore._fault cimport FAULT_COUNT_TOO_SMALL, FAULT_CRC, Fault, corrupt_batch, fail
from logcore._legacy cimport Message, MessageSet, open_messages
from logcore._payload cimport decompressed, decompressed_limit
from logcore._verify cimport Verifier, look_ahead, verify_from, verify_rest

import cython

from logcore.errors import UsageError, UsageTypeError

cdef enum:
    CHUNK_BYTES_MAX = 0x7FFFFFFF     # int32 offsets, and int32 positions in a view
    # All batches of a call together may decompress to this many times the buffer, or to what one may if that is more.
    EXPANSION_MAX = 64

cdef tuple ALL_NAMES = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
cdef tuple DEFAULT_NAMES = ("offset", "timestamp", "key", "value", "headers")


# ------------------------------------------------------------------------------------------------------------ leaves

cdef struct BytesSink:
    bint wanted
    uint8_t* data          # binary layout
    int32_t* ends          # binary layout: ends[0] is 0, ends[i + 1] the end of value i
    uint64_t* words        # view layout: two words a value
    uint8_t* validity      # all ones until a null clears its bit
    int64_t used           # bytes in data
    int64_t nulls


cdef struct Sink:
    int64_t rows
    int64_t* offset        # NULL: not wanted
    int64_t* timestamp
    int32_t* timestamp_type
    BytesSink key
    BytesSink value
    bint is_view
    const uint8_t* view_base
    uint32_t view_index


ctypedef const uint8_t* (*RecordsDecoder)(
    const uint8_t*, const uint8_t*, const Header*, Sink*, int64_t*, Verifier*,
) noexcept nogil


cdef void put_null(BytesSink* sink, int64_t row, bint is_view) noexcept nogil:
    sink.validity[row >> 3] &= <uint8_t>~(1 << (row & 7))
    sink.nulls += 1
    if is_view:
        sink.words[2 * row] = sink.words[2 * row + 1] = 0


cdef inline void put_view(
    uint64_t* view, const uint8_t* data, int64_t size, const uint8_t* end, uint32_t index, const uint8_t* base,
) noexcept nogil:
    """Write Arrow's 16-byte view of `data`; bytes up to `end` may be read."""
    cdef uint64_t low, high
    cdef uint32_t prefix
    if size > VIEW_INLINE_MAX:
        memcpy(&prefix, data, 4)
        view[0] = <uint64_t>size | <uint64_t>prefix << 32
        view[1] = <uint64_t>index | <uint64_t>(data - base) << 32
    elif likely(end - data >= 16):
        # Load past the value and mask, rather than branch on each length.
        memcpy(&low, data, 8)
        memcpy(&high, data + 8, 8)
        if size < 8:
            low &= (<uint64_t>1 << (8 * size)) - 1
            high = 0
        else:
            high &= (<uint64_t>1 << (8 * (size - 8))) - 1
        view[0] = <uint64_t>size | low << 32
        view[1] = low >> 32 | high << 32
    else:
        put_view_near_end(view, data, size)


cdef void put_view_near_end(uint64_t* view, const uint8_t* data, int64_t size) noexcept nogil:
    """An inline view byte by byte. Apart, because variables whose address is taken live in memory."""
    view[0] = <uint64_t>size
    view[1] = 0
    memcpy(<uint8_t*>view + 4, data, <size_t>size)


cdef inline const uint8_t* decode_loop(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
    bint is_view, bint want_all,
) noexcept nogil:
    """Decode the header's count of records into `sink`, which has room for them; returns where it stopped.

    That is `end` if all is well. Otherwise it is the damaged record (then sink.rows tells which) or, after the last
    one, bytes left over. The checksum runs ahead of the records by at most a strip; the caller finishes it.

    `is_view` and `want_all` (of offset, timestamp, key and value) are constants at each call, so each case gets a loop
    of its own. The bytes of keys and values may alias anything, so what the loop uses is in locals, not read through
    `sink`.
    """
    cdef Fields record
    cdef const uint8_t* after
    cdef Fields checked
    cdef const uint8_t* ahead_until = pos
    cdef const uint8_t* view_base = sink.view_base
    cdef uint32_t view_index = sink.view_index
    cdef int64_t row = sink.rows
    cdef int64_t stop = row + header.count
    cdef uint64_t base_offset = <uint64_t>header.base_offset
    cdef uint64_t base_timestamp = <uint64_t>header.base_timestamp
    cdef uint64_t delta_mask = <uint64_t>-1
    cdef int64_t* offsets = sink.offset
    cdef int64_t* timestamps = sink.timestamp
    cdef uint8_t* keys = sink.key.data
    cdef uint8_t* values = sink.value.data
    cdef uint8_t* key_out = keys + sink.key.used
    cdef uint8_t* value_out = values + sink.value.used
    cdef int32_t* key_ends = sink.key.ends
    cdef int32_t* value_ends = sink.value.ends
    cdef uint64_t* key_words = sink.key.words
    cdef uint64_t* value_words = sink.value.words
    cdef bint want_key = sink.key.wanted, want_value = sink.value.wanted
    cdef int64_t headers = 0
    if header.attributes & LOG_APPEND_TIME:
        # Every record has the batch's time: a mask on the delta keeps the branch out of the loop.
        base_timestamp = <uint64_t>header.max_timestamp
        delta_mask = 0
    while row < stop:
        if unlikely(pos >= ahead_until):
            ahead_until = look_ahead(verifier, pos, end)
        if likely(pos < ahead_until):
            after = read_record_ahead(pos, end, &record)
        else:
            # Through a copy: were the address of `record` to escape, the loop would keep it in memory.
            after = read_record_checked(pos, end, &checked)
            record = checked
        if unlikely(after == NULL):
            break
        if want_all or offsets != NULL:
            offsets[row] = <int64_t>(base_offset + <uint64_t>record.offset_delta)
        if want_all or timestamps != NULL:
            timestamps[row] = <int64_t>(base_timestamp + (<uint64_t>record.timestamp_delta & delta_mask))
        if want_all or want_key:
            if likely(record.key_size >= 0):
                if is_view:
                    put_view(key_words + 2 * row, record.key, record.key_size, end, view_index, view_base)
                else:
                    copy_short(key_out, record.key, <size_t>record.key_size, end - record.key)
                    key_out += record.key_size
            else:
                put_null(&sink.key, row, is_view)
            if not is_view:
                key_ends[row + 1] = <int32_t>(key_out - keys)
        if want_all or want_value:
            if likely(record.value_size >= 0):
                if is_view:
                    put_view(value_words + 2 * row, record.value, record.value_size, end, view_index, view_base)
                else:
                    copy_short(value_out, record.value, <size_t>record.value_size, end - record.value)
                    value_out += record.value_size
            else:
                put_null(&sink.value, row, is_view)
            if not is_view:
                value_ends[row + 1] = <int32_t>(value_out - values)
        if unlikely(record.header_count != 0):
            headers += record.header_count
        pos = after
        row += 1
    if sink.timestamp_type != NULL:
        for stop in range(sink.rows, row):
            sink.timestamp_type[stop] = 1 if header.attributes & LOG_APPEND_TIME else 0
    sink.rows = row
    sink.key.used = key_out - keys
    sink.value.used = value_out - values
    header_total[0] = headers
    return pos


# The four loops. Called through a pointer, so that each stays a function of its own: merged into one, they would share
# the registers.
cdef const uint8_t* decode_binary(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
) noexcept nogil:
    return decode_loop(pos, end, header, sink, header_total, verifier, False, True)

cdef const uint8_t* decode_binary_some(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
) noexcept nogil:
    return decode_loop(pos, end, header, sink, header_total, verifier, False, False)

cdef const uint8_t* decode_views(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
) noexcept nogil:
    return decode_loop(pos, end, header, sink, header_total, verifier, True, True)

cdef const uint8_t* decode_views_some(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
) noexcept nogil:
    return decode_loop(pos, end, header, sink, header_total, verifier, True, False)


cdef RecordsDecoder decoder_for(const Sink* sink) noexcept nogil:
    if sink.offset != NULL and sink.timestamp != NULL and sink.key.wanted and sink.value.wanted:
        return decode_views if sink.is_view else decode_binary
    return decode_views_some if sink.is_view else decode_binary_some


cdef struct HeaderSink:
    int32_t* ends          # of the list: one more than rows
    int64_t entries
    BytesSink name
    BytesSink value


cdef bint decode_headers(
    const uint8_t* pos, const uint8_t* end, int64_t first_row, int64_t stop_row, int64_t entries_max, HeaderSink* sink,
    Sink* rows,
) noexcept nogil:
    """The second walk over records that the first has found good: their headers into `sink`.

    It trusts nothing of the first: the buffer may be writable, and a thread of the caller may write to it. Returns
    whether it came to the end.
    """
    cdef Fields record
    cdef Varint varint
    cdef int64_t size, left
    cdef int64_t row
    cdef const uint8_t* at
    for row in range(first_row, stop_row):
        pos = read_record(pos, end, &record)
        if pos == NULL or record.header_count > entries_max - sink.entries:
            return False
        at = record.headers
        left = record.header_count
        while left:
            varint = read_varint(at, pos, VARINT_BYTES_MAX)
            size = unzigzag(varint.bits)
            if varint.next == NULL or size < 0 or size > pos - varint.next:
                return False
            sink.name.used += put_utf8(sink.name.data + sink.name.used, varint.next, size)
            sink.name.ends[sink.entries + 1] = <int32_t>sink.name.used
            varint = read_varint(varint.next + size, pos, VARINT_BYTES_MAX)
            size = unzigzag(varint.bits)
            at = varint.next
            if at == NULL or size > pos - at:
                return False
            put_bytes(&sink.value, sink.entries, at, size, end, rows)
            if size > 0:
                at += size
            sink.entries += 1
            left -= 1
        sink.ends[row + 1] = <int32_t>sink.entries
    return True


cdef void put_bytes(
    BytesSink* sink, int64_t row, const uint8_t* data, int64_t size, const uint8_t* end, const Sink* rows,
) noexcept nogil:
    """One value into a sink of either layout; a negative size is null. Off the hot path."""
    if size < 0:
        put_null(sink, row, rows.is_view)
    elif rows.is_view:
        put_view(&sink.words[2 * row], data, size, end, rows.view_index, rows.view_base)
    else:
        memcpy(sink.data + sink.used, data, <size_t>size)
        sink.used += size
    if not rows.is_view:
        sink.ends[row + 1] = <int32_t>sink.used


cdef int64_t put_utf8(uint8_t* out, const uint8_t* data, int64_t size) noexcept nogil:
    """Copy UTF-8, each maximal ill-formed part replaced by U+FFFD, as str.decode("utf-8", "replace") does.

    `out` has room for three bytes an input byte. Returns how many were written. Each byte is read once, so that what was
    looked at is what is written, should somebody change it meanwhile.
    """
    cdef uint8_t* start = out
    cdef int64_t at = 0, need, seen
    cdef uint8_t lead, low, high, byte
    while at < size:
        lead = data[at]
        if lead < 0x80:
            out[0] = lead
            out += 1
            at += 1
            continue
        low, high = 0x80, 0xBF
        need = 0
        if 0xC2 <= lead <= 0xDF:
            need = 1
        elif 0xE0 <= lead <= 0xEF:
            need = 2
            if lead == 0xE0:
                low = 0xA0     # no overlong forms
            elif lead == 0xED:
                high = 0x9F    # no surrogates
        elif 0xF0 <= lead <= 0xF4:
            need = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F    # nothing above U+10FFFF
        seen = 0
        out[0] = lead
        while seen < need and at + 1 + seen < size:
            byte = data[at + 1 + seen]
            if not low <= byte <= high:
                break
            seen += 1
            out[seen] = byte
            low, high = 0x80, 0xBF
        if need and seen == need:
            out += need + 1
        else:
            memcpy(out, b"\xef\xbf\xbd", 3)
            out += 3
        at += 1 + seen
    return out - start


# ----------------------------------------------------------------------------------------------------------- building

@cython.final
cdef class BytesBuilder:
    """Growing memory behind a BytesSink."""
    cdef Memory memory, ends, words, bitmap
    cdef Py_ssize_t room

    cdef int reserve(self, BytesSink* sink, Py_ssize_t rows, int64_t data_bytes, bint is_view) except -1:
        """Room for `rows` values in all and for `data_bytes` bytes in all."""
        if self.bitmap is None:
            self.bitmap = Memory.new(0)
            if is_view:
                self.words = Memory.new(0)
            else:
                self.memory, self.ends = Memory.new(0), Memory.new(4)
                memset(self.ends.data, 0, 4)
        if rows > self.room:
            rows = max(rows, self.room + self.room // 2)
            if is_view:
                self.words.reserve(16 * rows)
            else:
                self.ends.reserve(4 * (rows + 1))
            self.bitmap.reserve((rows + 7) // 8)
            memset(self.bitmap.data + (self.room + 7) // 8, 0xFF, <size_t>((rows + 7) // 8 - (self.room + 7) // 8))
            self.room = rows
        if not is_view and data_bytes + COPY_SLACK > self.memory.capacity:
            self.memory.reserve(max(data_bytes + COPY_SLACK, self.memory.capacity + self.memory.capacity // 2))
        sink.wanted = True
        sink.validity = self.bitmap.data
        if is_view:
            sink.words = <uint64_t*>self.words.data
        else:
            sink.data = self.memory.data
            sink.ends = <int32_t*>self.ends.data
        return 0

    cdef object column(self, BytesSink* sink, Py_ssize_t rows, bint is_view, bint is_text, list sources):
        cdef BinaryColumn binary
        cdef ViewColumn view
        cdef Memory bitmap = None
        cdef Source source
        cdef Py_ssize_t index
        if sink.nulls:
            bitmap = self.bitmap
            bitmap.shrink((rows + 7) // 8)
        if is_view:
            self.words.shrink(16 * rows)
            view = ViewColumn.new()
            view.length, view.null_count = rows, sink.nulls
            view.words, view.bitmap, view.sources = self.words, bitmap, sources
            view.sizes = Memory.new(8 * len(sources))
            view.sizes.size = 8 * len(sources)
            for index, source in enumerate(sources):
                (<int64_t*>view.sizes.data)[index] = source.size
            return view
        self.memory.shrink(sink.used)
        self.ends.shrink(4 * (rows + 1))
        binary = BinaryColumn.new()
        binary.length, binary.null_count, binary.is_text = rows, sink.nulls, is_text
        binary.memory, binary.ends, binary.bitmap = self.memory, self.ends, bitmap
        return binary


close_type(BytesBuilder)


cdef object empty_column(bint is_view, bint is_text):
    cdef BytesBuilder builder = BytesBuilder.__new__(BytesBuilder)
    cdef BytesSink sink
    memset(&sink, 0, sizeof(BytesSink))
    builder.reserve(&sink, 0, 0, is_view)
    return builder.column(&sink, 0, is_view, is_text, [])

# What the headers of records without headers have for names and values; they are immutable, so one of each will do.
cdef BinaryColumn NO_NAMES = empty_column(False, True)
cdef BinaryColumn NO_VALUES = empty_column(False, False)
cdef ViewColumn NO_VIEWS = empty_column(True, False)


@cython.final
cdef class Builder:
    """The memory of one chunk while it is filled."""
    cdef Sink sink
    cdef HeaderSink entries
    cdef tuple names
    cdef bint want_headers
    cdef Memory offset, timestamp, timestamp_type, list_ends
    cdef BytesBuilder key, value, header_name, header_value
    cdef Py_ssize_t room
    cdef list sources
    cdef Py_ssize_t origin           # where the chunk begins in the buffer

    def __cinit__(self, tuple names, bint is_view):
        memset(&self.sink, 0, sizeof(Sink))
        memset(&self.entries, 0, sizeof(HeaderSink))
        self.names = names
        self.sink.is_view = is_view
        self.want_headers = "headers" in names
        self.sources = []
        self.offset = Memory.new(0) if "offset" in names else None
        self.timestamp = Memory.new(0) if "timestamp" in names else None
        self.timestamp_type = Memory.new(0) if "timestamp_type" in names else None
        self.key = BytesBuilder.__new__(BytesBuilder) if "key" in names else None
        self.value = BytesBuilder.__new__(BytesBuilder) if "value" in names else None
        self.reserve(0, 0)

    cdef int reserve(self, int64_t rows, int64_t data_bytes) except -1:
        """Room for this many more rows, whose keys and values together have at most `data_bytes` bytes."""
        rows += self.sink.rows
        if rows > self.room:
            rows = max(rows, self.room + self.room // 2)
            if self.offset is not None:
                self.offset.reserve(8 * rows)
            if self.timestamp is not None:
                self.timestamp.reserve(8 * rows)
            if self.timestamp_type is not None:
                self.timestamp_type.reserve(4 * rows)
            if self.list_ends is not None:
                self.list_ends.reserve(4 * (rows + 1))
            self.room = rows
        if self.offset is not None:
            self.sink.offset = <int64_t*>self.offset.data
        if self.timestamp is not None:
            self.sink.timestamp = <int64_t*>self.timestamp.data
        if self.timestamp_type is not None:
            self.sink.timestamp_type = <int32_t*>self.timestamp_type.data
        if self.key is not None:
            self.key.reserve(&self.sink.key, self.room, self.sink.key.used + data_bytes, self.sink.is_view)
        if self.value is not None:
            self.value.reserve(&self.sink.value, self.room, self.sink.value.used + data_bytes, self.sink.is_view)
        if self.list_ends is not None:
            self.entries.ends = <int32_t*>self.list_ends.data
        return 0

    cdef bint has_room(self, int64_t rows, int64_t data_bytes) noexcept nogil:
        return (
            self.sink.rows + rows <= self.room
            and (self.sink.is_view or (
                (not self.sink.key.wanted or self.sink.key.used + data_bytes + COPY_SLACK <= self.key.memory.capacity)
                and (not self.sink.value.wanted
                     or self.sink.value.used + data_bytes + COPY_SLACK <= self.value.memory.capacity)
            ))
        )

    cdef int add_headers(self, const uint8_t* pos, const uint8_t* end, int64_t first_row, int64_t total) except -1:
        """The headers of the rows from `first_row` on, `total` in number, whose records begin at `pos`."""
        cdef int64_t stop = self.sink.rows, plain = end - pos
        cdef bint whole
        if self.list_ends is None:
            # Nothing before had headers, so nothing was written for it.
            self.list_ends = Memory.new(4 * (self.room + 1))
            self.entries.ends = <int32_t*>self.list_ends.data
            memset(self.entries.ends, 0, 4 * <size_t>(first_row + 1))
            self.header_name = BytesBuilder.__new__(BytesBuilder)
            self.header_value = BytesBuilder.__new__(BytesBuilder)
        if self.entries.name.used + 3 * plain > CHUNK_BYTES_MAX:
            # Only a batch of 700 MiB comes here, in a chunk of its own: its names might not fit, should they be no UTF-8.
            raise UsageError("headers", got=f"a batch of {plain} bytes of records with headers",
                             wanted=f"at most {CHUNK_BYTES_MAX // 3}, or columns without headers")
        self.header_name.reserve(&self.entries.name, self.entries.entries + total,
                                 self.entries.name.used + 3 * plain, False)
        self.header_value.reserve(&self.entries.value, self.entries.entries + total,
                                  self.entries.value.used + plain, self.sink.is_view)
        with nogil:
            whole = decode_headers(pos, end, first_row, stop, self.entries.entries + total, &self.entries, &self.sink)
        if not whole:
            raise changed_buffer()
        return 0

    cdef void no_headers(self, int64_t first_row) noexcept nogil:
        """Rows from `first_row` on have none, in a chunk where others have."""
        cdef int64_t row
        for row in range(first_row, self.sink.rows):
            self.entries.ends[row + 1] = <int32_t>self.entries.entries

    cdef int look_at(self, Source source) except -1:
        """Views made from now on point into `source`."""
        if self.sink.is_view:
            self.sources.append(source)
            self.sink.view_index = <uint32_t>(len(self.sources) - 1)
            self.sink.view_base = source.data
        return 0

    cdef void look_back(self) noexcept:
        """Views point into the caller's buffer again, the first of the sources."""
        if self.sink.is_view:
            self.sink.view_index = 0
            self.sink.view_base = (<Source>self.sources[0]).data

    cdef Columns finish(self, str layout):
        cdef Columns made = Columns.new()
        cdef Py_ssize_t rows = self.sink.rows
        cdef HeadersColumn headers
        cdef Memory zeros
        made.names, made.layout, made.length = self.names, layout, rows
        made.columns = {}
        for name, memory, width in (("offset", self.offset, 8), ("timestamp", self.timestamp, 8),
                                    ("timestamp_type", self.timestamp_type, 4)):
            if memory is not None:
                (<Memory>memory).shrink(<Py_ssize_t>width * rows)
                made.columns[name] = memory
                made.bytes_held += width * rows
        if self.key is not None:
            made.columns["key"] = self.key.column(&self.sink.key, rows, self.sink.is_view, False, self.sources)
            made.bytes_held += self.sink.key.used + (16 if self.sink.is_view else 4) * rows
        if self.value is not None:
            made.columns["value"] = self.value.column(&self.sink.value, rows, self.sink.is_view, False, self.sources)
            made.bytes_held += self.sink.value.used + (16 if self.sink.is_view else 4) * rows
        if self.want_headers:
            headers = HeadersColumn.new()
            if self.list_ends is None:
                self.list_ends = Memory.new(4 * (rows + 1))
                memset(self.list_ends.data, 0, 4 * <size_t>(rows + 1))
                headers.names = NO_NAMES
                headers.values = NO_VIEWS if self.sink.is_view else NO_VALUES
            else:
                headers.names = self.header_name.column(&self.entries.name, self.entries.entries, False, True, [])
                headers.values = self.header_value.column(&self.entries.value, self.entries.entries, self.sink.is_view,
                                                          False, self.sources)
            self.list_ends.shrink(4 * (rows + 1))
            headers.length, headers.ends = rows, self.list_ends
            made.columns["headers"] = headers
            made.bytes_held += (4 * rows + self.entries.name.used + self.entries.value.used
                                + (20 if self.sink.is_view else 8) * self.entries.entries)
        return made


close_type(Builder)


# ------------------------------------------------------------------------------------------------------------ decoding

cdef enum Pause:
    PAUSE_END          # no whole batch is left
    PAUSE_FAULT        # damage
    PAUSE_BATCH        # a batch that needs Python: compressed, of an older magic, or one there is no room for
    PAUSE_HEADERS      # a batch was decoded whose records have headers


@cython.final
cdef class Decoder:
    """One run of decode_columns()."""
    cdef Source source
    cdef Builder builder
    cdef Py_ssize_t position
    cdef int64_t bytes_max, budget, shift
    cdef int64_t chunk_bytes_max
    cdef int32_t batch_bytes_max
    cdef bint verify_crc, want_control
    cdef Header header               # of the batch that a pause is about
    cdef Fault fault
    cdef int64_t header_total, first_row

    cdef int plan(self) except -1:
        """Reserve for the uncompressed batches ahead, as far as a chunk goes, from their headers alone.

        It looks at no more bytes than a chunk may have: further ahead it would look again for each chunk.
        """
        cdef const uint8_t* start = self.source.data
        cdef const uint8_t* end = start + self.source.size
        cdef const uint8_t* pos = start + self.position
        cdef const uint8_t* stop = pos + min(end - pos, self.chunk_bytes_max)
        cdef int64_t rows = 0, plain = 0, size
        cdef Header header
        cdef Fault fault
        with nogil:
            while pos < stop and (
                    read_header(start, pos, end, self.batch_bytes_max, False, &header, &fault) == STEP_BATCH):
                size = header.size_in_bytes - BATCH_HEADER_SIZE
                if header.magic == 2 and not header.attributes & CODEC_MASK and not check_count(&header, size, &fault):
                    if plain + size > self.chunk_bytes_max:
                        break
                    rows += header.count
                    plain += size
                pos += header.size_in_bytes
        self.builder.reserve(rows, plain)
        return 0

    cdef Pause run(self) noexcept nogil:
        """Decode uncompressed v2 batches until something needs Python."""
        cdef const uint8_t* start = self.source.data
        cdef const uint8_t* end = start + self.source.size
        cdef const uint8_t* batch
        cdef const uint8_t* batch_end
        cdef const uint8_t* stopped
        cdef Sink* sink = &self.builder.sink
        cdef RecordsDecoder decode_records = decoder_for(sink)
        cdef Verifier verifier
        cdef Step step
        cdef int64_t size
        while True:
            batch = start + self.position
            step = read_header(start, batch, end, self.batch_bytes_max, False, &self.header, &self.fault)
            if step == STEP_END:
                return PAUSE_END
            if step == STEP_FAULT:
                return PAUSE_FAULT
            if self.header.magic == 2 and (
                    self.header.count == 0 or (self.header.attributes & CONTROL and not self.want_control)):
                # Kafka's reader does not look at the bytes of a batch that declares no record, nor at its codec.
                if not self.is_verified(batch):
                    return PAUSE_FAULT
                self.position += self.header.size_in_bytes
                continue
            if self.header.magic < 2 or self.header.attributes & CODEC_MASK:
                return PAUSE_BATCH if self.is_verified(batch) else PAUSE_FAULT
            size = self.header.size_in_bytes - BATCH_HEADER_SIZE
            if check_count(&self.header, size, &self.fault):
                self.is_verified(batch)
                return PAUSE_FAULT
            if (
                not self.builder.has_room(self.header.count, size)
                or max(sink.key.used, sink.value.used) + size > self.chunk_bytes_max
                or (self.builder.want_headers and (
                    self.builder.entries.value.used + size > self.chunk_bytes_max
                    or self.builder.entries.name.used + 3 * size > self.chunk_bytes_max))
                or self.position + self.header.size_in_bytes - self.builder.origin > self.chunk_bytes_max
            ):
                return PAUSE_BATCH if self.is_verified(batch) else PAUSE_FAULT
            batch_end = batch + self.header.size_in_bytes
            self.first_row = sink.rows
            verify_from(&verifier, batch + ATTRIBUTES if self.verify_crc else batch_end, batch_end)
            stopped = decode_records(batch + BATCH_HEADER_SIZE, batch_end, &self.header, sink, &self.header_total,
                                     &verifier)
            if self.verify_crc and verify_rest(&verifier) != self.header.crc:
                fail(&self.fault, FAULT_CRC, CRC, self.header.crc, verifier.crc)
                return PAUSE_FAULT
            if stopped != batch_end or sink.rows != self.first_row + self.header.count:
                self.blame(batch, stopped, batch_end)
                return PAUSE_FAULT
            self.position += self.header.size_in_bytes
            if self.header_total and self.builder.want_headers:
                return PAUSE_HEADERS
            if self.builder.entries.ends != NULL:
                self.builder.no_headers(self.first_row)

    cdef bint is_verified(self, const uint8_t* batch) noexcept nogil:
        """Whether the checksum of the batch that is not decoded here is right; else the fault says so."""
        return not self.verify_crc or not verify_checksum(batch, &self.header, &self.fault)

    cdef void blame(self, const uint8_t* start, const uint8_t* stopped, const uint8_t* end) noexcept nogil:
        """Fill the fault for records that begin to be wrong at `stopped`."""
        cdef int64_t done = self.builder.sink.rows - self.first_row
        if done == self.header.count:
            fail(&self.fault, FAULT_COUNT_TOO_SMALL, stopped - start, end - stopped, 0)
        else:
            diagnose_record(start, stopped, end, &self.fault)
            self.fault.record_index = done

    cdef object refusal(self):
        """The exception for the fault. A batch whose header or checksum is wrong has no offset to speak of."""
        return corrupt_batch(&self.fault, self.position + self.shift,
                             None if self.fault.kind <= FAULT_CRC else self.header.base_offset)

    cdef int chunk_if_full(self, list done, int64_t more, str layout) except -1:
        """Begin a new chunk if `more` bytes of records might not fit into this one."""
        cdef Sink* sink = &self.builder.sink
        if self.position > self.builder.origin and (
            max(sink.key.used, sink.value.used) + more > self.chunk_bytes_max
            or self.builder.entries.value.used + more > self.chunk_bytes_max
            or self.builder.entries.name.used + 3 * more > self.chunk_bytes_max
            or (sink.is_view
                and self.position + self.header.size_in_bytes - self.builder.origin > self.chunk_bytes_max)
        ):
            if sink.rows:
                done.append(self.builder.finish(layout))
            self.builder = Builder.__new__(Builder, self.builder.names, layout == "view")
            self.begin_chunk()
        return 0

    cdef int begin_chunk(self) except -1:
        """Views count from where the chunk begins, so that a buffer of any size fits their int32 positions."""
        self.builder.origin = self.position
        self.builder.look_at(self.source if self.position == 0 else Source(memoryview(self.source)[self.position:]))
        self.plan()
        return 0

    cdef int reserve_ahead(self, int64_t rows, int64_t data_bytes) except -1:
        """Room for this batch and, if that is to be had, for what is left of the buffer, should it be like this batch.

        At most four times what is needed now: nothing is known of the rest but its size.
        """
        cdef Sink* sink = &self.builder.sink
        cdef int64_t alike = 1
        if not self.builder.has_room(rows, data_bytes):
            alike = min((self.source.size - self.position) // self.header.size_in_bytes, 4 + 3 * sink.rows // rows)
        data_bytes = max(data_bytes, min(
            data_bytes * alike, self.chunk_bytes_max - max(sink.key.used, sink.value.used)))
        return self.builder.reserve(rows * alike, data_bytes)

    cdef int add_batch(self, list done, str layout) except -1:
        """Decode the batch of self.header, whatever it is."""
        cdef const uint8_t* start = self.source.data + self.header.position
        cdef const uint8_t* pos
        cdef const uint8_t* end
        cdef const uint8_t* stopped
        cdef Source plain = self.source
        cdef RecordsDecoder decode_records
        cdef Verifier verifier
        if self.header.magic < 2:
            self.add_messages(done, layout)
            self.position += self.header.size_in_bytes
            return 0
        if self.header.attributes & CODEC_MASK:
            plain = decompressed(self.source, &self.header, BATCH_HEADER_SIZE,
                                 self.header.size_in_bytes - BATCH_HEADER_SIZE,
                                 min(self.bytes_max, self.budget, CHUNK_BYTES_MAX), self.shift)
            self.budget -= plain.size
            pos = start = plain.data
            end = pos + plain.size
        else:
            pos = start + BATCH_HEADER_SIZE
            end = start + self.header.size_in_bytes
        if check_count(&self.header, end - pos, &self.fault):
            raise self.refusal()
        self.chunk_if_full(done, end - pos, layout)
        self.reserve_ahead(self.header.count, end - pos)
        if plain is not self.source:
            self.builder.look_at(plain)
        self.first_row = self.builder.sink.rows
        decode_records = decoder_for(&self.builder.sink)
        verify_from(&verifier, end, end)    # run() has verified it
        with nogil:
            stopped = decode_records(pos, end, &self.header, &self.builder.sink, &self.header_total, &verifier)
            if stopped != end or self.builder.sink.rows != self.first_row + self.header.count:
                self.blame(start, stopped, end)
                stopped = NULL
        if stopped == NULL:
            raise self.refusal()
        if self.header_total and self.builder.want_headers:
            self.builder.add_headers(pos, end, self.first_row, self.header_total)
        elif self.builder.list_ends is not None:
            self.builder.no_headers(self.first_row)
        if plain is not self.source:
            self.builder.look_back()
        self.position += self.header.size_in_bytes
        return 0

    cdef int add_messages(self, list done, str layout) except -1:
        """A v0/v1 message, or the messages inside it."""
        cdef MessageSet messages = open_messages(self.source, &self.header,
                                                 min(self.bytes_max, self.budget, CHUNK_BYTES_MAX), self.shift)
        cdef Sink* sink
        cdef Message* message
        cdef const uint8_t* end = messages.source.data + messages.source.size
        cdef int64_t plain = self.header.size_in_bytes
        cdef Py_ssize_t index
        if messages.source is not self.source:
            plain = messages.source.size
            self.budget -= plain
        self.chunk_if_full(done, plain, layout)
        self.builder.reserve(messages.count, plain)
        if messages.source is not self.source:
            self.builder.look_at(messages.source)
        sink = &self.builder.sink
        self.first_row = sink.rows
        for index in range(messages.count):
            message = &messages.messages[index]
            if sink.offset != NULL:
                sink.offset[sink.rows] = message.offset
            if sink.timestamp != NULL:
                sink.timestamp[sink.rows] = message.timestamp
            if sink.timestamp_type != NULL:
                sink.timestamp_type[sink.rows] = (
                    -1 if message.magic == 0 else 1 if self.header.attributes & LOG_APPEND_TIME else 0)
            if sink.key.wanted:
                put_bytes(&sink.key, sink.rows, message.key, message.key_size, end, sink)
            if sink.value.wanted:
                put_bytes(&sink.value, sink.rows, message.value, message.value_size, end, sink)
            sink.rows += 1
        if self.builder.list_ends is not None:
            self.builder.no_headers(self.first_row)
        if messages.source is not self.source:
            self.builder.look_back()
        return 0


close_type(Decoder)


def decode_columns(
    buffer, *, columns=None, layout="binary", verify_crc=True, max_decompressed_bytes=None, batch_bytes_max=None,
    base_position=0, include_control=True, chunk_bytes_max=None,
):
    """Decode every whole batch of `buffer` into one Columns; `.consumed` tells how far it came.

    columns: names of what is wanted, in that order: "offset", "timestamp", "key", "value", "headers" (these five by
        default) and "timestamp_type"; what is left out costs nothing
    layout: "binary" copies keys and values end to end; "view" points to them where they lie (the buffer is then held
        as long as the columns live)
    verify_crc: False if the checksums are known to be right
    max_decompressed_bytes: the most one batch may decompress to (128 MiB). All batches of a call together may
        decompress to 64 times the buffer, or to this if it is more
    include_control: False leaves out the records of control batches
    chunk_bytes_max: begin a new chunk before a column has more bytes (2^31 - 1)

    Damage raises CorruptBatch, as decode_batches() does; a partial last batch is left for the next call.

    >>> from logcore import encode_batch
    >>> columns = decode_columns(encode_batch([(b"a", b"x" * 20, 5), (None, b"y", 7)]))
    >>> columns
    Columns(2 records: offset, timestamp, key, value, headers; binary)
    >>> columns.timestamp.tolist(), columns.key[1], columns.value[1]
    ([5, 7], None, b'y')
    """
    cdef Decoder decoder = Decoder.__new__(Decoder)
    cdef list done = []
    cdef Pause pause
    cdef Columns whole
    cdef tuple names = chosen_names(columns)
    if layout != "binary" and layout != "view":
        raise UsageError("layout", got=repr(layout), wanted='"binary" or "view"')
    decoder.source = Source(buffer)
    base_position = check_range("base_position", base_position, 0, 0x7FFFFFFFFFFFFFFF - decoder.source.size)
    chunk_bytes_max = check_optional("chunk_bytes_max", chunk_bytes_max, 1, CHUNK_BYTES_MAX)
    decoder.verify_crc = verify_crc
    decoder.want_control = include_control
    decoder.bytes_max = decompressed_limit(max_decompressed_bytes)
    decoder.budget = max(decoder.bytes_max, EXPANSION_MAX * decoder.source.size)
    decoder.batch_bytes_max = size_limit(batch_bytes_max)
    decoder.chunk_bytes_max = CHUNK_BYTES_MAX if chunk_bytes_max is None else chunk_bytes_max
    decoder.shift = base_position
    decoder.builder = Builder.__new__(Builder, names, layout == "view")
    decoder.begin_chunk()
    while True:
        if decoder.source.size < GIL_RELEASE_BYTES:
            pause = decoder.run()
        else:
            with nogil:
                pause = decoder.run()
        if pause == PAUSE_END:
            break
        if pause == PAUSE_FAULT:
            raise decoder.refusal()
        if pause == PAUSE_BATCH:
            decoder.add_batch(done, layout)
        else:
            decoder.builder.add_headers(
                decoder.source.data + decoder.header.position + BATCH_HEADER_SIZE,
                decoder.source.data + decoder.position, decoder.first_row, decoder.header_total)
    whole = decoder.builder.finish(layout)
    if done:
        if whole.length:
            done.append(whole)
        whole = Columns.new()
        whole.names, whole.layout, whole.parts = names, layout, tuple(done)
        whole.length = sum([len(part) for part in done])
    whole.consumed = decoder.position
    return whole


cdef tuple chosen_names(columns):
    if columns is None:
        return DEFAULT_NAMES
    if isinstance(columns, str) or not hasattr(columns, "__iter__"):
        raise UsageTypeError("columns", got=type(columns).__name__, wanted='a sequence of names, as in ("offset", "value")')
    names = tuple(columns)
    for name in names:
        if name not in ALL_NAMES:
            raise UsageError("columns", got=repr(name), wanted=f"names out of {', '.join(ALL_NAMES)}")
    if len(set(names)) != len(names) or not names:
        raise UsageError("columns", got=repr(names), wanted="one name or more, each once")
    return names
