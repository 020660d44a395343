"""Columns in: Arrow-shaped memory straight into v2 batches, no Python object per record.

Any Arrow producer will do (pyarrow, polars, duckdb, pandas, our own Columns), through the C data interface. A struct
or table has fields by the names that decode_columns() gives them:

    value, key    binary, large_binary, utf8, large_utf8, binary_view, utf8_view, fixed_size_binary, or null
    timestamp     integer milliseconds, or a timestamp of any unit; null: now_ms, or none
    offset        integers; absent: numbered from base_offset on
    headers       list, large_list or map of (key, value)

Rows are written batch after batch into one bytes object: a batch is closed when the next record would push it over
`batch_bytes`. Each batch is sealed while it is still in the cache. Compressed batches are written to a scratch
buffer first. All of it runs without the GIL but for memory, compression and errors.
"""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, strcmp, strlen, strncmp

from logcore._arguments cimport check_range, close_type
from logcore._arrow cimport ArrowArray, ArrowSchema, Imported, import_arrays, type_name
from logcore._batch cimport BATCH_HEADER_SIZE, CONTROL, CONTROL_KEY_SIZE, Header, seal, sequence_after, write_header
from logcore._buffer cimport Memory, NewBytes
from logcore._bytes cimport COPY_SLACK, add64, likely, put_varint, sub64, unlikely, varint_bytes, zigzag
from logcore._columns cimport VIEW_INLINE_MAX, BinaryColumn, Columns, HeadersColumn
from logcore._compression cimport compress_span
from logcore._options cimport BatchOptions
from logcore._write cimport Measured, measure_record, put_record

import cython

from logcore.errors import MessageTooLargeError, UsageError, UsageTypeError

cdef enum:
    BATCH_BYTES = 1024 * 1024
    RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5   # every field of a record but key, value and headers
    RECORD_OVERHEAD_GUESS = 16

# More than memory holds, and far from an overflow when it is counted in bytes.
cdef int64_t ROWS_MAX = 1 << 48
cdef int64_t GUESS_BYTES_MAX = 1 << 48


# ------------------------------------------------------------------------------------------------------------- inputs

cdef enum Kind:
    KIND_NULL          # a column of nulls, or no column
    KIND_BINARY
    KIND_LARGE
    KIND_VIEW
    KIND_FIXED


# Rows of bytes in one of Arrow's layouts. `first` is the array's offset: row i lies at first + i.
cdef struct BytesInput:
    Kind kind
    int64_t first
    const uint8_t* validity
    const uint8_t* data
    const uint8_t* data_end
    const int32_t* ends32
    const int64_t* ends64
    const uint64_t* views
    const void** buffers
    const int64_t* buffer_sizes
    int64_t buffer_count
    int64_t width


cdef struct HeadersInput:
    bint given
    int64_t first
    const uint8_t* validity
    const int32_t* ends32      # of a list or map
    const int64_t* ends64      # of a large list
    int64_t entries            # how many the children hold
    const uint8_t* entries_validity
    int64_t entries_first
    BytesInput name
    BytesInput value


cdef struct Rows:
    int64_t count
    const int64_t* offsets     # NULL: numbered
    const int64_t* timestamps  # NULL: all now_ms
    BytesInput key
    BytesInput value
    HeadersInput headers


cdef enum:
    SIZE_NULL = -1
    SIZE_BAD = -2              # the producer's own memory contradicts itself


cdef inline bint is_valid(const uint8_t* bitmap, int64_t index) noexcept nogil:
    return bitmap == NULL or bitmap[index >> 3] >> (index & 7) & 1


# Where the bytes of a row lie, and how many may be read there.
cdef struct Span:
    const uint8_t* data
    ptrdiff_t room


cdef int64_t bytes_at(const BytesInput* column, int64_t row, Span* span) noexcept nogil:
    """The size of row `row`, or SIZE_NULL, or SIZE_BAD; `span` says where it lies."""
    cdef int64_t size, begin
    cdef int64_t at = row + column.first
    cdef uint32_t index
    span.data = NULL
    span.room = 0
    if column.validity != NULL and not is_valid(column.validity, at):
        return SIZE_NULL
    if column.kind == KIND_BINARY or column.kind == KIND_LARGE:
        if column.kind == KIND_BINARY:
            begin = column.ends32[at]
            size = column.ends32[at + 1] - begin
        else:
            begin = column.ends64[at]
            size = sub64(column.ends64[at + 1], begin)
        if begin < 0 or begin > column.data_end - column.data:
            return SIZE_BAD
        span.data = column.data + begin
        span.room = column.data_end - span.data
        return size if 0 <= size <= span.room else SIZE_BAD
    if column.kind == KIND_VIEW:
        size = <int32_t><uint32_t>column.views[2 * at]
        if size < 0:
            return SIZE_BAD
        if size <= VIEW_INLINE_MAX:
            span.data = <const uint8_t*>(column.views + 2 * at) + 4
            span.room = VIEW_INLINE_MAX
            return size
        index = <uint32_t>column.views[2 * at + 1]
        begin = <int32_t>(column.views[2 * at + 1] >> 32)
        if index >= column.buffer_count or column.buffers[index] == NULL:
            return SIZE_BAD
        if begin < 0 or begin > column.buffer_sizes[index] or size > column.buffer_sizes[index] - begin:
            return SIZE_BAD
        span.data = <const uint8_t*>column.buffers[index] + begin
        span.room = column.buffer_sizes[index] - begin
        return size
    if column.kind == KIND_FIXED:
        span.data = column.data + at * column.width
        span.room = column.data_end - span.data
        return column.width
    return SIZE_NULL


cdef object malformed(str name, str got):
    return UsageError("Arrow array", where=name, got=got, wanted="what Arrow's C data interface promises")


cdef int check_array(const ArrowSchema* schema, const ArrowArray* array, str name, int64_t buffers_min) except -1:
    """Refuse what contradicts itself already in the structs; what their buffers hold is checked row by row."""
    cdef int64_t index
    if schema == NULL or array == NULL or schema.format == NULL:
        raise malformed(name, "no format or no array")
    if array.length < 0 or array.offset < 0 or array.length > ROWS_MAX - array.offset:
        raise malformed(name, f"length {array.length}, offset {array.offset}")
    if array.n_buffers < buffers_min or (buffers_min and array.buffers == NULL):
        raise malformed(name, f"{array.n_buffers} buffers, fewer than {buffers_min}")
    if array.n_children != schema.n_children or (array.n_children and (
            array.children == NULL or schema.children == NULL)):
        raise malformed(name, f"{array.n_children} children for the {schema.n_children} of its schema")
    for index in range(array.n_children):
        if array.children[index] == NULL or schema.children[index] == NULL:
            raise malformed(name, "a child that is not there")
    return 0


cdef const void* aligned(const void* data, int64_t size, size_t width, list kept) except? NULL:
    """`data`, whose values have `width` bytes, or a copy: Arrow recommends alignment, C demands it to load them."""
    cdef Memory copy
    if not <uintptr_t>data % width:
        return data
    copy = Memory.new(size)
    memcpy(copy.data, data, <size_t>size)
    kept.append(copy)
    return copy.data


cdef int check_rows(const ArrowArray* array, int64_t offset, int64_t length, str name) except -1:
    """Refuse a child with fewer rows than the array around it, or with more than there can be."""
    if array.length > ROWS_MAX:
        raise malformed(name, f"length {array.length}")
    if array.length < 0 or array.length - offset < length:
        raise malformed(name, f"{array.length} rows, fewer than the {length} from {offset} on of the array around it")
    return 0


cdef str text_of(const char* text):
    """For names and formats that a producer wrote: damaged text is shown, not refused."""
    return text[:<Py_ssize_t>strlen(text)].decode("utf-8", "replace")


cdef str name_of(const ArrowSchema* schema):
    return "" if schema.name == NULL else text_of(schema.name)


cdef object refuse_type(str name, const ArrowSchema* schema, str wanted):
    return UsageTypeError("column type", where=name, got=type_name(schema), wanted=wanted)


cdef int bytes_input(
    BytesInput* column, const ArrowSchema* schema, const ArrowArray* array, str name, list kept,
) except -1:
    """Describe a child array of bytes or text; what had to be copied goes to `kept`."""
    check_array(schema, array, name, 0)
    cdef const char* format = schema.format
    cdef Py_ssize_t last = array.length + array.offset
    cdef bint has_rows = array.length > 0
    if schema.dictionary != NULL:
        raise refuse_type(name, schema, "plain bytes or text: cast it to binary or utf8")
    column.first = array.offset
    if strcmp(format, "n") == 0:
        column.kind = KIND_NULL
        return 0
    if strcmp(format, "z") == 0 or strcmp(format, "u") == 0:
        column.kind = KIND_BINARY
        check_array(schema, array, name, 3)
        column.ends32 = <const int32_t*>aligned(array.buffers[1], 4 * (last + 1), 4, kept)
        column.data = <const uint8_t*>array.buffers[2]
        if has_rows and column.ends32 != NULL:
            column.data_end = column.data + max(column.ends32[last], 0)
    elif strcmp(format, "Z") == 0 or strcmp(format, "U") == 0:
        column.kind = KIND_LARGE
        check_array(schema, array, name, 3)
        column.ends64 = <const int64_t*>aligned(array.buffers[1], 8 * (last + 1), 8, kept)
        column.data = <const uint8_t*>array.buffers[2]
        if has_rows and column.ends64 != NULL:
            column.data_end = column.data + max(column.ends64[last], 0)
    elif strcmp(format, "vz") == 0 or strcmp(format, "vu") == 0:
        column.kind = KIND_VIEW
        check_array(schema, array, name, 3)
        column.views = <const uint64_t*>aligned(array.buffers[1], 16 * last, 8, kept)
        column.buffer_count = array.n_buffers - 3
        column.buffers = array.buffers + 2
        column.buffer_sizes = <const int64_t*>aligned(array.buffers[array.n_buffers - 1], 8 * column.buffer_count, 8, kept)
        if column.buffer_count and column.buffer_sizes == NULL:
            raise malformed(name, "views without the sizes of their buffers")
    elif strncmp(format, "w:", 2) == 0:
        column.kind = KIND_FIXED
        check_array(schema, array, name, 2)
        width = format[2:<Py_ssize_t>strlen(format)]
        if not width.isdigit() or len(width) > 10 or int(width) > 0x7FFFFFFF:
            raise malformed(name, f"a width of {text_of(width)}")
        column.width = int(width)
        if last > 0x7FFFFFFFFFFFFFFF // max(column.width, 1):
            raise malformed(name, f"{last} rows of {column.width} bytes")
        column.data = <const uint8_t*>array.buffers[1]
        column.data_end = column.data + last * column.width
        if column.data == NULL and column.width == 0:
            column.data = column.data_end = <const uint8_t*>array.buffers
    else:
        wanted = "binary, utf8, their large and view forms, fixed_size_binary or null"
        raise refuse_type(name, schema, wanted if format[0] == b"+" else wanted + ": cast it to utf8 for its text")
    if has_rows and array.buffers[1] == NULL and (column.kind != KIND_FIXED or column.width):
        raise malformed(name, "rows without a buffer for them")
    if has_rows and column.data == NULL and column.data_end != NULL:
        raise malformed(name, "bytes without a buffer for them")
    column.validity = <const uint8_t*>array.buffers[0] if array.null_count != 0 else NULL
    return 0


cdef void own_bytes(BytesInput* input, BinaryColumn column) noexcept:
    input.kind = KIND_BINARY
    input.data = column.memory.data
    input.data_end = input.data + column.memory.size
    input.ends32 = <const int32_t*>column.ends.data
    if column.bitmap is not None:
        input.validity = column.bitmap.data


cdef int64_t data_bytes(const BytesInput* column, int64_t count) noexcept nogil:
    """About how many bytes the rows hold, for a first guess at the output."""
    cdef int64_t row, total = 0
    if not count:
        return 0
    if column.kind == KIND_BINARY:
        total = <int64_t>column.ends32[column.first + count] - column.ends32[column.first]
    elif column.kind == KIND_LARGE:
        total = sub64(column.ends64[column.first + count], column.ends64[column.first])
    elif column.kind == KIND_VIEW:
        for row in range(column.first, column.first + count):
            if column.validity == NULL or is_valid(column.validity, row):
                total += <uint32_t>column.views[2 * row]
    elif column.kind == KIND_FIXED:
        total = count * column.width
    return min(max(total, 0), GUESS_BYTES_MAX)


cdef int headers_input(HeadersInput* headers, const ArrowSchema* schema, const ArrowArray* array, list kept) except -1:
    """Describe a list (or map) of name and value."""
    cdef const char* format = schema.format
    cdef const ArrowSchema* entry
    cdef const ArrowArray* entries
    cdef int64_t index, last = array.offset + array.length, name_index = 0, value_index = 1
    check_array(schema, array, "headers", 0)
    if strcmp(format, "n") == 0:
        return 0
    if strcmp(format, "+l") != 0 and strcmp(format, "+L") != 0 and strcmp(format, "+m") != 0:
        raise refuse_type("headers", schema, "a list, large_list or map of (key, value)")
    check_array(schema, array, "headers", 2)
    if not array.n_children or (array.length and array.buffers[1] == NULL):
        raise malformed("headers", "a list without elements or offsets")
    entry = schema.children[0]
    entries = array.children[0]
    check_array(entry, entries, "headers", 0)
    if strcmp(entry.format, "+s") != 0 or entry.n_children != 2:
        raise refuse_type("headers", entry, "a struct of (key, value) as the list's element")
    for index in range(2):
        if name_of(entry.children[index]) == "value" and strcmp(format, "+m") != 0:
            value_index, name_index = index, 1 - index
        check_rows(entries.children[index], entries.offset, entries.length, "headers")
    if entries.null_count != 0 and entries.n_buffers and entries.buffers != NULL:
        headers.entries_validity = <const uint8_t*>entries.buffers[0]
    headers.given = True
    headers.first = array.offset
    headers.validity = <const uint8_t*>array.buffers[0] if array.null_count != 0 else NULL
    if strcmp(format, "+L") == 0:
        headers.ends64 = <const int64_t*>aligned(array.buffers[1], 8 * (last + 1), 8, kept)
    else:
        headers.ends32 = <const int32_t*>aligned(array.buffers[1], 4 * (last + 1), 4, kept)
    headers.entries = entries.length
    headers.entries_first = entries.offset
    bytes_input(&headers.name, entry.children[name_index], entries.children[name_index], "headers.key", kept)
    bytes_input(&headers.value, entry.children[value_index], entries.children[value_index], "headers.value", kept)
    # Records without headers are by far the most common: let the loop not look for them.
    if not array.length or (headers.ends32 != NULL and headers.ends32[array.offset] == headers.ends32[last]) or (
            headers.ends64 != NULL and headers.ends64[array.offset] == headers.ends64[last]):
        headers.given = False
    # The struct's own offset shifts both of its children.
    headers.name.first += entries.offset
    headers.value.first += entries.offset
    return 0


cdef fused Narrow:
    int8_t
    uint8_t
    int16_t
    uint16_t
    int32_t
    uint32_t


cdef void widen(const Narrow* rows, int64_t* out, int64_t count) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        out[index] = rows[index]


cdef Memory widened(char format, const void* data, int64_t first, int64_t count):
    """`count` rows of narrower integers, from `first` on, as int64 rows of their own."""
    cdef Memory made = Memory.new(8 * count)
    cdef int64_t* out = <int64_t*>made.data
    with nogil:
        if format == b"c":
            widen(<const int8_t*>data + first, out, count)
        elif format == b"C":
            widen(<const uint8_t*>data + first, out, count)
        elif format == b"s":
            widen(<const int16_t*>data + first, out, count)
        elif format == b"S":
            widen(<const uint16_t*>data + first, out, count)
        elif format == b"i":
            widen(<const int32_t*>data + first, out, count)
        else:
            widen(<const uint32_t*>data + first, out, count)
    return made


cdef object refuse_integers(str name, const ArrowSchema* schema):
    wanted = "integers"
    cast = "int64" if schema.dictionary != NULL or schema.format[0] in b"efgduU" else None
    if name == "timestamp":
        wanted = "integer milliseconds or a timestamp"
        if schema.dictionary == NULL and (schema.format[0] in b"uU" or strncmp(schema.format, "td", 2) == 0):
            cast = "timestamp"
    return refuse_type(name, schema, wanted if cast is None else f"{wanted}: cast it to {cast}")


cdef int integers_input(
    const ArrowSchema* schema, const ArrowArray* array, str name, int64_t absent, const int64_t** out, list kept,
) except -1:
    """Point `out` to int64 rows; where they had to be converted or copied, their memory goes to `kept`."""
    cdef const char* format = schema.format
    cdef const uint8_t* validity = NULL
    cdef const int64_t* rows
    cdef Memory made = None
    cdef int64_t* converted
    cdef int64_t index, unit = 0, value
    cdef int64_t width
    cdef const void* data
    cdef bint is_unsigned
    check_array(schema, array, name, 0)
    is_unsigned = strcmp(format, "L") == 0
    if schema.dictionary != NULL:
        raise refuse_integers(name, schema)
    if strcmp(format, "n") == 0 and name == "timestamp":
        return 0
    if strlen(format) == 1 and format[0] in b"cCsSiIlL":
        unit = 1
    elif name == "timestamp" and strncmp(format, "ts", 2) == 0 and strlen(format) >= 4:
        unit = {b"s": -1000, b"m": 1, b"u": 1000, b"n": 1000000}.get(format[2:3], 0)
    if not unit:
        raise refuse_integers(name, schema)
    check_array(schema, array, name, 2)
    if not array.length:
        return 0
    if array.buffers[1] == NULL:
        raise malformed(name, "rows without a buffer for them")
    width = 1 if format[0] in b"cC" else 2 if format[0] in b"sS" else 4 if format[0] in b"iI" else 8
    data = aligned(array.buffers[1], width * (array.offset + array.length), <size_t>width, kept)
    if width == 8:
        rows = <const int64_t*>data + array.offset
    else:
        made = widened(format[0], data, array.offset, array.length)
        rows = <const int64_t*>made.data
    if array.null_count != 0:
        validity = <const uint8_t*>array.buffers[0]
    if unit == 1 and validity == NULL and not is_unsigned:
        out[0] = rows
        if made is not None:
            kept.append(made)
        return 0
    if made is None:
        made = Memory.new(8 * array.length)
    converted = <int64_t*>made.data
    for index in range(array.length):
        if not is_valid(validity, array.offset + index):
            if name != "timestamp":
                raise UsageError(name, where=f"row {index}", got="null", wanted="an offset")
            converted[index] = absent
            continue
        value = rows[index]
        if is_unsigned and value < 0:
            raise UsageError(name, where=f"row {index}", got=<uint64_t>value, wanted="less than 2^63")
        if unit < 0:
            if not -9223372036854775 <= value <= 9223372036854775:
                raise UsageError(name, where=f"row {index}", got=f"{value} s", wanted="milliseconds below 2^63")
            value *= 1000
        elif value >= 0:
            value //= unit
        else:
            value = -((-(value + 1)) // unit) - 1     # down, not toward zero, as every calendar does
        converted[index] = value
    out[0] = converted
    kept.append(made)
    return 0


@cython.final
cdef class Table:
    """One imported struct array as Rows, and what keeps it alive."""
    cdef Rows rows
    cdef list kept, names

    cdef int add_struct(self, Imported imported, int64_t now_ms) except -1:
        cdef ArrowSchema* schema = imported.schema
        cdef ArrowArray* array = &imported.array
        cdef int64_t index, row
        check_array(schema, array, "columns", 0)
        if strcmp(schema.format, "+s") != 0:
            raise UsageTypeError("columns", got=f"an array of {type_name(schema)}",
                                 wanted="a table, record batch or struct array with a field a column")
        if array.null_count != 0 and array.n_buffers and array.buffers != NULL and array.buffers[0] != NULL:
            for row in range(array.length):
                if not is_valid(<const uint8_t*>array.buffers[0], array.offset + row):
                    raise UsageError("columns", where=f"row {row}", got="null", wanted="a struct")
        self.kept.append(imported)
        self.rows.count = array.length
        for index in range(schema.n_children):
            check_rows(array.children[index], array.offset, array.length, name_of(schema.children[index]))
            self.add_field(name_of(schema.children[index]), schema.children[index],
                           array.children[index], array.offset, array.length, now_ms)
        return 0

    cdef int add_columns(self, Columns columns) except -1:
        """Take one chunk of the binary layout as it is: Arrow's structs would cost as much as a hundred records."""
        self.kept.append(columns)
        self.rows.count = columns.length
        for name, column in columns.columns.items():
            if name == "value":
                own_bytes(&self.rows.value, column)
            elif name == "key":
                own_bytes(&self.rows.key, column)
            elif name == "offset":
                self.rows.offsets = <const int64_t*>(<Memory>column).data
            elif name == "timestamp":
                self.rows.timestamps = <const int64_t*>(<Memory>column).data
            elif name == "headers" and (<HeadersColumn>column).names.length:
                self.rows.headers.given = True
                self.rows.headers.ends32 = <const int32_t*>(<HeadersColumn>column).ends.data
                self.rows.headers.entries = (<HeadersColumn>column).names.length
                own_bytes(&self.rows.headers.name, (<HeadersColumn>column).names)
                own_bytes(&self.rows.headers.value, (<HeadersColumn>column).values)
        return 0

    cdef int add_field(
        self, str name, const ArrowSchema* schema, const ArrowArray* given, int64_t offset, int64_t length, int64_t now_ms,
    ) except -1:
        """Take one column; `offset` and `length` are those of the struct around it."""
        cdef ArrowArray array = given[0]
        if name in self.names:
            raise UsageError("columns", got=f"two columns named {name!r}", wanted="one of each")
        self.names.append(name)
        if array.offset < 0 or array.offset > ROWS_MAX - offset:
            raise malformed(name, f"offset {array.offset}")
        array.offset += offset
        array.length = length
        if name == "value":
            bytes_input(&self.rows.value, schema, &array, name, self.kept)
        elif name == "key":
            bytes_input(&self.rows.key, schema, &array, name, self.kept)
        elif name == "headers":
            headers_input(&self.rows.headers, schema, &array, self.kept)
        elif name == "timestamp":
            integers_input(schema, &array, name, now_ms, &self.rows.timestamps, self.kept)
        elif name == "offset":
            integers_input(schema, &array, name, -1, &self.rows.offsets, self.kept)
        elif name != "timestamp_type":   # decode_columns() may have given it; a batch says it once, by option
            raise UsageError("columns", got=f"a column named {name!r}",
                             wanted="offset, timestamp, key, value, headers: select or rename, and leave out an index")
        return 0


close_type(Table)


cdef Table new_table():
    cdef Table table = Table.__new__(Table)
    table.kept = []
    table.names = []
    return table


cdef list tables_of(object columns, int64_t now_ms):
    """The chunks of whatever the caller gave, as Tables."""
    cdef Table table
    cdef Imported imported
    cdef list tables = []
    if isinstance(columns, Columns) and (<Columns>columns).layout == "binary":
        for part in (<Columns>columns).chunks:
            table = new_table()
            table.add_columns(part)
            tables.append(table)
        return tables
    if not isinstance(columns, dict):
        for imported in import_arrays(columns):
            table = new_table()
            table.add_struct(imported, now_ms)
            tables.append(table)
        return tables
    table = new_table()
    length = None
    for name, producer in columns.items():
        if not isinstance(name, str):
            raise UsageTypeError("name of a column", got=type(name).__name__, wanted="str")
        arrays = import_arrays(as_producer(name, producer))
        if len(arrays) != 1:
            raise UsageError("columns", where=repr(name), got=f"{len(arrays)} chunks",
                             wanted="one: combine them, or give a table")
        imported = arrays[0]
        if length is not None and imported.array.length != length:
            raise UsageError("columns", where=repr(name), got=f"{imported.array.length} rows", wanted=f"{length}")
        length = imported.array.length
        table.kept.append(imported)
        table.rows.count = imported.array.length
        table.add_field(name, imported.schema, &imported.array, 0, imported.array.length, now_ms)
    return [table]


cdef object as_producer(name, producer):
    """`producer`, if it is one."""
    if hasattr(producer, "__arrow_c_array__") or hasattr(producer, "__arrow_c_stream__"):
        return producer
    raise UsageTypeError("columns", where=repr(name), got=type(producer).__name__,
                         wanted="an Arrow array (anything with __arrow_c_array__), such as pyarrow.array(…) makes")


# ------------------------------------------------------------------------------------------------------------- writing

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
    batch_bytes_max=None,
) -> bytes:
    """Write columns as one v2 batch or more, end to end.

    columns: a Columns, any Arrow table, record batch, struct array or stream of them, or a dict of Arrow arrays; the
        names are offset, timestamp, key, value and headers, and all but one may be missing
    batch_bytes: begin a new batch before one grows beyond this (1 MiB; before compression); a record larger than that
        gets a batch of its own
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
        encoder.add(table, rows)
        rows += table.rows.count
    return encoder.finish()
