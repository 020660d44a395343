from libc.stdint cimport int64_t

# The Arrow C data and stream interfaces: the layout is a published ABI, so it stands here and needs no library.
cdef extern from * nogil:
    """
    #include <stdint.h>
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowSchema {
        const char *format;
        const char *name;
        const char *metadata;
        int64_t flags;
        int64_t n_children;
        struct ArrowSchema **children;
        struct ArrowSchema *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length;
        int64_t null_count;
        int64_t offset;
        int64_t n_buffers;
        int64_t n_children;
        const void **buffers;
        struct ArrowArray **children;
        struct ArrowArray *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    #ifndef ARROW_C_STREAM_INTERFACE
    #define ARROW_C_STREAM_INTERFACE
    struct ArrowArrayStream {
        int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
        int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
        const char *(*get_last_error)(struct ArrowArrayStream *);
        void (*release)(struct ArrowArrayStream *);
        void *private_data;
    };
    #endif
    """
    struct ArrowSchema:
        const char* format
        const char* name
        const char* metadata
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept nogil
        void* private_data

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema* out) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray* out) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil
        void* private_data


# What the exporter needs to know of one array; `children` are Exports too.
cdef class Export:
    cdef bytes format
    cdef bytes name
    cdef bint nullable
    cdef int64_t length
    cdef int64_t null_count
    cdef object owner               # kept alive by the exported array
    cdef list buffers               # addresses as ints; 0: no buffer
    cdef list children

    @staticmethod
    cdef Export new(bytes format, bytes name, bint nullable, int64_t length, int64_t null_count, object owner,
                    list buffers, list children)


cdef object schema_capsule(Export export)
cdef object array_capsule(Export export)
cdef object stream_capsule(object exports, Export schema)


# An imported array with its schema; releases both when it goes.
cdef class Imported:
    cdef ArrowSchema* schema
    cdef ArrowArray array
    cdef object keeper              # shares the schema among the arrays of one stream


cdef list import_arrays(object producer)
cdef str type_name(const ArrowSchema* schema)
