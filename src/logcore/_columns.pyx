"""Columns of decoded records, in Arrow's layouts, and how they are handed to Arrow's consumers.

    offset, timestamp    int64
    timestamp_type       int32, 0 CreateTime, 1 LogAppendTime, -1 for magic 0 (only when asked for)
    key, value           binary layout: bytes + int32 offsets + validity bitmap, what Spark takes
                         view layout: Arrow's BinaryView, 16 bytes a value: up to 12 bytes inline, longer ones point into
                         the batch's own bytes or its decompressed records, which the column keeps alive
    headers              list<struct<key: utf8, value: binary or view>>

Everything here is immutable once made: _builder fills the memory, and whoever exports it holds a reference.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.number cimport PyNumber_AsSsize_t
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t

from logcore._arguments cimport close_type
from logcore._arrow cimport Export, array_capsule, schema_capsule, stream_capsule
from logcore._buffer cimport Memory, Source
from logcore._record cimport Record

import cython
import numpy as np

from logcore.errors import UsageError


cdef uintptr_t address(Memory memory) noexcept:
    return 0 if memory is None else <uintptr_t>memory.data


cdef bint is_null(Memory bitmap, Py_ssize_t index) noexcept:
    return bitmap is not None and not bitmap.data[index >> 3] >> (index & 7) & 1


cdef Py_ssize_t checked_index(object index, Py_ssize_t length) except -1:
    cdef Py_ssize_t at = PyNumber_AsSsize_t(index, IndexError)
    if at < 0:
        at += length
    if not 0 <= at < length:
        raise IndexError(f"row {index} of {length}")
    return at


@cython.final
cdef class BinaryColumn:
    """Bytes (or text) of Arrow's binary layout: `data`, int32 `offsets`, and a `validity` bitmap or None."""

    @staticmethod
    cdef BinaryColumn new():
        return BinaryColumn.__new__(BinaryColumn)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        """Bytes (str for text), or None for null."""
        cdef Py_ssize_t at = checked_index(index, self.length)
        cdef int32_t* ends = <int32_t*>self.ends.data
        if is_null(self.bitmap, at):
            return None
        value = PyBytes_FromStringAndSize(<const char*>self.memory.data + ends[at], ends[at + 1] - ends[at])
        return value.decode() if self.is_text else value

    @property
    def data(self):
        """All values end to end, as a numpy uint8 array."""
        return np.frombuffer(self.memory, dtype=np.uint8)

    @property
    def offsets(self):
        """len + 1 int32 positions in data: value i is data[offsets[i]:offsets[i + 1]]."""
        return np.frombuffer(self.ends, dtype=np.int32)

    @property
    def validity(self):
        """A bitmap, least significant bit first, where 0 means null; None if there is no null."""
        return None if self.bitmap is None else np.frombuffer(self.bitmap, dtype=np.uint8)

    cdef Export export(self, bytes name, bint nullable):
        return Export.new(b"u" if self.is_text else b"z", name, nullable, self.length, self.null_count, self,
                          [address(self.bitmap), address(self.ends), address(self.memory)], [])

    def __arrow_c_schema__(self):
        return schema_capsule(self.export(b"", True))

    def __arrow_c_array__(self, requested_schema=None):
        return self.__arrow_c_schema__(), array_capsule(self.export(b"", True))

    def __repr__(self):
        return f"BinaryColumn({self.length} values, {self.memory.size} bytes, {self.null_count} nulls)"


close_type(BinaryColumn, "decode_columns(buffer)")


@cython.final
cdef class ViewColumn:
    """Bytes of Arrow's view layout: 16 bytes a value in `views`, longer values in `buffers`."""

    @staticmethod
    cdef ViewColumn new():
        return ViewColumn.__new__(ViewColumn)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        cdef Py_ssize_t at = checked_index(index, self.length)
        cdef uint64_t* view = <uint64_t*>self.words.data + 2 * at
        cdef Source source
        if is_null(self.bitmap, at):
            return None
        cdef Py_ssize_t size = <uint32_t>view[0]
        if size <= VIEW_INLINE_MAX:
            return PyBytes_FromStringAndSize(<const char*>view + 4, size)
        source = self.sources[<uint32_t>view[1]]
        return PyBytes_FromStringAndSize(<const char*>source.data + <Py_ssize_t>(view[1] >> 32), size)

    @property
    def views(self):
        """The views as a numpy array of shape (len, 16)."""
        return np.frombuffer(self.words, dtype=np.uint8).reshape(self.length, 16)

    @property
    def buffers(self):
        """What the views point into, as memoryviews."""
        return tuple([memoryview(source) for source in self.sources])

    @property
    def validity(self):
        """A bitmap, least significant bit first, where 0 means null; None if there is no null."""
        return None if self.bitmap is None else np.frombuffer(self.bitmap, dtype=np.uint8)

    cdef Export export(self, bytes name, bint nullable):
        cdef Source source
        cdef list buffers = [address(self.bitmap), address(self.words)]
        for source in self.sources:
            buffers.append(<uintptr_t>source.data)
        buffers.append(address(self.sizes))
        return Export.new(b"vz", name, nullable, self.length, self.null_count, self, buffers, [])

    def __arrow_c_schema__(self):
        return schema_capsule(self.export(b"", True))

    def __arrow_c_array__(self, requested_schema=None):
        return self.__arrow_c_schema__(), array_capsule(self.export(b"", True))

    def __repr__(self):
        return f"ViewColumn({self.length} values in {len(self.sources)} buffers, {self.null_count} nulls)"


close_type(ViewColumn, 'decode_columns(buffer, layout="view")')


@cython.final
cdef class HeadersColumn:
    """A list of headers a record: `names` and `values` end to end, and int32 `offsets` into them."""

    @staticmethod
    cdef HeadersColumn new():
        return HeadersColumn.__new__(HeadersColumn)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        """The headers of one record as a tuple of (str, bytes or None)."""
        cdef Py_ssize_t at = checked_index(index, self.length)
        cdef int32_t* ends = <int32_t*>self.ends.data
        return tuple([(self.names[entry], self.values[entry]) for entry in range(ends[at], ends[at + 1])])

    @property
    def offsets(self):
        """len + 1 int32 positions: record i has headers offsets[i] to offsets[i + 1]."""
        return np.frombuffer(self.ends, dtype=np.int32)

    cdef Export export(self, bytes name, bint nullable):
        cdef Export values
        if isinstance(self.values, ViewColumn):
            values = (<ViewColumn>self.values).export(b"value", True)
        else:
            values = (<BinaryColumn>self.values).export(b"value", True)
        entries = Export.new(b"+s", b"element", False, self.names.length, 0, self, [0],
                             [self.names.export(b"key", False), values])
        return Export.new(b"+l", name, nullable, self.length, 0, self, [0, address(self.ends)], [entries])

    def __arrow_c_schema__(self):
        return schema_capsule(self.export(b"", False))

    def __arrow_c_array__(self, requested_schema=None):
        return self.__arrow_c_schema__(), array_capsule(self.export(b"", False))

    def __repr__(self):
        return f"HeadersColumn({self.length} records, {len(self.names)} headers)"


close_type(HeadersColumn, "decode_columns(buffer)")


@cython.final
cdef class Columns:
    """Decoded records as columns; what decode_columns() returns.

    `offset` and `timestamp` are int64 numpy arrays; `key`, `value` and `headers` are column objects. Every Arrow
    consumer takes it: `pyarrow.table(columns)`, `polars.DataFrame(columns)`, `duckdb.from_arrow(columns)`.
    More than 2 GiB of values come in several chunks, each a Columns in `chunks`.
    """

    @staticmethod
    cdef Columns new():
        return Columns.__new__(Columns)

    def __len__(self):
        return self.length

    @property
    def chunks(self):
        """The chunks as a tuple of Columns; itself, if there is one."""
        return self.parts or (self,)

    @property
    def nbytes(self):
        """Memory held by the columns, without what a view layout points into."""
        return sum([part.nbytes for part in self.parts]) if self.parts else self.bytes_held

    cdef object integers(self, str name, object dtype):
        if self.parts:
            return np.concatenate([getattr(part, name) for part in self.parts])
        return np.frombuffer(<Memory?>self.column(name), dtype=dtype)

    cdef object column(self, str name):
        if self.parts:
            raise UsageError(name, got=f"columns in {len(self.parts)} chunks", wanted="one chunk: take it from .chunks")
        if name not in self.columns:
            raise UsageError(name, got=f"columns {', '.join(self.names)}", wanted="a column that was decoded")
        return self.columns[name]

    @property
    def offset(self):
        return self.integers("offset", np.int64)

    @property
    def timestamp(self):
        return self.integers("timestamp", np.int64)

    @property
    def timestamp_type(self):
        """0 CreateTime, 1 LogAppendTime, -1 none (magic 0); only when asked for by name."""
        return self.integers("timestamp_type", np.int32)

    @property
    def key(self):
        return self.column("key")

    @property
    def value(self):
        return self.column("value")

    @property
    def headers(self):
        return self.column("headers")

    def __iter__(self):
        """The records as Record objects; columns that were not decoded have their defaults."""
        cdef Py_ssize_t index
        for part in self.chunks:
            offset = part.offset.tolist() if "offset" in self.names else None
            timestamp = part.timestamp.tolist() if "timestamp" in self.names else None
            for index in range(len(part)):
                yield Record.new(
                    -1 if offset is None else offset[index],
                    -1 if timestamp is None else timestamp[index],
                    part.key[index] if "key" in self.names else None,
                    part.value[index] if "value" in self.names else None,
                    part.headers[index] if "headers" in self.names else (),
                )

    def to_numpy(self):
        """A dict of numpy arrays; keys, values and headers become arrays of Python objects."""
        found = {}
        for name in self.names:
            if name in ("offset", "timestamp", "timestamp_type"):
                found[name] = getattr(self, name)
                continue
            array = np.empty(self.length, dtype=object)
            at = 0
            for part in self.chunks:
                column = getattr(part, name)
                for index in range(len(column)):
                    array[at] = column[index]
                    at += 1
            found[name] = array
        return found

    def to_arrow(self):
        """A pyarrow.Table that shares this memory. Needs pyarrow."""
        try:
            import pyarrow
        except ImportError:
            raise UsageError("to_arrow", got="no pyarrow", wanted="pip install pyarrow, or any other consumer of "
                             "Arrow's PyCapsule protocol") from None
        return pyarrow.table(self)

    cdef Export export(self):
        cdef list children = []
        for name in self.names:
            column = self.columns[name]
            encoded = (<str>name).encode()
            if isinstance(column, Memory):
                children.append(Export.new(b"i" if name == "timestamp_type" else b"l", encoded, False, self.length, 0,
                                           column, [0, address(<Memory>column)], []))
            elif isinstance(column, BinaryColumn):
                children.append((<BinaryColumn>column).export(encoded, True))
            elif isinstance(column, ViewColumn):
                children.append((<ViewColumn>column).export(encoded, True))
            else:
                children.append((<HeadersColumn>column).export(encoded, False))
        return Export.new(b"+s", b"", False, self.length, 0, self, [0], children)

    def __arrow_c_schema__(self):
        cdef Columns first = self.chunks[0]
        return schema_capsule(first.export())

    @property
    def __arrow_c_array__(self):
        """Arrow's protocol for one array. Several chunks are none: consumers then look for __arrow_c_stream__."""
        if self.parts:
            raise AttributeError(f"__arrow_c_array__ of columns in {len(self.parts)} chunks; take __arrow_c_stream__")
        return self._arrow_array

    def _arrow_array(self, requested_schema=None):
        return schema_capsule(self.export()), array_capsule(self.export())

    def __arrow_c_stream__(self, requested_schema=None):
        cdef Columns part
        cdef list exports = []
        for part in self.chunks:
            exports.append(part.export())
        return stream_capsule(exports, exports[0])

    def __repr__(self):
        chunked = f", {len(self.parts)} chunks" if self.parts else ""
        return f"Columns({self.length} records: {', '.join(self.names)}; {self.layout}{chunked})"


close_type(Columns, "decode_columns(buffer)")


def _exports(columns):
    cdef Columns part
    for whole in columns:
        for part in (<Columns?>whole).chunks:
            yield part.export()


class ColumnsStream:
    """Columns one after another, made as they are asked for: what Log.read_columns() returns. It can be read once.

    Iterate it for Columns; or hand it to any consumer of Arrow streams: `pyarrow.table(stream)`,
    `polars.DataFrame(stream)`, `duckdb.from_arrow(stream)`. Those see damage as an error of their own, with our words.

    columns: an iterator of Columns; empty: a Columns without rows, which has their names and layout
    """

    __slots__ = ("_columns", "_empty")

    def __init__(self, columns, Columns empty not None):
        self._columns = iter(columns)
        self._empty = empty

    @property
    def names(self):
        """The names of the columns."""
        return self._empty.names

    @property
    def layout(self):
        """"binary" or "view"."""
        return self._empty.layout

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._columns)

    def to_arrow(self):
        """All that is left as a pyarrow.Table. Needs pyarrow."""
        import pyarrow

        return pyarrow.table(self)

    def __arrow_c_schema__(self):
        return self._empty.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema=None):
        return stream_capsule(_exports(self._columns), (<Columns>self._empty).export())

    def __repr__(self):
        return f"ColumnsStream({', '.join(self.names)}; {self.layout})"
