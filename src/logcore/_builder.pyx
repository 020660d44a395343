"""The memory that records are decoded into, one chunk of columns at a time.

A Sink is what the decoding loops see: pointers to rows that have room. A Builder owns the memory behind one, makes it
grow, and in the end turns it into Columns without a copy. The headers of records, which most have none of, are put in by
a second walk over the records that have.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from logcore._arguments cimport close_type
from logcore._batch cimport Fields, read_record
from logcore._buffer cimport Memory, Source, changed_buffer
from logcore._bytes cimport COPY_SLACK, VARINT_BYTES_MAX, Varint, read_varint, unzigzag
from logcore._columns cimport BinaryColumn, Columns, HeadersColumn, ViewColumn

import cython

from logcore.errors import UsageError


# ------------------------------------------------------------------------------------------------------------ leaves

cdef void put_null(BytesSink* sink, int64_t row, bint is_view) noexcept nogil:
    sink.validity[row >> 3] &= <uint8_t>~(1 << (row & 7))
    sink.nulls += 1
    if is_view:
        sink.words[2 * row] = sink.words[2 * row + 1] = 0


cdef void put_view_near_end(uint64_t* view, const uint8_t* data, int64_t size) noexcept nogil:
    """An inline view byte by byte. Apart, because variables whose address is taken live in memory."""
    view[0] = <uint64_t>size
    view[1] = 0
    memcpy(<uint8_t*>view + 4, data, <size_t>size)


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


# ----------------------------------------------------------------------------------------------------------- memory

@cython.final
cdef class BytesBuilder:
    """Growing memory behind a BytesSink."""

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

    @staticmethod
    cdef Builder new(tuple names, bint is_view):
        return Builder.__new__(Builder, names, is_view)

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
