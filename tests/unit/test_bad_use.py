"""Bad use: every wrong argument is a typed error that says what, where, got and wanted, and nothing is half done."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logcore import (
    Batch,
    BatchIterator,
    BinaryColumn,
    Columns,
    HeadersColumn,
    Record,
    UsageError,
    UsageTypeError,
    ViewColumn,
    assign_offsets,
    concat_batches,
    crc32c,
    decode_batches,
    decode_columns,
    decrement_sequence,
    encode_batch,
    encode_columns,
    encode_empty_batch,
    encode_transaction_marker,
    find_batch,
    first_batch_size,
    increment_sequence,
    murmur2,
    partition_for_key,
    patch_batch,
    scan_batches,
    split_batches,
)
from logcore._checksum import crc32
from logcore.errors import KafkaError, LogcoreError, MessageTooLargeError
from tests.helpers import rows

GOOD = (b"k", b"v")
DATA = encode_batch([GOOD])
COLUMNS = decode_columns(DATA)
READERS = (decode_batches, decode_columns, scan_batches, split_batches, find_batch, first_batch_size)
CODECS_WANTED = "none, gzip, snappy, lz4 or zstd"
RECORD_WANTED = "a Record, or a tuple (key, value[, timestamp[, headers]])"
BUFFER_WANTED = "bytes, or another contiguous buffer of bytes"
READ_IT = f"{BUFFER_WANTED}: read the file first, as in Path(…).read_bytes()"
WRITABLE_WANTED = "a writable contiguous buffer, such as a bytearray"
NO_EMPTY = "at least one: Kafka has no empty batch to write"
ENCODE_IT = 'bytes or None: encode it, as in "…".encode()'


def check(
    error: UsageError, what: str, where: str | None, got: object, wanted: str, kind: type[UsageError] = UsageError
) -> None:
    """All four facts as attributes, and in this order in the text; and the error travels between processes."""
    assert (error.what, error.where, error.got, error.wanted) == (what, where, got, wanted)
    assert type(error) is kind
    place = what if where is None else f"{what}, {where}"
    assert str(error) == f"{place}: got {got}, wanted {wanted}"
    assert isinstance(error, LogcoreError)
    assert isinstance(error, ValueError)
    assert isinstance(error, TypeError) == (kind is UsageTypeError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))


def check_lent(error: UsageError, what: str, where: str | None, got: tuple[str, ...], wanted: str) -> None:
    """A buffer that its owner does not lend: the reason is in the owner's words, which are Python's or numpy's."""
    assert all(word in error.got for word in got), error.got
    check(error, what, where, error.got, wanted, type(error))


def header_with(name: object, value: object) -> list[Any]:
    return [GOOD, (b"k", b"v", 0, [(name, value)])]


# -------------------------------------------------------------------------------------------------- records and rows


@pytest.mark.parametrize("magic", [2, 1, 0])
@pytest.mark.parametrize("records", [None, 5, 1.5, object])
def test_what_cannot_be_iterated_is_no_records(records: object, magic: int) -> None:
    with pytest.raises(UsageTypeError) as caught:
        encode_batch(records, magic=magic)
    check(caught.value, "records", None, type(records).__name__, "an iterable of records", UsageTypeError)


@pytest.mark.parametrize("records", ["abc", b"abc", bytearray(b"abc"), {b"k": b"v"}, Record(value=b"v")])
def test_what_can_be_iterated_but_holds_no_records_is_refused(records: object) -> None:
    with pytest.raises(UsageTypeError) as caught:
        encode_batch(records)
    check(caught.value, "records", None, type(records).__name__, "an iterable of records", UsageTypeError)


@pytest.mark.parametrize("magic", [2, 1, 0])
@pytest.mark.parametrize(
    ("item", "got"),
    [
        (None, "NoneType"),
        ([b"k", b"v"], "list"),
        (b"kv", "bytes"),
        ("kv", "str"),
        (7, "int"),
        ((), "tuple of 0"),
        ((b"k",), "tuple of 1"),
        ((b"k", b"v", 0, (), 0), "tuple of 5"),
    ],
)
def test_an_item_that_is_no_record_is_named_by_its_index(item: object, got: str, magic: int) -> None:
    with pytest.raises(UsageTypeError) as caught:
        encode_batch([GOOD, GOOD, item], magic=magic)
    check(caught.value, "record", "record 2", got, RECORD_WANTED, UsageTypeError)


@pytest.mark.parametrize("magic", [2, 1, 0])
@pytest.mark.parametrize("records", [[], (), iter(())])
def test_a_batch_of_no_records_cannot_be_written(records: object, magic: int) -> None:
    with pytest.raises(UsageError) as caught:
        encode_batch(records, magic=magic)
    check(caught.value, "records", None, "none", NO_EMPTY)


@pytest.mark.parametrize("magic", [2, 1, 0])
@pytest.mark.parametrize(("field", "at"), [("key", 0), ("value", 1)])
@pytest.mark.parametrize(
    ("given", "kind", "got", "wanted"),
    [
        ("text", UsageTypeError, "str", ENCODE_IT),
        (5, UsageTypeError, "int", "bytes or None"),
        (True, UsageTypeError, "bool", "bytes or None"),
        ([1], UsageTypeError, "list", "bytes or None"),
    ],
)
def test_keys_and_values_are_bytes(
    field: str, at: int, given: object, kind: type[UsageError], got: str, wanted: str, magic: int
) -> None:
    pair = [b"k", b"v"]
    pair[at] = given
    with pytest.raises(UsageError) as caught:
        encode_batch([GOOD, tuple(pair)], magic=magic)
    check(caught.value, field, "record 1", got, wanted, kind)
    with pytest.raises(UsageError) as caught:
        Record(**{field: given})
    check(caught.value, field, None, got, wanted, kind)


@pytest.mark.parametrize("magic", [2, 1, 0])
@pytest.mark.parametrize(("field", "at"), [("key", 0), ("value", 1)])
def test_keys_and_values_lie_in_one_piece(field: str, at: int, magic: int) -> None:
    pair = [b"k", b"v"]
    pair[at] = memoryview(b"abcd")[::2]
    with pytest.raises(UsageError) as caught:
        encode_batch([GOOD, tuple(pair)], magic=magic)
    check_lent(caught.value, field, "record 1", ("memoryview: ", "contiguous"), "bytes or None")
    with pytest.raises(UsageError) as caught:
        Record(**{field: memoryview(b"abcd")[::2]})
    check_lent(caught.value, field, None, ("memoryview: ", "contiguous"), "bytes or None")


@pytest.mark.parametrize(
    ("headers", "what", "got", "wanted"),
    [
        (5, "headers", "int", "(name, value) pairs"),
        ("hv", "header", "str", "a (name, value) tuple"),
        ({"h": b"x"}, "headers", "dict", "(name, value) pairs, as its .items() are: a name may come twice"),
        ([None], "header", "NoneType", "a (name, value) tuple"),
        ([["h", b"x"]], "header", "list", "a (name, value) tuple"),
        ([("h",)], "header", "tuple", "a (name, value) tuple"),
        ([("h", b"x", 1)], "header", "tuple", "a (name, value) tuple"),
        ([(b"h", b"x")], "header name", "bytes", "str"),
        ([(None, b"x")], "header name", "NoneType", "str"),
        ([(1, b"x")], "header name", "int", "str"),
        ([("h", "x")], "header value", "str", ENCODE_IT),
        ([("h", 1)], "header value", "int", "bytes or None"),
    ],
)
def test_headers_are_pairs_of_a_str_and_bytes(headers: object, what: str, got: str, wanted: str) -> None:
    with pytest.raises(UsageTypeError) as caught:
        encode_batch([GOOD, (b"k", b"v", 0, headers)])
    check(caught.value, what, "record 1", got, wanted, UsageTypeError)
    with pytest.raises(UsageTypeError) as caught:
        Record(headers=headers)
    check(caught.value, what, None, got, wanted, UsageTypeError)


def test_a_header_name_that_utf_8_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        encode_batch(header_with("\ud800", b"x"))
    check(caught.value, "header name", "record 1", "'\\ud800'", "text that UTF-8 can hold")


@pytest.mark.parametrize("magic", [2, 1, 0])
@pytest.mark.parametrize(
    ("timestamp", "kind", "got", "wanted"),
    [
        ("1", UsageTypeError, "str", "an int, milliseconds since 1970, or None"),
        (1.5, UsageTypeError, "float", "an int, milliseconds since 1970, or None"),
        (b"1", UsageTypeError, "bytes", "an int, milliseconds since 1970, or None"),
        (-2, UsageError, -2, "-1 to 2^63 - 1"),
        (2**63, UsageError, 2**63, "-1 to 2^63 - 1"),
        (1 << 200, UsageError, 1 << 200, "-1 to 2^63 - 1"),
    ],
)
def test_timestamps_are_ints_of_63_bits(
    timestamp: object, kind: type[UsageError], got: object, wanted: str, magic: int
) -> None:
    with pytest.raises(UsageError) as caught:
        encode_batch([GOOD, (b"k", b"v", timestamp)], magic=magic)
    check(caught.value, "timestamp", "record 1", got, wanted, kind)


@pytest.mark.parametrize("field", ["offset", "timestamp"])
@pytest.mark.parametrize(
    ("given", "kind", "got"),
    [
        ("1", UsageTypeError, "str"),
        (1.0, UsageTypeError, "float"),
        (-2, UsageError, -2),
        (2**63, UsageError, 2**63),
        (1 << 200, UsageError, 1 << 200),
    ],
)
def test_the_numbers_of_a_record_are_ints_of_63_bits(
    field: str, given: object, kind: type[UsageError], got: object
) -> None:
    with pytest.raises(UsageError) as caught:
        Record(**{field: given})
    wanted = "an int" if kind is UsageTypeError else f"-1 to {2**63 - 1}"
    check(caught.value, f"{field} of a record", None, got, wanted, kind)


@pytest.mark.parametrize("magic", [2, 1, 0])
def test_an_exception_of_the_callers_generator_comes_out_as_it_is(magic: int) -> None:
    class Mine(Exception):
        pass

    def records() -> Iterator[tuple[bytes, bytes]]:
        yield GOOD
        raise Mine("in the middle")

    def headers() -> Iterator[tuple[str, bytes]]:
        yield ("h", b"x")
        raise Mine("in a header")

    class Number:
        def __index__(self) -> int:
            raise Mine("in an int")

    with pytest.raises(Mine, match="in the middle"):
        encode_batch(records(), magic=magic)
    with pytest.raises(Mine, match="in an int"):
        encode_batch([(b"k", b"v", Number())], magic=magic)
    with pytest.raises(Mine, match="in a header"):
        encode_batch([(b"k", b"v", 0, headers())])
    assert encode_batch([GOOD]) == DATA, "and nothing of it is left behind"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda big: encode_batch(big, batch_bytes_max=100), "batch to encode, record 0: got 271 bytes"),
        (lambda big: encode_batch([GOOD, *big], batch_bytes_max=100), "batch to encode, record 1: got 280 bytes"),
        (lambda big: encode_batch(big, batch_bytes_max=100, magic=1), "batch to encode: got 235 bytes"),
        (
            lambda big: encode_columns(decode_columns(encode_batch(big, base_offset=7)), batch_bytes_max=100),
            "batch of encode_columns, from offset 7: got 271 bytes",
        ),
    ],
)
def test_a_record_over_the_limit_is_kafkas_error_for_it(call: Callable[[Any], bytes], text: str) -> None:
    with pytest.raises(MessageTooLargeError) as caught:
        call([(b"k", b"v" * 200)])
    assert str(caught.value) == f"{text}, wanted at most 100"
    assert isinstance(caught.value, KafkaError)
    assert (caught.value.code, caught.value.name, caught.value.retriable) == (10, "MESSAGE_TOO_LARGE", False)


# ----------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("encode", [lambda **o: encode_batch([GOOD], **o), lambda **o: encode_columns(COLUMNS, **o)])
@pytest.mark.parametrize(
    ("compression", "kind", "got", "wanted"),
    [
        ("brotli", UsageError, "'brotli'", CODECS_WANTED),
        ("GZIP", UsageError, "'GZIP'", CODECS_WANTED),
        ("", UsageError, "''", CODECS_WANTED),
        ("unknown-5", UsageError, "'unknown-5'", CODECS_WANTED),
        (b"gzip", UsageTypeError, "bytes", "str"),
        (1, UsageTypeError, "int", "str"),
    ],
)
def test_a_codec_is_one_of_five_names(
    encode: Callable[..., bytes], compression: object, kind: type[UsageError], got: str, wanted: str
) -> None:
    with pytest.raises(UsageError) as caught:
        encode(compression=compression)
    check(caught.value, "compression", None, got, wanted, kind)


@pytest.mark.parametrize("encode", [lambda **o: encode_batch([GOOD], **o), lambda **o: encode_columns(COLUMNS, **o)])
@pytest.mark.parametrize(
    ("codec", "level", "kind", "got", "wanted"),
    [
        ("gzip", 0, UsageError, 0, "-1 or 1 to 9"),
        ("gzip", 10, UsageError, 10, "-1 or 1 to 9"),
        ("lz4", 0, UsageError, 0, "1 to 17"),
        ("lz4", 18, UsageError, 18, "1 to 17"),
        ("zstd", 23, UsageError, 23, "-131072 to 22"),
        ("zstd", 1 << 100, UsageError, 1 << 100, "-131072 to 22"),
        ("snappy", 1, UsageError, 1, "None, for it has no levels"),
        ("none", 1, UsageError, 1, "None, for it has no levels"),
        ("zstd", "3", UsageTypeError, "str", "an int, -131072 to 22"),
        ("zstd", 3.0, UsageTypeError, "float", "an int, -131072 to 22"),
        ("zstd", True, UsageTypeError, "bool", "an int, -131072 to 22"),
    ],
)
def test_a_level_is_one_that_the_codec_has(
    encode: Callable[..., bytes], codec: str, level: object, kind: type[UsageError], got: object, wanted: str
) -> None:
    with pytest.raises(UsageError) as caught:
        encode(compression=codec, level=level)
    check(caught.value, "compression level", codec, got, wanted, kind)


RANGES = {
    "magic": (0, 2),
    "base_offset": (0, 2**63 - 1),
    "last_offset": (0, 2**63 - 1),
    "now_ms": (-1, 2**63 - 1),
    "log_append_time_ms": (0, 2**63 - 1),
    "delete_horizon_ms": (0, 2**63 - 1),
    "producer_id": (-1, 2**63 - 1),
    "producer_epoch": (-1, 2**15 - 1),
    "base_sequence": (-1, 2**31 - 1),
    "leader_epoch": (-1, 2**31 - 1),
    "batch_bytes_max": (1, 2**31 - 1),
}


@pytest.mark.parametrize("option", RANGES)
def test_the_numbers_among_the_options_have_their_ranges(option: str) -> None:
    low, high = RANGES[option]
    for given in (low - 1, high + 1, -(1 << 100), 1 << 100):
        with pytest.raises(UsageError) as caught:
            encode_batch([GOOD], **{option: given})
        check(caught.value, option, None, given, f"{low} to {high}")
    for given in ("1", 1.5, b"1", [1]):
        with pytest.raises(UsageTypeError) as caught:
            encode_batch([GOOD], **{option: given})
        check(caught.value, option, None, type(given).__name__, "an int", UsageTypeError)


@pytest.mark.parametrize("option", ["magic", "producer_id", "producer_epoch", "base_sequence", "leader_epoch"])
def test_none_is_no_number_where_an_option_has_no_such_default(option: str) -> None:
    with pytest.raises(UsageTypeError) as caught:
        encode_batch([GOOD], **{option: None})
    check(caught.value, option, None, "NoneType", "an int", UsageTypeError)


@pytest.mark.parametrize("option", RANGES)
def test_true_is_no_number(option: str) -> None:
    """It is an int to Python, and a mistake of the caller's: `leader_epoch=True` is meant as something else."""
    with pytest.raises(UsageTypeError) as caught:
        encode_batch([GOOD], **{option: True})
    check(caught.value, option, None, "bool", "an int", UsageTypeError)


def test_true_is_no_number_in_a_record_either() -> None:
    for field in ("offset", "timestamp"):
        with pytest.raises(UsageTypeError) as caught:
            Record(**{field: True})
        check(caught.value, f"{field} of a record", None, "bool", "an int", UsageTypeError)
    with pytest.raises(UsageTypeError) as caught:
        encode_batch([(b"k", b"v", True)])
    check(caught.value, "timestamp", "record 0", "bool", "an int, milliseconds since 1970, or None", UsageTypeError)


@pytest.mark.parametrize("given", ["none", "LogAppendTime", b"create_time", 1, [], ""])
@pytest.mark.parametrize(
    "call",
    [
        lambda given: encode_batch([GOOD], timestamp_type=given),
        lambda given: encode_columns(COLUMNS, timestamp_type=given),
        lambda given: patch_batch(bytearray(DATA), timestamp_type=given, max_timestamp=1),
    ],
    ids=["encode_batch", "encode_columns", "patch_batch"],
)
def test_a_timestamp_type_is_one_of_two_names(call: Callable[[object], object], given: object) -> None:
    with pytest.raises(UsageError) as caught:
        call(given)
    check(caught.value, "timestamp_type", None, repr(given), '"create_time" or "log_append_time"')


def test_the_append_time_comes_with_its_type_and_only_then() -> None:
    with pytest.raises(UsageError) as caught:
        encode_batch([GOOD], timestamp_type="log_append_time")
    check(caught.value, "log_append_time_ms", None, "None", "the append time, with log_append_time")
    with pytest.raises(UsageError) as caught:
        encode_batch([GOOD], log_append_time_ms=5)
    check(caught.value, "log_append_time_ms", None, 5, "None, with create_time")
    with pytest.raises(UsageError) as caught:
        patch_batch(bytearray(DATA), timestamp_type="log_append_time")
    check(caught.value, "max_timestamp", None, "None", "the append time, with log_append_time")


@pytest.mark.parametrize("encode", [lambda **o: encode_batch([GOOD], **o), lambda **o: encode_columns(COLUMNS, **o)])
def test_an_option_that_does_not_exist_is_named(encode: Callable[..., bytes]) -> None:
    with pytest.raises(TypeError, match="compresion"):
        encode(compresion="gzip")


# ----------------------------------------------------------------------------------------------------------- buffers


@pytest.mark.parametrize("read", [*READERS, crc32c, crc32, murmur2])
@pytest.mark.parametrize("given", [None, 5, [1, 2], object()])
def test_what_has_no_bytes_is_no_buffer(read: Callable[[Any], object], given: object) -> None:
    with pytest.raises(UsageTypeError) as caught:
        read(given)
    what = {"crc32c": "data", "crc32": "data", "murmur2": "key"}.get(read.__name__, "buffer")
    check(caught.value, what, None, type(given).__name__, BUFFER_WANTED, UsageTypeError)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("given", ["00.log", Path("00.log"), io.BytesIO(DATA)])
def test_a_file_in_place_of_its_bytes_is_refused_with_how_to_read_it(
    read: Callable[[Any], object], given: object
) -> None:
    with pytest.raises(UsageTypeError) as caught:
        read(given)
    check(caught.value, "buffer", None, type(given).__name__, READ_IT, UsageTypeError)


@pytest.mark.parametrize(("read", "what"), [(crc32c, "data"), (murmur2, "key")])
def test_text_to_hash_is_refused_with_how_to_encode_it(read: Callable[[Any], object], what: str) -> None:
    with pytest.raises(UsageTypeError) as caught:
        read("text")
    check(caught.value, what, None, "str", f'{BUFFER_WANTED}: encode it, as in "…".encode()', UsageTypeError)


@pytest.mark.parametrize("read", READERS)
def test_a_released_buffer_is_refused(read: Callable[[Any], object]) -> None:
    view = memoryview(DATA)
    view.release()
    with pytest.raises(UsageError) as caught:
        read(view)
    check_lent(caught.value, "buffer", None, ("memoryview: ", "released"), BUFFER_WANTED)


@pytest.mark.parametrize("read", READERS)
def test_a_buffer_with_gaps_is_refused(read: Callable[[Any], object]) -> None:
    for kind, buffer in (
        ("memoryview: ", memoryview(DATA * 2)[::2]),
        ("ndarray: ", np.frombuffer(DATA * 2, dtype=np.uint8)[::2]),
    ):
        with pytest.raises(UsageError) as caught:
            read(buffer)
        check_lent(caught.value, "buffer", None, (kind, "contiguous"), BUFFER_WANTED)


@pytest.mark.parametrize("read", READERS)
def test_a_contiguous_buffer_of_another_item_size_is_its_bytes(read: Callable[[Any], object]) -> None:
    assert len(DATA) % 2 == 0
    wide = np.frombuffer(DATA, dtype=np.uint16)
    square = np.frombuffer(DATA, dtype=np.uint8).reshape(2, -1)
    for buffer in (wide, square, bytearray(DATA), memoryview(DATA)):
        if read is decode_batches:
            assert rows(buffer) == rows(DATA)
        elif read is split_batches:
            assert [bytes(part) for part in split_batches(buffer)] == [DATA]
        elif read is first_batch_size:
            assert first_batch_size(buffer) == len(DATA)
        elif read is find_batch:
            assert find_batch(buffer) == 0
        elif read is scan_batches:
            assert scan_batches(buffer).consumed == len(DATA)
        else:
            assert list(decode_columns(buffer)) == rows(DATA)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda buffer: patch_batch(buffer, leader_epoch=1), "batch to patch"),
        (lambda buffer: assign_offsets(buffer, 5), "buffer to number"),
    ],
)
def test_what_is_changed_in_place_must_be_writable(change: Callable[[Any], object], what: str) -> None:
    for buffer in (DATA, memoryview(bytearray(DATA)).toreadonly()):
        before = bytes(buffer)
        with pytest.raises(UsageTypeError) as caught:
            change(buffer)
        assert caught.value.what == what
        assert caught.value.got.startswith(type(buffer).__name__)
        assert "writable" in caught.value.got
        assert caught.value.wanted == WRITABLE_WANTED
        assert bytes(buffer) == before
    view = memoryview(bytearray(DATA))
    view.release()
    with pytest.raises(UsageError, match="released"):
        change(view)
    with pytest.raises(UsageTypeError, match="contiguous"):
        change(memoryview(bytearray(DATA * 2))[::2])
    for given in ("text", None, 5):
        with pytest.raises(UsageTypeError, match=f"got {type(given).__name__}, wanted"):
            change(given)


def test_buffers_to_join_are_buffers() -> None:
    for given, got, wanted in (
        ([None], "NoneType", BUFFER_WANTED),
        ([DATA, "text"], "str", READ_IT),
        ([5], "int", BUFFER_WANTED),
    ):
        with pytest.raises(UsageTypeError) as caught:
            concat_batches(given)
        assert (caught.value.got, caught.value.wanted) == (got, wanted)
    for given in (None, 5, b"ab", "ab"):
        with pytest.raises(UsageTypeError, match="wanted an iterable of buffers"):
            concat_batches(given)


@pytest.mark.parametrize("read", [decode_batches, decode_columns])
@pytest.mark.parametrize(
    ("option", "low", "high"),
    [
        ("max_decompressed_bytes", 1, 2**63 - 1),
        ("batch_bytes_max", 1, 2**31 - 1),
        ("base_position", 0, 2**63 - 1 - len(DATA)),
    ],
)
def test_the_limits_of_a_reader_have_their_ranges(
    read: Callable[..., object], option: str, low: int, high: int
) -> None:
    for given in (low - 1, high + 1, 1 << 100):
        with pytest.raises(UsageError) as caught:
            read(DATA, **{option: given})
        check(caught.value, option, None, given, f"{low} to {high}")
    with pytest.raises(UsageTypeError) as caught:
        read(DATA, **{option: "1"})
    check(caught.value, option, None, "str", "an int", UsageTypeError)


@pytest.mark.parametrize("read", [decode_batches, decode_columns])
def test_none_is_no_position(read: Callable[..., object]) -> None:
    with pytest.raises(UsageTypeError) as caught:
        read(DATA, base_position=None)
    check(caught.value, "base_position", None, "NoneType", "an int", UsageTypeError)


@pytest.mark.parametrize("read", [scan_batches, find_batch])
@pytest.mark.parametrize("given", [None, 1.0, "1"])
def test_a_position_is_an_int(read: Callable[..., object], given: object) -> None:
    with pytest.raises(UsageTypeError) as caught:
        read(DATA, position=given)
    check(caught.value, "position in the buffer", None, type(given).__name__, "an int", UsageTypeError)


@pytest.mark.parametrize("size", [0, 16, 17, len(DATA)])
def test_a_wrong_limit_is_told_whatever_the_buffer_holds(size: int) -> None:
    with pytest.raises(UsageError) as caught:
        first_batch_size(DATA[:size], batch_bytes_max=0)
    check(caught.value, "batch_bytes_max", None, 0, f"1 to {2**31 - 1}")


# ----------------------------------------------------------------------------------------------------------- columns


@pytest.mark.parametrize("layout", [None, "arrow", b"view", 1, "View"])
def test_a_layout_is_one_of_two_names(layout: object) -> None:
    with pytest.raises(UsageError) as caught:
        decode_columns(DATA, layout=layout)
    check(caught.value, "layout", None, repr(layout), '"binary" or "view"')


@pytest.mark.parametrize(
    ("columns", "kind", "got", "wanted"),
    [
        ("offset", UsageTypeError, "str", 'a sequence of names, as in ("offset", "value")'),
        (5, UsageTypeError, "int", 'a sequence of names, as in ("offset", "value")'),
        ((), UsageError, "()", "one name or more, each once"),
        (("key", "key"), UsageError, "('key', 'key')", "one name or more, each once"),
        (
            ("key", "vlaue"),
            UsageError,
            "'vlaue'",
            "names out of offset, timestamp, timestamp_type, key, value, headers",
        ),
        ((b"key",), UsageError, "b'key'", "names out of offset, timestamp, timestamp_type, key, value, headers"),
        ((None,), UsageError, "None", "names out of offset, timestamp, timestamp_type, key, value, headers"),
    ],
)
def test_columns_are_names_that_exist_each_once(columns: object, kind: type[UsageError], got: str, wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode_columns(DATA, columns=columns)
    check(caught.value, "columns", None, got, wanted, kind)


def test_a_column_that_was_not_decoded_or_lies_in_chunks_says_so() -> None:
    with pytest.raises(UsageError) as caught:
        _ = decode_columns(DATA, columns=("offset", "value")).key
    check(caught.value, "key", None, "columns offset, value", "a column that was decoded")
    chunked = decode_columns(DATA * 2, chunk_bytes_max=1)
    with pytest.raises(UsageError) as caught:
        _ = chunked.value
    check(caught.value, "value", None, "columns in 2 chunks", "one chunk: take it from .chunks")
    for column in (COLUMNS.key, COLUMNS.headers, decode_columns(DATA, layout="view").value):
        assert column[-1] == column[0]
        for index in (1, -2, 1 << 40, 1 << 80, -(1 << 63)):
            with pytest.raises(IndexError):
                _ = column[index]


@pytest.mark.parametrize("made", [Batch, BatchIterator, Columns, BinaryColumn, ViewColumn, HeadersColumn])
def test_what_only_the_codec_can_make_says_how_to_get_it(made: type) -> None:
    with pytest.raises(UsageTypeError) as caught:
        made()
    assert (caught.value.what, caught.value.got) == (made.__name__, "a call")
    assert caught.value.wanted.startswith("decode_")


def array(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize(
    ("columns", "kind", "what", "where", "got"),
    [
        (None, UsageTypeError, "columns", None, "NoneType"),
        ("text", UsageTypeError, "columns", None, "str"),
        ([GOOD], UsageTypeError, "columns", None, "list"),
        ({"value": [b"x"]}, UsageTypeError, "columns", "'value'", "list"),
        ({"value": np.array([1])}, UsageTypeError, "columns", "'value'", "ndarray"),
        (
            {"value": array(b"a", b"b"), "offset": pa.array([1, 2**63], pa.uint64())},
            UsageError,
            "offset",
            "row 1",
            2**63,
        ),
        ({}, UsageError, "columns", None, "no rows"),
        ({"value": array()}, UsageError, "columns", None, "no rows"),
        ({"value": pa.array([1, 2])}, UsageTypeError, "column type", "value", "int64"),
        (
            {"value": pa.array(["a"]).dictionary_encode()},
            UsageTypeError,
            "column type",
            "value",
            "dictionary of utf8",
        ),
        ({"value": array(b"a", b"b"), "key": array(b"a")}, UsageError, "columns", "'key'", "1 rows"),
        ({"vlaue": array(b"a")}, UsageError, "columns", None, "a column named 'vlaue'"),
        (pa.table({"value": array(b"a"), "zip": array(b"b")}), UsageError, "columns", None, "a column named 'zip'"),
        ({"value": array(b"a", b"b"), "offset": pa.array([1, None])}, UsageError, "offset", "row 1", "null"),
        ({"value": array(b"a", b"b"), "offset": pa.array([5, 5])}, UsageError, "offset", "row 1", 5),
        ({"value": array(b"a"), "offset": pa.array([-3])}, UsageError, "offset", "row 0", -3),
        ({"offset": pa.array([1.0], pa.float32())}, UsageTypeError, "column type", "offset", "float32"),
        ({"value": array(b"a", b"b"), "timestamp": pa.array([1, -2])}, UsageError, "timestamp", "row 1", -2),
        ({"timestamp": pa.array([1.5])}, UsageTypeError, "column type", "timestamp", "float64"),
        (
            {"value": array(b"a"), "timestamp": pa.array([2**62], pa.timestamp("s"))},
            UsageError,
            "timestamp",
            "row 0",
            f"{2**62} s",
        ),
        (
            {"headers": pa.array([[{"key": None, "value": b"x"}]])},
            UsageError,
            "header name",
            "row 0",
            "null",
        ),
        ({"headers": pa.array([[1]])}, UsageTypeError, "column type", "headers", "int64"),
        ({"headers": pa.array(["x"])}, UsageTypeError, "column type", "headers", "utf8"),
        (array(b"a"), UsageTypeError, "columns", None, "an array of binary"),
        (
            pa.array([{"value": b"a"}, None]),
            UsageError,
            "columns",
            "row 1",
            "null",
        ),
        ({5: array(b"a")}, UsageTypeError, "name of a column", None, "int"),
    ],
)
def test_columns_to_write_are_checked_like_rows(
    columns: object, kind: type[UsageError], what: str, where: str | None, got: object
) -> None:
    with pytest.raises(UsageError) as caught:
        encode_columns(columns)
    check(caught.value, what, where, got, caught.value.wanted, kind)


BYTES_WANTED = "binary, utf8, their large and view forms, fixed_size_binary or null"
TIMES_WANTED = "integer milliseconds or a timestamp"


@pytest.mark.parametrize(
    ("name", "given", "got", "wanted"),
    [
        ("value", pa.array([1.5]), "float64", f"{BYTES_WANTED}: cast it to utf8 for its text"),
        ("value", pa.array([True]), "bool", f"{BYTES_WANTED}: cast it to utf8 for its text"),
        ("key", pa.array([[1]]), "list", BYTES_WANTED),
        ("key", pa.array([{"a": 1}]), "struct", BYTES_WANTED),
        ("key", pa.array([1], pa.decimal128(5, 2)), "decimal", f"{BYTES_WANTED}: cast it to utf8 for its text"),
        (
            "key",
            pa.array([b"a"]).dictionary_encode(),
            "dictionary of binary",
            "plain bytes or text: cast it to binary or utf8",
        ),
        ("offset", pa.array([1.0]), "float64", "integers: cast it to int64"),
        ("offset", pa.array([1]).dictionary_encode(), "dictionary of int64", "integers: cast it to int64"),
        ("offset", pa.array([1], pa.timestamp("ms")), "timestamp[ms]", "integers"),
        ("timestamp", pa.array([1], pa.date32()), "date32", f"{TIMES_WANTED}: cast it to timestamp"),
        ("timestamp", pa.array([1], pa.date64()), "date64", f"{TIMES_WANTED}: cast it to timestamp"),
        ("timestamp", pa.array([1], pa.time32("s")), "time32[s]", TIMES_WANTED),
        ("timestamp", pa.array([1], pa.duration("ns")), "duration[ns]", TIMES_WANTED),
        ("timestamp", pa.array(["2024-01-01"]), "utf8", f"{TIMES_WANTED}: cast it to timestamp"),
    ],
)
def test_a_column_of_a_wrong_type_is_told_by_the_name_of_its_type_and_what_to_cast_it_to(
    name: str, given: pa.Array, got: str, wanted: str
) -> None:
    with pytest.raises(UsageTypeError) as caught:
        encode_columns({name: given})
    check(caught.value, "column type", name, got, wanted, UsageTypeError)


@pytest.mark.parametrize(
    ("name", "given", "cast"),
    [
        ("value", pa.array([1.5]), pa.utf8()),
        ("key", pa.array([1], pa.decimal128(5, 2)), pa.utf8()),
        ("key", pa.array(["a"]).dictionary_encode(), pa.utf8()),
        ("offset", pa.array([1.0]), pa.int64()),
        ("offset", pa.array([1]).dictionary_encode(), pa.int64()),
        ("timestamp", pa.array([1], pa.date32()), pa.timestamp("ms")),
        ("timestamp", pa.array([1], pa.date64()), pa.timestamp("ms")),
        ("timestamp", pa.array(["2024-01-01"]), pa.timestamp("ms")),
    ],
)
def test_the_cast_that_an_error_names_helps(name: str, given: pa.Array, cast: pa.DataType) -> None:
    assert len(decode_columns(encode_columns({name: given.cast(cast)}))) == 1


def test_the_options_of_columns_have_their_ranges() -> None:
    for given in (0, 2**31):
        with pytest.raises(UsageError) as caught:
            encode_columns(COLUMNS, batch_bytes=given)
        check(caught.value, "batch_bytes", None, given, f"1 to {2**31 - 1}")
    for given in (None, "1", 1.5):
        with pytest.raises(UsageTypeError) as caught:
            encode_columns(COLUMNS, batch_bytes=given)
        check(caught.value, "batch_bytes", None, type(given).__name__, "an int", UsageTypeError)
    for given in (0, 2**31):
        with pytest.raises(UsageError) as caught:
            decode_columns(DATA, chunk_bytes_max=given)
        check(caught.value, "chunk_bytes_max", None, given, f"1 to {2**31 - 1}")


# ------------------------------------------------------------------------------------------------- the smaller doors


@pytest.mark.parametrize(
    ("call", "what", "low", "high"),
    [
        (lambda given: assign_offsets(bytearray(DATA), given), "base_offset", 0, 2**63 - 1),
        (lambda given: assign_offsets(bytearray(DATA), 0, leader_epoch=given), "leader_epoch", -1, 2**31 - 1),
        (lambda given: encode_empty_batch(given, 2**62), "base_offset", 0, 2**63 - 1),
        (lambda given: encode_empty_batch(0, given), "last_offset", 0, 2**31 - 1),
        (lambda given: encode_empty_batch(0, 0, max_timestamp=given), "max_timestamp", -1, 2**63 - 1),
        (
            lambda given: encode_transaction_marker(1, 0, commit=True, coordinator_epoch=given),
            "coordinator_epoch",
            0,
            2**31 - 1,
        ),
        (lambda given: increment_sequence(given, 1), "sequence", 0, 2**31 - 1),
        (lambda given: increment_sequence(1, given), "increment", 0, 2**31 - 1),
        (lambda given: decrement_sequence(given, 1), "sequence", 0, 2**31 - 1),
        (lambda given: decrement_sequence(1, given), "decrement", 0, 2**31 - 1),
    ],
)
class TestNumbersOfTheSmallerFunctions:
    def test_they_have_their_ranges(self, call: Callable[[object], object], what: str, low: int, high: int) -> None:
        for given in (low - 1, high + 1, 1 << 100):
            with pytest.raises(UsageError) as caught:
                call(given)
            check(caught.value, what, None, given, f"{low} to {high}")

    @pytest.mark.parametrize("given", [None, "1", 1.5, True])
    def test_they_are_ints(
        self, call: Callable[[object], object], what: str, low: int, high: int, given: object
    ) -> None:
        with pytest.raises(UsageTypeError) as caught:
            call(given)
        check(caught.value, what, None, type(given).__name__, "an int", UsageTypeError)


@pytest.mark.parametrize("producer_id", [-1, 2**63])
def test_a_marker_needs_a_producer(producer_id: int) -> None:
    with pytest.raises(UsageError) as caught:
        encode_transaction_marker(producer_id, 0, commit=True, coordinator_epoch=0)
    assert (caught.value.what, caught.value.got) == ("producer_id", producer_id)


def test_an_empty_batch_ends_where_it_begins_or_later() -> None:
    with pytest.raises(UsageError) as caught:
        encode_empty_batch(5, 4)
    check(caught.value, "last_offset", None, 4, f"5 to {5 + 2**31 - 1}")


@pytest.mark.parametrize("checksum", [crc32c, crc32])
def test_a_checksum_goes_on_from_an_int_of_32_bits(checksum: Callable[..., int]) -> None:
    for given in (-1, 2**32, 1 << 100):
        with pytest.raises(UsageError) as caught:
            checksum(b"", given)
        check(caught.value, "crc to continue from", None, given, f"0 to {2**32 - 1}")
    for given in (None, "1", 1.5):
        with pytest.raises(UsageTypeError) as caught:
            checksum(b"", given)
        assert (caught.value.what, caught.value.got) == ("crc to continue from", type(given).__name__)


def test_a_count_of_partitions_is_an_int_from_1_on() -> None:
    for given in (0, -1, 2**31, 1 << 100):
        with pytest.raises(UsageError) as caught:
            partition_for_key(b"k", given)
        check(caught.value, "partition_count", None, given, "1 to 2147483647")
    for given in (None, "1", 1.5):
        with pytest.raises(UsageTypeError) as caught:
            partition_for_key(b"k", given)
        assert (caught.value.what, caught.value.got) == ("partition_count", type(given).__name__)
