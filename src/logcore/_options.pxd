from libc.stdint cimport int16_t, int32_t, int64_t

from logcore._batch cimport Header


cdef class BatchOptions:
    cdef int magic
    cdef int codec
    cdef int level
    cdef int16_t attributes
    cdef int64_t base_offset          # -1: that of the first record, or 0
    cdef int64_t last_offset          # -1: that of the last record
    cdef int64_t append_time          # -1: CreateTime
    cdef int64_t now_ms               # -1: records without a timestamp have none
    cdef int64_t delete_horizon       # -1: none
    cdef int64_t producer_id
    cdef int32_t base_sequence
    cdef int32_t leader_epoch
    cdef bint renumber                # offsets that Records have do not count
    cdef int16_t producer_epoch
    cdef int32_t batch_bytes_max

    @staticmethod
    cdef BatchOptions new(
        base_offset, last_offset, compression, level, timestamp_type, log_append_time_ms, now_ms, producer_id,
        producer_epoch, base_sequence, leader_epoch, is_transactional, is_control, delete_horizon_ms, magic,
        batch_bytes_max,
    )
    cdef check_legacy(self)
    cdef check_producer(self, bint is_transactional, bint is_control)
    cdef void fill(self, Header* header) noexcept nogil
