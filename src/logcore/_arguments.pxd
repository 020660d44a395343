cdef object check_range(str what, object value, object low, object high)
cdef object check_optional(str what, object value, object low, object high)
cdef int check_callable(str what, object given) except -1
cdef int close_type(type kind, str wanted=*) except -1
cdef int hide_new(type kind) except -1
