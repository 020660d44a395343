"""Arrow's C data interface, both ways, without any Arrow library: PyCapsules in, PyCapsules out.

Ownership, as the interface has it: whoever holds a struct with a non-NULL `release` owns it. An exported array holds
a reference to the object that owns its memory, so it may outlive everything of ours. An importer moves the struct out
of the capsule and sets `release` to NULL; a capsule nobody took releases what it holds.

https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strlen

from logcore._arguments cimport close_type

import cython

from logcore.errors import UsageError, UsageTypeError

cdef extern from "Python.h" nogil:
    bint Py_IsInitialized()

cdef enum:
    ARROW_FLAG_NULLABLE = 2
    EINVAL = 22

cdef const char* SCHEMA_NAME = "arrow_schema"
cdef const char* ARRAY_NAME = "arrow_array"
cdef const char* STREAM_NAME = "arrow_array_stream"


# --------------------------------------------------------------------------------------------------------- exporting

@cython.final
cdef class Export:
    """One array to be exported: format, shape, addresses, and the object that owns the memory."""

    @staticmethod
    cdef Export new(bytes format, bytes name, bint nullable, int64_t length, int64_t null_count, object owner,
                    list buffers, list children):
        cdef Export self = Export.__new__(Export)
        self.format = format
        self.name = name
        self.nullable = nullable
        self.length = length
        self.null_count = null_count
        self.owner = owner
        self.buffers = buffers
        self.children = children
        return self


close_type(Export)


cdef void* allocated(size_t count, size_t size) except NULL:
    cdef void* made = calloc(max(count, <size_t>1), size)
    if made == NULL:
        raise MemoryError(f"{count * size} bytes for an Arrow struct")
    return made


cdef char* copied(bytes text) except NULL:
    cdef char* made = <char*>allocated(<size_t>len(text) + 1, 1)
    memcpy(made, <const char*>text, <size_t>len(text))
    return made


cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    cdef int64_t index
    for index in range(schema.n_children):
        if schema.children[index] != NULL:
            if schema.children[index].release != NULL:
                schema.children[index].release(schema.children[index])
            free(schema.children[index])
    free(schema.children)
    free(<void*>schema.format)
    free(<void*>schema.name)
    schema.release = NULL


cdef int fill_schema(ArrowSchema* schema, Export export) except -1:
    """Fill a zeroed struct; on failure it is releasable as far as it came."""
    cdef Py_ssize_t index
    schema.release = release_schema
    schema.format = copied(export.format)
    schema.name = copied(export.name)
    schema.flags = ARROW_FLAG_NULLABLE if export.nullable else 0
    schema.children = <ArrowSchema**>allocated(<size_t>len(export.children), sizeof(void*))
    schema.n_children = len(export.children)
    for index in range(len(export.children)):
        schema.children[index] = <ArrowSchema*>allocated(1, sizeof(ArrowSchema))
        fill_schema(schema.children[index], export.children[index])
    return 0


cdef void release_array(ArrowArray* array) noexcept nogil:
    cdef int64_t index
    for index in range(array.n_children):
        if array.children[index] != NULL:
            if array.children[index].release != NULL:
                array.children[index].release(array.children[index])
            free(array.children[index])
    free(array.children)
    free(array.buffers)
    array.release = NULL
    # A consumer may hold an array longer than the interpreter lives; then its memory goes with the process.
    if array.private_data != NULL and Py_IsInitialized():
        with gil:
            Py_DECREF(<object>array.private_data)


cdef int fill_array(ArrowArray* array, Export export) except -1:
    """Fill a zeroed struct; on failure it is releasable as far as it came."""
    cdef Py_ssize_t index
    array.release = release_array
    array.length = export.length
    array.null_count = export.null_count
    array.buffers = <const void**>allocated(<size_t>len(export.buffers), sizeof(void*))
    array.n_buffers = len(export.buffers)
    for index in range(len(export.buffers)):
        array.buffers[index] = <const void*><uintptr_t>export.buffers[index]
    Py_INCREF(export.owner)
    array.private_data = <void*>export.owner
    array.children = <ArrowArray**>allocated(<size_t>len(export.children), sizeof(void*))
    array.n_children = len(export.children)
    for index in range(len(export.children)):
        array.children[index] = <ArrowArray*>allocated(1, sizeof(ArrowArray))
        fill_array(array.children[index], export.children[index])
    return 0


cdef void drop_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, SCHEMA_NAME)
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void drop_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, ARRAY_NAME)
    if array.release != NULL:
        array.release(array)
    free(array)


cdef void drop_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, STREAM_NAME)
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


cdef object schema_capsule(Export export):
    capsule = PyCapsule_New(allocated(1, sizeof(ArrowSchema)), SCHEMA_NAME, drop_schema)
    fill_schema(<ArrowSchema*>PyCapsule_GetPointer(capsule, SCHEMA_NAME), export)
    return capsule


cdef object array_capsule(Export export):
    capsule = PyCapsule_New(allocated(1, sizeof(ArrowArray)), ARRAY_NAME, drop_array)
    fill_array(<ArrowArray*>PyCapsule_GetPointer(capsule, ARRAY_NAME), export)
    return capsule


@cython.final
cdef class StreamState:
    """What an exported stream still has to hand out."""
    cdef object exports              # an iterator of Exports: it may make them as they are asked for
    cdef Export schema
    cdef bytes error


close_type(StreamState)


cdef int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept nogil:
    with gil:
        state = <StreamState>stream.private_data
        memset(out, 0, sizeof(ArrowSchema))
        try:
            fill_schema(out, state.schema)
            return 0
        except BaseException as error:
            if out.release != NULL:
                out.release(out)
            state.error = repr(error).encode()
            return EINVAL


cdef int stream_next(ArrowArrayStream* stream, ArrowArray* out) noexcept nogil:
    with gil:
        state = <StreamState>stream.private_data
        memset(out, 0, sizeof(ArrowArray))   # a NULL release says: no more
        try:
            export = next(state.exports, None)
            if export is not None:
                fill_array(out, export)
            return 0
        except BaseException as error:
            if out.release != NULL:
                out.release(out)
            state.error = repr(error).encode()
            return EINVAL


cdef const char* stream_error(ArrowArrayStream* stream) noexcept nogil:
    with gil:
        state = <StreamState>stream.private_data
        if state.error is None:
            return NULL
        return <const char*>state.error


cdef void stream_release(ArrowArrayStream* stream) noexcept nogil:
    stream.release = NULL
    if Py_IsInitialized():
        with gil:
            Py_DECREF(<StreamState>stream.private_data)


cdef object stream_capsule(object exports, Export schema):
    cdef StreamState state = StreamState.__new__(StreamState)
    state.exports = iter(exports)
    state.schema = schema
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>allocated(1, sizeof(ArrowArrayStream))
    capsule = PyCapsule_New(stream, STREAM_NAME, drop_stream)
    stream.get_schema = stream_schema
    stream.get_next = stream_next
    stream.get_last_error = stream_error
    Py_INCREF(state)
    stream.private_data = <void*>state
    stream.release = stream_release
    return capsule


# --------------------------------------------------------------------------------------------------------- importing

_TYPE_NAMES = {
    "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "e": "float16", "f": "float32", "g": "float64", "z": "binary", "Z": "large_binary",
    "vz": "binary_view", "u": "utf8", "U": "large_utf8", "vu": "utf8_view", "tdD": "date32", "tdm": "date64",
    "tts": "time32[s]", "ttm": "time32[ms]", "ttu": "time64[us]", "ttn": "time64[ns]", "tDs": "duration[s]",
    "tDm": "duration[ms]", "tDu": "duration[us]", "tDn": "duration[ns]", "tiM": "interval", "tiD": "interval",
    "tin": "interval", "tss": "timestamp[s]", "tsm": "timestamp[ms]", "tsu": "timestamp[us]", "tsn": "timestamp[ns]",
    "d": "decimal", "w": "fixed_size_binary", "+l": "list", "+L": "large_list", "+vl": "list_view",
    "+vL": "large_list_view", "+w": "fixed_size_list", "+s": "struct", "+m": "map", "+ud": "union", "+us": "union",
    "+r": "run_end_encoded",
}


cdef str type_name(const ArrowSchema* schema):
    """The type of a column as people know it; a format that Arrow has no name for is told as it is."""
    if schema.dictionary != NULL:
        return f"dictionary of {format_name(schema.dictionary.format)}"
    return format_name(schema.format)


cdef str format_name(const char* format):
    text = "" if format == NULL else format.decode("utf-8", "replace")
    return _TYPE_NAMES.get(text.partition(":")[0], f"Arrow format {text!r}")


@cython.final
cdef class SchemaKeeper:
    """Owns an imported schema for the arrays that share it."""
    cdef ArrowSchema schema

    def __dealloc__(self):
        if self.schema.release != NULL:
            self.schema.release(&self.schema)


close_type(SchemaKeeper)


@cython.final
cdef class Imported:
    """An array that somebody produced, ours until it goes."""

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)


close_type(Imported)


cdef list import_arrays(object producer):
    """Every array that `producer` has to give, through __arrow_c_stream__ or else __arrow_c_array__."""
    if hasattr(producer, "__arrow_c_stream__"):
        return import_stream(producer.__arrow_c_stream__(None))   # some require the argument
    if hasattr(producer, "__arrow_c_array__"):
        pair = producer.__arrow_c_array__(None)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise UsageTypeError("Arrow array", got=type(pair).__name__, wanted="a capsule of the schema and one of the array")
        return [import_array(take_schema(pair[0]), pair[1])]
    raise UsageTypeError("columns", got=type(producer).__name__,
                         wanted="Columns, an Arrow producer (pyarrow, polars, duckdb, pandas, …) or a dict of them")


cdef SchemaKeeper take_schema(object capsule):
    cdef SchemaKeeper keeper = SchemaKeeper.__new__(SchemaKeeper)
    if not PyCapsule_IsValid(capsule, SCHEMA_NAME):
        raise UsageTypeError("Arrow schema", got=type(capsule).__name__, wanted='a capsule named "arrow_schema"')
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, SCHEMA_NAME)
    if schema.release == NULL:
        raise UsageError("Arrow schema", got="a capsule that was taken already", wanted="a fresh one")
    keeper.schema = schema[0]
    schema.release = NULL
    return keeper


cdef Imported import_array(SchemaKeeper keeper, object capsule):
    cdef Imported imported = Imported.__new__(Imported)
    if not PyCapsule_IsValid(capsule, ARRAY_NAME):
        raise UsageTypeError("Arrow array", got=type(capsule).__name__, wanted='a capsule named "arrow_array"')
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, ARRAY_NAME)
    if array.release == NULL:
        raise UsageError("Arrow array", got="a capsule that was taken already", wanted="a fresh one")
    imported.keeper = keeper
    imported.schema = &keeper.schema
    imported.array = array[0]
    array.release = NULL
    return imported


cdef list import_stream(object capsule):
    cdef SchemaKeeper keeper = SchemaKeeper.__new__(SchemaKeeper)
    cdef Imported imported
    cdef list found = []
    cdef int status
    if not PyCapsule_IsValid(capsule, STREAM_NAME):
        raise UsageTypeError("Arrow stream", got=type(capsule).__name__,
                             wanted='a capsule named "arrow_array_stream"')
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, STREAM_NAME)
    if stream.release == NULL:
        raise UsageError("Arrow stream", got="a capsule that was taken already", wanted="a fresh one")
    if stream.get_schema == NULL or stream.get_next == NULL:
        raise UsageError("Arrow stream", got="one without get_schema or get_next", wanted="both")
    with nogil:
        status = stream.get_schema(stream, &keeper.schema)
    if status:
        keeper.schema.release = NULL   # not ours: what a failed call leaves behind is nothing
        raise stream_failure(stream, status)
    if keeper.schema.release == NULL:
        raise UsageError("Arrow stream", got="no schema", wanted="one")
    while True:
        imported = Imported.__new__(Imported)
        imported.keeper = keeper
        imported.schema = &keeper.schema
        PyErr_CheckSignals()           # a stream need not end
        if stream.release == NULL or stream.get_next == NULL:
            raise UsageError("Arrow stream", got="one that was released while it was read", wanted="arrays")
        with nogil:
            status = stream.get_next(stream, &imported.array)
        if status:
            imported.array.release = NULL
            raise stream_failure(stream, status)
        if imported.array.release == NULL:
            return found
        found.append(imported)


cdef object stream_failure(ArrowArrayStream* stream, int status):
    cdef const char* text = NULL
    if stream.release != NULL and stream.get_last_error != NULL:
        text = stream.get_last_error(stream)
    return UsageError("Arrow stream", got=f"error {status} of its producer: "
                      + ("unknown" if text == NULL else text[:<Py_ssize_t>strlen(text)].decode("utf-8", "replace")),
                      wanted="arrays")
