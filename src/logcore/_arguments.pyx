"""Checks of what a caller hands in, with the words for what is wrong with it; and what no caller may make at all."""

from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.object cimport PyObject

from logcore.errors import UsageError, UsageTypeError

cdef extern from *:
    """
    /* `C.__new__(C)` in the module of C is a call of its C function, not of the slot: only Python comes through these. */
    static void lc_close_type(PyObject *type, newfunc refuse) {
        ((PyTypeObject *)type)->tp_new = refuse;
        ((PyTypeObject *)type)->tp_vectorcall = NULL;
        ((PyTypeObject *)type)->tp_flags &= ~Py_TPFLAGS_BASETYPE; /* a base of compiled classes, and of no others */
    }
    static int lc_hide_new(PyObject *type) {
        int status = PyDict_DelItemString(((PyTypeObject *)type)->tp_dict, "__new__");
        PyType_Modified((PyTypeObject *)type);
        return status;
    }
    """
    ctypedef object (*newfunc)(type kind, PyObject* args, PyObject* kwargs)
    void lc_close_type(type kind, newfunc refuse)
    int lc_hide_new(type kind) except -1

cdef dict WANTED = {}      # of each closed type: how to get one


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


cdef int check_callable(str what, object given) except -1:
    if not callable(given):
        raise UsageTypeError(what, got=type(given).__name__, wanted="a callable")
    return 0


cdef object refuse_to_make(type kind, PyObject* args, PyObject* kwargs):
    raise UsageTypeError(kind.__name__, got="a call", wanted=WANTED[kind])


cdef int close_type(type kind, str wanted="one that the codec has made") except -1:
    """Let Python make no `kind`, neither by a call nor by __new__ nor by copying: its fields would point nowhere."""
    WANTED[kind] = wanted
    lc_close_type(kind, refuse_to_make)
    return 0


cdef int hide_new(type kind) except -1:
    """Let Python make a `kind` by a call, which ends in __init__, but not by __new__ alone."""
    return lc_hide_new(kind)
