"""What a leader does with a produced buffer before it appends it: check it, give it offsets, patch or rebuild it.

    validate(buffer, now_ms=…)                               only looks
    validate_and_assign(buffer, now_ms=…, first_offset=…)    and makes it ready to be appended

Two looks, as in Kafka. The first is at each batch as a whole: size, checksum, codec, and that a client's base offset
is 0. The second is at its records: as many as the header says, with keys if the topic is compacted, with timestamps
in the topic's range. Damage is told before any rule that was broken, and a wrong checksum before anything else of its
batch.

A produced buffer holds one batch, or a run of uncompressed messages of magic 0 or 1. It is patched in place when its
codec and magic are the topic's and the offsets inside are 0, 1, 2, … already; otherwise its records are written anew.

The hot path is a v2 batch: one walk over its records, the checksum running ahead of the parser by a strip, that keeps
four numbers (newest timestamp; whether one is out of range, a key missing, an offset not the next). Only when one of
these tells of trouble are the records walked again to say which, and only then is an object built.

Where this is stricter than Kafka, always because a reader would stumble over what was let through:

    records are parsed whole, also where Kafka skims them (compressed batches that stay) or passes them by
        (keys and values of messages of magic 0 and 1 that stay)
    a v2 batch whose offsets inside are not 0, 1, 2, … is rebuilt; Kafka keeps it if it is uncompressed, and where it
        would have to rebuild what it has only skimmed, it fails
    a control batch that has to be rebuilt stays one, and is refused below magic 2
    what makes Kafka's builder fail with a Java exception, which clients see as UNKNOWN_SERVER_ERROR, is INVALID_RECORD
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from logcore._arguments cimport check_range, close_type
from logcore._batch cimport (
    ATTRIBUTES, BASE_OFFSET, BATCH_HEADER_SIZE, CODEC_MASK, CONTROL, CRC, LEADER_EPOCH, LEGACY_SIZE_MIN, LENGTH,
    LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC, MAX_TIMESTAMP, STEP_BATCH, STEP_FAULT, TRANSACTIONAL, Fields, Header, Step,
    check_count, read_header, read_record, read_record_ahead, read_record_checked, seal, size_limit, verify_checksum,
)
from logcore._buffer cimport GIL_RELEASE_BYTES, Source, byte_view, changed_buffer, frozen
from logcore._bytes cimport add64, likely, load32, store16, store32, store64, sub64, unlikely
from logcore._checksum cimport crc32_of
from logcore._compression cimport CODEC_ZSTD, codec_id, codec_name, level_for
from logcore._convert cimport ADDED, Added, BatchBuilder, Cursor, Item, OpenBatch, next_item, open_batch
from logcore._fault cimport FAULT_COUNT_NEGATIVE, FAULT_CRC, FAULT_INNER_CRC, Fault, corrupt_batch, fail
from logcore._legacy cimport Message
from logcore._payload cimport decompressed, decompressed_limit
from logcore._verify cimport Verifier, look_ahead, verify_from, verify_rest

import cython

from logcore.errors import (
    CorruptBatch, CorruptionReason, InvalidRecordError, InvalidTimestampError, MessageTooLargeError, RecordError,
    UnsupportedCompressionTypeError, UnsupportedForMessageFormatError, UsageError,
)

cdef enum:
    MESSAGE_CRC = LOG_OVERHEAD
    MESSAGE_ATTRIBUTES = MAGIC + 1
    MESSAGE_TIMESTAMP = MESSAGE_ATTRIBUTES + 1
    # The attributes that Kafka knows besides the timestamp type; it writes no others back when it touches them. Magic 1
    # has the codec only.
    ATTRIBUTES_KNOWN = 0x77
    MESSAGE_ATTRIBUTES_KNOWN = 0x07
    CODEC_OF_PRODUCER = -1

cdef enum Origin:
    CLIENT
    COORDINATOR
    RAFT_LEADER
    REPLICATION

cdef dict ORIGINS = {
    "client": CLIENT, "coordinator": COORDINATOR, "raft_leader": RAFT_LEADER, "replication": REPLICATION,
}
cdef tuple COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


# ------------------------------------------------------------------------------------------------------------ leaves

# What the walk over the records of a v2 batch has seen.
cdef struct Seen:
    int64_t count
    int64_t newest         # timestamp, -1 at least
    int64_t key_signs      # negative: a record has no key
    int64_t skew           # not 0: an offset delta is not its record's index
    bint is_outside        # a timestamp is out of range


cdef const uint8_t* walk(
    const uint8_t* pos, const uint8_t* end, const Header* header, int64_t timestamp_min, int64_t timestamp_max,
    Verifier* verifier, Seen* seen,
) noexcept nogil:
    """Parse the header's count of records; returns where it stopped, which is `end` if all is well."""
    cdef Fields record, checked
    cdef const uint8_t* after
    cdef const uint8_t* ahead_until = pos
    cdef int64_t index = 0, count = header.count
    cdef int64_t timestamp, newest = -1
    cdef uint64_t base = <uint64_t>header.base_timestamp, delta_mask = <uint64_t>-1
    cdef uint64_t low = <uint64_t>timestamp_min
    cdef uint64_t width = <uint64_t>timestamp_max - low
    cdef int64_t skew = 0, key_signs = 0
    cdef bint is_outside = False
    if header.attributes & LOG_APPEND_TIME:
        base, delta_mask = <uint64_t>header.max_timestamp, 0
    while index < count:
        if unlikely(pos >= ahead_until):
            ahead_until = look_ahead(verifier, pos, end)
        if likely(pos < ahead_until):
            after = read_record_ahead(pos, end, &record)
        else:
            # Through a copy: were the address of `record` to escape, the loop would keep it in memory.
            after = read_record_checked(pos, end, &checked)
            record = checked
        if unlikely(after == NULL):
            break
        timestamp = <int64_t>(base + (<uint64_t>record.timestamp_delta & delta_mask))
        if timestamp > newest:
            newest = timestamp
        is_outside |= <uint64_t>timestamp - low > width
        skew |= record.offset_delta ^ index
        key_signs |= record.key_size
        pos = after
        index += 1
    seen.count = index
    seen.newest = newest
    seen.key_signs = key_signs
    seen.skew = skew
    seen.is_outside = is_outside
    return pos


cdef void patch(
    uint8_t* batch, const Header* header, int64_t last_offset, int32_t leader_epoch, bint is_append_time,
    int64_t max_timestamp,
) noexcept nogil:
    """Put the batch at its place in the log. The checksum is only computed anew if type or time really change."""
    cdef int16_t time_bit = LOG_APPEND_TIME if is_append_time else 0
    cdef bint is_changed = header.attributes & LOG_APPEND_TIME != time_bit or header.max_timestamp != max_timestamp
    if header.magic == 2:
        store64(batch + BASE_OFFSET, sub64(last_offset, sub64(header.last_offset, header.base_offset)))
        store32(batch + LEADER_EPOCH, leader_epoch)
        if is_changed:
            store16(batch + ATTRIBUTES, <int16_t>(header.attributes & ATTRIBUTES_KNOWN | time_bit))
            store64(batch + MAX_TIMESTAMP, max_timestamp)
            seal(batch, header.size_in_bytes)
        return
    store64(batch + BASE_OFFSET, last_offset)
    if header.magic == 1 and is_changed:
        batch[MESSAGE_ATTRIBUTES] = <uint8_t>(header.attributes & MESSAGE_ATTRIBUTES_KNOWN | time_bit)
        store64(batch + MESSAGE_TIMESTAMP, max_timestamp)
        store32(batch + MESSAGE_CRC, <int32_t>crc32_of(batch + MAGIC, <size_t>(header.size_in_bytes - MAGIC)))


# ------------------------------------------------------------------------------------------------------------- rules

@cython.final
cdef class Rules:
    """The topic's settings, the moment and who appends: the options of both functions, checked."""
    cdef Origin origin
    cdef int8_t magic
    cdef int codec                        # CODEC_OF_PRODUCER: whatever came
    cdef int level
    cdef bint is_append_time, compacted, verify_crc, check_base_offset
    cdef int64_t now_ms, before_max_ms, after_max_ms
    cdef int64_t timestamp_min, timestamp_max     # what a record's timestamp may be, if it is not -1
    cdef int64_t bytes_max
    cdef int32_t batch_bytes_max, leader_epoch

    cdef object timestamp_problem(self, const Header* header, int64_t timestamp):
        """What is wrong with a record's timestamp, or None. Differences wrap as in Java."""
        cdef int64_t age
        if not self.is_append_time and timestamp != -1:
            age = sub64(self.now_ms, timestamp)
            if age > self.before_max_ms or sub64(0, age) > self.after_max_ms:
                return f"timestamp got {timestamp}, wanted -1 or {self.timestamp_min} to {self.timestamp_max}"
        elif header.magic and header.attributes & LOG_APPEND_TIME:
            return "timestamp type got log_append_time, wanted create_time, which is all that a producer may say"
        return None


close_type(Rules)


cdef Rules rules_of(
    now_ms, timestamp_type, timestamp_before_max_ms, timestamp_after_max_ms, compacted, compression, level, origin,
    magic, leader_epoch, batch_bytes_max, max_decompressed_bytes, verify_crc, check_base_offset,
):
    cdef Rules rules = Rules.__new__(Rules)
    now_ms = check_range("now_ms", now_ms, 0, INT64_MAX)
    timestamp_before_max_ms = check_range("timestamp_before_max_ms", timestamp_before_max_ms, 0, INT64_MAX)
    timestamp_after_max_ms = check_range("timestamp_after_max_ms", timestamp_after_max_ms, 0, INT64_MAX)
    magic = check_range("magic", magic, 0, 2)
    leader_epoch = check_range("leader_epoch", leader_epoch, -1, 0x7FFFFFFF)
    if timestamp_type == "log_append_time":
        rules.is_append_time = True
    elif timestamp_type != "create_time":
        raise UsageError("timestamp_type", got=repr(timestamp_type), wanted='"create_time" or "log_append_time"')
    if not isinstance(origin, str) or origin not in ORIGINS:
        raise UsageError("origin", got=repr(origin), wanted=", ".join(ORIGINS))
    if compression not in COMPRESSION_TYPES:
        raise UsageError("compression", got=repr(compression), wanted=", ".join(COMPRESSION_TYPES))
    rules.origin = ORIGINS[origin]
    rules.magic = magic
    if compression == "producer":
        rules.codec = CODEC_OF_PRODUCER
        if level is not None:
            raise UsageError("level", got=level if isinstance(level, int) else type(level).__name__,
                             wanted='None, with compression "producer"')
    else:
        rules.codec = codec_id("none" if compression == "uncompressed" else compression)
        rules.level = level_for(rules.codec, level)
        if rules.codec == CODEC_ZSTD and rules.magic < 2:
            raise UsageError("compression", where=f"magic {magic}", got="zstd", wanted="a codec of that magic")
    rules.compacted = compacted
    rules.verify_crc = verify_crc
    rules.check_base_offset = check_base_offset
    rules.now_ms = now_ms
    rules.before_max_ms = timestamp_before_max_ms
    rules.after_max_ms = timestamp_after_max_ms
    rules.timestamp_min, rules.timestamp_max = INT64_MIN, INT64_MAX
    if not rules.is_append_time:
        rules.timestamp_min = rules.now_ms - rules.before_max_ms
        if rules.after_max_ms < INT64_MAX - rules.now_ms:
            rules.timestamp_max = rules.now_ms + rules.after_max_ms
    rules.bytes_max = decompressed_limit(max_decompressed_bytes)
    rules.batch_bytes_max = size_limit(batch_bytes_max)
    rules.leader_epoch = leader_epoch
    return rules


cdef object invalid(const Header* header, str what, object got, str wanted, error=InvalidRecordError):
    return error(f"batch at position {header.position}: {what} got {got}, wanted {wanted}")


# -------------------------------------------------------------------------------------------------------- inspection

@cython.final
cdef class Inspection:
    """One buffer under the rules. Holds the caller's bytes, and decompressed ones for whoever rebuilds."""
    cdef Source source
    cdef Rules rules
    cdef Header first
    cdef Py_ssize_t batch_count, consumed
    cdef int source_codec, target_codec
    cdef bint is_crc_pending       # the first batch's checksum is verified while its records are walked
    cdef bint in_place
    cdef bint is_count_known
    cdef int64_t record_count, max_timestamp, last_offset
    cdef int64_t plain_bytes       # Kafka's measure of what reading took: headers and records, decompressed
    cdef list opened               # OpenBatch; the only one of magic 2 is there only if it is compressed or rebuilt

    cdef int run(self) except -1:
        """Raise what Kafka's broker would answer, or fill in what it would do."""
        try:
            self.analyze()
            if self.rules.origin == REPLICATION:
                return 0
            if not self.batch_count:
                raise InvalidRecordError("buffer: batches got 0, wanted one")
            if self.batch_count > 1 and (self.first.magic == 2 or self.source_codec):
                raise invalid(&self.first, "batches of the buffer", self.batch_count, "one")
            self.choose_way()
            if self.first.magic == 2:
                self.inspect_batch()
            else:
                self.inspect_messages()
        except CorruptBatch as error:
            raise kafka_error(error) from error
        if not self.in_place:
            self.check_rebuild()
        if self.rules.is_append_time and (self.rules.magic or not self.in_place):
            self.max_timestamp = self.rules.now_ms
        return 0

    cdef int analyze(self) except -1:
        """The look at each batch as a whole."""
        cdef const uint8_t* start = self.source.data
        cdef const uint8_t* end = start + self.source.size
        cdef Rules rules = self.rules
        cdef Header header
        cdef Fault fault
        cdef Step step
        self.last_offset = -1
        self.max_timestamp = -1
        self.is_count_known = True
        while True:
            step = read_header(start, start + self.consumed, end, 0x7FFFFFFF, False, &header, &fault)
            if step == STEP_FAULT:
                raise corrupt_batch(&fault, self.consumed)
            if step != STEP_BATCH:
                return 0
            if not self.batch_count:
                self.first = header
            if rules.origin == RAFT_LEADER and header.leader_epoch != rules.leader_epoch:
                raise invalid(&header, "leader epoch", header.leader_epoch, str(rules.leader_epoch))
            if rules.origin == CLIENT and header.magic == 2 and header.base_offset != 0 and rules.check_base_offset:
                raise invalid(&header, "base offset", header.base_offset, "0, as producers have it")
            if header.size_in_bytes > rules.batch_bytes_max:
                raise invalid(&header, "size", header.size_in_bytes, f"at most {rules.batch_bytes_max}",
                              MessageTooLargeError)
            self.consumed += header.size_in_bytes
            if rules.verify_crc:
                if (
                    header.magic == 2 and not header.attributes & CODEC_MASK and not self.batch_count
                    and self.consumed == self.source.size and rules.origin != REPLICATION
                ):
                    self.is_crc_pending = True
                else:
                    self.verify(&header)
            if header.attributes & CODEC_MASK > CODEC_ZSTD:
                raise CorruptBatch("codec", reason=CorruptionReason.UNKNOWN_CODEC,
                                   got=codec_name(header.attributes & CODEC_MASK),
                                   wanted="none, gzip, snappy, lz4 or zstd", position=header.position)
            if header.attributes & CODEC_MASK:
                self.source_codec = header.attributes & CODEC_MASK
            if rules.origin == REPLICATION:
                self.count_in(&header)
            self.batch_count += 1

    cdef int count_in(self, const Header* header) except -1:
        """A follower takes batches as its leader has them: only their order is looked at."""
        cdef Fault fault
        if self.batch_count and header.last_offset <= self.last_offset:
            raise invalid(header, "last offset", header.last_offset, f"more than {self.last_offset}")
        self.last_offset = header.last_offset
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        self.in_place = True
        if header.magic == 2:
            if header.count < 0:
                fail(&fault, FAULT_COUNT_NEGATIVE, -1, header.count, 0)
                raise corrupt_batch(&fault, header.position, header.base_offset)
            self.record_count += header.count
        elif header.attributes & CODEC_MASK:
            self.is_count_known = False
        else:
            self.record_count += 1
        return 0

    cdef int verify(self, const Header* header) except -1:
        cdef Fault fault
        cdef int found
        if header.size_in_bytes < GIL_RELEASE_BYTES:
            found = verify_checksum(self.source.data + header.position, header, &fault)
        else:
            with nogil:
                found = verify_checksum(self.source.data + header.position, header, &fault)
        if found:
            raise corrupt_batch(&fault, header.position)
        return 0

    cdef int choose_way(self) noexcept:
        """Whether the buffer may stay as it is, as far as codec and magic tell."""
        cdef int codec = self.rules.codec
        self.target_codec = self.source_codec if codec == CODEC_OF_PRODUCER else codec
        self.in_place = self.source_codec == self.target_codec and self.first.magic == self.rules.magic
        if self.target_codec:
            if self.rules.magic == 0:
                self.in_place = False      # offsets inside are absolute
            elif self.first.magic == 2 and self.first.attributes & CONTROL and not self.source_codec:
                self.in_place = True       # control records are compressed only if they came so
        return 0

    cdef object batch_problem(self, const Header* header):
        """Which rule for the header of a v2 batch is broken: an exception, or None."""
        cdef int64_t span = add64(sub64(header.last_offset, header.base_offset), 1)
        cdef bint has_producer = header.producer_id > -1
        if self.rules.origin == CLIENT:
            if span <= 0:
                return invalid(header, "offsets", f"{header.base_offset} to {header.last_offset}", "at least one")
            if header.count <= 0:
                return invalid(header, "record count", header.count, "at least 1")
            if header.count != span:
                return invalid(header, "record count", header.count, f"{span}, as many as the offsets it spans")
            if header.attributes & CONTROL:
                return invalid(header, "batch of a client", "a control batch", "an ordinary one")
            if has_producer and header.base_sequence < 0:
                return invalid(header, f"base sequence of producer {header.producer_id}", header.base_sequence,
                               "0 or more")
        if self.rules.magic < 2 and (has_producer or header.attributes & (TRANSACTIONAL | CONTROL)):
            return invalid(header, "batch", "one of a transaction, of an idempotent producer or a control batch",
                           f"neither, in magic {self.rules.magic}", UnsupportedForMessageFormatError)
        return None

    cdef int inspect_batch(self) except -1:
        """The only batch, of magic 2, and its records."""
        cdef Header* header = &self.first
        cdef const uint8_t* batch = self.source.data + header.position
        cdef const uint8_t* pos = batch + BATCH_HEADER_SIZE
        cdef const uint8_t* end = batch + header.size_in_bytes
        cdef const uint8_t* stopped
        cdef Verifier verifier
        cdef Seen seen
        cdef Fault fault
        cdef OpenBatch opened = None
        problem = self.batch_problem(header)
        if problem is None and not self.source_codec and check_count(header, end - pos, &fault):
            problem = corrupt_batch(&fault, header.position, header.base_offset)
        if problem is not None:
            if self.is_crc_pending:
                self.verify(header)
            raise problem
        if self.source_codec:
            opened = open_batch(self.source, header, self.rules.bytes_max, 0)
            self.opened.append(opened)
            pos, end = opened.plain.data, opened.plain.data + opened.plain.size
        verify_from(&verifier, batch + ATTRIBUTES if self.is_crc_pending else end, end)
        if end - pos < GIL_RELEASE_BYTES:
            stopped = walk(pos, end, header, self.rules.timestamp_min, self.rules.timestamp_max, &verifier, &seen)
            verify_rest(&verifier)
        else:
            with nogil:
                stopped = walk(pos, end, header, self.rules.timestamp_min, self.rules.timestamp_max, &verifier, &seen)
                verify_rest(&verifier)
        if self.is_crc_pending and verifier.crc != header.crc:
            fail(&fault, FAULT_CRC, CRC, header.crc, verifier.crc)
            raise corrupt_batch(&fault, header.position)
        if stopped != end or seen.count != header.count:
            if opened is None:
                opened = open_batch(self.source, header, self.rules.bytes_max, 0)
            raise opened.refusal(stopped, seen.count)
        self.record_count = seen.count
        self.max_timestamp = seen.newest
        self.plain_bytes = bytes_around(self.rules.magic, self.source_codec) + (end - pos)
        if (
            seen.is_outside
            or (self.rules.compacted and seen.key_signs < 0)
            or (header.attributes & LOG_APPEND_TIME and (self.rules.is_append_time or header.max_timestamp == -1))
        ):
            self.refuse_records(header, pos, end)
        if self.source_codec or self.target_codec:
            # Counted from the base offset, which coordinators may have set.
            if seen.skew or header.base_offset != 0:
                self.in_place = False
        elif seen.skew:
            self.in_place = False
        if header.attributes & CONTROL and not self.source_codec:
            self.in_place = True
        if not self.in_place and opened is None:
            self.opened.append(open_batch(self.source, header, self.rules.bytes_max, 0))
        return 0

    cdef int refuse_records(self, const Header* header, const uint8_t* pos, const uint8_t* end) except -1:
        """Raise for the records of a v2 batch that break a rule; perhaps none does, as -1 is always in range."""
        cdef Fields record
        cdef int32_t index
        cdef int64_t timestamp
        cdef list errors = []
        cdef bint by_timestamp = False
        for index in range(header.count):
            pos = read_record(pos, end, &record)
            if pos == NULL:  # somebody has written to the buffer since
                break
            timestamp = header.max_timestamp
            if not header.attributes & LOG_APPEND_TIME:
                timestamp = add64(header.base_timestamp, record.timestamp_delta)
            if self.rules.compacted and record.key_size < 0:
                errors.append(RecordError(index, "key got null, wanted one: the topic is compacted"))
            else:
                problem = self.rules.timestamp_problem(header, timestamp)
                if problem is not None:
                    errors.append(RecordError(index, problem))
                    by_timestamp = True
        return raise_for(errors, by_timestamp, header)

    cdef int inspect_messages(self) except -1:
        """A run of messages of magic 0 or 1, or one compressed set of them."""
        cdef const uint8_t* start = self.source.data
        cdef Py_ssize_t position = 0
        cdef int64_t expected = 0
        cdef Header header
        cdef Fault fault
        cdef OpenBatch opened
        mixed = None
        while position < self.consumed:
            if read_header(start, start + position, start + self.consumed, 0x7FFFFFFF, False, &header, &fault) != STEP_BATCH:
                raise changed_buffer()
            if header.magic != self.first.magic:
                mixed = invalid(&header, "magic", header.magic, f"{self.first.magic}, as the first batch has it")
                break
            try:
                self.opened.append(open_batch(self.source, &header, self.rules.bytes_max, 0))
            except CorruptBatch as error:
                if error.record_index is None:
                    raise
                raise self.blame_checksum(&header, error) from None
            position += header.size_in_bytes
        for opened in self.opened:
            self.plain_bytes += bytes_around(self.rules.magic, opened.header.attributes & CODEC_MASK)
            expected = self.inspect_set(opened, expected)
        if mixed is not None:
            raise mixed
        self.record_count = expected
        return 0

    cdef object blame_checksum(self, const Header* header, error):
        """`error`, found inside a compressed set, or that a message there has a wrong checksum, which explains it.

        The first means that it was written so, the second that it was damaged on the way, and may be sent again.
        """
        cdef const uint8_t* batch = self.source.data + header.position
        cdef const uint8_t* field = batch + MESSAGE_TIMESTAMP + (8 if header.magic else 0)
        cdef int64_t left = batch + header.size_in_bytes - field
        # The message was read before, but the buffer may have changed since.
        if left < 8 or load32(field) > left - 8:
            return error
        field += 4 + max(load32(field), 0)
        if not 0 <= load32(field) <= batch + header.size_in_bytes - field - 4:
            return error
        cdef Source plain = decompressed(self.source, header, field + 4 - batch, load32(field), self.rules.bytes_max, 0)
        cdef const uint8_t* pos = plain.data
        cdef const uint8_t* end = pos + plain.size
        cdef int64_t size, index = 0
        cdef uint32_t computed
        cdef Fault fault
        # Kafka comes to know that an inner message is compressed before it looks at its checksum, and never gets on.
        cdef int64_t stop = error.record_index if error.reason is CorruptionReason.NESTED_COMPRESSION else INT64_MAX
        while index < stop and end - pos >= LOG_OVERHEAD + LEGACY_SIZE_MIN:
            size = <int64_t>load32(pos + LENGTH) + LOG_OVERHEAD
            if size < LOG_OVERHEAD + LEGACY_SIZE_MIN or size > end - pos:
                break
            if <int8_t>pos[MAGIC] == header.magic and not is_sound(pos, size, &computed):
                return bad_message(pos - plain.data, pos, computed, header, index)
            pos += size
            index += 1
        return error

    cdef int64_t inspect_set(self, OpenBatch opened, int64_t expected) except -1:
        """The messages of one batch; `expected` is the offset that the first should have. Returns the next."""
        cdef Header* header = &opened.header
        cdef Message* message
        cdef uint32_t computed
        cdef int64_t size
        cdef Py_ssize_t index
        cdef list errors = []
        cdef bint by_timestamp = False
        for index in range(opened.messages.count):
            message = &opened.messages.messages[index]
            size = <int64_t>load32(message.start + LENGTH) + LOG_OVERHEAD
            if message.magic != header.magic:
                errors.append(RecordError(index, f"magic got {message.magic}, wanted {header.magic}, the set's"))
            elif header.attributes & CODEC_MASK and not is_sound(message.start, size, &computed):
                raise bad_message(message.start - opened.plain.data, message.start, computed, header, index)
            elif self.rules.compacted and message.key_size < 0:
                errors.append(RecordError(index, "key got null, wanted one: the topic is compacted"))
            else:
                problem = self.rules.timestamp_problem(header, message.timestamp)
                if problem is not None:
                    errors.append(RecordError(index, problem))
                    by_timestamp = True
            if message.offset != expected and self.target_codec:
                self.in_place = False
            self.max_timestamp = max(self.max_timestamp, message.timestamp)
            self.plain_bytes += size
            expected += 1
        raise_for(errors, by_timestamp, header)
        return expected

    cdef int check_rebuild(self) except -1:
        """What a builder refuses, although each record by itself keeps the rules."""
        cdef Header* header = &self.first
        cdef OpenBatch opened
        cdef Cursor cursor
        cdef Item item
        cdef int64_t index = 0
        if self.target_codec == CODEC_ZSTD and self.rules.magic < 2:
            raise invalid(header, "codec", "zstd", f"one that magic {self.rules.magic} has",
                          UnsupportedCompressionTypeError)
        if header.magic == 2:
            if header.attributes & TRANSACTIONAL and header.producer_id == -1:
                raise invalid(header, "producer id of a transaction", -1, "0 or more")
            if header.producer_id != -1 and (
                    header.producer_epoch == -1 or header.base_sequence < 0 or self.rules.magic < 2):
                raise invalid(header, f"producer {header.producer_id}",
                              f"epoch {header.producer_epoch}, sequence {header.base_sequence}",
                              "0 or more, and magic 2")
        for opened in self.opened:
            cursor = opened.cursor()
            while next_item(&cursor, &item):
                if item.timestamp < -1:
                    raise invalid(header, f"timestamp of record {index}", item.timestamp, "-1 or more")
                if item.header_count and self.rules.magic < 2:
                    raise invalid(header, f"headers of record {index}", item.header_count,
                                  f"none, in magic {self.rules.magic}")
                index += 1
        if not self.record_count and self.rules.is_append_time and (self.rules.magic == 2 or self.target_codec):
            raise invalid(header, "record count", 0, "at least 1")
        if self.rules.magic == 0:
            self.max_timestamp = -1
        return 0


close_type(Inspection)


cdef int64_t bytes_around(int8_t magic, int codec) noexcept:
    """What a batch of this magic takes besides its records."""
    if magic == 2:
        return BATCH_HEADER_SIZE
    return 0 if not codec else LOG_OVERHEAD + LEGACY_SIZE_MIN + (8 if magic else 0)


cdef bint is_sound(const uint8_t* message, int64_t size, uint32_t* computed) noexcept:
    """Whether the checksum of a message inside a set is right."""
    computed[0] = crc32_of(message + MAGIC, <size_t>(size - MAGIC))
    return computed[0] == <uint32_t>load32(message + MESSAGE_CRC)


cdef object bad_message(int64_t at, const uint8_t* message, uint32_t computed, const Header* header, int64_t index):
    cdef Fault fault
    fail(&fault, FAULT_INNER_CRC, at + MESSAGE_CRC, <uint32_t>load32(message + MESSAGE_CRC), computed)
    fault.record_index = index
    return corrupt_batch(&fault, header.position, header.base_offset)


cdef int raise_for(list errors, bint by_timestamp, const Header* header) except -1:
    """Fail the whole batch for its refused records, all of them listed; a timestamp decides the error."""
    if not errors:
        return 0
    first = errors[0]
    raise (InvalidTimestampError if by_timestamp else InvalidRecordError)(
        f"batch at position {header.position}: refused records got {len(errors)}, wanted none; "
        f"record {first.index}: {first.message}",
        record_errors=errors)


cdef object kafka_error(error):
    """What a broker answers for damage. Kafka lists a record of a compressed set that is compressed itself."""
    listed = ()
    if error.reason is CorruptionReason.NESTED_COMPRESSION:
        listed = (RecordError(error.record_index, f"{error.what} got {error.got}, wanted {error.wanted}"),)
    return error.kafka_error(str(error), record_errors=listed)


# ------------------------------------------------------------------------------------------------- what Python sees

@cython.final
cdef class ValidationResult:
    """What validate() found in a buffer that a broker would take.

    record_count     of all batches; None if a follower's buffer has compressed sets of magic 0 or 1, not opened
    batch_count      1, but for uncompressed messages of magic 0 and 1, and for a follower
    max_timestamp    what the log will know as the newest timestamp: now_ms with LogAppendTime, -1 if there is none
    in_place         offsets can be assigned by patching headers; False: the records have to be written anew
    consumed         bytes of whole batches; what follows is a part of a batch, and is not appended
    """
    cdef readonly object record_count
    cdef readonly Py_ssize_t batch_count
    cdef readonly int64_t max_timestamp
    cdef readonly bint in_place
    cdef readonly Py_ssize_t consumed

    def __repr__(self):
        return (f"ValidationResult(record_count={self.record_count}, batch_count={self.batch_count}, "
                f"max_timestamp={self.max_timestamp}, in_place={self.in_place}, consumed={self.consumed})")


close_type(ValidationResult, "validate(buffer, …)")


@cython.final
cdef class AppendBatch:
    """What validate_and_assign() made ready for the log.

    data                 the bytes to append: the caller's own buffer, patched (a view of it if a partial batch
                         follows), or new bytes if it was read-only or had to be rebuilt
    first_offset, last_offset
    record_count         None as in ValidationResult
    max_timestamp        the newest timestamp: now_ms with LogAppendTime, -1 if there is none
    log_append_time_ms   now_ms with LogAppendTime, else -1: what a Produce response says
    converted            the records were written anew, so size and codec may have changed
    converted_count      how many were: all or none
    temporary_bytes      Kafka's measure of what it took: 0 for uncompressed records that stay, else the records and
                         headers as read, decompressed, and those written anew, before compression
    """
    cdef readonly object data
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly object record_count
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t log_append_time_ms
    cdef readonly bint converted
    cdef readonly int64_t temporary_bytes

    @property
    def converted_count(self):
        return self.record_count if self.converted else 0

    def __repr__(self):
        return (f"AppendBatch({Source(self.data).size} bytes, first_offset={self.first_offset}, "
                f"last_offset={self.last_offset}, record_count={self.record_count}, "
                f"max_timestamp={self.max_timestamp}, log_append_time_ms={self.log_append_time_ms}, "
                f"converted={self.converted})")


close_type(AppendBatch, "validate_and_assign(buffer, …)")


cdef Inspection inspect(Source source, Rules rules):
    cdef Inspection found = Inspection.__new__(Inspection)
    found.source = source
    found.rules = rules
    found.opened = []
    found.run()
    return found


def validate(
    buffer, *, now_ms, timestamp_type="create_time", timestamp_before_max_ms=0x7FFFFFFFFFFFFFFF,
    timestamp_after_max_ms=3600000, compacted=False, compression="producer", level=None, origin="client", magic=2,
    leader_epoch=-1, batch_bytes_max=None, max_decompressed_bytes=None, verify_crc=True, check_base_offset=True,
):
    """Check `buffer` as a Kafka broker checks what a producer sent, in one pass, and change nothing.

    now_ms: the broker's clock
    timestamp_type, timestamp_before_max_ms, timestamp_after_max_ms: the topic's message.timestamp.*; records without
        a timestamp (-1) are in any range
    compacted: whether the topic is, so that records need keys
    compression: the topic's compression.type, "producer" (whatever came stays) or "uncompressed" or a codec; level:
        its level, for records that have to be written anew
    origin: "client"; "coordinator" or "raft_leader" may write control batches and number their offsets (the second
        with `leader_epoch` in each batch); "replication": a follower, for whom batches are only checked as a whole
        and records are not looked at
    magic: of the topic, 2 but for tests and history; the buffer may have another
    batch_bytes_max: max.message.bytes, of a whole batch
    max_decompressed_bytes: the most a batch may decompress to (128 MiB)
    verify_crc: False if the checksum is known to be right; check_base_offset: False to take a client's batch that
        does not begin at offset 0

    A partial batch at the end is left out (`consumed` tells). Records are always parsed whole: Kafka skims compressed
    batches that it can keep and so lets wrong record lengths pass, this does not.

    Raises what the broker would answer, a subclass of KafkaError: CorruptMessageError for damage on the way,
    InvalidRecordError for what nobody should have written, InvalidTimestampError, MessageTooLargeError,
    UnsupportedForMessageFormatError, UnsupportedCompressionTypeError. `record_errors` lists the records at fault, if
    single records were refused. For damage the cause is the CorruptBatch that has all details.

    >>> from logcore import KafkaError, encode_batch
    >>> data = encode_batch([(b"a", b"x", 1000), (None, b"y", 1001), (None, b"z", 1002)])
    >>> validate(data, now_ms=2000)
    ValidationResult(record_count=3, batch_count=1, max_timestamp=1002, in_place=True, consumed=86)
    >>> try:
    ...     validate(data, now_ms=2000, compacted=True)
    ... except KafkaError as error:
    ...     print(error.name, [record.index for record in error.record_errors])
    INVALID_RECORD [1, 2]
    """
    cdef Inspection found = inspect(Source(buffer), rules_of(
        now_ms, timestamp_type, timestamp_before_max_ms, timestamp_after_max_ms, compacted, compression, level, origin,
        magic, leader_epoch, batch_bytes_max, max_decompressed_bytes, verify_crc, check_base_offset))
    cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
    result.record_count = found.record_count if found.is_count_known else None
    result.batch_count = found.batch_count
    result.max_timestamp = found.max_timestamp
    result.in_place = found.in_place
    result.consumed = found.consumed
    return result


def validate_and_assign(
    buffer, *, first_offset, now_ms, timestamp_type="create_time", timestamp_before_max_ms=0x7FFFFFFFFFFFFFFF,
    timestamp_after_max_ms=3600000, compacted=False, compression="producer", level=None, origin="client", magic=2,
    leader_epoch=-1, batch_bytes_max=None, max_decompressed_bytes=None, verify_crc=True, check_base_offset=True,
):
    """Check `buffer` as validate() does, with the same options, and make it ready to be appended at `first_offset`.

    If it can stay as it is, its headers are patched: offset, leader epoch and, where they change, timestamp type and
    max timestamp, for which alone the checksum is computed anew. That is done in the buffer itself if it is
    writable, as a bytearray is, else in a copy. Otherwise the records are written anew with the topic's codec, level
    and magic, and batch_bytes_max is applied to the result once more.

    With origin "replication" nothing is changed: offsets, leader epochs and timestamps are the leader's, and
    first_offset has no effect. A refused buffer is left untouched.

    >>> from logcore import decode_batches, encode_batch
    >>> data = bytearray(encode_batch([(b"k", b"v", 5), (b"k", b"w", 7)]))
    >>> made = validate_and_assign(data, first_offset=100, now_ms=10, leader_epoch=3)
    >>> made.data is data, made.last_offset, made.max_timestamp, made.converted
    (True, 101, 7, False)
    >>> next(decode_batches(data)).leader_epoch
    3
    """
    cdef Rules rules = rules_of(
        now_ms, timestamp_type, timestamp_before_max_ms, timestamp_after_max_ms, compacted, compression, level, origin,
        magic, leader_epoch, batch_bytes_max, max_decompressed_bytes, verify_crc, check_base_offset)
    first_offset = check_range("first_offset", first_offset, 0, INT64_MAX)
    cdef Inspection found = inspect(Source(buffer), rules)
    cdef Source source = found.source if found.in_place else frozen(found.source)
    if source is not found.source:
        # Rebuilding walks the records again: what was found has to be true of the bytes that it walks.
        found = inspect(source, rules)
    cdef AppendBatch made = AppendBatch.__new__(AppendBatch)
    made.record_count = found.record_count if found.is_count_known else None
    made.max_timestamp = found.max_timestamp
    made.log_append_time_ms = rules.now_ms if rules.is_append_time else -1
    if rules.origin == REPLICATION:
        made.data = buffer if found.consumed == found.source.size else byte_view(buffer, found.source)[:found.consumed]
        made.first_offset = found.first.base_offset if found.batch_count else 0
        made.last_offset = found.last_offset
        made.log_append_time_ms = -1
        return made
    made.first_offset = first_offset
    if found.record_count > INT64_MAX - made.first_offset:
        raise UsageError("first_offset", got=first_offset,
                         wanted=f"room for {found.record_count} offsets up to 2^63 - 1")
    made.last_offset = made.first_offset + found.record_count - 1
    if found.in_place:
        made.data = patched(buffer, found, made.first_offset)
        made.temporary_bytes = found.plain_bytes if found.source_codec or found.target_codec else 0
    else:
        made.converted = True
        made.data = rebuilt(found, made)
    return made


cdef object patched(buffer, Inspection found, int64_t offset):
    """The buffer itself, or a copy if it is read-only, with offsets from `offset` on."""
    cdef Rules rules = found.rules
    cdef uint8_t* data
    cdef Header* header
    cdef OpenBatch opened
    cdef int64_t last_offset
    cdef int64_t newest
    if found.source.view.readonly:
        result = PyBytes_FromStringAndSize(<const char*>found.source.data, found.consumed)
        data = <uint8_t*>PyBytes_AS_STRING(result)
    else:
        result = buffer if found.consumed == found.source.size else byte_view(buffer, found.source)[:found.consumed]
        data = <uint8_t*>found.source.data
    if found.first.magic == 2:
        header = &found.first
        last_offset = offset + found.record_count - 1
        with nogil:
            patch(data, header, last_offset, rules.leader_epoch, rules.is_append_time, found.max_timestamp)
        return result
    for opened in found.opened:
        offset += opened.messages.count
        newest = rules.now_ms
        if not rules.is_append_time:
            newest = found.max_timestamp if found.source_codec else max(opened.header.max_timestamp, -1)
        patch(data + opened.header.position, &opened.header, offset - 1, rules.leader_epoch, rules.is_append_time,
              newest)
    return result


cdef bytes rebuilt(Inspection found, AppendBatch made):
    """The records in one batch of the topic's magic and codec."""
    cdef Rules rules = found.rules
    cdef Header* first = &found.first
    cdef int codec = found.target_codec
    cdef BatchBuilder builder = BatchBuilder.new(
        rules.magic, codec, level_for(codec, None) if rules.codec == CODEC_OF_PRODUCER else rules.level)
    cdef OpenBatch opened
    cdef int64_t offset = made.first_offset
    cdef Added added
    builder.is_stamped = rules.is_append_time
    builder.append_time = rules.now_ms
    builder.header.leader_epoch = rules.leader_epoch
    builder.header.producer_id = first.producer_id
    builder.header.producer_epoch = first.producer_epoch
    builder.header.base_sequence = first.base_sequence
    if first.magic == 2:
        builder.header.attributes |= first.attributes & (TRANSACTIONAL | CONTROL)
    for opened in found.opened:
        added = builder.add_all(opened, offset, 0)
        if added != ADDED:
            raise invalid(first, f"size at record {builder.header.count}", "more", "at most 2^31 - 1 bytes",
                          MessageTooLargeError)
        offset += opened.count()
    made.temporary_bytes = builder.plain_bytes() + bytes_around(rules.magic, codec)
    if found.source_codec or codec:
        made.temporary_bytes += found.plain_bytes
    if not builder.header.count:
        return b""
    cdef bytes data = builder.finish()
    check_sizes(data, rules.batch_bytes_max)
    return data


cdef int check_sizes(bytes data, int32_t batch_bytes_max) except -1:
    """max.message.bytes once more: batches that were written anew may have grown."""
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef const uint8_t* end = start + len(data)
    cdef const uint8_t* pos = start
    cdef Header header
    cdef Fault fault
    while read_header(start, pos, end, 0x7FFFFFFF, False, &header, &fault) == STEP_BATCH:
        if header.size_in_bytes > batch_bytes_max:
            raise MessageTooLargeError(f"batch at position {header.position} after conversion: size got "
                                       f"{header.size_in_bytes}, wanted at most {batch_bytes_max}")
        pos += header.size_in_bytes
    return 0
