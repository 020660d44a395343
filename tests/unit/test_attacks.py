"""Attacks that once worked, each kept out by a test: lifetimes, objects that lie, structs that lie about themselves."""

import ctypes
import signal
import threading

import pytest

from logcore import (
    UsageError,
    assign_offsets,
    decode_batches,
    decode_columns,
    encode_batch,
    encode_columns,
    encode_empty_batch,
    find_batch,
    increment_sequence,
    partition_for_key,
    patch_batch,
    scan_batches,
)
from logcore.errors import MessageTooLargeError

DATA = encode_batch([(b"k", b"v" * 20, 5, [("a", b"b")])] * 3)


class Changing:
    """Says one thing when it is checked and another when it is used."""

    def __init__(self, *values):
        self.values = list(values)

    def __index__(self):
        return self.values.pop(0) if len(self.values) > 1 else self.values[0]

    __int__ = __index__


def test_a_number_is_asked_for_once():
    assert len(scan_batches(DATA, position=Changing(0, -(1 << 40)))) == 1
    assert patch_batch(bytearray(DATA), position=Changing(0, -(1 << 40)), leader_epoch=Changing(3, 1 << 80)) is False
    assert partition_for_key(b"a", Changing(6, 0)) == partition_for_key(b"a", 6)
    assert increment_sequence(Changing(1, "x"), Changing(2, None)) == 3
    [batch] = decode_batches(encode_batch([(b"k", b"v")], base_sequence=Changing(0, -7)))
    assert batch.base_sequence == 0


def test_names_that_grow_by_replacement_stay_within_a_chunk():
    one = encode_batch([(b"k", b"v", 1, [("\udcff" * 1000, b"x")])])
    columns = decode_columns(one * 20, columns=["headers"], chunk_bytes_max=14_000)
    assert max(part.headers.names.data.size for part in columns.chunks) <= 14_000
    names = [part.headers[row][0][0] for part in columns.chunks for row in range(len(part))]
    assert names == ["\ufffd" * 1000] * 20


def test_a_buffer_is_held_while_it_is_numbered():
    data = bytearray(DATA * 50)
    stop = threading.Event()

    def resize():
        while not stop.is_set():
            try:
                del data[-len(DATA) :]
                data.extend(DATA)
            except BufferError:
                continue

    thread = threading.Thread(target=resize)
    thread.start()
    try:
        for _ in range(200):
            assert assign_offsets(data, 7) in (7 + 3 * 49, 7 + 3 * 50)
    finally:
        stop.set()
        thread.join()


def test_times_and_offsets_at_the_ends_of_their_ranges_round_trip():
    rows = [(b"", b"", -1), (b"", b"", 2**63 - 1), (b"", b"", 0)]
    data = encode_batch(rows)
    assert [record.timestamp for batch in decode_batches(data) for record in batch] == [-1, 2**63 - 1, 0]
    assert encode_columns(decode_columns(data)) == data
    last = encode_columns(decode_columns(data, columns=["value"]), base_offset=2**63 - 10, last_offset=2**63 - 2)
    assert next(decode_batches(last)).last_offset == 2**63 - 2
    with pytest.raises(UsageError, match=f"got {2**63}"):
        encode_columns(decode_columns(data, columns=["value"]), base_offset=2**63 - 2)


def test_one_iterator_among_threads_hands_out_each_batch_once():
    data = encode_batch([(b"k", b"v" * 20_000)]) * 60
    batches = decode_batches(data)
    seen = []
    threads = [threading.Thread(target=lambda: seen.extend(batch.position for batch in batches)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(0, len(data), len(data) // 60))
    assert batches.consumed == len(data)


# -------------------------------------------------------------------------------------- bytes that ask for much work


def test_a_search_is_linear_though_every_byte_begins_a_large_batch():
    # Each of a million headers claims a mebibyte on average: computed one by one, the checksums would take an hour.
    buffer = bytes([0, 1]) * (1 << 20) + DATA
    assert find_batch(buffer) == len(buffer) - len(DATA)


def test_a_search_can_be_interrupted():
    class Interrupted(Exception):
        pass

    def interrupt(number, frame):
        raise Interrupted

    buffer = bytes([0, 1]) * (64 << 20)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            find_batch(buffer)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_many_chunks_of_a_long_buffer_do_not_look_at_all_of_it_each():
    # 30 000 chunks times a million headers behind them would take minutes.
    one = encode_batch([(b"k", b"v")], compression="lz4")
    columns = decode_columns(one * 30_000 + encode_empty_batch(0, 0) * 1_000_000, columns=["value"], chunk_bytes_max=1)
    assert len(columns.chunks) == 30_000
    assert columns.consumed == 30_000 * len(one) + 61_000_000


# ------------------------------------------------------------------------------------------- structs of other producers


class Schema(ctypes.Structure):
    pass


class Array(ctypes.Structure):
    pass


SchemaRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
ArrayRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
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


class Producer:
    """A struct array of one binary column, `value`, of two rows, on which each test spoils one thing."""

    def __init__(self):
        self.data = ctypes.create_string_buffer(b"abcd")
        self.ends = (ctypes.c_int32 * 3)(0, 2, 4)
        self.released = SchemaRelease(lambda _: None), ArrayRelease(lambda _: None)
        self.buffers = (ctypes.c_void_p * 3)(None, ctypes.addressof(self.ends), ctypes.addressof(self.data))
        self.schema = Schema(b"z", b"value", release=self.released[0])
        self.array = Array(2, 0, 0, 3, 0, self.buffers, release=self.released[1])
        self.kids = (
            (ctypes.POINTER(Schema) * 1)(ctypes.pointer(self.schema)),
            (ctypes.POINTER(Array) * 1)(ctypes.pointer(self.array)),
        )
        self.outer = (
            Schema(b"+s", b"", None, 0, 1, self.kids[0], None, self.released[0]),
            Array(2, 0, 0, 1, 1, (ctypes.c_void_p * 1)(None), self.kids[1], None, self.released[1]),
        )

    def __arrow_c_array__(self, requested_schema=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return (
            new(ctypes.addressof(self.outer[0]), b"arrow_schema", None),
            new(ctypes.addressof(self.outer[1]), b"arrow_array", None),
        )


def test_a_sound_struct_is_read():
    assert encode_columns(Producer()) == encode_batch([(None, b"ab"), (None, b"cd")])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda made: setattr(made.schema, "format", None),
        lambda made: setattr(made.schema, "name", None),
        lambda made: setattr(made.schema, "format", b"w:-5"),
        lambda made: setattr(made.schema, "format", b"w:99999999999999999999"),
        lambda made: setattr(made.array, "n_buffers", 1),
        lambda made: setattr(made.array, "offset", -(1 << 40)),
        lambda made: setattr(made.array, "length", 1),
        lambda made: setattr(made.outer[1], "length", -3),
        lambda made: setattr(made.outer[1], "n_children", 0),
        lambda made: setattr(made.outer[1], "offset", 2**62 + 1),
        lambda made: made.buffers.__setitem__(1, None),
        lambda made: made.buffers.__setitem__(2, None),
        lambda made: made.ends.__setitem__(1, -9),
        lambda made: made.ends.__setitem__(1, 1000),
    ],
)
def test_a_struct_that_contradicts_itself_is_refused(spoil):
    made = Producer()
    spoil(made)
    with pytest.raises(UsageError):
        encode_columns(made)


@pytest.mark.full
def test_a_message_of_two_gibibytes_is_refused_even_if_it_compresses():
    with pytest.raises(MessageTooLargeError):
        encode_batch([(None, bytes(2**31))], magic=1, compression="lz4")
