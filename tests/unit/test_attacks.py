"""Attacks that once worked, each kept out by a test: lifetimes, objects that lie, structs that lie about themselves."""

import signal
import struct
import subprocess
import sys
import threading

import pytest

from logcore import (
    Record,
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
from tests.arrow_c import Produced, table

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


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def longs(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def two_values(**options):
    """A column `value` of two rows, on which each test spoils one thing."""
    return Produced(b"z", [None, ints(0, 2, 4), b"abcd"], name=b"value", length=2, **options)


def test_a_sound_struct_is_read():
    assert encode_columns(table(two_values())) == encode_batch([(None, b"ab"), (None, b"cd")])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda outer, inner: setattr(inner.schema, "format", None),
        lambda outer, inner: setattr(inner.schema, "name", None),
        lambda outer, inner: setattr(inner.schema, "format", b"w:-5"),
        lambda outer, inner: setattr(inner.schema, "format", b"w:99999999999999999999"),
        lambda outer, inner: setattr(inner.array, "n_buffers", 1),
        lambda outer, inner: setattr(inner.array, "offset", -(1 << 40)),
        lambda outer, inner: setattr(inner.array, "offset", 1 << 60),
        lambda outer, inner: setattr(inner.array, "length", 1),
        lambda outer, inner: setattr(outer.array, "length", -3),
        lambda outer, inner: setattr(outer.array, "n_children", 0),
        lambda outer, inner: setattr(outer.array, "offset", 2**62 + 1),
        lambda outer, inner: inner.buffers.__setitem__(1, None),
        lambda outer, inner: inner.buffers.__setitem__(2, None),
    ],
)
def test_a_struct_that_contradicts_itself_is_refused(spoil):
    inner = two_values()
    outer = table(inner)
    spoil(outer, inner)
    with pytest.raises(UsageError):
        encode_columns(outer)
    assert outer.released == {"schema": 1, "array": 1}


@pytest.mark.parametrize("ends", [(0, -9, 4), (0, 1000, 4), (-1, 2, 4), (0, 2, -4)])
def test_offsets_that_go_astray_are_refused(ends):
    with pytest.raises(UsageError):
        encode_columns(table(Produced(b"z", [None, ints(*ends), b"abcd"], name=b"value", length=2)))


def headers_column(format, ends, **options):
    """Two records with a header each."""
    name = Produced(b"u", [None, ints(0, 1, 2), b"ab"], name=b"key", length=2, **options)
    value = Produced(b"z", [None, ints(0, 2, 4), b"xyzw"], name=b"value", length=2, **options)
    entry = Produced(b"+s", [None], length=2, children=[name, value])
    return Produced(format, [None, ends], name=b"headers", length=2, children=[entry], **options)


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("offset", [0, 1])
def test_buffers_that_are_not_aligned_are_read_all_the_same(shift, offset):
    at = {"length": 2, "offset": offset, "shift": shift}
    pad = (0,) * offset
    long_value = b"longer than a view"
    words = b"".join(
        [bytes(16) * offset, ints(1) + b"v" + bytes(11), ints(18) + long_value[:4] + ints(0, 0)],
    )
    for value, expected in (
        (Produced(b"z", [None, ints(*pad, 0, 2, 4), b"abcd"], name=b"value", **at), [b"ab", b"cd"]),
        (Produced(b"U", [None, longs(*pad, 0, 2, 4), b"abcd"], name=b"value", **at), [b"ab", b"cd"]),
        (Produced(b"vz", [None, words, long_value, longs(18)], name=b"value", **at), [b"v", long_value]),
        (Produced(b"w:2", [None, b"--" * offset + b"abcd"], name=b"value", **at), [b"ab", b"cd"]),
    ):
        columns = (
            value,
            Produced(b"l", [None, longs(*pad, 5, 9)], name=b"offset", **at),
            Produced(b"tsu:", [None, longs(*pad, 7000, 8000)], name=b"timestamp", **at),
            headers_column(b"+l", ints(0, 1, 2), shift=shift),
        )
        assert list(decode_columns(encode_columns(table(*columns)))) == [
            Record(5, 7, None, expected[0], [("a", b"xy")]),
            Record(9, 8, None, expected[1], [("b", b"zw")]),
        ]
    large = headers_column(b"+L", longs(0, 1, 2), shift=shift)
    milliseconds = Produced(b"l", [None, longs(*pad, 7, 8)], name=b"timestamp", **at)
    assert [
        (record.timestamp, record.headers) for record in decode_columns(encode_columns(table(large, milliseconds)))
    ] == [
        (7, (("a", b"xy"),)),
        (8, (("b", b"zw"),)),
    ]


@pytest.mark.parametrize("null_count", [1, -1])
def test_a_null_header_is_refused_and_one_that_no_record_has_is_not(null_count):
    def headers(first, *ends):
        name = Produced(b"u", [None, ints(0, 1, 2), b"ab"], name=b"key", length=2)
        value = Produced(b"z", [None, ints(0, 2, 4), b"xyzw"], name=b"value", length=2)
        entry = Produced(b"+s", [b"\x02"], length=2, null_count=null_count, children=[name, value])
        return Produced(b"+l", [None, ints(*ends)], name=b"headers", length=2, offset=first, children=[entry])

    with pytest.raises(UsageError, match="header name, row 1: got null, wanted text"):
        encode_columns(table(headers(0, 0, 0, 1)))
    columns = decode_columns(encode_columns(table(headers(1, 0, 1, 2, 2))))
    assert [record.headers for record in columns] == [(("b", b"zw"),), ()]


@pytest.mark.parametrize("kind", ["array", "stream"])
def test_what_is_released_after_the_interpreter_is_gone_does_not_ask_for_it(kind):
    code = f"""if True:
        import ctypes
        from logcore import decode_columns, encode_batch
        from tests.arrow_c import Array, Stream, opened
        kind, name = {{"array": (Array, b"arrow_array"), "stream": (Stream, b"arrow_array_stream")}}["{kind}"]
        columns = decode_columns(encode_batch([(b"k", b"v", 1, [("a", b"b")])]))
        capsule = columns.__arrow_c_array__()[1] if kind is Array else columns.__arrow_c_stream__()
        held = opened(capsule, name, kind)
        # Moved to memory that outlives Python, as a static object of C++ would hold it, and released by exit().
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        moved = libc.malloc(ctypes.sizeof(kind))
        ctypes.memmove(moved, ctypes.addressof(held), ctypes.sizeof(kind))
        release = ctypes.cast(held.release, ctypes.c_void_p)
        held.release = type(held.release)()
        libc.__cxa_atexit(release, ctypes.c_void_p(moved), None)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
def test_a_message_of_two_gibibytes_is_refused_even_if_it_compresses():
    with pytest.raises(MessageTooLargeError):
        encode_batch([(None, bytes(2**31))], magic=1, compression="lz4")
