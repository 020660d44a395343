"""The reader of files: what it tells apart, in bounded memory, whatever the bytes are and however they arrive."""

import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcore import Batch, CorruptionReason, StorageError, UsageError, decode_batches, encode_batch
from logcore.cli import _reader
from logcore.cli._reader import BatchReader, Damage, Partial, Skipped, Source, Zeros, open_source


def batch_at(offset, value=b"value", **options):
    return encode_batch([(b"k", value, 1700000000000)], base_offset=offset, **options)


def events_of(data, *, chunk=None, position=0, **options):
    """The events of `data`, each in a form that can be compared; `chunk`: how much one read gives at most."""
    at = position

    def read(count):
        nonlocal at
        part = data[at : at + min(count, chunk or count)]
        at += len(part)
        return part

    found = []
    for event in BatchReader(Source("some.log", read, len(data)), position=position, **options):
        if isinstance(event, Batch):
            found.append(("batch", event.position, event.last_offset))
        elif isinstance(event, Damage):
            found.append(("damage", event.error.position, event.error.reason))
        else:
            found.append(event)
    return found


def flipped(data, position, bits=1):
    return data[:position] + bytes([data[position] ^ bits]) + data[position + 1 :]


def test_whole_batches_come_with_their_positions_in_the_file():
    first, second = batch_at(0), batch_at(1)
    data = b"junk" + first + second
    assert events_of(data, position=4) == [("batch", 4, 0), ("batch", 4 + len(first), 1)]


@pytest.mark.parametrize("chunk", [1, 7, 61, 100])
def test_how_the_bytes_arrive_changes_nothing(chunk):
    first, second = batch_at(0), batch_at(1, b"x" * 300)
    hole = first + bytes(500) + second + first[:-1] + b"\xff" + second + bytes(40)
    for data in (first + second, first + second[:30], first + bytes(100), hole, b"", first + b"\0" * 3):
        for salvage in (False, True):
            assert events_of(data, chunk=chunk, salvage=salvage) == events_of(data, salvage=salvage)


def test_damage_without_salvage_is_the_last_event():
    first, second = batch_at(0), batch_at(1)
    data = flipped(first, 70) + second
    assert events_of(data) == [("damage", 0, CorruptionReason.CRC)]


def test_an_error_names_the_file():
    [event] = BatchReader(Source("some.log", _once(b"x" * 40), 40))
    assert event.error.path == "some.log"


def _once(data):
    parts = iter([data, b""])
    return lambda _: next(parts)


def test_batches_inside_the_value_of_a_damaged_batch_are_not_taken_for_the_logs_own():
    forged = batch_at(1000) + batch_at(1001)
    outer, after = batch_at(0, forged), batch_at(1)
    data = flipped(outer, len(outer) - 1) + after
    assert events_of(data, salvage=True) == [
        ("damage", 0, CorruptionReason.CRC),
        Skipped(0, len(outer), is_end=False),
        ("batch", len(outer), 1),
    ]
    assert events_of(flipped(outer, len(outer) - 1), salvage=True)[1:] == [Skipped(0, len(outer), is_end=True)]


def test_a_size_that_is_wrong_does_not_hide_the_batches_behind_it():
    first, second, third = batch_at(0), batch_at(1), batch_at(2)
    size = len(first)
    for damaged in (flipped(second, 11, 4), flipped(second, 10, 0x40), flipped(second, 8, 0x40)):
        events = events_of(first + damaged + third, salvage=True)
        assert events[0] == ("batch", 0, 0)
        assert events[1][:2] == ("damage", size)
        assert events[2:] == [Skipped(size, size, is_end=False), ("batch", 2 * size, 2)]


def test_a_wrong_size_that_ends_where_a_later_batch_ends_does_not_hide_that_one():
    first, second, third = batch_at(0), batch_at(1), batch_at(2)
    size = len(first)
    longer = first[:8] + (2 * size - 12).to_bytes(4, "big") + first[12:]
    assert events_of(longer + second + third, salvage=True) == [
        ("damage", 0, CorruptionReason.CRC),
        Skipped(0, size, is_end=False),
        ("batch", size, 1),
        ("batch", 2 * size, 2),
    ]


def test_a_damaged_frame_whose_size_leads_to_a_batch_is_believed_over_a_batch_inside_it():
    first, second = batch_at(0), batch_at(1)
    # The batch inside begins at byte 8, so its base offset is the size field of the frame around it.
    inside = encode_batch([(b"k", b"value", 1700000000000)], base_offset=(len(first) - 4) << 32)
    assert events_of(b"\xff" * 8 + inside + second, salvage=True) == [
        ("damage", 0, CorruptionReason.CRC),
        Skipped(0, 8 + len(first), is_end=False),
        ("batch", 8 + len(first), 1),
    ]


def test_a_batch_that_the_end_of_the_file_cuts_is_partial_not_damaged():
    first, second = batch_at(0), batch_at(1)
    for cut in range(1, len(second)):
        [_, event] = events_of(first + second[:cut])
        if any(second[:cut]):
            assert event == Partial(len(first), cut, len(second) if cut >= 17 else None)
        else:  # the first bytes of an offset are zeros
            assert event == Zeros(len(first), cut)


@pytest.mark.parametrize("count", [1, 11, 12, 17, 5000])
def test_zeros_up_to_the_end_are_told_as_zeros(count):
    first = batch_at(0)
    for salvage in (False, True):
        assert events_of(first + bytes(count), salvage=salvage) == [("batch", 0, 0), Zeros(len(first), count)]


def test_a_batch_at_offset_0_behind_a_hole_is_found_though_it_begins_with_zeros(monkeypatch):
    monkeypatch.setattr(_reader, "CHUNK_BYTES", 64)
    data = bytes(1000) + batch_at(0)
    assert events_of(data, salvage=True) == [
        ("damage", 0, CorruptionReason.BATCH_SIZE),
        Skipped(0, 1000, is_end=False),
        ("batch", 1000, 0),
    ]


@pytest.mark.parametrize("extra", [-1, 0, 1, 50])
def test_zeros_of_many_blocks_end_where_the_first_other_byte_is(extra):
    count = 3 * _reader._BLOCK_BYTES + extra
    assert events_of(bytes(count)) == [Zeros(0, count)]
    assert events_of(bytes(count) + batch_at(5 << 56), salvage=True)[1:] == [
        Skipped(0, count, is_end=False),
        ("batch", count, 5 << 56),
    ]


@pytest.mark.parametrize("gap", [50, 399, 400, 401, 5000])
def test_a_batch_that_lies_across_the_windows_of_a_search_is_found(gap, monkeypatch):
    monkeypatch.setattr(_reader, "CHUNK_BYTES", 100)
    monkeypatch.setattr(_reader, "SEARCH_BATCH_BYTES", 400)
    second = batch_at(1, b"x" * 330)
    assert 350 < len(second) < 412
    events = events_of(b"\xff" * gap + second, salvage=True)
    assert events[1:] == [Skipped(0, gap, is_end=False), ("batch", gap, 1)]


def test_a_batch_over_the_limit_is_refused_before_it_is_read():
    reads = []

    def read(count):
        reads.append(count)
        return large[: _reader.CHUNK_BYTES] if len(reads) == 1 else b""

    large = batch_at(0, b"x" * 5000)
    [event] = BatchReader(Source("some.log", read, None), batch_bytes_max=1000)
    assert event.error.reason is CorruptionReason.BATCH_SIZE
    assert len(reads) == 1


def test_memory_stays_bounded_whatever_the_file_is_long():
    chunk = encode_batch([(b"k", bytes(1000))] * 1000)
    count = 64

    def read_many(wanted, left=[count]):  # noqa: B006
        left[0] -= 1
        return chunk if left[0] >= 0 else b""

    tracemalloc.start()
    try:
        assert sum(isinstance(event, Batch) for event in BatchReader(Source("-", read_many, None))) == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


@st.composite
def damaged_logs(draw):
    """A few batches of every magic, with bytes changed, inserted or cut."""
    data = b""
    for index in range(draw(st.integers(0, 4))):
        magic = draw(st.sampled_from([2, 2, 2, 1, 0]))
        compression = draw(st.sampled_from(["none", "none", "gzip", "lz4"]))
        data += batch_at(index, draw(st.binary(max_size=60)), magic=magic, compression=compression)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["flip", "insert", "cut", "zeros"]))
        if kind == "flip" and at < len(data):
            data = flipped(data, at, draw(st.integers(1, 255)))
        elif kind == "insert":
            data = data[:at] + draw(st.binary(max_size=30)) + data[at:]
        elif kind == "cut":
            data = data[:at] + data[at + draw(st.integers(0, 50)) :]
        else:
            data = data[:at] + bytes(draw(st.integers(0, 200))) + data[at:]
    return data


@given(damaged_logs(), st.integers(1, 200))
def test_the_events_cover_every_byte_in_order_however_it_is_damaged_and_read(data, chunk):
    events = list(BatchReader(Source("some.log", _once(data), len(data)), salvage=True))
    at = 0
    for event in events:
        if isinstance(event, Batch):
            assert event.position == at
            assert data[at : at + event.size_in_bytes] == event.data
            assert next(decode_batches(data[at:])).crc == event.crc
        if isinstance(event, Damage):
            assert event.error.position == at
        else:
            assert event.position == at
            at += event.size_in_bytes
    assert at == len(data)
    assert events_of(data, chunk=chunk, salvage=True) == events_of(data, salvage=True)


@given(st.integers(0, 3), st.data())
def test_one_damaged_batch_costs_no_other(index, data):
    """Flip any byte that a checksum or the frame covers: every other batch is still read."""
    batches = [batch_at(offset, b"some value %d" % offset) for offset in range(4)]
    size = len(batches[0])
    position = data.draw(st.one_of(st.integers(8, 11), st.integers(16, size - 1)))
    batches[index] = flipped(batches[index], position, data.draw(st.integers(1, 255)))
    source = Source("some.log", _once(b"".join(batches)), 4 * size)
    events = list(BatchReader(source, salvage=True))
    assert [event.base_offset for event in events if isinstance(event, Batch)] == [
        offset for offset in range(4) if offset != index
    ]


def test_a_pipe_is_passed_over_up_to_the_position(tmp_path):
    first, second = batch_at(0), batch_at(1)
    reading, writing = os.pipe()
    os.write(writing, first + second)
    os.close(writing)
    with open_source(f"/dev/fd/{reading}", len(first)) as source:
        assert source.size_in_bytes is None
        [event] = BatchReader(source, position=len(first))
        assert (event.position, event.base_offset) == (len(first), 1)
    os.close(reading)


@pytest.mark.parametrize(
    ("name", "base_offset"),
    [
        ("00000000000000000042.log", 42),
        ("00000000000000000042.log.deleted", 42),
        ("42.log", None),
        ("00000000000000000042.index", None),
        ("00000000000000000042.logs", None),
    ],
)
def test_the_name_of_a_segment_tells_its_base_offset(name, base_offset, tmp_path):
    (tmp_path / name).write_bytes(b"")
    with open_source(str(tmp_path / name)) as source:
        assert source.base_offset == base_offset


def test_what_cannot_be_opened_or_read_is_a_typed_error(tmp_path):
    for path, errno in ((tmp_path / "missing", 2), (tmp_path, 21)):
        with pytest.raises(StorageError, match=r"^open, ") as caught, open_source(str(path)):
            pass
        assert (caught.value.errno, caught.value.path) == (errno, str(path))
    with pytest.raises(UsageError, match="NUL"), open_source("a\0b"):
        pass


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that opens and cannot be read")
def test_a_read_that_fails_is_a_typed_error():
    with open_source("/proc/self/mem") as source, pytest.raises(StorageError, match=r"^read, /proc/self/mem: "):
        source.read(10)
