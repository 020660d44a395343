cdef int check_range(str what, object value, object low, object high) except -1
cdef int check_optional(str what, object value, object low, object high) except -1
