"""No compiled object is ever half made: what only the codec can fill, only the codec can make."""

import copy
import copyreg
import importlib
import pickle

import pytest

from logcore import Record, UsageTypeError, decode_batches, decode_columns, encode_batch
from tests.conftest import compiled_modules

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class statement of Python's, not a `cdef class`
DATA = encode_batch([(b"k", b"v" * 20, 5, [("a", b"b")])] * 3)


def classes(*, extension: bool) -> list[type]:
    """Every class that a compiled module defines."""
    found = {
        made
        for name in compiled_modules()
        for made in vars(importlib.import_module(name)).values()
        if isinstance(made, type) and made.__module__ == name and bool(made.__flags__ & HEAP_TYPE) is not extension
    }
    return sorted(found, key=lambda made: (made.__module__, made.__name__))


EXTENSION = classes(extension=True)
PLAIN = classes(extension=False)
# Made by whoever likes; complete once the call returns.
MADE_BY_ANYBODY = (
    "File",
    "LastRecords",
    "MappedFile",
    "OffsetIndex",
    "OffsetMap",
    "Record",
    "Source",
    "TimeIndex",
    "TimingWheel",
)
OPEN = [made for made in EXTENSION if made.__name__ in MADE_BY_ANYBODY]


def test_the_walk_over_the_modules_finds_their_classes():
    assert {"Batch", "BatchIterator", "Columns", "Encoder", "Memory", "Record"} <= {made.__name__ for made in EXTENSION}
    assert {"BatchScan", "ControlRecord"} <= {made.__name__ for made in PLAIN}
    assert len(OPEN) == len(MADE_BY_ANYBODY)


@pytest.mark.parametrize("made", [made for made in EXTENSION if made not in OPEN], ids=lambda made: made.__name__)
@pytest.mark.parametrize("arguments", [(), (None,), (None, None), (None, 0), (None, 0, 0), (b"", True)])
def test_what_only_the_codec_makes_cannot_be_made_from_outside(made, arguments):
    for attempt in (made, made.__new__, type.__call__, copyreg.__newobj__):
        given = arguments if attempt is made else (made, *arguments)
        with pytest.raises(UsageTypeError, match=f"^{made.__name__}: got a call, wanted "):
            attempt(*given)
    with pytest.raises(TypeError, match="is not safe"):
        object.__new__(made)


@pytest.mark.parametrize("made", OPEN, ids=lambda made: made.__name__)
def test_what_anybody_makes_is_whole_or_not_there(made):
    for attempt in (made.__new__, object.__new__, copyreg.__newobj__):
        with pytest.raises(TypeError):
            attempt(made)


@pytest.mark.parametrize("made", EXTENSION, ids=lambda made: made.__name__)
def test_no_compiled_class_can_be_derived_from(made):
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Derived", (made,), {})


@pytest.mark.parametrize("made", PLAIN, ids=lambda made: made.__name__)
def test_a_plain_class_without_its_fields_says_so(made):
    empty = made.__new__(made)
    for name in made.__slots__:
        with pytest.raises(AttributeError):
            getattr(empty, name)
    for use in (repr, len, lambda scan: scan == scan):
        try:
            use(empty)
        except (AttributeError, TypeError):
            continue


@pytest.mark.parametrize("layout", ["binary", "view"])
def test_no_copy_is_made_without_its_memory(layout):
    columns = decode_columns(DATA, layout=layout)
    batches = decode_batches(DATA)
    batch = next(batches)
    held = (batch.data.obj, memoryview(columns.offset.base).obj)
    for made in (columns, columns.key, columns.value, columns.headers, batches, batch, iter(batch), *held):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps, lambda one: object.__reduce_ex__(one, 2)):
            with pytest.raises(TypeError, match="cannot pickle"):
                attempt(made)
        for protocol in (0, 1):
            with pytest.raises(TypeError):
                pickle.loads(pickle.dumps(made, protocol))


def test_a_record_is_unpickled_only_as_a_record():
    [record] = [record for batch in decode_batches(encode_batch([(b"k", None, 5, [("a", b"b")])])) for record in batch]
    restore, fields = record.__reduce__()
    assert restore(*fields) == pickle.loads(pickle.dumps(record)) == copy.copy(record) == record
    assert restore(-7, -9, b"k", None, ()).offset == -7
    for lie in ((0, 0, [], None, ()), (0, 0, None, {}, ()), (0, 0, None, None, ([],)), (1 << 64, 0, None, None, ())):
        with pytest.raises((UsageTypeError, OverflowError)):
            restore(*lie)
    assert isinstance(record, Record)
