from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef uint32_t crc32c_of(const uint8_t* data, size_t size) noexcept nogil
cdef uint32_t crc32c_extend(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil
cdef uint32_t crc_of_middle(bint castagnoli, uint32_t before_begin, uint32_t before_end, uint32_t size) noexcept nogil
cdef uint32_t crc_prefix(bint castagnoli, uint32_t prefix, const uint8_t* data, size_t size) noexcept nogil
cdef uint32_t crc32_of(const uint8_t* data, size_t size) noexcept nogil
cdef int32_t murmur2_of(const uint8_t* data, size_t size) noexcept nogil
