"""Messages of magic 0 and 1: how Kafka wrote before 0.11, and how old files and old clients still speak.

A message is its own batch: offset, size, CRC-32, magic, attributes, (v1: timestamp), key, value. A compressed set is
one *wrapper* message whose value is a compressed run of inner messages:

    magic 0   inner offsets are absolute; the wrapper repeats the last
    magic 1   inner offsets are relative (0, 1, 2, ...); the wrapper carries the absolute offset of the last one.
              A wrapper offset of 0 comes from old producers and means that the inner ones are meant as they are.

With LogAppendTime on a v1 wrapper, its time is every inner message's time. An inner magic that is not 0 is read as 1,
and an inner checksum is not looked at: so Kafka's reader has it (its validator is stricter, and ours). Nothing here is a hot path: these formats
are read, and written for tests and for converting down; so a set becomes an array of small structs that rows,
columns, validation and conversion share.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from logcore._arguments cimport close_type
from logcore._batch cimport (
    BASE_OFFSET, CODEC_MASK, LENGTH, LEGACY_SIZE_MIN, LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC, Header,
)
from logcore._buffer cimport Source
from logcore._bytes cimport load32, load64, store32, store64
from logcore._checksum cimport crc32_of
from logcore._compression cimport compress_span
from logcore._fault cimport (
    FAULT_BATCH_SIZE, FAULT_INNER_COMPRESSED, FAULT_INNER_OFFSET, FAULT_INNER_SIZE,
    FAULT_KEY_LENGTH, FAULT_NONE, FAULT_VALUE_LENGTH, FAULT_WRAPPER_EMPTY, FAULT_WRAPPER_NULL, FAULT_WRAPPER_ZSTD,
    Fault, corrupt_batch, fail,
)
from logcore._payload cimport decompressed

import cython

cdef enum:
    MESSAGE_CRC = LOG_OVERHEAD
    MESSAGE_ATTRIBUTES = MAGIC + 1
    MESSAGE_TIMESTAMP = MESSAGE_ATTRIBUTES + 1   # v1 only
    CODEC_ZSTD = 4


cdef int read_message(const uint8_t* start, const uint8_t* pos, int64_t size, Message* message, Fault* fault) noexcept nogil:
    """Parse the message of `size` bytes (log overhead included, known to be there) at `pos`."""
    cdef const uint8_t* end = pos + size
    cdef const uint8_t* field
    message.start = pos
    message.offset = load64(pos + BASE_OFFSET)
    message.magic = <int8_t>pos[MAGIC]
    message.attributes = pos[MESSAGE_ATTRIBUTES]
    message.timestamp = -1
    field = pos + MESSAGE_TIMESTAMP
    if message.magic != 0:
        if size < LOG_OVERHEAD + LEGACY_SIZE_MIN + 8:
            return fail(fault, FAULT_BATCH_SIZE, pos + LENGTH - start, size - LOG_OVERHEAD, LEGACY_SIZE_MIN + 8)
        message.timestamp = load64(field)
        field += 8
    # Both length fields of a message without key are known to be there; a key may push the second one out.
    message.key_size = load32(field)
    field += 4
    message.key = field
    if message.key_size > end - field - 4:
        return fail(fault, FAULT_KEY_LENGTH, field - 4 - start, message.key_size, end - field - 4)
    if message.key_size > 0:
        field += message.key_size
    message.value_size = load32(field)
    field += 4
    message.value = field
    if message.value_size > end - field:
        return fail(fault, FAULT_VALUE_LENGTH, field - 4 - start, message.value_size, end - field)
    return FAULT_NONE


@cython.final
cdef class MessageSet:
    def __dealloc__(self):
        free(self.messages)

    cdef Message* add(self) except NULL:
        cdef Message* moved
        if self.count == self.room:
            self.room = max(8, 2 * self.room)
            moved = <Message*>realloc(self.messages, <size_t>self.room * sizeof(Message))
            if moved == NULL:
                raise MemoryError(f"{self.room} messages of a set")
            self.messages = moved
        self.count += 1
        return &self.messages[self.count - 1]


close_type(MessageSet)


cdef MessageSet open_messages(Source source, const Header* header, int64_t bytes_max, int64_t shift):
    """The messages of the v0/v1 batch of `header`: itself, or what its compressed value holds."""
    cdef MessageSet found = MessageSet.__new__(MessageSet)
    cdef const uint8_t* batch = source.data + header.position
    cdef Fault fault
    cdef Message wrapper
    if read_message(batch, batch, header.size_in_bytes, &wrapper, &fault):
        raise corrupt_batch(&fault, header.position + shift, header.base_offset)
    if not wrapper.attributes & CODEC_MASK:
        found.source = source
        found.add()[0] = wrapper
        return found
    if wrapper.attributes & CODEC_MASK == CODEC_ZSTD:
        fail(&fault, FAULT_WRAPPER_ZSTD, MESSAGE_ATTRIBUTES, wrapper.magic, 2)
    elif wrapper.value_size < 0:
        fail(&fault, FAULT_WRAPPER_NULL, wrapper.value - 4 - batch, wrapper.value_size, 0)
    else:
        found.source = decompressed(source, header, wrapper.value - batch, wrapper.value_size, bytes_max, shift)
        if not read_inner(found, &wrapper, &fault):
            return found
    raise corrupt_batch(&fault, header.position + shift, header.base_offset)


cdef int read_inner(MessageSet found, const Message* wrapper, Fault* fault) except -1:
    """Fill `found` from its decompressed source; returns the fault, if any. A partial last message is an end."""
    cdef const uint8_t* start = found.source.data
    cdef const uint8_t* end = start + found.source.size
    cdef const uint8_t* pos = start
    cdef int64_t size, base = 0
    cdef Message* message
    cdef Py_ssize_t index
    while end - pos >= LOG_OVERHEAD:
        size = <int64_t>load32(pos + LENGTH) + LOG_OVERHEAD
        if size < LOG_OVERHEAD + LEGACY_SIZE_MIN:
            return fail(fault, FAULT_INNER_SIZE, pos + LENGTH - start, size - LOG_OVERHEAD, LEGACY_SIZE_MIN)
        if size > end - pos:
            break
        message = found.add()
        if read_message(start, pos, size, message, fault):
            fault.record_index = found.count - 1
            return fault.kind
        if message.attributes & CODEC_MASK:
            fail(fault, FAULT_INNER_COMPRESSED, pos + MESSAGE_ATTRIBUTES - start, message.attributes & CODEC_MASK, 0)
            fault.record_index = found.count - 1
            return fault.kind
        if message.magic == 1 and wrapper.attributes & LOG_APPEND_TIME and wrapper.magic == 1:
            message.timestamp = wrapper.timestamp
        pos += size
    if not found.count:
        return fail(fault, FAULT_WRAPPER_EMPTY, -1, 0, 1)
    if wrapper.magic == 1:
        if wrapper.offset != 0:
            base = found.messages[found.count - 1].offset
            if wrapper.offset < base:
                return fail(fault, FAULT_INNER_OFFSET, BASE_OFFSET, wrapper.offset, base)
            base = <int64_t>(<unsigned long long>wrapper.offset - <unsigned long long>base)
        for index in range(found.count):
            found.messages[index].offset = <int64_t>(
                <unsigned long long>found.messages[index].offset + <unsigned long long>base)
    return FAULT_NONE


cdef bytes encode_messages(list rows, int magic, int codec, int level, int64_t append_time):
    """Write `rows` of (offset, timestamp, key, value) as messages; with a codec, as one wrapper around them.

    append_time: -1 for CreateTime, else the LogAppendTime that the outermost messages are stamped with.
    """
    cdef uint8_t attributes = LOG_APPEND_TIME if append_time >= 0 and magic == 1 else 0
    if not codec:
        return b"".join([
            encode_message(offset, append_time if attributes else timestamp, key, value, magic, attributes)
            for offset, timestamp, key, value in rows
        ])
    first = rows[0][0]
    latest = max(row[1] for row in rows)
    cdef bytes inner = b"".join([
        encode_message(offset if magic == 0 else offset - first, append_time if attributes else timestamp, key, value,
                       magic, attributes)
        for offset, timestamp, key, value in rows
    ])
    return encode_message(rows[len(rows) - 1][0], append_time if attributes else latest, None,
                          compress_span(codec, <const uint8_t*>PyBytes_AS_STRING(inner), len(inner), level, magic), magic, attributes | <uint8_t>codec)


cdef bytes encode_message(int64_t offset, int64_t timestamp, bytes key, bytes value, int magic, uint8_t attributes):
    cdef Py_ssize_t key_size = -1 if key is None else len(key)
    cdef Py_ssize_t value_size = -1 if value is None else len(value)
    cdef bytes message = PyBytes_FromStringAndSize(
        NULL, LOG_OVERHEAD + LEGACY_SIZE_MIN + (8 if magic else 0) + max(key_size, 0) + max(value_size, 0))
    cdef const uint8_t* key_data = NULL
    cdef const uint8_t* value_data = NULL
    if key is not None:
        key_data = <const uint8_t*>PyBytes_AS_STRING(key)
    if value is not None:
        value_data = <const uint8_t*>PyBytes_AS_STRING(value)
    put_message(<uint8_t*>PyBytes_AS_STRING(message), offset, timestamp, key_data, key_size, value_data, value_size,
                magic, attributes)
    return message


cdef uint8_t* put_message(
    uint8_t* start, int64_t offset, int64_t timestamp, const uint8_t* key, int64_t key_size, const uint8_t* value,
    int64_t value_size, int magic, uint8_t attributes,
) noexcept nogil:
    """Write a message, with its offset, size and checksum; returns the byte after it."""
    cdef uint8_t* out = start + MESSAGE_TIMESTAMP
    store64(start + BASE_OFFSET, offset)
    start[MAGIC] = <uint8_t>magic
    start[MESSAGE_ATTRIBUTES] = attributes
    if magic:
        store64(out, timestamp)
        out += 8
    out = put_sized(out, key, key_size)
    out = put_sized(out, value, value_size)
    store32(start + LENGTH, <int32_t>(out - start - LOG_OVERHEAD))
    store32(start + MESSAGE_CRC, <int32_t>crc32_of(start + MAGIC, <size_t>(out - start - MAGIC)))
    return out


cdef inline uint8_t* put_sized(uint8_t* out, const uint8_t* data, int64_t size) noexcept nogil:
    """An int32 length, any negative one as the -1 of null, and the bytes."""
    store32(out, <int32_t>max(size, -1))
    out += 4
    if size > 0:
        memcpy(out, data, <size_t>size)
        out += size
    return out
