from libc.stdint cimport uint8_t

# Codec ids: the low three bits of a batch's attributes.
cdef enum:
    CODEC_NONE
    CODEC_GZIP
    CODEC_SNAPPY
    CODEC_LZ4
    CODEC_ZSTD
    CODEC_COUNT

# What `level_for` gives for a codec without levels, and what compress_span ignores there.
cdef enum:
    LEVEL_NONE = 0

cpdef int codec_id(object name) except -1
cpdef str codec_name(object codec)
cdef int level_for(int codec, object level) except? -1

# Both take a span that the caller keeps alive and unchanged until they return. Both need the GIL and release it in
# the library's own work. `level` comes from level_for; `magic` decides the header checksum of an lz4 frame.
cdef bytes compress_span(int codec, const uint8_t* data, Py_ssize_t size, int level, int magic)
cdef bytes decompress_span(int codec, const uint8_t* data, Py_ssize_t size, Py_ssize_t bytes_max, int magic)
