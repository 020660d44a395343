"""decode_columns(): a buffer of batches straight into Arrow-shaped memory, no Python object per record.

A pass over the headers says how much memory the uncompressed batches need at most (a value cannot be longer than the
batch it lies in). Then, batch by batch, the checksum is verified and the records are decoded while their bytes are still
in the cache, all without the GIL. It comes back for compressed batches, for magic 0 and 1, and for memory. Records with
headers are walked a second time, once their number is known.

Of a range of offsets, batches that lie outside are passed over by their headers: they are not decompressed, and neither
their checksums nor their records are looked at. A batch that straddles a bound is verified whole. Its records are walked
by their lengths, and only the wanted ones are decoded. So the loops that decode know nothing of a range.

While it decodes it holds at most 8 x the plain bytes of the records + 220 bytes a record, of which what was not used
goes back at the end. A record has 7 plain bytes at least, so a count in a header cannot ask for more.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from logcore._arguments cimport check_optional, check_range, close_type
from logcore._batch cimport (
    ATTRIBUTES, BATCH_HEADER_SIZE, CODEC_MASK, CONTROL, CRC, LOG_APPEND_TIME, STEP_BATCH, STEP_END, STEP_FAULT, Fields,
    Header, Place, Step, check_count, diagnose_record, ends_before, pass_records, read_header, read_record_ahead,
    read_record_checked, size_limit, verify_checksum,
)
from logcore._buffer cimport GIL_RELEASE_BYTES, Source
from logcore._builder cimport CHUNK_BYTES_MAX, Builder, Sink, put_bytes, put_null, put_view
from logcore._bytes cimport copy_short, likely, unlikely
from logcore._columns cimport Columns
from logcore._fault cimport FAULT_COUNT_TOO_SMALL, FAULT_CRC, Fault, corrupt_batch, fail
from logcore._legacy cimport Message, MessageSet, open_messages
from logcore._payload cimport decompressed, decompressed_limit
from logcore._verify cimport Verifier, look_ahead, verify_from, verify_rest

import cython

from logcore.errors import UsageError, UsageTypeError

cdef enum:
    # All batches of a call together may decompress to this many times the buffer, or to what one may if that is more.
    EXPANSION_MAX = 64

cdef tuple ALL_NAMES = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
cdef tuple DEFAULT_NAMES = ("offset", "timestamp", "key", "value", "headers")


# ------------------------------------------------------------------------------------------------------------ leaves

ctypedef const uint8_t* (*RecordsDecoder)(
    const uint8_t*, const uint8_t*, const Header*, Sink*, int64_t*, Verifier*,
) noexcept nogil


cdef inline const uint8_t* decode_loop(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
    bint is_view, bint want_all,
) noexcept nogil:
    """Decode the header's count of records into `sink`, which has room for them; returns where it stopped.

    That is `end` if all is well. Otherwise it is the damaged record (then sink.rows tells which) or, after the last
    one, bytes left over. The checksum runs ahead of the records by at most a strip; the caller finishes it.

    `is_view` and `want_all` (of offset, timestamp, key and value) are constants at each call, so each case gets a loop
    of its own. The bytes of keys and values may alias anything, so what the loop uses is in locals, not read through
    `sink`.
    """
    cdef Fields record
    cdef const uint8_t* after
    cdef Fields checked
    cdef const uint8_t* ahead_until = pos
    cdef const uint8_t* view_base = sink.view_base
    cdef uint32_t view_index = sink.view_index
    cdef int64_t row = sink.rows
    cdef int64_t stop = row + header.count
    cdef uint64_t base_offset = <uint64_t>header.base_offset
    cdef uint64_t base_timestamp = <uint64_t>header.base_timestamp
    cdef uint64_t delta_mask = <uint64_t>-1
    cdef int64_t* offsets = sink.offset
    cdef int64_t* timestamps = sink.timestamp
    cdef uint8_t* keys = sink.key.data
    cdef uint8_t* values = sink.value.data
    cdef uint8_t* key_out = keys + sink.key.used
    cdef uint8_t* value_out = values + sink.value.used
    cdef int32_t* key_ends = sink.key.ends
    cdef int32_t* value_ends = sink.value.ends
    cdef uint64_t* key_words = sink.key.words
    cdef uint64_t* value_words = sink.value.words
    cdef bint want_key = sink.key.wanted, want_value = sink.value.wanted
    cdef int64_t headers = 0
    if header.attributes & LOG_APPEND_TIME:
        # Every record has the batch's time: a mask on the delta keeps the branch out of the loop.
        base_timestamp = <uint64_t>header.max_timestamp
        delta_mask = 0
    while row < stop:
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
        if want_all or offsets != NULL:
            offsets[row] = <int64_t>(base_offset + <uint64_t>record.offset_delta)
        if want_all or timestamps != NULL:
            timestamps[row] = <int64_t>(base_timestamp + (<uint64_t>record.timestamp_delta & delta_mask))
        if want_all or want_key:
            if likely(record.key_size >= 0):
                if is_view:
                    put_view(key_words + 2 * row, record.key, record.key_size, end, view_index, view_base)
                else:
                    copy_short(key_out, record.key, <size_t>record.key_size, end - record.key)
                    key_out += record.key_size
            else:
                put_null(&sink.key, row, is_view)
            if not is_view:
                key_ends[row + 1] = <int32_t>(key_out - keys)
        if want_all or want_value:
            if likely(record.value_size >= 0):
                if is_view:
                    put_view(value_words + 2 * row, record.value, record.value_size, end, view_index, view_base)
                else:
                    copy_short(value_out, record.value, <size_t>record.value_size, end - record.value)
                    value_out += record.value_size
            else:
                put_null(&sink.value, row, is_view)
            if not is_view:
                value_ends[row + 1] = <int32_t>(value_out - values)
        if unlikely(record.header_count != 0):
            headers += record.header_count
        pos = after
        row += 1
    if sink.timestamp_type != NULL:
        for stop in range(sink.rows, row):
            sink.timestamp_type[stop] = 1 if header.attributes & LOG_APPEND_TIME else 0
    sink.rows = row
    sink.key.used = key_out - keys
    sink.value.used = value_out - values
    header_total[0] = headers
    return pos


# The four loops. Called through a pointer, so that each stays a function of its own: merged into one, they would share
# the registers.
cdef const uint8_t* decode_binary(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
) noexcept nogil:
    return decode_loop(pos, end, header, sink, header_total, verifier, False, True)

cdef const uint8_t* decode_binary_some(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
) noexcept nogil:
    return decode_loop(pos, end, header, sink, header_total, verifier, False, False)

cdef const uint8_t* decode_views(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
) noexcept nogil:
    return decode_loop(pos, end, header, sink, header_total, verifier, True, True)

cdef const uint8_t* decode_views_some(
    const uint8_t* pos, const uint8_t* end, const Header* header, Sink* sink, int64_t* header_total, Verifier* verifier,
) noexcept nogil:
    return decode_loop(pos, end, header, sink, header_total, verifier, True, False)


cdef RecordsDecoder decoder_for(const Sink* sink) noexcept nogil:
    if sink.offset != NULL and sink.timestamp != NULL and sink.key.wanted and sink.value.wanted:
        return decode_views if sink.is_view else decode_binary
    return decode_views_some if sink.is_view else decode_binary_some


# ------------------------------------------------------------------------------------------------------------ decoding

cdef enum Pause:
    PAUSE_END          # no whole batch is left
    PAUSE_FAULT        # damage
    PAUSE_BATCH        # a batch that needs Python: compressed, of an older magic, or one there is no room for
    PAUSE_HEADERS      # a batch was decoded whose records have headers


@cython.final
cdef class Decoder:
    """One run of decode_columns()."""
    cdef Source source
    cdef Builder builder
    cdef Py_ssize_t position
    cdef int64_t bytes_max, budget, shift
    cdef int64_t chunk_bytes_max
    cdef int32_t batch_bytes_max
    cdef bint verify_crc, want_control
    cdef int64_t low, high           # the offsets that are wanted, both included
    cdef bint ended                  # a message set has come to `high`: nothing behind it is wanted
    cdef Header header               # of the batch that a pause is about
    cdef Fault fault
    cdef int64_t header_total, first_row

    cdef bint has_others(self, const Header* header) noexcept nogil:
        """Whether a batch may have offsets that are not wanted, be it that its header contradicts itself.

        Of a compressed message set the header has the last one only.
        """
        return not self.low <= header.base_offset <= header.last_offset <= self.high

    cdef bint is_behind(self, const Header* header) noexcept nogil:
        """Whether a batch begins behind what is wanted."""
        return header.base_offset > self.high and (header.magic == 2 or not header.attributes & CODEC_MASK)

    cdef void go_to_first(self) noexcept nogil:
        """Pass over the batches before the first that is wanted; what ends the walk, run() will meet again."""
        cdef const uint8_t* start = self.source.data
        cdef const uint8_t* end = start + self.source.size
        cdef Header header
        cdef Fault fault
        cdef Step step = STEP_BATCH
        while step == STEP_BATCH:
            step = read_header(start, start + self.position, end, self.batch_bytes_max, False, &header, &fault)
            if step == STEP_BATCH:
                if not ends_before(&header, self.low):
                    break
                self.position += header.size_in_bytes

    cdef int plan(self) except -1:
        """Reserve for the uncompressed batches ahead, as far as a chunk goes, from their headers alone.

        It looks at no more bytes than a chunk may have: further ahead it would look again for each chunk.
        """
        cdef const uint8_t* start = self.source.data
        cdef const uint8_t* end = start + self.source.size
        cdef const uint8_t* pos = start + self.position
        cdef const uint8_t* stop = pos + min(end - pos, self.chunk_bytes_max)
        cdef int64_t rows = 0, plain = 0, size
        cdef Header header
        cdef Fault fault
        with nogil:
            while pos < stop and (
                    read_header(start, pos, end, self.batch_bytes_max, False, &header, &fault) == STEP_BATCH):
                if unlikely(self.has_others(&header)):
                    if self.is_behind(&header):
                        break
                    if ends_before(&header, self.low):
                        pos += header.size_in_bytes
                        continue
                size = header.size_in_bytes - BATCH_HEADER_SIZE
                if header.magic == 2 and not header.attributes & CODEC_MASK and not check_count(&header, size, &fault):
                    if plain + size > self.chunk_bytes_max:
                        break
                    rows += header.count
                    plain += size
                pos += header.size_in_bytes
        self.builder.reserve(rows, plain)
        return 0

    cdef Pause run(self) noexcept nogil:
        """Decode uncompressed v2 batches until something needs Python."""
        cdef const uint8_t* start = self.source.data
        cdef const uint8_t* end = start + self.source.size
        cdef const uint8_t* batch
        cdef const uint8_t* batch_end
        cdef const uint8_t* stopped
        cdef Sink* sink = &self.builder.sink
        cdef RecordsDecoder decode_records = decoder_for(sink)
        cdef Verifier verifier
        cdef Step step
        cdef int64_t size
        cdef bint is_cut
        while not self.ended:
            batch = start + self.position
            step = read_header(start, batch, end, self.batch_bytes_max, False, &self.header, &self.fault)
            if step == STEP_END:
                return PAUSE_END
            if step == STEP_FAULT:
                return PAUSE_FAULT
            is_cut = self.has_others(&self.header)
            if unlikely(is_cut):
                if ends_before(&self.header, self.low):
                    self.position += self.header.size_in_bytes
                    continue
                if self.is_behind(&self.header):
                    return PAUSE_END
            if self.header.magic == 2 and (
                    self.header.count == 0 or (self.header.attributes & CONTROL and not self.want_control)):
                # Kafka's reader does not look at the bytes of a batch that declares no record, nor at its codec.
                if not self.is_verified(batch):
                    return PAUSE_FAULT
                self.position += self.header.size_in_bytes
                continue
            if self.header.magic < 2 or self.header.attributes & CODEC_MASK:
                return PAUSE_BATCH if self.is_verified(batch) else PAUSE_FAULT
            size = self.header.size_in_bytes - BATCH_HEADER_SIZE
            if check_count(&self.header, size, &self.fault):
                self.is_verified(batch)
                return PAUSE_FAULT
            if (
                is_cut
                or not self.builder.has_room(self.header.count, size)
                or max(sink.key.used, sink.value.used) + size > self.chunk_bytes_max
                or (self.builder.want_headers and (
                    self.builder.entries.value.used + size > self.chunk_bytes_max
                    or self.builder.entries.name.used + 3 * size > self.chunk_bytes_max))
                or self.position + self.header.size_in_bytes - self.builder.origin > self.chunk_bytes_max
            ):
                return PAUSE_BATCH if self.is_verified(batch) else PAUSE_FAULT
            batch_end = batch + self.header.size_in_bytes
            self.first_row = sink.rows
            verify_from(&verifier, batch + ATTRIBUTES if self.verify_crc else batch_end, batch_end)
            stopped = decode_records(batch + BATCH_HEADER_SIZE, batch_end, &self.header, sink, &self.header_total,
                                     &verifier)
            if self.verify_crc and verify_rest(&verifier) != self.header.crc:
                fail(&self.fault, FAULT_CRC, CRC, self.header.crc, verifier.crc)
                return PAUSE_FAULT
            if stopped != batch_end or sink.rows != self.first_row + self.header.count:
                self.blame(batch, stopped, batch_end, 0, self.header.count)
                return PAUSE_FAULT
            self.position += self.header.size_in_bytes
            if self.header_total and self.builder.want_headers:
                return PAUSE_HEADERS
            if self.builder.entries.ends != NULL:
                self.builder.no_headers(self.first_row)
        return PAUSE_END

    cdef bint is_verified(self, const uint8_t* batch) noexcept nogil:
        """Whether the checksum of the batch that is not decoded here is right; else the fault says so."""
        return not self.verify_crc or not verify_checksum(batch, &self.header, &self.fault)

    cdef void blame(
        self, const uint8_t* start, const uint8_t* stopped, const uint8_t* end, int64_t index, int64_t count,
    ) noexcept nogil:
        """Fill the fault for records that begin to be wrong at `stopped`: one of `count` from the batch's `index` on."""
        cdef int64_t done = self.builder.sink.rows - self.first_row
        if done == count:
            fail(&self.fault, FAULT_COUNT_TOO_SMALL, stopped - start, end - stopped, 0)
        else:
            diagnose_record(start, stopped, end, &self.fault)
            self.fault.record_index = index + done

    cdef object refusal(self):
        """The exception for the fault. A batch whose header or checksum is wrong has no offset to speak of."""
        return corrupt_batch(&self.fault, self.position + self.shift,
                             None if self.fault.kind <= FAULT_CRC else self.header.base_offset)

    cdef int chunk_if_full(self, list done, int64_t more, str layout) except -1:
        """Begin a new chunk if `more` bytes of records might not fit into this one."""
        cdef Sink* sink = &self.builder.sink
        if self.position > self.builder.origin and (
            max(sink.key.used, sink.value.used) + more > self.chunk_bytes_max
            or self.builder.entries.value.used + more > self.chunk_bytes_max
            or self.builder.entries.name.used + 3 * more > self.chunk_bytes_max
            or (sink.is_view
                and self.position + self.header.size_in_bytes - self.builder.origin > self.chunk_bytes_max)
        ):
            if sink.rows:
                done.append(self.builder.finish(layout))
            self.builder = Builder.new(self.builder.names, layout == "view")
            self.begin_chunk()
        return 0

    cdef int begin_chunk(self) except -1:
        """Views count from where the chunk begins, so that a buffer of any size fits their int32 positions."""
        self.builder.origin = self.position
        self.builder.look_at(self.source if self.position == 0 else Source(memoryview(self.source)[self.position:]))
        self.plan()
        return 0

    cdef int reserve_ahead(self, int64_t rows, int64_t data_bytes) except -1:
        """Room for this batch and, if that is to be had, for what is left of the buffer, should it be like this batch.

        At most four times what is needed now: nothing is known of the rest but its size.
        """
        cdef Sink* sink = &self.builder.sink
        cdef int64_t alike = 1
        if not self.builder.has_room(rows, data_bytes):
            alike = min((self.source.size - self.position) // self.header.size_in_bytes, 4 + 3 * sink.rows // rows)
        data_bytes = max(data_bytes, min(
            data_bytes * alike, self.chunk_bytes_max - max(sink.key.used, sink.value.used)))
        return self.builder.reserve(rows * alike, data_bytes)

    cdef int add_batch(self, list done, str layout) except -1:
        """Decode the batch of self.header, whatever it is."""
        cdef const uint8_t* start = self.source.data + self.header.position
        cdef const uint8_t* pos
        cdef const uint8_t* end
        cdef Source plain = self.source
        if self.header.magic < 2:
            return self.add_messages(done, layout)
        if self.header.attributes & CODEC_MASK:
            plain = decompressed(self.source, &self.header, BATCH_HEADER_SIZE,
                                 self.header.size_in_bytes - BATCH_HEADER_SIZE,
                                 min(self.bytes_max, self.budget, CHUNK_BYTES_MAX), self.shift)
            self.budget -= plain.size
            pos = start = plain.data
            end = pos + plain.size
        else:
            pos = start + BATCH_HEADER_SIZE
            end = start + self.header.size_in_bytes
        if check_count(&self.header, end - pos, &self.fault):
            raise self.refusal()
        self.chunk_if_full(done, end - pos, layout)
        self.reserve_ahead(self.header.count, end - pos)
        if plain is not self.source:
            self.builder.look_at(plain)
        if self.has_others(&self.header):
            self.add_runs(start, pos, end)
        else:
            self.add_records(start, pos, end, 0, self.header.count)
        if plain is not self.source:
            self.builder.look_back()
        self.position += self.header.size_in_bytes
        return 0

    cdef int add_records(
        self, const uint8_t* start, const uint8_t* pos, const uint8_t* end, int32_t index, int32_t count,
    ) except -1:
        """Decode `count` records from the batch's `index` on, which lie from `pos` to `end`. There is room for them."""
        cdef const uint8_t* stopped
        cdef RecordsDecoder decode_records = decoder_for(&self.builder.sink)
        cdef Header header = self.header
        cdef Verifier verifier
        header.count = count
        self.first_row = self.builder.sink.rows
        verify_from(&verifier, end, end)    # run() has verified it
        with nogil:
            stopped = decode_records(pos, end, &header, &self.builder.sink, &self.header_total, &verifier)
            if stopped != end or self.builder.sink.rows != self.first_row + count:
                self.blame(start, stopped, end, index, count)
                stopped = NULL
        if stopped == NULL:
            raise self.refusal()
        if self.header_total and self.builder.want_headers:
            self.builder.add_headers(pos, end, self.first_row, self.header_total)
        elif self.builder.list_ends is not None:
            self.builder.no_headers(self.first_row)
        return 0

    cdef int add_runs(self, const uint8_t* start, const uint8_t* pos, const uint8_t* end) except -1:
        """Decode the wanted ones of the records from `pos` to `end`.

        They are one run, as far as writers go, whose offsets increase. Whatever the offsets are, each record is in one
        run at most, so that the room for all of them is enough.
        """
        cdef Place place, run
        cdef bint whole
        place.pos = pos
        place.left = self.header.count
        while place.left:
            with nogil:
                whole = pass_records(&place, end, &self.header, self.low, self.high, False)
                run = place
                whole = whole and pass_records(&place, end, &self.header, self.low, self.high, True)
            if place.left != run.left:
                self.add_records(start, run.pos, place.pos, self.header.count - run.left, run.left - place.left)
            if not whole:
                diagnose_record(start, place.pos, end, &self.fault)
                self.fault.record_index = self.header.count - place.left
                raise self.refusal()
        if place.pos != end:
            fail(&self.fault, FAULT_COUNT_TOO_SMALL, place.pos - start, end - place.pos, 0)
            raise self.refusal()
        return 0

    cdef int add_messages(self, list done, str layout) except -1:
        """A v0/v1 message, or the messages inside it."""
        cdef MessageSet messages = open_messages(self.source, &self.header,
                                                 min(self.bytes_max, self.budget, CHUNK_BYTES_MAX), self.shift)
        cdef Sink* sink
        cdef Message* message
        cdef const uint8_t* end = messages.source.data + messages.source.size
        cdef int64_t plain = self.header.size_in_bytes
        cdef Py_ssize_t index, wanted = 0
        if messages.source is not self.source:
            plain = messages.source.size
            self.budget -= plain
        for index in range(messages.count):
            wanted += self.low <= messages.messages[index].offset <= self.high
        self.ended = self.high != INT64_MAX and messages.messages[messages.count - 1].offset >= self.high
        if not wanted:
            if not self.ended or messages.messages[0].offset <= self.high:
                self.position += self.header.size_in_bytes
            return 0
        self.chunk_if_full(done, plain, layout)
        self.builder.reserve(wanted, plain)
        if messages.source is not self.source:
            self.builder.look_at(messages.source)
        sink = &self.builder.sink
        self.first_row = sink.rows
        for index in range(messages.count):
            message = &messages.messages[index]
            if not self.low <= message.offset <= self.high:
                continue
            if sink.offset != NULL:
                sink.offset[sink.rows] = message.offset
            if sink.timestamp != NULL:
                sink.timestamp[sink.rows] = message.timestamp
            if sink.timestamp_type != NULL:
                sink.timestamp_type[sink.rows] = (
                    -1 if message.magic == 0 else 1 if self.header.attributes & LOG_APPEND_TIME else 0)
            if sink.key.wanted:
                put_bytes(&sink.key, sink.rows, message.key, message.key_size, end, sink)
            if sink.value.wanted:
                put_bytes(&sink.value, sink.rows, message.value, message.value_size, end, sink)
            sink.rows += 1
        if self.builder.list_ends is not None:
            self.builder.no_headers(self.first_row)
        if messages.source is not self.source:
            self.builder.look_back()
        self.position += self.header.size_in_bytes
        return 0


close_type(Decoder)


def decode_columns(
    buffer, *, columns=None, layout="binary", verify_crc=True, max_decompressed_bytes=None, batch_bytes_max=None,
    base_position=0, include_control=True, chunk_bytes_max=None, first_offset=None, end_offset=None,
):
    """Decode every whole batch of `buffer` into one Columns; `.consumed` tells how far it came.

    columns: names of what is wanted, in that order: "offset", "timestamp", "key", "value", "headers" (these five by
        default) and "timestamp_type"; what is left out costs nothing
    layout: "binary" copies keys and values end to end; "view" points to them where they lie (the buffer is then held
        as long as the columns live)
    verify_crc: False if the checksums are known to be right
    max_decompressed_bytes: the most one batch may decompress to (128 MiB). All batches of a call together may
        decompress to 64 times the buffer, or to this if it is more
    include_control: False leaves out the records of control batches
    chunk_bytes_max: begin a new chunk before a column has more bytes (2^31 - 1)
    first_offset, end_offset: keep only records with first_offset <= offset < end_offset. The batches of a log lie in
        the order of their offsets, so decoding ends before the first that begins at end_offset or behind it, and
        `.consumed` is its position. What a header says of its offsets is believed: a batch outside of the range is
        not decompressed, nor is its checksum verified

    Damage raises CorruptBatch, as decode_batches() does; a partial last batch is left for the next call.

    >>> from logcore import encode_batch
    >>> columns = decode_columns(encode_batch([(b"a", b"x" * 20, 5), (None, b"y", 7)]))
    >>> columns
    Columns(2 records: offset, timestamp, key, value, headers; binary)
    >>> columns.timestamp.tolist(), columns.key[1], columns.value[1]
    ([5, 7], None, b'y')
    >>> data = encode_batch([(None, b"%d" % n) for n in range(1000)], base_offset=5000)
    >>> [record.value for record in decode_columns(data, first_offset=5997, end_offset=5999)]
    [b'997', b'998']
    """
    cdef Decoder decoder = Decoder.__new__(Decoder)
    cdef list done = []
    cdef Pause pause
    cdef Columns whole
    cdef tuple names = chosen_names(columns)
    if layout != "binary" and layout != "view":
        raise UsageError("layout", got=repr(layout), wanted='"binary" or "view"')
    decoder.source = Source(buffer)
    base_position = check_range("base_position", base_position, 0, 0x7FFFFFFFFFFFFFFF - decoder.source.size)
    chunk_bytes_max = check_optional("chunk_bytes_max", chunk_bytes_max, 1, CHUNK_BYTES_MAX)
    first_offset = check_optional("first_offset", first_offset, 0, 0x7FFFFFFFFFFFFFFF)
    end_offset = check_optional("end_offset", end_offset, first_offset or 0, 0x7FFFFFFFFFFFFFFF)
    decoder.low = INT64_MIN if first_offset is None else first_offset
    decoder.high = INT64_MAX if end_offset is None else end_offset - 1
    decoder.verify_crc = verify_crc
    decoder.want_control = include_control
    decoder.bytes_max = decompressed_limit(max_decompressed_bytes)
    decoder.budget = max(decoder.bytes_max, EXPANSION_MAX * decoder.source.size)
    decoder.batch_bytes_max = size_limit(batch_bytes_max)
    decoder.chunk_bytes_max = CHUNK_BYTES_MAX if chunk_bytes_max is None else chunk_bytes_max
    decoder.shift = base_position
    decoder.builder = Builder.new(names, layout == "view")
    if first_offset is not None:
        with nogil:
            decoder.go_to_first()
    decoder.begin_chunk()
    while True:
        if decoder.source.size < GIL_RELEASE_BYTES:
            pause = decoder.run()
        else:
            with nogil:
                pause = decoder.run()
        if pause == PAUSE_END:
            break
        if pause == PAUSE_FAULT:
            raise decoder.refusal()
        if pause == PAUSE_BATCH:
            decoder.add_batch(done, layout)
        else:
            decoder.builder.add_headers(
                decoder.source.data + decoder.header.position + BATCH_HEADER_SIZE,
                decoder.source.data + decoder.position, decoder.first_row, decoder.header_total)
    whole = decoder.builder.finish(layout)
    if done:
        if whole.length:
            done.append(whole)
        whole = Columns.new()
        whole.names, whole.layout, whole.parts = names, layout, tuple(done)
        whole.length = sum([len(part) for part in done])
    whole.consumed = decoder.position
    return whole


cdef tuple chosen_names(columns):
    if columns is None:
        return DEFAULT_NAMES
    if isinstance(columns, str) or not hasattr(columns, "__iter__"):
        raise UsageTypeError("columns", got=type(columns).__name__, wanted='a sequence of names, as in ("offset", "value")')
    names = tuple(columns)
    for name in names:
        if name not in ALL_NAMES:
            raise UsageError("columns", got=repr(name), wanted=f"names out of {', '.join(ALL_NAMES)}")
    if len(set(names)) != len(names) or not names:
        raise UsageError("columns", got=repr(names), wanted="one name or more, each once")
    return names
