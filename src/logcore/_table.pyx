"""What encode_columns() is given, as rows of plain C: any Arrow producer's columns, or our own.

Producers (pyarrow, polars, duckdb, pandas) come through the C data interface. A struct or table has fields by the names
that decode_columns() gives them:

    value, key    binary, large_binary, utf8, large_utf8, binary_view, utf8_view, fixed_size_binary, or null
    timestamp     integer milliseconds, or a timestamp of any unit; null: now_ms, or none
    offset        integers; absent: numbered from base_offset on
    headers       list, large_list or map of (key, value)

Nothing is copied but integers of another width or unit, and buffers that are not aligned. A foreign struct is not
trusted: what it says of itself is checked here, what its buffers hold when a row is read.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, strcmp, strlen, strncmp

from logcore._arguments cimport close_type
from logcore._arrow cimport ArrowArray, ArrowSchema, Imported, import_arrays, type_name
from logcore._buffer cimport Memory
from logcore._bytes cimport sub64
from logcore._columns cimport VIEW_INLINE_MAX, BinaryColumn, Columns, HeadersColumn

import cython

from logcore.errors import UsageError, UsageTypeError

# More than memory holds, and far from an overflow when it is counted in bytes.
cdef int64_t ROWS_MAX = 1 << 48
cdef int64_t GUESS_BYTES_MAX = 1 << 48


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
    """Rows, and what keeps them alive."""

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
