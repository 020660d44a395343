"""A batch written anew from some of its records, as compaction leaves it.

Always as magic 2. It keeps the leader epoch, producer, sequence, timestamp type and marks of the original, and of one
of magic 2 its base and last offset too: a producer's last sequence is told by the last offset. One of magic 0 or 1 has
the offsets of its first and last kept record. The base timestamp is the delete horizon, if there is one, or that of the
first kept record.

Leaves only. The records are walked a second time and trusted: whoever calls has read them, where nobody can have
changed them since. Compression and checksum are the caller's. Kafka: MemoryRecords.buildRetainedRecordsInto.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from logcore._batch cimport (
    BATCH_HEADER_SIZE, CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Fields, Header, read_record,
    record_timestamp, seal, write_header,
)
from logcore._bytes cimport add64, sub64
from logcore._convert cimport Item, headers_size, put_headers
from logcore._legacy cimport Message
from logcore._write cimport Measured, measure_record, put_record


cdef void begin_rewrite(Rewrite* made, const Header* original, int64_t horizon, int64_t count, uint8_t* out) noexcept nogil:
    """Begin with `count` records to come, at `out`. A horizon below 0 is none, as to Kafka's builder."""
    cdef Header* header = &made.header
    header[0] = original[0]
    if header.magic == 2:
        header.attributes &= CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    elif header.magic == 1:
        header.attributes &= CODEC_MASK | LOG_APPEND_TIME
    else:
        header.attributes &= CODEC_MASK
    if horizon >= 0:
        header.attributes |= DELETE_HORIZON
        header.base_timestamp = horizon
    header.max_timestamp = -1
    header.count = <int32_t>count
    made.out = out
    made.is_begun = False


cdef inline bint put_kept(Rewrite* made, const Item* item, Py_ssize_t room) noexcept nogil:
    """Write a record, for which there is room; False if its offset does not fit. `room`: readable bytes from the key on."""
    cdef Header* header = &made.header
    cdef Measured measured
    cdef int64_t delta
    if not made.is_begun:
        if header.magic < 2:
            header.base_offset = item.offset
        if not header.attributes & DELETE_HORIZON:
            header.base_timestamp = item.timestamp
    delta = sub64(item.offset, header.base_offset)
    if (made.is_begun and item.offset <= made.last_offset) or (header.magic < 2 and <uint64_t>delta > 0x7FFFFFFF):
        made.refused_offset = item.offset
        return False
    made.is_begun = True
    made.last_offset = item.offset
    if item.timestamp > header.max_timestamp:
        header.max_timestamp = item.timestamp
    measure_record(&measured, sub64(item.timestamp, header.base_timestamp), delta, max(item.key_size, -1),
                   max(item.value_size, -1), headers_size(item) if item.header_count else 1)
    made.out = put_record(made.out, &measured, item.key, item.key_size, room, item.value, item.value_size,
                          room - (item.value - item.key))
    if item.header_count:
        made.out = put_headers(made.out, item)
    else:
        made.out[0] = 0
        made.out += 1
    return True


cdef Py_ssize_t put_records(
    Rewrite* made, const uint8_t* pos, const uint8_t* end, const Header* original, const uint8_t* kept,
) noexcept nogil:
    """Write those of the records of a v2 batch that are `kept`; returns the one that could not be, or -1.

    There is room for all, with GROWTH_MAX bytes more for each, and COPY_SLACK behind.
    """
    cdef Fields record
    cdef Item item
    cdef Py_ssize_t index
    for index in range(original.count):
        pos = read_record(pos, end, &record)
        if pos == NULL:        # cannot be
            return index
        if not kept[index]:
            continue
        item.offset = add64(original.base_offset, record.offset_delta)
        item.timestamp = record_timestamp(original, record.timestamp_delta)
        item.key, item.key_size = record.key, record.key_size
        item.value, item.value_size = record.value, record.value_size
        item.headers, item.header_count, item.end = record.headers, record.header_count, pos
        if not put_kept(made, &item, end - record.key):
            return index
    return -1


cdef Py_ssize_t put_messages(
    Rewrite* made, const Message* messages, Py_ssize_t count, const uint8_t* kept,
) noexcept nogil:
    """As put_records(), from a set of magic 0 or 1."""
    cdef Item item
    cdef Py_ssize_t index
    item.headers, item.header_count, item.end = NULL, 0, NULL
    for index in range(count):
        if not kept[index]:
            continue
        item.offset, item.timestamp = messages[index].offset, messages[index].timestamp
        item.key, item.key_size = messages[index].key, messages[index].key_size
        item.value, item.value_size = messages[index].value, messages[index].value_size
        if not put_kept(made, &item, 0):
            return index
    return -1


cdef void end_rewrite(Rewrite* made, const Header* original) noexcept nogil:
    """Settle the header, all but its size."""
    if original.magic < 2:
        made.header.last_offset = made.last_offset
    if made.header.attributes & LOG_APPEND_TIME:
        made.header.max_timestamp = original.max_timestamp


cdef void write_emptied(uint8_t* batch, const Header* original) noexcept nogil:
    """Write the header that stays of a v2 batch without a record: no codec, no horizon, no base timestamp."""
    cdef Header header = original[0]
    header.attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    header.base_timestamp = -1
    header.count = 0
    header.size_in_bytes = BATCH_HEADER_SIZE
    write_header(batch, &header)
    seal(batch, BATCH_HEADER_SIZE)
