from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from logcore._bytes cimport (
    VARINT_BYTES_MAX, VARLONG_BYTES_MAX, Varint, likely, read_varint, read_varint_there, unlikely, unzigzag,
)
from logcore._fault cimport Fault

# Where each field of a v2 batch lies; diagram in docs/internals/record-format.md.
cdef enum:
    BASE_OFFSET = 0
    LENGTH = BASE_OFFSET + 8
    LEADER_EPOCH = LENGTH + 4
    MAGIC = LEADER_EPOCH + 4
    CRC = MAGIC + 1
    ATTRIBUTES = CRC + 4
    LAST_OFFSET_DELTA = ATTRIBUTES + 2
    BASE_TIMESTAMP = LAST_OFFSET_DELTA + 4
    MAX_TIMESTAMP = BASE_TIMESTAMP + 8
    PRODUCER_ID = MAX_TIMESTAMP + 8
    PRODUCER_EPOCH = PRODUCER_ID + 8
    BASE_SEQUENCE = PRODUCER_EPOCH + 2
    RECORD_COUNT = BASE_SEQUENCE + 4
    BATCH_HEADER_SIZE = RECORD_COUNT + 4

    LOG_OVERHEAD = LEADER_EPOCH        # base offset and length: what `length` does not count
    SIZE_UP_TO_MAGIC = CRC
    LEGACY_SIZE_MIN = 14               # the smallest message of any magic, without the log overhead
    RECORD_SIZE_MIN = 7                # a v2 record of nulls: seven one-byte fields
    FIELDS_BEFORE_KEY_MAX = 32         # length, attributes, both deltas and key length: 5 + 1 + 10 + 5 + 5, rounded up

    CONTROL_KEY_SIZE = 4               # int16 version, int16 type

    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40


# The fields of a batch of any magic, as numpy sees them in scan_batches() too (same order there, no padding).
cdef packed struct Header:
    int64_t position           # first byte of the batch in the scanned bytes
    int64_t base_offset        # magic 0 and 1: the offset field, that of the last message
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t size_in_bytes
    int32_t leader_epoch
    int32_t base_sequence
    int32_t count              # magic 0 and 1: -1, not known without decompression
    uint32_t crc
    int16_t attributes
    int16_t producer_epoch
    int8_t magic


# One record as it lies in the bytes; lengths are -1 for null.
cdef struct Fields:
    int64_t timestamp_delta
    int64_t offset_delta
    int64_t key_size
    const uint8_t* key
    int64_t value_size
    const uint8_t* value
    int64_t header_count
    const uint8_t* headers


# Where a walk over the records of a v2 batch stands.
cdef struct Place:
    const uint8_t* pos         # the record that comes next
    int32_t left               # how many there are from it on


cdef enum Step:
    STEP_BATCH     # a whole batch lies at pos
    STEP_END       # nothing, or only a part of a batch: not damage
    STEP_FAULT     # damage, described in the fault


cdef Step read_header(
    const uint8_t* start, const uint8_t* pos, const uint8_t* end, int32_t batch_bytes_max, bint verify_crc,
    Header* header, Fault* fault,
) noexcept nogil
cdef int verify_checksum(const uint8_t* batch, const Header* header, Fault* fault) noexcept nogil
cdef const uint8_t* skip_headers(const uint8_t* pos, const uint8_t* end, int64_t count) noexcept nogil
cdef const uint8_t* read_record_checked(const uint8_t* pos, const uint8_t* end, Fields* record) noexcept nogil
cdef bint leap_to_record(Place* place, const uint8_t* end, const Header* header, int64_t offset) noexcept nogil
cdef bint pass_records(
    Place* place, const uint8_t* end, const Header* header, int64_t low, int64_t high, bint inside,
) noexcept nogil
cdef int diagnose_record(const uint8_t* start, const uint8_t* pos, const uint8_t* end, Fault* fault) noexcept nogil
cdef int check_count(const Header* header, int64_t payload_bytes, Fault* fault) noexcept nogil
cdef void write_header(uint8_t* batch, const Header* header) noexcept nogil
cdef void seal(uint8_t* batch, int32_t size) noexcept nogil
cdef int32_t sequence_after(int32_t sequence, int32_t increment) noexcept nogil
cdef int32_t size_limit(object batch_bytes_max) except -1
cdef Py_ssize_t position_in(object position, Py_ssize_t size) except -1
cdef str timestamp_type_name(const Header* header)


cdef inline const uint8_t* read_body(
    Varint varint, const uint8_t* end, const uint8_t* record_end, Fields* record,
) noexcept nogil:
    """The part of a record from its key on; `varint` is the key's length.

    A key or value that is longer than the record is not looked for: it takes `pos` past record_end, where the next
    varint is read against `end` and nothing after it can end at record_end any more. So the one comparison at the end
    answers for all of them.
    """
    cdef int64_t size = unzigzag(varint.bits)
    cdef const uint8_t* pos = varint.next
    record.key = pos
    record.key_size = size
    if likely(size >= 0):
        pos += size
    varint = read_varint(pos, end, VARINT_BYTES_MAX)
    if unlikely(varint.next == NULL):
        return NULL
    size = unzigzag(varint.bits)
    pos = varint.next
    record.value = pos
    record.value_size = size
    if likely(size >= 0):
        pos += size
    if likely(pos + 1 == record_end):
        if likely(pos[0] == 0):  # no headers, by far the most common
            record.header_count = 0
            record.headers = record_end
            return record_end
    varint = read_varint(pos, end, VARINT_BYTES_MAX)
    if unlikely(varint.next == NULL):
        return NULL
    record.header_count = unzigzag(varint.bits)
    record.headers = varint.next
    return skip_headers(varint.next, record_end, record.header_count)


cdef inline const uint8_t* read_record_ahead(const uint8_t* pos, const uint8_t* end, Fields* record) noexcept nogil:
    """read_record() where FIELDS_BEFORE_KEY_MAX bytes are known to lie ahead: the hot loops' own."""
    cdef Varint varint
    cdef int64_t length
    cdef const uint8_t* record_end
    # Everything up to the key's bytes is there, so these varints need no check each. They are read against `end`, not
    # record_end: a field that runs over the latter makes each later comparison with it fail.
    varint = read_varint_there(pos, end, VARINT_BYTES_MAX)
    length = unzigzag(varint.bits)
    pos = varint.next
    if unlikely(pos == NULL):
        return NULL
    if unlikely(<uint64_t>length > <uint64_t>(end - pos)):  # a negative one is a huge one
        return NULL
    record_end = pos + length
    # Attributes: one byte, unused by every version so far, so not checked (as Kafka does not).
    varint = read_varint_there(pos + 1, end, VARLONG_BYTES_MAX)
    if unlikely(varint.next == NULL):
        return NULL
    record.timestamp_delta = unzigzag(varint.bits)
    varint = read_varint_there(varint.next, end, VARINT_BYTES_MAX)
    if unlikely(varint.next == NULL):
        return NULL
    record.offset_delta = unzigzag(varint.bits)
    varint = read_varint_there(varint.next, end, VARINT_BYTES_MAX)
    if unlikely(varint.next == NULL):
        return NULL
    return read_body(varint, end, record_end, record)


cdef inline const uint8_t* read_record(const uint8_t* pos, const uint8_t* end, Fields* record) noexcept nogil:
    """Parse the v2 record at `pos` and return the byte after it, or NULL if there is no well-formed record.

    It says only *that* a record is bad; diagnose_record() walks it again to say why, so the hot loops carry no error
    state.
    """
    cdef Fields near
    cdef const uint8_t* after
    if likely(end - pos >= FIELDS_BEFORE_KEY_MAX):
        return read_record_ahead(pos, end, record)
    # Through a copy: were the address of the caller's Fields to escape, the hot path would keep them in memory.
    after = read_record_checked(pos, end, &near)
    record[0] = near
    return after


cdef inline bint ends_before(const Header* header, int64_t offset) noexcept nogil:
    """Whether every record of a batch lies below `offset`, as its header has it.

    A compressed set of magic 0 or 1 whose offset is 0 does not tell: there it may mean that no offset was given.
    """
    return header.last_offset < offset and not (
        header.magic < 2 and header.attributes & CODEC_MASK and header.last_offset == 0)


cdef inline int64_t record_timestamp(const Header* header, int64_t delta) noexcept nogil:
    """With LogAppendTime a record's own delta means nothing: the batch's time is every record's time."""
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    return <int64_t>(<unsigned long long>header.base_timestamp + <unsigned long long>delta)
