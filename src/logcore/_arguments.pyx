"""Checks of what a caller hands in, with the words for what is wrong with it."""

from cpython.number cimport PyIndex_Check, PyNumber_Index

from logcore.errors import UsageError, UsageTypeError


cdef int check_range(str what, object value, object low, object high) except -1:
    """Refuse what is no int (a bool is none, numpy's are) or lies outside of low to high."""
    if not PyIndex_Check(value) or isinstance(value, bool):
        raise UsageTypeError(what, got=type(value).__name__, wanted="an int")
    value = PyNumber_Index(value)
    if not low <= value <= high:
        raise UsageError(what, got=value, wanted=f"{low} to {high}")
    return 0


cdef int check_optional(str what, object value, object low, object high) except -1:
    return 0 if value is None else check_range(what, value, low, high)
