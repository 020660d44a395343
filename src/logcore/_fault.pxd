from libc.stdint cimport int64_t

# What a leaf found wrong. The order is that of the table in _fault.pyx.
cdef enum:
    FAULT_NONE
    FAULT_BATCH_SIZE
    FAULT_BATCH_TOO_LARGE
    FAULT_MAGIC
    FAULT_CRC
    FAULT_COUNT_NEGATIVE
    FAULT_COUNT_TOO_LARGE
    FAULT_COUNT_TOO_SMALL
    FAULT_VARINT
    FAULT_RECORD_LENGTH
    FAULT_RECORD_TRUNCATED
    FAULT_KEY_LENGTH
    FAULT_VALUE_LENGTH
    FAULT_HEADER_COUNT
    FAULT_HEADER_KEY
    FAULT_HEADER_VALUE
    FAULT_TRAILING_BYTES
    FAULT_TRUNCATED
    FAULT_WRAPPER_NULL
    FAULT_WRAPPER_EMPTY
    FAULT_INNER_SIZE
    FAULT_INNER_OFFSET
    FAULT_INNER_COMPRESSED
    FAULT_INNER_CRC
    FAULT_WRAPPER_ZSTD
    FAULT_OFFSET_ORDER
    FAULT_OFFSET_NEGATIVE
    FAULT_KIND_COUNT


cdef struct Fault:
    int kind
    int64_t at             # byte inside the batch, or inside its decompressed records
    int64_t got
    int64_t wanted
    int64_t record_index   # -1: not inside a record


cdef inline int fail(Fault* fault, int kind, int64_t at, int64_t got, int64_t wanted) noexcept nogil:
    fault.kind = kind
    fault.at = at
    fault.got = got
    fault.wanted = wanted
    fault.record_index = -1
    return kind


cdef object corrupt_batch(const Fault* fault, int64_t position, object offset=*)
