"""Checks of what a caller hands in, with the words for what is wrong with it."""

from cpython.number cimport PyIndex_Check, PyNumber_Index

from logcore.errors import UsageError, UsageTypeError


cdef object check_range(str what, object value, object low, object high):
    """The int that `value` is (a bool is none, numpy's are), within low to high.

    Callers go on with what this returns: an object may say something else the next time it is asked.
    """
    if not PyIndex_Check(value) or isinstance(value, bool):
        raise UsageTypeError(what, got=type(value).__name__, wanted="an int")
    value = PyNumber_Index(value)
    if not low <= value <= high:
        raise UsageError(what, got=value, wanted=f"{low} to {high}")
    return value


cdef object check_optional(str what, object value, object low, object high):
    return None if value is None else check_range(what, value, low, high)
