cdef object check_range(str what, object value, object low, object high)
cdef object check_optional(str what, object value, object low, object high)
