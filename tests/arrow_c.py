"""Arrow's C data interface by hand: structs that no Arrow library makes, for consumers that must not trust them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any


class Schema(ctypes.Structure):
    """ArrowSchema, as the C data interface lays it out."""


class Array(ctypes.Structure):
    """ArrowArray."""


class Stream(ctypes.Structure):
    """ArrowArrayStream."""


SchemaRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
ArrayRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
StreamRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))
GetSchema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))
GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))
GetLastError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Stream))

Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", SchemaRelease),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ArrayRelease),
    ("private_data", ctypes.c_void_p),
]
Stream._fields_ = [
    ("get_schema", GetSchema),
    ("get_next", GetNext),
    ("get_last_error", GetLastError),
    ("release", StreamRelease),
    ("private_data", ctypes.c_void_p),
]


def opened(capsule: object, name: bytes, kind: type) -> Any:
    """The struct inside a capsule; the capsule must outlive it."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.cast(get(capsule, name), ctypes.POINTER(kind)).contents


def capsule(struct: ctypes.Structure, name: bytes) -> Any:
    """A capsule around a struct that stays the caller's: whoever takes it does not free it."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(struct), name, None)


class Produced:
    """One array and its schema, an Arrow producer; a test may spoil `schema` and `array` before it hands them over.

    buffers: bytes or None; each lies `shift` bytes after a 16-byte boundary, and ends where its allocation does
    released: how often each of the two was, by whoever took it
    """

    def __init__(
        self,
        format: bytes,
        buffers: Sequence[bytes | None],
        *,
        name: bytes = b"",
        length: int = 0,
        null_count: int = 0,
        offset: int = 0,
        children: Sequence[Produced] = (),
        shift: int = 0,
    ) -> None:
        self.released = {"schema": 0, "array": 0}
        self.children = list(children)
        self.memory = [None if data is None else _placed(data, shift) for data in buffers]
        addresses = [None if held is None else ctypes.addressof(held) + 32 + shift for held in self.memory]
        self.buffers = (ctypes.c_void_p * max(len(buffers), 1))(*addresses)
        self.callbacks = (SchemaRelease(self._release("schema")), ArrayRelease(self._release("array")))
        self.schema = Schema(format=format, name=name, flags=2, n_children=len(children), release=self.callbacks[0])
        self.array = Array(
            length=length,
            null_count=null_count,
            offset=offset,
            n_buffers=len(buffers),
            n_children=len(children),
            buffers=ctypes.cast(self.buffers, ctypes.POINTER(ctypes.c_void_p)),
            release=self.callbacks[1],
        )
        if children:
            self.schema.children = (ctypes.POINTER(Schema) * len(children))(
                *[ctypes.pointer(c.schema) for c in children]
            )
            self.array.children = (ctypes.POINTER(Array) * len(children))(*[ctypes.pointer(c.array) for c in children])

    def _release(self, which: str) -> Callable[[Any], None]:
        def release(struct: Any) -> None:
            self.released[which] += 1
            struct.contents.release = type(struct.contents.release)()

        return release

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return capsule(self.schema, b"arrow_schema"), capsule(self.array, b"arrow_array")


def _placed(data: bytes, shift: int) -> Any:
    """Memory of its own with `data` at the end, `shift` bytes after a boundary that any allocator keeps."""
    held = ctypes.create_string_buffer(32 + shift + len(data))
    ctypes.memmove(ctypes.addressof(held) + 32 + shift, data, len(data))
    return held


def table(*columns: Produced, length: int | None = None, **options: Any) -> Produced:
    """A struct array around columns."""
    rows = (columns[0].array.length if columns else 0) if length is None else length
    return Produced(b"+s", [None], length=rows, children=columns, **options)


class ProducedStream:
    """A stream of arrays, an Arrow producer. An int among `arrays` is the error code that get_next() returns there."""

    def __init__(
        self, schema: Schema | int | None, arrays: Sequence[Array | int], error: bytes | None = b"out of tape"
    ):
        self.arrays = list(arrays)
        self.released = 0
        self.error = None if error is None else ctypes.create_string_buffer(error)

        def get_schema(_: Any, out: Any) -> int:
            if isinstance(schema, int):
                return schema
            out[0] = Schema() if schema is None else schema
            return 0

        def get_next(_: Any, out: Any) -> int:
            if self.arrays and isinstance(self.arrays[0], int):
                return self.arrays[0]
            out[0] = self.arrays.pop(0) if self.arrays else Array()
            return 0

        def release(stream: Any) -> None:
            self.released += 1
            stream.contents.release = StreamRelease()

        self.struct = Stream(
            GetSchema(get_schema),
            GetNext(get_next),
            GetLastError(lambda _: None if self.error is None else ctypes.addressof(self.error)),
            StreamRelease(release),
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return capsule(self.struct, b"arrow_array_stream")
