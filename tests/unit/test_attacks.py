"""Attacks that once worked, each kept out by a test: lifetimes, objects that lie, structs that lie about themselves."""

import array
import ctypes
import pickle
import signal
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from logcore import (
    LogcoreError,
    Record,
    UsageError,
    UsageTypeError,
    assign_offsets,
    concat_batches,
    convert_batches,
    decode_batches,
    decode_columns,
    encode_batch,
    encode_columns,
    encode_empty_batch,
    find_batch,
    first_batch_size,
    increment_sequence,
    partition_for_key,
    patch_batch,
    scan_batches,
    split_batches,
    validate,
    validate_and_assign,
)
from logcore.errors import MessageTooLargeError
from tests.arrow_c import GetNext, Produced, ProducedStream, table

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


@pytest.mark.parametrize(
    "use",
    [
        lambda number: scan_batches(DATA, position=number),
        lambda number: encode_batch([(b"k", b"v", number)]),
        lambda number: encode_batch([(b"k", b"v")], compression="zstd", level=number),
        lambda number: convert_batches(DATA, 2, level=number),
        lambda number: validate(DATA, now_ms=5, level=number),
        lambda number: Record(offset=number),
        lambda number: decode_columns(DATA, chunk_bytes_max=number),
    ],
)
def test_a_number_too_long_to_write_out_is_told_by_its_length(use):
    with pytest.raises(UsageError) as caught:
        use(10**5000)
    assert "got an int of 16610 bits" in str(caught.value)


@pytest.mark.parametrize("read", [lambda *given, **options: list(decode_batches(*given, **options)), decode_columns])
def test_positions_do_not_pass_the_largest_int64(read):
    end = 2**63 - 1
    read(DATA, base_position=end - len(DATA))
    with pytest.raises(UsageError, match=f"base_position: got {end}, wanted 0 to {end - len(DATA)}"):
        read(DATA, base_position=end)


def test_lists_tuples_and_texts_that_lie_about_themselves_are_taken_for_what_they_are():
    class Records(list):
        def __len__(self):
            return 1 << 62

    class Pair(tuple):
        def __len__(self):
            return 2

    class Name(str):
        def encode(self, *_):
            return 5

    rows = [(b"k", b"v" * 100)] * 3
    assert encode_batch(Records(rows)) == encode_batch(rows)
    assert encode_batch([(b"k", b"v", 1, [(Name("a"), b"b")])]) == encode_batch([(b"k", b"v", 1, [("a", b"b")])])
    with pytest.raises(UsageTypeError, match=r"header, record 0: got Pair, wanted a \(name, value\) tuple"):
        encode_batch([(b"k", b"v", 1, [Pair(("a",))])])


def test_a_forked_process_reads_on():
    code = """if True:
        import os
        from logcore import decode_columns, encode_batch, encode_columns
        data = encode_batch([(b"k", b"v" * 100, 5, [("a", b"b")])] * 1000)
        columns = decode_columns(data, layout="view")
        stream = columns.__arrow_c_stream__()
        child = os.fork()
        if not child:
            same = list(columns) == list(decode_columns(data)) and encode_columns(columns) == data
            del stream, columns
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


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


# ------------------------------------------------------------------------------------------ streams of other producers


def test_a_stream_is_read_to_its_end_and_each_array_released_once():
    made = [table(two_values()) for _ in range(3)]
    stream = ProducedStream(made[0].schema, [one.array for one in made])
    assert encode_columns(stream) == encode_batch([(None, b"ab"), (None, b"cd")] * 3)
    assert [one.released["array"] for one in made] == [1, 1, 1]
    assert made[0].released["schema"] == 1


@pytest.mark.parametrize("error", [b"out of tape", b"\xff\xfe", b"", None])
def test_a_stream_that_fails_midway_is_told_and_what_it_gave_released(error):
    made = [table(two_values()) for _ in range(2)]
    stream = ProducedStream(made[0].schema, [made[0].array, made[1].array, 5], error)
    shown = "unknown" if error is None else error.decode("utf-8", "replace")
    with pytest.raises(UsageError, match=f"Arrow stream: got error 5 of its producer: {shown}, wanted arrays"):
        encode_columns(stream)
    assert [one.released["array"] for one in made] == [1, 1]
    with pytest.raises(UsageError, match="error 7"):
        encode_columns(ProducedStream(7, []))
    with pytest.raises(UsageError, match="no schema"):
        encode_columns(ProducedStream(None, []))


@pytest.mark.parametrize("missing", ["get_schema", "get_next", "get_last_error", "release"])
def test_a_stream_without_one_of_its_functions_is_refused(missing):
    stream = ProducedStream(table(two_values()).schema, [9])
    setattr(stream.struct, missing, type(getattr(stream.struct, missing))())
    with pytest.raises(UsageError, match="Arrow stream"):
        encode_columns(stream)


def test_a_stream_that_is_released_while_it_is_read_is_refused():
    made = table(two_values())
    stream = ProducedStream(made.schema, [])

    def get_next(given, out):
        given.contents.release(given)
        out[0] = made.array
        return 0

    stream.struct.get_next = GetNext(get_next)
    with pytest.raises(UsageError, match="released while it was read"):
        encode_columns(stream)
    assert made.released == {"schema": 1, "array": 1}


@pytest.mark.parametrize("pair", [None, 5, (), (1,), [1, 2], (1, 2, 3), (None, None)])
def test_a_producer_that_hands_out_no_pair_of_capsules_is_refused(pair):
    class Wrong:
        def __arrow_c_array__(self, requested_schema=None):
            return pair

    with pytest.raises(UsageError):
        encode_columns(Wrong())


# ------------------------------------------------------------------------------------------------------- odd buffers


def odd_buffers():
    """Buffers of every shape and kind around the bytes of some batches, a part of one behind them."""
    data = DATA + bytes(-len(DATA) % 8)
    yield from (np.frombuffer(data, kind).copy() for kind in ("i8", ">i8", "?", "M8[s]", "i4,i4", f"S{len(data)}"))
    yield np.frombuffer(data, f"V{len(data)}").reshape(())
    yield np.frombuffer(data, "u1").reshape(-1, 8).copy()
    yield np.asfortranarray(np.frombuffer(data, "u1").reshape(-1, 8))
    yield np.zeros((0, 5), "u1")
    yield np.array([object()])
    yield from (memoryview(bytearray(data)).cast(kind) for kind in "bc")
    yield memoryview(bytearray(data)).cast("B", (len(data) // 8, 8))
    yield from (memoryview(data)[::-1], memoryview(b""), bytearray(), b"")
    released = memoryview(data)
    released.release()
    yield released
    yield from (pickle.PickleBuffer(data), array.array("i", data), array.array("d"))
    yield (ctypes.c_char * len(data)).from_buffer_copy(data)
    yield from ("text", None, 5, [1], object())


@pytest.mark.parametrize(
    "use",
    [
        decode_columns,
        lambda data: list(decode_columns(data, layout="view")),
        lambda data: [list(batch) for batch in decode_batches(data)],
        scan_batches,
        find_batch,
        split_batches,
        lambda data: concat_batches([data]),
        first_batch_size,
        lambda data: convert_batches(data, 2, compression="lz4"),
        lambda data: validate(data, now_ms=9),
        lambda data: repr(validate_and_assign(data, now_ms=9, first_offset=0)),
        lambda data: repr(validate_and_assign(data, now_ms=9, first_offset=0, compression="lz4")),
        lambda data: repr(validate_and_assign(data, now_ms=9, first_offset=0, origin="replication")),
        lambda data: patch_batch(data, leader_epoch=3),
        lambda data: assign_offsets(data, 3),
    ],
)
def test_any_buffer_is_read_or_refused(use):
    for data in odd_buffers():
        try:
            use(data)
        except LogcoreError:
            continue


def test_batches_of_a_buffer_that_python_cannot_name_are_split():
    dates = np.frombuffer(DATA * 8, "M8[s]")
    assert [bytes(part) for part in split_batches(dates)] == [DATA] * 8


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python classes cannot lend buffers")
def test_a_buffer_that_is_another_each_time_is_written_only_where_it_was_read():
    class Shrinking:
        def __init__(self):
            self.lent = [bytearray(DATA), bytearray(DATA * 1000)]

        def __buffer__(self, flags):
            return memoryview(self.lent[0] if len(self.lent) == 1 else self.lent.pop(0))

    assert assign_offsets(Shrinking(), 7) == 10


@pytest.mark.full
def test_a_message_of_two_gibibytes_is_refused_even_if_it_compresses():
    with pytest.raises(MessageTooLargeError):
        encode_batch([(None, bytes(2**31))], magic=1, compression="lz4")
