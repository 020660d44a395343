"""Rows: record batches as Python objects, in and out.

    decode_batches(buffer) -> Batch -> Record        encode_batch(records) -> bytes

A Batch is a header and a hold on the caller's bytes; its records are parsed when it is iterated, each time anew, and
for a compressed batch decompressed each time too. A Record owns its bytes. Nothing is trusted: each length is checked
before it is used, each checksum before a batch is handed out (unless told otherwise).

The formats: docs/internals/record-format.md. Columns, for engines, are in _columns.pyx.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsEncodedString, PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from logcore._arguments cimport check_optional, check_range, close_type, hide_new
from logcore._batch cimport (
    BATCH_HEADER_SIZE, CODEC_MASK, CONTROL, CONTROL_KEY_SIZE, DELETE_HORIZON, LOG_APPEND_TIME, STEP_BATCH,
    STEP_END, STEP_FAULT, TRANSACTIONAL, Fields, Header, Place, Step, check_count, diagnose_record, ends_before,
    leap_to_record, pass_records, read_header, read_record, record_timestamp, seal, sequence_after, size_limit,
    timestamp_type_name, verify_checksum, write_header,
)
from logcore._buffer cimport GIL_RELEASE_BYTES, NewBytes, Source, changed_buffer
from logcore._bytes cimport (
    CACHE_LINE_BYTES, VARINT_BYTES_MAX, Varint, add64, likely, load16, load32, prefetch, put_varint, read_varint, sub64, unlikely,
    unzigzag, varint_bytes, zigzag,
)
from logcore._compression cimport codec_name, compress_span
from logcore._fault cimport FAULT_COUNT_TOO_SMALL, Fault, corrupt_batch, fail
from logcore._legacy cimport Message, MessageSet, encode_messages, open_messages
from logcore._options cimport BatchOptions
from logcore._payload cimport decompressed, decompressed_limit
from logcore._write cimport Measured, measure_record, put_record

import cython

from logcore.errors import CorruptBatch, CorruptionReason, MessageTooLargeError, UsageError, UsageTypeError

cdef enum:
    ROWS_AHEAD = 6
    GUESS_BYTES_MAX = 64 * 1024 * 1024

cdef tuple NO_HEADERS = ()


# -------------------------------------------------------------------------------------------------------- records

@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Record:
    """Record(offset=-1, timestamp=-1, key=None, value=None, headers=())\n--\n
    One record. Immutable, comparable, hashable, unpackable: `offset, timestamp, key, value, headers = record`.

    offset, timestamp: int, -1 where unassigned; key, value: bytes or None; headers: (name, bytes or None) pairs.

    >>> Record(key=b"k", value=b"v", headers=[("trace", b"1")])
    Record(offset=-1, timestamp=-1, key=b'k', value=b'v', headers=(('trace', b'1'),))
    """
    # no_gc: key and value are exact bytes, headers a tuple of exact (str, bytes) pairs, so no cycle can pass through.

    def __init__(self, offset=-1, timestamp=-1, key=None, value=None, headers=()):
        offset = check_range("offset of a record", offset, -1, 0x7FFFFFFFFFFFFFFF)
        timestamp = check_range("timestamp of a record", timestamp, -1, 0x7FFFFFFFFFFFFFFF)
        self.offset = offset
        self.timestamp = timestamp
        self.key = None if key is None else as_bytes(key, "key", -1)
        self.value = None if value is None else as_bytes(value, "value", -1)
        self.headers = NO_HEADERS
        if headers is not None and headers != ():
            self.headers = tuple([((<bytes>name).decode("utf-8", "surrogateescape"), content)
                                  for name, content in as_headers(headers, -1)])

    @staticmethod
    cdef Record new(int64_t offset, int64_t timestamp, object key, object value, tuple headers):
        cdef Record self = Record.__new__(Record)
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        return self

    def _astuple(self):
        return self.offset, self.timestamp, self.key, self.value, self.headers

    def __iter__(self):
        return iter(self._astuple())

    def __eq__(self, other):
        cdef Record that
        if not isinstance(other, Record):
            return NotImplemented
        that = other
        return (self.offset == that.offset and self.timestamp == that.timestamp and self.key == that.key
                and self.value == that.value and self.headers == that.headers)

    def __hash__(self):
        return hash(self._astuple())

    def __repr__(self):
        return (f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, "
                f"headers={self.headers!r})")

    def __reduce__(self):
        return _restore_record, self._astuple()


hide_new(Record)


def _restore_record(offset, timestamp, key, value, headers):
    """For pickle: a record as it was read, whose offset or time a writer would be refused."""
    cdef Record record = Record(key=key, value=value, headers=headers)
    record.offset = offset
    record.timestamp = timestamp
    return record


cdef bytes as_bytes(value, str what, Py_ssize_t index):
    """`value` as exact bytes, copied from any other buffer."""
    if PyBytes_CheckExact(value):
        return value
    cdef Source source
    try:
        source = Source(value, what)
    except UsageError as error:
        wanted = "bytes or None"
        if isinstance(value, str):
            wanted += ': encode it, as in "…".encode()'
        raise type(error)(what, where=None if index < 0 else f"record {index}", got=error.got, wanted=wanted) from None
    return PyBytes_FromStringAndSize(<const char*>source.data, source.size)


cdef list as_headers(headers, Py_ssize_t index):
    """Headers as a list of (UTF-8 name, bytes or None)."""
    cdef list found = []
    where = None if index < 0 else f"record {index}"
    if isinstance(headers, dict):
        raise UsageTypeError("headers", where=where, got=type(headers).__name__,
                             wanted="(name, value) pairs, as its .items() are: a name may come twice")
    try:
        pairs = iter(headers)
    except TypeError:
        raise UsageTypeError("headers", where=where, got=type(headers).__name__,
                             wanted="(name, value) pairs") from None
    for pair in pairs:
        if not isinstance(pair, tuple) or PyTuple_GET_SIZE(pair) != 2:
            raise UsageTypeError("header", where=where, got=type(pair).__name__, wanted="a (name, value) tuple")
        name = <object>PyTuple_GET_ITEM(pair, 0)
        value = <object>PyTuple_GET_ITEM(pair, 1)
        if not isinstance(name, str):
            raise UsageTypeError("header name", where=where, got=type(name).__name__, wanted="str")
        try:
            encoded = PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise UsageError("header name", where=where, got=ascii(name),
                             wanted="text that UTF-8 can hold") from None
        found.append((encoded, None if value is None else as_bytes(value, "header value", index)))
    return found


cdef tuple decode_headers(const uint8_t* pos, const uint8_t* end, int64_t count):
    """The headers that read_record() has found good, as (str, bytes or None) pairs.

    Checked again: making an object may run the caller's code (in a garbage collection), which may write to the buffer.
    """
    cdef list found = []
    cdef Varint varint
    cdef int64_t size
    while count:
        varint = read_varint(pos, end, VARINT_BYTES_MAX)
        size = unzigzag(varint.bits)
        if varint.next == NULL or size < 0 or size > end - varint.next:
            raise changed_buffer()
        name = PyUnicode_DecodeUTF8(<char*>varint.next, size, "surrogateescape")
        varint = read_varint(varint.next + size, end, VARINT_BYTES_MAX)
        size = unzigzag(varint.bits)
        pos = varint.next
        if pos == NULL or size > end - pos:
            raise changed_buffer()
        if size < 0:
            found.append((name, None))
        else:
            found.append((name, PyBytes_FromStringAndSize(<const char*>pos, size)))
            pos += size
        count -= 1
    return tuple(found)


# -------------------------------------------------------------------------------------------------------- reading

@cython.final
cdef class Batch:
    """One record batch of any magic. Holds the bytes it was read from; iterate it for its records, as often as you like.

    For magic 0 and 1, where a message is its own batch, the producer fields are -1, `count` is None, and
    `base_offset` of a compressed set has to decompress it.
    """

    @staticmethod
    cdef Batch new(Source source, const Header* header, int64_t bytes_max, int64_t shift):
        cdef Batch self = Batch.__new__(Batch)
        self.source = source
        self.header = header[0]
        self.bytes_max = bytes_max
        self.shift = shift
        return self

    cdef Source payload(self):
        """The records' bytes of a compressed v2 batch."""
        return decompressed(self.source, &self.header, BATCH_HEADER_SIZE,
                            self.header.size_in_bytes - BATCH_HEADER_SIZE, self.bytes_max, self.shift)

    @property
    def position(self):
        """Where the batch begins in the buffer."""
        return self.header.position + self.shift

    @property
    def magic(self):
        return self.header.magic

    @property
    def base_offset(self):
        cdef MessageSet messages
        if self.header.magic < 2 and self.header.attributes & CODEC_MASK:
            messages = open_messages(self.source, &self.header, self.bytes_max, self.shift)
            return messages.messages[0].offset
        return self.header.base_offset

    @property
    def last_offset(self):
        return self.header.last_offset

    @property
    def size_in_bytes(self):
        return self.header.size_in_bytes

    @property
    def crc(self):
        return self.header.crc

    @property
    def attributes(self):
        return self.header.attributes

    @property
    def compression(self):
        """The codec's name; "unknown-5" for an id that Kafka does not know."""
        return codec_name(self.header.attributes & CODEC_MASK)

    @property
    def is_compressed(self):
        return self.header.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self):
        """"create_time", "log_append_time", or "none" for magic 0."""
        return timestamp_type_name(&self.header)

    @property
    def base_timestamp(self):
        return self.header.base_timestamp

    @property
    def max_timestamp(self):
        return self.header.max_timestamp

    @property
    def producer_id(self):
        return self.header.producer_id

    @property
    def producer_epoch(self):
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        return self.header.base_sequence

    @property
    def last_sequence(self):
        """The sequence of the last offset, by the offsets the batch spans, not by the records still in it."""
        if self.header.base_sequence == -1:
            return -1
        return sequence_after(self.header.base_sequence,
                              <int32_t>(<uint64_t>self.header.last_offset - <uint64_t>self.header.base_offset))

    @property
    def leader_epoch(self):
        return self.header.leader_epoch

    @property
    def is_transactional(self):
        return self.header.magic == 2 and self.header.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self):
        return self.header.magic == 2 and self.header.attributes & CONTROL != 0

    @property
    def delete_horizon_ms(self):
        """When the tombstones of a compacted batch may go, or None."""
        if self.header.magic == 2 and self.header.attributes & DELETE_HORIZON:
            return self.header.base_timestamp
        return None

    @property
    def count(self):
        """How many records the header declares; None for magic 0 and 1."""
        return self.header.count if self.header.magic == 2 else None

    @property
    def data(self):
        """The whole batch as a read-only memoryview of the caller's bytes."""
        return memoryview(self.source)[self.header.position:self.header.position + self.header.size_in_bytes]

    def __iter__(self):
        return RecordIterator.new(self, False, INT64_MIN, False)

    def records(self, *, stored_timestamps=False, first_offset=None):
        """Iterate over the records, as iter(batch) does.

        stored_timestamps: with LogAppendTime a record's time is the batch's; True gives the one that was stored with
            the record instead, so that the batch can be written again byte for byte.
        first_offset: begin at the first record that has this offset or a higher one. Those before it are walked over,
            a few nanoseconds each, and only their lengths and offsets are looked at. A batch whose last offset lies
            below has none, and is not even decompressed.

        >>> batch = next(decode_batches(encode_batch([(None, b"%d" % n) for n in range(1000)], base_offset=5000)))
        >>> next(batch.records(first_offset=5998))
        Record(offset=5998, timestamp=-1, key=None, value=b'998', headers=())
        """
        first_offset = check_optional("first_offset", first_offset, 0, 0x7FFFFFFFFFFFFFFF)
        return RecordIterator.new(self, stored_timestamps, INT64_MIN if first_offset is None else first_offset, False)

    def control_records(self):
        """The records of a control batch, decoded: a list of ControlRecord."""
        if not self.is_control:
            raise UsageError("control_records", where=f"batch at position {self.position}", got="an ordinary batch",
                             wanted="a control batch")
        return [decode_control(record, self.position) for record in self]

    def __repr__(self):
        flags = "".join([", transactional" if self.is_transactional else "", ", control" if self.is_control else ""])
        return (f"Batch(magic={self.magic}, position={self.position}, last_offset={self.last_offset}, "
                f"count={self.count}, size_in_bytes={self.size_in_bytes}, compression={self.compression!r}{flags})")


close_type(Batch, "decode_batches(buffer)")


@cython.final
cdef class RecordIterator:
    """Walks the records of a batch; raises at the one that is damaged. Compiled code calls next_record() itself."""

    @staticmethod
    cdef RecordIterator new(Batch batch, bint stored_timestamps, int64_t first_offset, bint is_of_log):
        """is_of_log: the batch was checked when it was written, and its checksum is right."""
        cdef RecordIterator self = RecordIterator.__new__(RecordIterator)
        self.batch = batch
        self.header = batch.header
        if stored_timestamps:
            self.header.attributes &= ~<int16_t>LOG_APPEND_TIME
        if batch.header.count and not ends_before(&batch.header, first_offset):
            self.begin(first_offset, is_of_log)
        # Otherwise there is nothing to find, and the bytes are not looked at. Nor does Kafka's reader, of a batch that
        # declares no record, look at them or at its codec.
        return self

    cdef int begin(self, int64_t first_offset, bint is_of_log) except -1:
        """Open the batch, and go to the first record that is not below `first_offset`."""
        cdef Batch batch = self.batch
        cdef Fault fault
        cdef Place place
        cdef bint whole
        if batch.header.magic < 2:
            self.messages = open_messages(batch.source, &batch.header, batch.bytes_max, batch.shift)
            while (self.next_index < self.messages.count
                    and self.messages.messages[self.next_index].offset < first_offset):
                self.next_index += 1
            return 0
        if batch.header.attributes & CODEC_MASK:
            self.payload = batch.payload()
            self.start = self.pos = self.payload.data
            self.end = self.start + self.payload.size
        else:
            self.payload = batch.source
            self.start = batch.source.data + batch.header.position
            self.pos = self.start + BATCH_HEADER_SIZE
            self.end = self.start + batch.header.size_in_bytes
        if check_count(&batch.header, self.end - self.pos, &fault):
            raise corrupt_batch(&fault, batch.header.position + batch.shift, batch.header.base_offset)
        self.left = batch.header.count
        if first_offset <= batch.header.base_offset:
            return 0
        place.pos = self.pos
        place.left = self.left
        if self.end - self.pos < GIL_RELEASE_BYTES:
            whole = self.pass_to(&place, first_offset, is_of_log)
        else:
            with nogil:
                whole = self.pass_to(&place, first_offset, is_of_log)
        self.pos = place.pos
        self.left = place.left
        if not whole:
            raise self.refusal(self.pos)
        return 0

    cdef bint pass_to(self, Place* place, int64_t first_offset, bint is_of_log) noexcept nogil:
        if is_of_log and leap_to_record(place, self.end, &self.header, first_offset):
            return True
        return pass_records(place, self.end, &self.header, first_offset, INT64_MAX, False)

    def __iter__(self):
        return self

    def __length_hint__(self):
        return self.left if self.messages is None else self.messages.count - self.next_index

    def __next__(self):
        cdef Record record = self.next_record()
        if record is None:
            raise StopIteration
        return record

    cdef Record next_record(self):
        """The next record, or None behind the last."""
        cdef Fields fields
        cdef Header* header = &self.header
        cdef const uint8_t* after
        if self.left <= 0:
            if self.messages is not None:
                return self.next_message()
            if self.pos != self.end:
                raise self.refusal(NULL)
            return None
        after = read_record(self.pos, self.end, &fields)
        if unlikely(after == NULL):
            raise self.refusal(self.pos)
        self.pos = after
        self.left -= 1
        return Record.new(
            <int64_t>(<unsigned long long>header.base_offset + <unsigned long long>fields.offset_delta),
            record_timestamp(header, fields.timestamp_delta),
            None if fields.key_size < 0 else PyBytes_FromStringAndSize(<const char*>fields.key, fields.key_size),
            None if fields.value_size < 0 else PyBytes_FromStringAndSize(<const char*>fields.value, fields.value_size),
            NO_HEADERS if fields.header_count == 0 else decode_headers(fields.headers, after, fields.header_count),
        )

    cdef Record next_message(self):
        """next_record() of magic 0 and 1."""
        cdef Message* message
        if self.next_index == self.messages.count:
            return None
        message = &self.messages.messages[self.next_index]
        self.next_index += 1
        return Record.new(
            message.offset, message.timestamp,
            None if message.key_size < 0 else PyBytes_FromStringAndSize(<const char*>message.key, message.key_size),
            None if message.value_size < 0
            else PyBytes_FromStringAndSize(<const char*>message.value, message.value_size),
            NO_HEADERS,
        )

    cdef object refusal(self, const uint8_t* record):
        """What is wrong with `record`, or (NULL) with the bytes after the last one; the iterator ends there."""
        cdef Fault fault
        cdef Header* header = &self.batch.header
        if record == NULL:
            fail(&fault, FAULT_COUNT_TOO_SMALL, self.pos - self.start, self.end - self.pos, 0)
        else:
            diagnose_record(self.start, record, self.end, &fault)
            fault.record_index = header.count - self.left
        self.left = 0
        self.pos = self.end
        return corrupt_batch(&fault, header.position + self.batch.shift, header.base_offset)


close_type(RecordIterator, "iter(batch)")


@cython.final
cdef class BatchIterator:
    """The batches of a buffer, one at a time; `consumed` is the position after the last whole one handed out."""
    cdef Source source
    cdef Py_ssize_t position
    cdef int64_t bytes_max
    cdef int64_t shift
    cdef int32_t batch_bytes_max
    cdef bint verify_crc

    @property
    def consumed(self):
        return self.position

    def __iter__(self):
        return self

    def __next__(self):
        cdef const uint8_t* start = self.source.data
        cdef const uint8_t* pos = start + self.position
        cdef const uint8_t* end = start + self.source.size
        cdef Header header
        cdef Fault fault
        cdef Step step = read_header(start, pos, end, self.batch_bytes_max, False, &header, &fault)
        if step == STEP_END:
            raise StopIteration
        cdef Py_ssize_t position = self.position
        if step == STEP_BATCH:
            # Claimed before the GIL goes: a thread that shares this iterator meanwhile gets the next batch, not this one.
            self.position += header.size_in_bytes
        if step == STEP_BATCH and self.verify_crc:
            if header.size_in_bytes < GIL_RELEASE_BYTES:
                if verify_checksum(pos, &header, &fault):
                    step = STEP_FAULT
            else:
                with nogil:
                    if verify_checksum(pos, &header, &fault):
                        step = STEP_FAULT
        if step == STEP_FAULT:
            self.position = position
            raise corrupt_batch(&fault, position + self.shift)
        return Batch.new(self.source, &header, self.bytes_max, self.shift)


close_type(BatchIterator, "decode_batches(buffer)")


def decode_batches(buffer, *, verify_crc=True, max_decompressed_bytes=None, batch_bytes_max=None, base_position=0):
    """Iterate over the batches of `buffer`: any contiguous bytes, held until the last Batch is gone.

    Ends quietly before a partial last batch (a fetch may cut one; `.consumed` tells how far it came). A size, magic
    or checksum that is wrong raises CorruptBatch with its position. Records are parsed when a Batch is iterated.

    max_decompressed_bytes: the most that one batch may decompress to (default 128 MiB), enforced while decompressing
    batch_bytes_max: refuse batches whose size field says more
    base_position: where `buffer` begins in what it was read from; added to positions in batches and errors

    >>> data = encode_batch([(b"k", b"v1"), (b"k", None)], base_offset=42)
    >>> batches = decode_batches(data)
    >>> [record.offset for batch in batches for record in batch], batches.consumed == len(data)
    ([42, 43], True)
    >>> next(decode_batches(data[:-1] + b"!"))
    Traceback (most recent call last):
    logcore.errors.CorruptBatch: batch at position 0, byte 17: crc got 0xb4ec74b5, wanted 0x663a7968
    """
    cdef BatchIterator batches = BatchIterator.__new__(BatchIterator)
    batches.source = Source(buffer)
    batches.verify_crc = verify_crc
    batches.bytes_max = decompressed_limit(max_decompressed_bytes)
    batches.batch_bytes_max = size_limit(batch_bytes_max)
    base_position = check_range("base_position", base_position, 0, 0x7FFFFFFFFFFFFFFF - batches.source.size)
    batches.shift = base_position
    return batches


# -------------------------------------------------------------------------------------------------------- control

CONTROL_TYPES = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION",
                 "KRAFT_VOTERS")


class ControlRecord:
    """A control record, decoded.

    type: a name of CONTROL_TYPES, or "UNKNOWN"; type_id: its number; version: of the key
    value: the bytes of the value; coordinator_epoch: of an ABORT or COMMIT marker, else None
    """

    __slots__ = ("coordinator_epoch", "offset", "timestamp", "type", "type_id", "value", "version")

    def __init__(self, offset, timestamp, type, type_id, version, value, coordinator_epoch):
        self.offset = offset
        self.timestamp = timestamp
        self.type = type
        self.type_id = type_id
        self.version = version
        self.value = value
        self.coordinator_epoch = coordinator_epoch

    def __eq__(self, other):
        if not isinstance(other, ControlRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None

    def __repr__(self):
        return f"ControlRecord({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


cdef decode_control(Record record, int64_t position):
    """Key: int16 version, int16 type. Newer versions may be longer, and are read as far as this one goes."""
    if record.key is None or len(record.key) < CONTROL_KEY_SIZE:
        raise _control_error("control record key", "null" if record.key is None else f"{len(record.key)} bytes",
                             "4 bytes", record, position)
    cdef const uint8_t* key = <const uint8_t*>PyBytes_AS_STRING(record.key)
    cdef int version = load16(key)
    cdef int type_id = load16(key + 2)
    if version < 0:
        raise _control_error("control record version", version, "0 or more", record, position)
    name = CONTROL_TYPES[type_id] if 0 <= type_id < len(CONTROL_TYPES) else "UNKNOWN"
    epoch = None
    if name in ("ABORT", "COMMIT"):
        if record.value is None or len(record.value) < 6:
            raise _control_error("transaction marker", "null" if record.value is None else f"{len(record.value)} bytes",
                                 "6 bytes", record, position)
        if load16(<const uint8_t*>PyBytes_AS_STRING(record.value)) < 0:
            raise _control_error("transaction marker version",
                                 load16(<const uint8_t*>PyBytes_AS_STRING(record.value)), "0 or more", record, position)
        epoch = load32(<const uint8_t*>PyBytes_AS_STRING(record.value) + 2)
    return ControlRecord(record.offset, record.timestamp, name, type_id, version, record.value, epoch)


cdef _control_error(what, got, wanted, Record record, position):
    return CorruptBatch(what, reason=CorruptionReason.CONTROL_RECORD, got=got, wanted=wanted, position=position,
                        offset=record.offset)


def encode_transaction_marker(
    producer_id, producer_epoch, *, commit, coordinator_epoch, offset=0, timestamp=-1, leader_epoch=-1,
) -> bytes:
    """The control batch that ends a transaction: one COMMIT or ABORT record.

    >>> next(decode_batches(encode_transaction_marker(7, 0, commit=True, coordinator_epoch=3))).control_records()[0].type
    'COMMIT'
    """
    coordinator_epoch = check_range("coordinator_epoch", coordinator_epoch, 0, 0x7FFFFFFF)
    key = (0).to_bytes(2, "big") + int(bool(commit)).to_bytes(2, "big")
    value = (0).to_bytes(2, "big") + int(coordinator_epoch).to_bytes(4, "big")
    return encode_batch([(key, value, timestamp)], base_offset=offset, producer_id=producer_id,
                        producer_epoch=producer_epoch, leader_epoch=leader_epoch, is_transactional=True,
                        is_control=True)


# -------------------------------------------------------------------------------------------------------- writing

def encode_batch(
    records, *, base_offset=None, last_offset=None, compression="none", level=None, timestamp_type="create_time",
    log_append_time_ms=None, now_ms=None, producer_id=-1, producer_epoch=-1, base_sequence=-1, leader_epoch=-1,
    is_transactional=False, is_control=False, delete_horizon_ms=None, magic=2, batch_bytes_max=None,
) -> bytes:
    """Write `records` as exactly one batch.

    records: an iterable of Record, or of (key, value), (key, value, timestamp), (key, value, timestamp, headers);
        a Record that has an offset keeps it, everything else is numbered onwards; offsets must increase
    base_offset: of the batch (default: the first record's offset, or 0); last_offset: if it spans more than its records
    compression: "none" (or None), "gzip", "snappy", "lz4", "zstd"; level: as the codec has them, None for its default
    now_ms: the timestamp of records that have none (otherwise -1, as Kafka has it)
    timestamp_type: "create_time", or "log_append_time" with log_append_time_ms (or now_ms)
    producer_id, producer_epoch, base_sequence, is_transactional, is_control, leader_epoch: as in the header
    delete_horizon_ms: written as the base timestamp, for tombstones of a compacted log
    magic: 2; or 0 or 1 for Kafka's older formats, where an uncompressed batch is a run of messages
    batch_bytes_max: raises MessageTooLargeError when the batch would be larger (default 2^31 - 1)

    >>> rows = [(b"k", b"v" * 100)] * 1000
    >>> len(encode_batch(rows, compression="zstd")) < len(encode_batch(rows)) // 50
    True
    """
    cdef BatchOptions options = BatchOptions.new(
        base_offset, last_offset, compression, level, timestamp_type, log_append_time_ms, now_ms, producer_id,
        producer_epoch, base_sequence, leader_epoch, is_transactional, is_control, delete_horizon_ms, magic,
        batch_bytes_max)
    if options.magic < 2:
        return encode_legacy_rows(records, options)
    cdef NewBytes out = NewBytes.new(4096)
    add_batch(out, rows_of(records), 0, 0x7FFFFFFF, options)
    return out.finish()


def encode_batches(
    records, *, batch_bytes=1048576, base_offset=0, compression="none", level=None, timestamp_type="create_time",
    log_append_time_ms=None, now_ms=None, producer_id=-1, producer_epoch=-1, base_sequence=-1, leader_epoch=-1,
    is_transactional=False,
) -> bytes:
    """Write `records` as one v2 batch or more, end to end, numbered from `base_offset` on.

    records: as encode_batch() takes them; offsets of Records do not count
    batch_bytes: begin a new batch before one grows beyond this (before compression); a record larger than that gets a
        batch of its own
    the others: as in encode_batch(); base_sequence counts on from batch to batch

    >>> [batch.count for batch in decode_batches(encode_batches([(b"k", b"v" * 1000)] * 5, batch_bytes=2500))]
    [2, 2, 1]
    """
    cdef BatchOptions options = BatchOptions.new(
        base_offset, None, compression, level, timestamp_type, log_append_time_ms, now_ms, producer_id,
        producer_epoch, base_sequence, leader_epoch, is_transactional, False, None, 2, None)
    cdef NewBytes out = NewBytes.new(4096)
    cdef list rows = rows_of(records)
    cdef Py_ssize_t start = 0, after
    batch_bytes = check_range("batch_bytes", batch_bytes, 1, 0x7FFFFFFF)
    options.renumber = True
    while True:
        after = add_batch(out, rows, start, batch_bytes, options)
        if after >= len(rows):
            return out.finish()
        options.base_offset = add64(options.base_offset, after - start)
        if options.base_sequence >= 0:
            options.base_sequence = sequence_after(options.base_sequence, <int32_t>(after - start))
        start = after


cdef list rows_of(records):
    if type(records) is list:
        return records
    check_iterable(records)
    return [row for row in records]    # list() would believe what an object says of its length


cdef Py_ssize_t add_batch(NewBytes out, list rows, Py_ssize_t start, int64_t cut_bytes, BatchOptions options) except -1:
    """Write the rows from `start` on as a batch behind what is in `out`; returns the first that is not in it."""
    cdef Header header
    cdef Py_ssize_t begin = out.used, after
    options.fill(&header)
    out.reserve(BATCH_HEADER_SIZE)
    out.used += BATCH_HEADER_SIZE
    after = write_rows(out, begin, rows, start, cut_bytes, options, &header)
    close_batch(out, begin, options, &header)
    return after


cdef int64_t as_timestamp(value, int64_t now_ms, Py_ssize_t index) except -2:
    cdef int overflow = 0
    cdef int64_t timestamp
    if value is None:
        return now_ms
    if not PyLong_CheckExact(value):
        if not PyIndex_Check(value) or isinstance(value, bool):
            raise UsageTypeError("timestamp", where=f"record {index}", got=type(value).__name__,
                                 wanted="an int, milliseconds since 1970, or None")
        value = PyNumber_Index(value)
    timestamp = PyLong_AsLongLongAndOverflow(value, &overflow)
    if unlikely(overflow != 0 or timestamp < -1):
        raise UsageError("timestamp", where=f"record {index}", got=value, wanted="-1 to 2^63 - 1")
    return timestamp


cdef int check_iterable(records) except -1:
    if isinstance(records, (str, bytes, bytearray, dict, Record)) or not hasattr(records, "__iter__"):
        raise UsageTypeError("records", got=type(records).__name__, wanted="an iterable of records")
    return 0


cdef object refuse_record(item, Py_ssize_t index):
    got = type(item).__name__
    if isinstance(item, tuple):
        got += f" of {len(item)}"
    return UsageTypeError("record", where=f"record {index}", got=got,
                          wanted="a Record, or a tuple (key, value[, timestamp[, headers]])")


cdef object refuse_unwritable(int64_t offset, int64_t timestamp, Py_ssize_t index):
    """For a Record that was read from a strange batch: no writer of Kafka's could have meant it."""
    what, got = ("offset", offset) if offset < -1 else ("timestamp", timestamp)
    return UsageError(what, where=f"record {index}", got=got, wanted="-1 or more")


cdef object refuse_offset(int64_t offset, int64_t base, int64_t previous, Py_ssize_t index):
    if previous == 0x7FFFFFFFFFFFFFFF:
        return UsageError("offset", where=f"record {index}", got="one after 2^63 - 1", wanted="at most 2^63 - 1")
    if offset <= previous:
        return UsageError("offset", where=f"record {index}", got=offset, wanted=f"more than {previous}")
    return UsageError("offset", where=f"record {index}", got=offset,
                      wanted=f"at most {<object>base + 0x7FFFFFFF}, 2147483647 above the base offset")


cdef inline void prefetch_row(list rows, Py_ssize_t index) noexcept:
    """Ask for the memory of rows to come. They lie all over the heap, and out of the nearest caches waiting for them is
    a tenth of the work."""
    cdef PyObject* row
    cdef PyObject* value
    if index + 2 * ROWS_AHEAD >= PyList_GET_SIZE(rows):
        return
    prefetch(PyList_GET_ITEM(rows, index + 2 * ROWS_AHEAD))
    row = PyList_GET_ITEM(rows, index + ROWS_AHEAD)
    if PyTuple_CheckExact(<object>row) and PyTuple_GET_SIZE(<object>row) >= 2:
        prefetch(PyTuple_GET_ITEM(<object>row, 0))
        value = PyTuple_GET_ITEM(<object>row, 1)
        prefetch(value)
        prefetch(<char*>value + CACHE_LINE_BYTES)
        prefetch(<char*>value + 2 * CACHE_LINE_BYTES)
        if PyTuple_GET_SIZE(<object>row) >= 3:
            prefetch(PyTuple_GET_ITEM(<object>row, 2))


cdef Py_ssize_t write_rows(
    NewBytes out, Py_ssize_t begin, list rows, Py_ssize_t start, int64_t cut_bytes, BatchOptions options, Header* header,
) except -1:
    """Append the rows from `start` on to the batch that begins at `begin` of `out`, as long as it has at most `cut_bytes`.

    Tells `header` what it has to know of them, and returns the first row that is not in it.
    """
    cdef Py_ssize_t index = start, size, key_size, value_size, headers_size, fields
    cdef int64_t offset, timestamp, base = -1, previous = -1, base_timestamp = -1, max_timestamp = -1
    cdef const uint8_t* key_data
    cdef const uint8_t* value_data
    cdef uint8_t* pos
    # Borrowed from `item`, which is held and does not change.
    cdef PyObject* key
    cdef PyObject* value
    cdef PyObject* stamp
    cdef bytes name, content
    cdef list pairs
    cdef Measured measured
    cdef int overflow
    while index < PyList_GET_SIZE(rows):    # asked anew: an object among them may run code that changes the list
        item = <object>PyList_GET_ITEM(rows, index)
        prefetch_row(rows, index)
        offset = -1
        headers = None
        if type(item) is Record:
            offset = (<Record>item).offset
            timestamp = (<Record>item).timestamp
            if unlikely(offset < -1 or timestamp < -1):
                raise refuse_unwritable(offset, timestamp, index)
            if timestamp == -1:     # left out, which a tuple says by None
                timestamp = options.now_ms
            key = <PyObject*>(<Record>item).key
            value = <PyObject*>(<Record>item).value
            if (<Record>item).headers is not NO_HEADERS:
                headers = (<Record>item).headers
            if options.renumber:
                offset = -1
        elif isinstance(item, tuple):
            fields = PyTuple_GET_SIZE(item)
            if unlikely(fields < 2 or fields > 4):
                raise refuse_record(item, index)
            key = PyTuple_GET_ITEM(item, 0)
            value = PyTuple_GET_ITEM(item, 1)
            timestamp = options.now_ms
            if fields > 2:
                stamp = PyTuple_GET_ITEM(item, 2)
                overflow = 1
                if likely(PyLong_CheckExact(<object>stamp)):
                    timestamp = PyLong_AsLongLongAndOverflow(<object>stamp, &overflow)
                if unlikely(overflow != 0 or timestamp < -1):
                    timestamp = as_timestamp(<object>stamp, options.now_ms, index)
                if fields > 3:
                    headers = <object>PyTuple_GET_ITEM(item, 3)
                    if (type(headers) is tuple or type(headers) is list) and not len(headers):
                        headers = None
        else:
            raise refuse_record(item, index)

        if index == start:
            base = options.base_offset if options.base_offset >= 0 else max(offset, 0)
            previous = base - 1
            base_timestamp = options.delete_horizon if options.delete_horizon >= 0 else timestamp
        if offset < 0:
            offset = add64(previous, 1)
        if unlikely(offset <= previous or offset - base > 0x7FFFFFFF):
            raise refuse_offset(offset, base, previous, index)
        key_size = value_size = -1
        key_data = value_data = NULL
        if key != <PyObject*>None:
            if unlikely(not PyBytes_CheckExact(<object>key)):
                made_key = as_bytes(<object>key, "key", index)
                key = <PyObject*>made_key
            key_data = <const uint8_t*>PyBytes_AS_STRING(<object>key)
            key_size = PyBytes_GET_SIZE(<object>key)
        if value != <PyObject*>None:
            if unlikely(not PyBytes_CheckExact(<object>value)):
                made_value = as_bytes(<object>value, "value", index)
                value = <PyObject*>made_value
            value_data = <const uint8_t*>PyBytes_AS_STRING(<object>value)
            value_size = PyBytes_GET_SIZE(<object>value)
        if unlikely(options.attributes & CONTROL) and (key_size < CONTROL_KEY_SIZE or key_data[0] & 0x80):
            raise UsageError("key of a control record", where=f"record {index}",
                             got="null, short, or of a negative version", wanted="int16 version, int16 type")
        pairs = None
        headers_size = 1
        if headers is not None:
            pairs = as_headers(headers, index)
            headers_size = varint_bytes(zigzag(len(pairs)))
            for name, content in pairs:
                headers_size += varint_bytes(zigzag(len(name))) + len(name)
                headers_size += varint_bytes(zigzag(-1 if content is None else len(content)))
                if content is not None:
                    headers_size += len(content)

        size = measure_record(&measured, sub64(timestamp, base_timestamp), offset - base, key_size, value_size, headers_size)
        if unlikely(size > cut_bytes - (out.used - begin)) and index > start:
            break
        if unlikely(size > 0x7FFFFFFF - (out.used - begin) or (
                not options.codec and size > options.batch_bytes_max - (out.used - begin))):
            raise MessageTooLargeError(
                f"batch to encode, record {index}: got {out.used - begin + size} bytes, "
                f"wanted at most {0x7FFFFFFF if options.codec else options.batch_bytes_max}")
        previous = offset
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if index == 0:
            # The others are guessed to be as long as the first: growing step by step would copy them.
            out.reserve(min(size * min(PyList_GET_SIZE(rows), GUESS_BYTES_MAX) * 17 // 16, GUESS_BYTES_MAX))
        if unlikely(size > out.capacity - out.used):
            out.reserve(size)
        pos = out.data + out.used
        out.used += size
        pos = put_record(pos, &measured, key_data, key_size, key_size, value_data, value_size, value_size)
        if pairs is None:
            pos[0] = 0
        else:
            pos = put_varint(pos, zigzag(len(pairs)))
            for name, content in pairs:
                pos = put_varint(pos, zigzag(len(name)))
                memcpy(pos, PyBytes_AS_STRING(name), <size_t>len(name))
                pos += len(name)
                pos = put_varint(pos, zigzag(-1 if content is None else len(content)))
                if content is not None:
                    memcpy(pos, PyBytes_AS_STRING(content), <size_t>len(content))
                    pos += len(content)
        index += 1

    if index == start:
        raise UsageError("records", got="none", wanted="at least one: Kafka has no empty batch to write")
    header.base_offset = base
    header.last_offset = previous
    if options.last_offset >= 0:
        if options.last_offset < previous or options.last_offset - base > 0x7FFFFFFF:
            raise UsageError("last_offset", got=options.last_offset,
                             wanted=f"{previous}, that of the last record, to {min(<object>base + 0x7FFFFFFF, 2**63 - 1)}")
        header.last_offset = options.last_offset
    header.count = <int32_t>(index - start)
    header.base_timestamp = base_timestamp
    header.max_timestamp = options.append_time if options.append_time >= 0 else max_timestamp
    return index


cdef int close_batch(NewBytes out, Py_ssize_t begin, BatchOptions options, Header* header) except -1:
    """Compress if asked, write the header, seal."""
    cdef Source packed
    cdef Py_ssize_t size = out.used - begin
    if options.codec:
        packed = Source(compress_span(options.codec, out.data + begin + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE,
                                      options.level, 2))
        size = BATCH_HEADER_SIZE + packed.size
        if size > options.batch_bytes_max:
            raise MessageTooLargeError(f"batch to encode: got {size} bytes, wanted at most {options.batch_bytes_max}")
        out.used = begin + BATCH_HEADER_SIZE
        memcpy(out.reserve(packed.size), packed.data, <size_t>packed.size)
        out.used += packed.size
    header.size_in_bytes = <int32_t>size
    write_header(out.data + begin, header)
    if size < GIL_RELEASE_BYTES:
        seal(out.data + begin, <int32_t>size)
    else:
        with nogil:
            seal(out.data + begin, <int32_t>size)
    return 0


def encode_empty_batch(
    base_offset, last_offset, *, max_timestamp=-1, timestamp_type="create_time", log_append_time_ms=None,
    producer_id=-1, producer_epoch=-1, base_sequence=-1, leader_epoch=-1, is_transactional=False, is_control=False,
) -> bytes:
    """A v2 batch of no records: the 61-byte header that compaction leaves to keep a producer's last sequence.

    Its base timestamp is -1 and its codec "none", as Kafka writes it.
    """
    cdef Header header
    base_offset = check_range("base_offset", base_offset, 0, 0x7FFFFFFFFFFFFFFF)
    last_offset = check_range("last_offset", last_offset, base_offset, min(base_offset + 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF))
    max_timestamp = check_range("max_timestamp", max_timestamp, -1, 0x7FFFFFFFFFFFFFFF)
    cdef BatchOptions options = BatchOptions.new(
        base_offset, last_offset, "none", None, timestamp_type, log_append_time_ms, None, producer_id, producer_epoch,
        base_sequence, leader_epoch, is_transactional, is_control, None, 2, None)
    options.fill(&header)
    header.base_offset = base_offset
    header.last_offset = last_offset
    header.count = 0
    header.base_timestamp = -1
    header.max_timestamp = options.append_time if options.append_time >= 0 else max_timestamp
    header.size_in_bytes = BATCH_HEADER_SIZE
    cdef bytes batch = PyBytes_FromStringAndSize(NULL, BATCH_HEADER_SIZE)
    write_header(<uint8_t*>PyBytes_AS_STRING(batch), &header)
    seal(<uint8_t*>PyBytes_AS_STRING(batch), BATCH_HEADER_SIZE)
    return batch


cdef bytes encode_legacy_rows(records, BatchOptions options):
    """Rows as messages of magic 0 or 1: no headers, and for magic 0 no timestamps."""
    cdef Py_ssize_t index
    cdef int64_t base = options.base_offset, previous = -1, offset
    cdef list rows = []
    check_iterable(records)
    for index, item in enumerate(records):
        if type(item) is Record:
            offset, timestamp, key, value, headers = item
            if offset < -1 or timestamp < -1:
                raise refuse_unwritable(offset, timestamp, index)
            if timestamp == -1:
                timestamp = None
        elif isinstance(item, tuple) and 2 <= len(item) <= 4:
            offset = -1
            key, value, timestamp, headers = (*item, None, None)[:4]
        else:
            raise refuse_record(item, index)
        if headers:
            raise UsageError("headers", where=f"record {index}", got=f"magic {options.magic}", wanted="magic 2")
        if not index:
            base = base if base >= 0 else max(offset, 0)
            previous = base - 1
        if offset < 0:
            offset = add64(previous, 1)
        if offset <= previous or offset - base > 0x7FFFFFFF:
            raise refuse_offset(offset, base, previous, index)
        previous = offset
        rows.append((
            offset, as_timestamp(timestamp, options.now_ms, index),
            None if key is None else as_bytes(key, "key", index),
            None if value is None else as_bytes(value, "value", index),
        ))
    if not rows:
        raise UsageError("records", got="none", wanted="at least one: Kafka has no empty batch to write")
    if sum([34 + len(row[2] or b"") + len(row[3] or b"") for row in rows]) > 0x7FFFFFFF:
        raise MessageTooLargeError("messages of encode_batch: got more than 2^31 - 1 bytes, wanted fewer")
    made = encode_messages(rows, options.magic, options.codec, options.level, options.append_time)
    if len(made) > options.batch_bytes_max:
        raise MessageTooLargeError(f"batch to encode: got {len(made)} bytes, "
                                   f"wanted at most {options.batch_bytes_max}")
    return made
