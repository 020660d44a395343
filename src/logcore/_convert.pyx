"""Batches written anew: from one magic to another, and from one codec to another.

    OpenBatch      the records of one batch of any magic, decompressed and checked; walked by a Cursor, as Items
    BatchBuilder   one batch of any magic, filled from Items
    convert_batches(buffer, magic)

Bytes go from the one to the other without the GIL and without a Python object for a record. A builder writes each
field anew, so an overlong varint or a null of length -7 comes out as a writer would have written it; names of headers
are bytes to it, UTF-8 or not. The validator (_validate.pyx) rebuilds through the same two classes what it cannot patch
in place.

Memory: for a batch of n records with p plain bytes at most 2 x (p + 32 n), where a record has 7 plain bytes or more.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from logcore._arguments cimport check_optional, check_range, close_type
from logcore._batch cimport (
    BATCH_HEADER_SIZE, CODEC_MASK, CONTROL, LEGACY_SIZE_MIN, LOG_APPEND_TIME,
    LOG_OVERHEAD, STEP_BATCH, STEP_FAULT, Fields, Header, Step, check_count, diagnose_record,
    read_header, read_record, record_timestamp, seal, size_limit, write_header,
)
from logcore._buffer cimport GIL_RELEASE_BYTES, Memory, Source, frozen
from logcore._bytes cimport (
    VARINT_BYTES_MAX, Varint, add64, put_varint, read_varint, sub64, unzigzag,
    varint_bytes, zigzag,
)
from logcore._compression cimport CODEC_ZSTD, codec_id, compress_span, level_for
from logcore._fault cimport FAULT_COUNT_TOO_SMALL, Fault, corrupt_batch, fail
from logcore._legacy cimport encode_message, open_messages, put_message
from logcore._payload cimport decompressed, decompressed_limit
from logcore._write cimport Measured, measure_record, put_record

import cython

from logcore.errors import (
    CorruptBatch, CorruptionReason, MessageTooLargeError, UnsupportedCompressionTypeError, UsageError,
)

cdef enum:
    # What a record of one magic may take more than the same record of another: 34 bytes around key and value in
    # magic 1 against 7 in magic 2, or 17 of longer varints within magic 2.
    GROWTH_MAX = 32
    BATCH_BYTES_MAX = 0x7FFFFFFF
    # Messages of magic 0 and 1 are put together into batches of about this size.
    GROUP_BYTES_MAX = 1 << 20
    # As for columns: all batches of a call together may decompress to this many times the buffer.
    EXPANSION_MAX = 64


# ---------------------------------------------------------------------------------------------------------- reading

@cython.final
cdef class OpenBatch:
    """The records of one batch; holds the bytes they lie in."""

    cdef Py_ssize_t plain_bytes(self) noexcept:
        if self.messages is None:
            return self.end - self.begin
        return self.plain.size if self.header.attributes & CODEC_MASK else self.header.size_in_bytes

    cdef Py_ssize_t count(self) noexcept:
        return self.header.count if self.messages is None else self.messages.count

    cdef Cursor cursor(self) noexcept:
        """At the first record. Valid as long as this object is."""
        cdef Cursor cursor
        cursor.header = &self.header
        cursor.messages = NULL if self.messages is None else self.messages.messages
        cursor.pos = self.plain.data + self.begin
        cursor.end = self.plain.data + self.end
        cursor.left = self.count()
        return cursor

    cdef object refusal(self, const uint8_t* stopped, Py_ssize_t index):
        """The exception for records that begin to be wrong at `stopped`, where record `index` should be."""
        cdef Fault fault
        cdef const uint8_t* end = self.plain.data + self.end
        cdef const uint8_t* start = self.plain.data
        if not self.header.attributes & CODEC_MASK:
            start += self.header.position
        if index == self.header.count:
            fail(&fault, FAULT_COUNT_TOO_SMALL, stopped - start, end - stopped, 0)
        else:
            diagnose_record(start, stopped, end, &fault)
            fault.record_index = index
        return corrupt_batch(&fault, self.header.position + self.shift, self.header.base_offset)

    cdef int check_records(self) except -1:
        """Walk the records of a v2 batch and refuse what is damaged; a Cursor trusts them afterwards."""
        cdef const uint8_t* pos = self.plain.data + self.begin
        cdef const uint8_t* end = self.plain.data + self.end
        cdef const uint8_t* after
        cdef Fields record
        cdef Py_ssize_t index = 0
        if self.messages is not None:
            return 0
        with nogil:
            while index < self.header.count:
                after = read_record(pos, end, &record)
                if after == NULL:
                    break
                pos = after
                index += 1
        if index != self.header.count or pos != end:
            raise self.refusal(pos, index)
        return 0


close_type(OpenBatch)


cdef OpenBatch open_batch(Source source, const Header* header, int64_t bytes_max, int64_t shift):
    """Decompress the batch of `header`. Messages of magic 0 and 1 are checked with it, v2 records only counted."""
    cdef OpenBatch self = OpenBatch.__new__(OpenBatch)
    cdef Fault fault
    self.header = header[0]
    self.shift = shift
    if header.magic < 2:
        self.messages = open_messages(source, header, bytes_max, shift)
        self.plain = self.messages.source
        return self
    if header.attributes & CODEC_MASK:
        self.plain = decompressed(source, header, BATCH_HEADER_SIZE, header.size_in_bytes - BATCH_HEADER_SIZE,
                                  bytes_max, shift)
        self.end = self.plain.size
    else:
        self.plain = source
        self.begin = header.position + BATCH_HEADER_SIZE
        self.end = header.position + header.size_in_bytes
    if check_count(header, self.end - self.begin, &fault):
        raise corrupt_batch(&fault, header.position + shift, header.base_offset)
    return self


cdef bint next_item(Cursor* cursor, Item* item) noexcept nogil:
    """The next record, which check_records() or open_batch() has found good; False at the end."""
    cdef Fields record
    if not cursor.left:
        return False
    cursor.left -= 1
    if cursor.messages != NULL:
        item.offset = cursor.messages.offset
        item.timestamp = cursor.messages.timestamp
        item.key, item.key_size = cursor.messages.key, cursor.messages.key_size
        item.value, item.value_size = cursor.messages.value, cursor.messages.value_size
        item.header_count = 0
        cursor.messages += 1
        return True
    cursor.pos = read_record(cursor.pos, cursor.end, &record)
    if cursor.pos == NULL:  # somebody has written to the buffer since
        cursor.left = 0
        return False
    item.offset = add64(cursor.header.base_offset, record.offset_delta)
    item.timestamp = record_timestamp(cursor.header, record.timestamp_delta)
    item.key, item.key_size = record.key, record.key_size
    item.value, item.value_size = record.value, record.value_size
    item.headers, item.header_count = record.headers, record.header_count
    item.end = cursor.pos
    return True


# ---------------------------------------------------------------------------------------------------------- writing

cdef int64_t headers_size(const Item* item) noexcept nogil:
    """The bytes of the headers, their count included, as put_headers() writes them."""
    cdef const uint8_t* pos = item.headers
    cdef int64_t total = varint_bytes(zigzag(item.header_count))
    cdef int64_t left = 2 * item.header_count      # a name and a value each
    cdef int64_t size
    cdef Varint varint
    while left:
        varint = read_varint(pos, item.end, VARINT_BYTES_MAX)
        size = unzigzag(varint.bits)
        pos = varint.next
        if size > 0:
            pos += size
            total += size
        total += varint_bytes(zigzag(size if size >= 0 else -1))
        left -= 1
    return total


cdef uint8_t* put_headers(uint8_t* out, const Item* item) noexcept nogil:
    cdef const uint8_t* pos = item.headers
    cdef int64_t left = 2 * item.header_count
    cdef int64_t size
    cdef Varint varint
    out = put_varint(out, zigzag(item.header_count))
    while left:
        varint = read_varint(pos, item.end, VARINT_BYTES_MAX)
        size = unzigzag(varint.bits)
        out = put_bytes(out, varint.next, size)
        pos = varint.next + (size if size > 0 else 0)
        left -= 1
    return out


cdef inline uint8_t* put_bytes(uint8_t* out, const uint8_t* data, int64_t size) noexcept nogil:
    """A varint length and its bytes; any negative one is the null of length -1."""
    out = put_varint(out, zigzag(size if size >= 0 else -1))
    if size > 0:
        memcpy(out, data, <size_t>size)
        out += size
    return out


@cython.final
cdef class BatchBuilder:
    """One batch, or a run of uncompressed messages of magic 0 or 1. Owns its memory; finish() copies out of it."""

    @staticmethod
    cdef BatchBuilder new(int8_t magic, int codec, int level):
        cdef BatchBuilder self = BatchBuilder.__new__(BatchBuilder)
        self.magic = magic
        self.codec = codec
        self.level = level
        self.header.magic = magic
        self.header.attributes = <int16_t>codec
        self.header.leader_epoch = -1
        self.header.producer_id = -1
        self.header.producer_epoch = -1
        self.header.base_sequence = -1
        self.header.max_timestamp = -1
        self.header.base_timestamp = -1
        self.used = BATCH_HEADER_SIZE if magic == 2 else 0
        self.memory = Memory.new(self.used)
        return self

    cdef int reserve(self, Py_ssize_t plain_bytes, Py_ssize_t count) except -1:
        """Room for `count` more records that took `plain_bytes` where they came from."""
        cdef Py_ssize_t wanted = self.used + plain_bytes + GROWTH_MAX * count
        if wanted > self.memory.capacity:
            self.memory.reserve(max(wanted, self.memory.capacity + self.memory.capacity // 2))
        return 0

    cdef Added add(self, const Item* item, int64_t offset) noexcept nogil:
        """Write one record, for which there is room, at `offset`."""
        cdef uint8_t* out = self.memory.data + self.used
        cdef Measured measured
        cdef uint8_t attributes
        if offset < 0 and self.magic < 2:
            # A reader computes the offsets inside a set from the last one, and takes 0 and less for something else.
            return ADD_ORDER
        if not self.header.count:
            self.header.base_offset = offset
            self.header.base_timestamp = item.timestamp
            self.header.max_timestamp = item.timestamp
        elif offset <= self.header.last_offset or <uint64_t>sub64(offset, self.header.base_offset) > 0x7FFFFFFF:
            return ADD_ORDER
        elif item.timestamp > self.header.max_timestamp:
            self.header.max_timestamp = item.timestamp
        if self.magic == 2:
            measure_record(&measured, sub64(item.timestamp, self.header.base_timestamp),
                           offset - self.header.base_offset, max(item.key_size, -1), max(item.value_size, -1),
                           headers_size(item) if item.header_count else 1)
            out = put_record(out, &measured, item.key, item.key_size, item.key_size, item.value, item.value_size,
                             item.value_size)
            if item.header_count:
                out = put_headers(out, item)
            else:
                out[0] = 0
                out += 1
        else:
            attributes = LOG_APPEND_TIME if self.is_stamped and self.magic else 0
            out = put_message(
                out, offset - self.header.base_offset if self.codec and self.magic else offset,
                self.append_time if self.is_stamped else item.timestamp, item.key, item.key_size, item.value,
                item.value_size, self.magic, attributes)
        if out - self.memory.data > BATCH_BYTES_MAX - LOG_OVERHEAD - LEGACY_SIZE_MIN - 8:
            return ADD_SIZE
        self.used = out - self.memory.data
        self.header.last_offset = offset
        self.header.count += 1
        return ADDED

    cdef Added add_all(self, OpenBatch opened, int64_t first_offset, int64_t floor) except *:
        """Write every record of `opened`: at its own offset if that is `floor` or more, or numbered from first_offset.

        first_offset: -1 to keep offsets. Stops at the first record that cannot be added, and says why.
        """
        cdef Cursor cursor = opened.cursor()
        cdef Item item
        cdef Added added = ADDED
        self.reserve(opened.plain_bytes(), cursor.left)
        with nogil:
            while next_item(&cursor, &item):
                if first_offset >= 0:
                    added = self.add(&item, first_offset)
                    first_offset += 1
                elif item.offset >= floor:
                    added = self.add(&item, item.offset)
                if added != ADDED:
                    break
        return added

    cdef int64_t plain_bytes(self) noexcept:
        """What was written, before compression."""
        return self.used - (BATCH_HEADER_SIZE if self.magic == 2 else 0)

    cdef bytes finish(self):
        """The batch as bytes; at least one record was added."""
        cdef Py_ssize_t head = BATCH_HEADER_SIZE if self.magic == 2 else 0
        cdef bytes packed, made
        cdef uint8_t* batch
        if self.is_stamped:
            self.header.max_timestamp = self.append_time
        if not self.codec:
            made = PyBytes_FromStringAndSize(<const char*>self.memory.data, self.used)
            if self.magic < 2:
                return made
        else:
            packed = compress_span(self.codec, self.memory.data + head, self.used - head, self.level, self.magic)
            self.memory = None
            if len(packed) > BATCH_BYTES_MAX - BATCH_HEADER_SIZE:
                raise MessageTooLargeError(f"batch to write: got {len(packed)} bytes, wanted at most {BATCH_BYTES_MAX}")
            if self.magic < 2:
                return encode_message(
                    self.header.last_offset, self.header.max_timestamp, None, packed, self.magic,
                    <uint8_t>(self.codec | (LOG_APPEND_TIME if self.is_stamped and self.magic else 0)))
            made = PyBytes_FromStringAndSize(NULL, head + len(packed))
            memcpy(PyBytes_AS_STRING(made) + head, PyBytes_AS_STRING(packed), <size_t>len(packed))
        batch = <uint8_t*>PyBytes_AS_STRING(made)
        self.header.size_in_bytes = <int32_t>len(made)
        if self.is_stamped:
            self.header.attributes |= LOG_APPEND_TIME
        write_header(batch, &self.header)
        if self.header.size_in_bytes < GIL_RELEASE_BYTES:
            seal(batch, self.header.size_in_bytes)
        else:
            with nogil:
                seal(batch, self.header.size_in_bytes)
        return made


close_type(BatchBuilder)


# -------------------------------------------------------------------------------------------------------- conversion

@cython.final
cdef class Conversion:
    """One run of convert_batches()."""
    cdef Source source
    cdef int8_t magic
    cdef int codec                 # -1: each batch keeps its own
    cdef object level
    cdef int64_t bytes_max, budget, floor
    cdef int32_t group_bytes_max
    cdef list done                 # pieces of the result
    cdef BatchBuilder group        # messages that are being put together; None: none

    cdef int convert(self, const Header* header) except -1:
        """Add what becomes of one batch."""
        cdef int codec = header.attributes & CODEC_MASK
        cdef int target = codec if self.codec < 0 else self.codec
        cdef bint is_control = header.magic == 2 and header.attributes & CONTROL != 0
        cdef int8_t magic = self.magic
        if self.magic < 2:
            if is_control or (header.magic == 2 and header.count == 0):
                return 0
            if target == CODEC_ZSTD:
                raise UnsupportedCompressionTypeError(
                    f"batch at position {header.position}: codec got zstd, wanted one that magic {self.magic} has")
            magic = min(magic, header.magic)
        if header.magic == magic and (codec == target or header.count == 0 or is_control):
            self.close_group()
            self.done.append(memoryview(self.source)[header.position:header.position + header.size_in_bytes])
            return 0
        cdef OpenBatch opened = open_batch(self.source, header, min(self.bytes_max, self.budget), 0)
        if codec:
            self.budget -= opened.plain.size
        opened.check_records()
        if header.magic == 2 and magic == 2:
            self.close_group()
            self.done.append(self.recompressed(opened, target))
        elif header.magic < 2 and not codec and (magic == 2 or target):
            self.add_to_group(opened, magic, target)
        else:
            self.close_group()
            self.rewrite(opened, magic, target)
        return 0

    cdef bytes recompressed(self, OpenBatch opened, int codec):
        """A v2 batch with the same records' bytes under another codec."""
        cdef bytes packed = compress_span(codec, opened.plain.data + opened.begin, opened.end - opened.begin,
                                          level_for(codec, self.level), 2)
        cdef Header header = opened.header
        if len(packed) > BATCH_BYTES_MAX - BATCH_HEADER_SIZE:
            raise MessageTooLargeError(f"batch at position {header.position}: size got {len(packed)}, "
                                       f"wanted at most {BATCH_BYTES_MAX - BATCH_HEADER_SIZE} and a header")
        cdef bytes made = PyBytes_FromStringAndSize(NULL, BATCH_HEADER_SIZE + len(packed))
        cdef uint8_t* batch = <uint8_t*>PyBytes_AS_STRING(made)
        memcpy(batch + BATCH_HEADER_SIZE, PyBytes_AS_STRING(packed), <size_t>len(packed))
        header.attributes = <int16_t>(header.attributes & ~CODEC_MASK | codec)
        header.size_in_bytes = <int32_t>len(made)
        write_header(batch, &header)
        with nogil:
            seal(batch, header.size_in_bytes)
        return made

    cdef BatchBuilder builder_for(self, const Header* header, int8_t magic, int codec):
        cdef BatchBuilder builder = BatchBuilder.new(magic, codec, level_for(codec, self.level))
        if header.magic and header.attributes & LOG_APPEND_TIME:
            builder.is_stamped = True
            builder.append_time = header.max_timestamp
        return builder

    cdef int rewrite(self, OpenBatch opened, int8_t magic, int codec) except -1:
        """A batch of many records into another magic or, for magic 0 and 1, another codec."""
        cdef BatchBuilder builder = self.builder_for(&opened.header, magic, codec)
        cdef int64_t floor = INT64_MIN
        if magic < 2 and not opened.header.attributes & CODEC_MASK:
            floor = self.floor
        cdef Added added = builder.add_all(opened, -1, floor)
        if added != ADDED:
            raise refusal(added, &opened.header, builder)
        if builder.header.count:
            self.done.append(builder.finish())
        return 0

    cdef int add_to_group(self, OpenBatch opened, int8_t magic, int codec) except -1:
        """An uncompressed message of magic 0 or 1, each of which is a batch of its own, into a batch of many."""
        cdef BatchBuilder group = self.group
        cdef Added added
        cdef bint is_stamped = opened.header.magic and opened.header.attributes & LOG_APPEND_TIME
        if group is not None and (
            group.magic != magic
            or group.is_stamped != is_stamped
            or (is_stamped and group.append_time != opened.header.max_timestamp)
            or group.used + opened.header.size_in_bytes > self.group_bytes_max
        ):
            self.close_group()
            group = None
        if group is None:
            group = self.group = self.builder_for(&opened.header, magic, codec)
        added = group.add_all(opened, -1, INT64_MIN)
        if added != ADDED:
            if not group.header.count:
                raise refusal(added, &opened.header, group)
            # Its offset or size does not fit behind the others: it begins the next batch.
            self.close_group()
            self.add_to_group(opened, magic, codec)
        return 0

    cdef int close_group(self) except -1:
        if self.group is not None:
            self.done.append(self.group.finish())
            self.group = None
        return 0


close_type(Conversion)


cdef object refusal(Added added, const Header* header, BatchBuilder builder):
    """Why the record after those in `builder` could not be added."""
    if added == ADD_SIZE:
        return MessageTooLargeError(f"batch at position {header.position}, record {builder.header.count}: "
                                    f"size after conversion got more, wanted at most {BATCH_BYTES_MAX}")
    return CorruptBatch(
        "offset", reason=CorruptionReason.OFFSET_ORDER, got="one that goes back, is negative or 2^31 above the first",
        wanted=f"more than {builder.header.last_offset if builder.header.count else -1}", position=header.position,
        offset=header.base_offset, record_index=builder.header.count)


def convert_batches(
    buffer, magic, *, compression=None, level=None, first_offset=None, verify_crc=True, max_decompressed_bytes=None,
    batch_bytes_max=None,
):
    """The batches of `buffer` in the format `magic`, as bytes: up to 2, or down to 1 or 0 for an old reader.

    Offsets stay what they are. Batches that are in the format already are copied as they are; so are, going down,
    those of a lower magic. Each batch keeps its codec, or gets `compression` (a codec name) at `level`.

    Going up, timestamps and their type stay; magic 0 has none, which is CreateTime and -1. Uncompressed messages,
    which are a batch each, are put together into batches of up to `batch_bytes_max` bytes (1 MiB) while their
    offsets increase.

    Going down loses, as in Kafka up to 3.x: control batches and empty batches altogether; headers; producer id,
    epoch, sequence and the transactional mark; the leader epoch; the delete horizon; in magic 0 the timestamps too.
    LogAppendTime stays in magic 1. `first_offset` leaves out records below it in uncompressed batches, whose records
    become messages each: some old clients rely on it. A zstd batch raises UnsupportedCompressionTypeError, unless
    `compression` says otherwise.

    Damage raises CorruptBatch with its position, a partial last batch is left out. max_decompressed_bytes bounds what
    one batch may decompress to (128 MiB); all together may come to 64 times the buffer, or to this if it is more.

    >>> from logcore import decode_batches, encode_batch
    >>> old = encode_batch([(b"k", b"v1"), (b"k", b"v2")], base_offset=7, magic=0)
    >>> [(batch.magic, batch.base_offset, batch.last_offset, batch.count)
    ...  for batch in decode_batches(convert_batches(old, 2))]
    [(2, 7, 8, 2)]
    """
    cdef Conversion run = Conversion.__new__(Conversion)
    cdef Header header
    cdef Fault fault
    cdef Step step
    cdef const uint8_t* start
    cdef const uint8_t* pos
    cdef const uint8_t* end
    cdef bint checked = verify_crc
    magic = check_range("magic", magic, 0, 2)
    first_offset = check_optional("first_offset", first_offset, 0, 0x7FFFFFFFFFFFFFFF)
    run.magic = magic
    run.codec = -1 if compression is None else codec_id(compression)
    if run.codec >= 0:
        level_for(run.codec, level)
    elif level is not None:
        raise UsageError("level", got=level if isinstance(level, int) else type(level).__name__, wanted="None, where each batch keeps its codec")
    if run.codec == CODEC_ZSTD and run.magic < 2:
        raise UsageError("compression", where=f"magic {magic}", got="zstd", wanted="none, gzip, snappy or lz4")
    run.level = level
    run.source = frozen(Source(buffer))
    run.bytes_max = decompressed_limit(max_decompressed_bytes)
    run.budget = max(run.bytes_max, EXPANSION_MAX * run.source.size)
    run.floor = INT64_MIN if first_offset is None else first_offset
    run.group_bytes_max = GROUP_BYTES_MAX if batch_bytes_max is None else size_limit(batch_bytes_max)
    run.done = []
    start = pos = run.source.data
    end = start + run.source.size
    while True:
        with nogil:
            step = read_header(start, pos, end, BATCH_BYTES_MAX, checked, &header, &fault)
        if step == STEP_FAULT:
            raise corrupt_batch(&fault, pos - start)
        if step != STEP_BATCH:
            break
        run.convert(&header)
        pos += header.size_in_bytes
    run.close_group()
    return b"".join(run.done)
