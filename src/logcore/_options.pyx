"""What a writer may say about a batch beside its records, checked once for rows and for columns.

The rules are those of Kafka's own builder: what it refuses at construction or at close is refused here before a
byte is written.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from logcore._arguments cimport check_optional, check_range, close_type
from logcore._batch cimport CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Header, size_limit
from logcore._compression cimport codec_id, level_for

import cython

from logcore.errors import UsageError


@cython.final
cdef class BatchOptions:
    """Options of encode_batch() and encode_columns(); see the first for what each means."""

    @staticmethod
    cdef BatchOptions new(
        base_offset, last_offset, compression, level, timestamp_type, log_append_time_ms, now_ms, producer_id,
        producer_epoch, base_sequence, leader_epoch, is_transactional, is_control, delete_horizon_ms, magic,
        batch_bytes_max,
    ):
        cdef BatchOptions self = BatchOptions.__new__(BatchOptions)
        magic = check_range("magic", magic, 0, 2)
        base_offset = check_optional("base_offset", base_offset, 0, 0x7FFFFFFFFFFFFFFF)
        last_offset = check_optional("last_offset", last_offset, 0, 0x7FFFFFFFFFFFFFFF)
        now_ms = check_optional("now_ms", now_ms, -1, 0x7FFFFFFFFFFFFFFF)
        log_append_time_ms = check_optional("log_append_time_ms", log_append_time_ms, 0, 0x7FFFFFFFFFFFFFFF)
        delete_horizon_ms = check_optional("delete_horizon_ms", delete_horizon_ms, 0, 0x7FFFFFFFFFFFFFFF)
        producer_id = check_range("producer_id", producer_id, -1, 0x7FFFFFFFFFFFFFFF)
        producer_epoch = check_range("producer_epoch", producer_epoch, -1, 0x7FFF)
        base_sequence = check_range("base_sequence", base_sequence, -1, 0x7FFFFFFF)
        leader_epoch = check_range("leader_epoch", leader_epoch, -1, 0x7FFFFFFF)
        self.magic = magic
        self.codec = codec_id("none" if compression is None else compression)
        self.level = level_for(self.codec, level)
        self.base_offset = -1 if base_offset is None else base_offset
        self.last_offset = -1 if last_offset is None else last_offset
        self.now_ms = -1 if now_ms is None else now_ms
        self.delete_horizon = -1 if delete_horizon_ms is None else delete_horizon_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.leader_epoch = leader_epoch
        self.batch_bytes_max = size_limit(batch_bytes_max)
        self.attributes = <int16_t>self.codec
        self.append_time = -1
        if timestamp_type == "log_append_time":
            self.append_time = self.now_ms if log_append_time_ms is None else log_append_time_ms
            if self.append_time < 0:
                raise UsageError("log_append_time_ms", got="None", wanted="the append time, with log_append_time")
            self.attributes |= LOG_APPEND_TIME
        elif timestamp_type != "create_time":
            raise UsageError("timestamp_type", got=repr(timestamp_type), wanted='"create_time" or "log_append_time"')
        elif log_append_time_ms is not None:
            raise UsageError("log_append_time_ms", got=log_append_time_ms, wanted="None, with create_time")
        if is_transactional:
            self.attributes |= TRANSACTIONAL
        if is_control:
            self.attributes |= CONTROL
        if delete_horizon_ms is not None:
            self.attributes |= DELETE_HORIZON
        if self.magic < 2:
            self.check_legacy()
        elif self.producer_id >= 0 or is_transactional:
            self.check_producer(is_transactional, is_control)
        return self

    cdef check_legacy(self):
        """Magic 0 and 1 know no producers, transactions, control records, horizons, leader epochs and no zstd."""
        for name, given in (
            ("is_transactional", self.attributes & TRANSACTIONAL), ("is_control", self.attributes & CONTROL),
            ("delete_horizon_ms", self.attributes & DELETE_HORIZON), ("producer_id", self.producer_id >= 0),
            ("leader_epoch", self.leader_epoch >= 0), ("compression zstd", self.codec == 4),
            ("last_offset", self.last_offset >= 0),
        ):
            if given:
                raise UsageError(name, where=f"magic {self.magic}", got="a value", wanted="magic 2")

    cdef check_producer(self, bint is_transactional, bint is_control):
        """A batch of a producer needs its id, its epoch and, unless it is a marker, its sequence."""
        if self.producer_id < 0:
            raise UsageError("producer_id", where="transactional batch", got=self.producer_id, wanted="0 or more")
        if self.producer_epoch < 0:
            raise UsageError("producer_epoch", where=f"producer {self.producer_id}", got=self.producer_epoch,
                             wanted="0 or more")
        if self.base_sequence < 0 and not is_control:
            raise UsageError("base_sequence", where=f"producer {self.producer_id}", got=self.base_sequence,
                             wanted="0 or more, except in a control batch")

    cdef void fill(self, Header* header) noexcept nogil:
        """The header fields that do not depend on the records."""
        header.magic = 2
        header.attributes = self.attributes
        header.leader_epoch = self.leader_epoch
        header.producer_id = self.producer_id
        header.producer_epoch = self.producer_epoch
        header.base_sequence = self.base_sequence


close_type(BatchOptions, "the options of encode_batch()")
