"""The bytes of a .snapshot file: as Kafka writes them, and any others."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logcore.errors import CorruptionReason, CorruptSnapshot, UsageError
from logcore.log import snapshot
from logcore.log.snapshot import ENTRY_BYTES, HEADER_BYTES, SnapshotEntry
from tests.helpers import GOLDEN, replaced
from tests.reference.checksum import crc32c

GOLDEN_ENTRIES = {
    "no-producer": [],
    "one-producer": [SnapshotEntry(0, 0, 7984, 7984, 60, 1750000589663, -1, -1)],
    "marker-only": [SnapshotEntry(5, 12, -1, -1, 0, 1794981464536, 0, -1)],
    "four-producers": [
        SnapshotEntry(1, 0, 159, 159, 159, 1794981463318, -1, -1),
        SnapshotEntry(2, 0, 159, 319, 50, 1794981463526, -1, -1),
        SnapshotEntry(3, 0, 159, 479, 159, 1794981463702, -1, -1),
        SnapshotEntry(4, 0, 159, 639, 159, 1794981463853, -1, -1),
    ],
}


def sealed(data: bytes) -> bytes:
    """The file with a right checksum."""
    return replaced(data, 2, struct.pack(">I", crc32c(data[6:])))


def refused(data: bytes) -> CorruptSnapshot:
    with pytest.raises(CorruptSnapshot) as caught:
        snapshot.parse(data, "5.snapshot")
    assert caught.value.path == "5.snapshot"
    return caught.value


def an_int(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


an_entry = st.builds(
    SnapshotEntry, an_int(64), an_int(16), an_int(32), an_int(64), an_int(32), an_int(64), an_int(32), an_int(64)
)
entry_lists = st.lists(an_entry, max_size=6)


@pytest.mark.parametrize("name", GOLDEN_ENTRIES)
def test_a_file_of_kafkas_is_read_and_written_byte_for_byte(name):
    """PST-054: version 1, CRC-32C of what follows, count, 46 bytes a producer."""
    data = (GOLDEN / "snapshots" / f"{name}.snapshot").read_bytes()
    assert snapshot.parse(data) == GOLDEN_ENTRIES[name]
    assert snapshot.format(GOLDEN_ENTRIES[name]) == data


def test_each_field_has_its_place():
    """PST-054: the layout, written down by hand."""
    entry = SnapshotEntry(0x0102030405060708, 0x090A, 0x0B0C0D0E, 0x0F, 0x10, 0x11, 0x12, -1)
    body = bytes.fromhex("00000001 0102030405060708 090a 0b0c0d0e 000000000000000f 00000010 0000000000000011 00000012")
    body += b"\xff" * 8
    assert snapshot.format([entry]) == b"\x00\x01" + struct.pack(">I", crc32c(body)) + body


@given(entry_lists)
def test_what_is_written_is_read(entries):
    data = snapshot.format(iter(entries))
    assert len(data) == HEADER_BYTES + ENTRY_BYTES * len(entries)
    assert snapshot.parse(data) == entries
    assert snapshot.parse(memoryview(bytearray(data))) == entries


def test_a_number_that_does_not_fit_is_not_written():
    with pytest.raises(UsageError, match=r"^snapshot entry: got .*, wanted numbers that fit their fields$"):
        snapshot.format([SnapshotEntry(0, 32768, 0, 0, 0, 0, 0, 0)])


@pytest.mark.parametrize("size", range(10))
def test_a_file_cut_in_its_header_is_refused(size):
    """PST-058: an empty and a truncated one."""
    error = refused(snapshot.format([])[:size])
    assert error.reason is CorruptionReason.TRUNCATED
    assert str(error) == f"snapshot at position {size} of 5.snapshot: size got {size}, wanted at least 10"


def test_a_file_cut_in_its_entries_is_refused():
    """PST-058: the count is compared with what there is before anything is made."""
    data = snapshot.format(GOLDEN_ENTRIES["four-producers"])
    for size in range(HEADER_BYTES, len(data)):
        error = refused(data[:size])
        assert (error.reason, error.position) == (CorruptionReason.ENTRY_COUNT, 6)
        assert (error.got, error.wanted) == (4, f"0 to {(size - HEADER_BYTES) // ENTRY_BYTES}")


@pytest.mark.parametrize("count", [-1, -(2**31), 2, 2**31 - 1])
def test_a_count_that_cannot_be_is_refused_whatever_the_checksum_says(count):
    data = sealed(replaced(snapshot.format(GOLDEN_ENTRIES["one-producer"]), 6, struct.pack(">i", count)))
    assert refused(data).reason is CorruptionReason.ENTRY_COUNT


@pytest.mark.parametrize("version", [0, 2, -1])
def test_another_version_is_refused(version):
    data = replaced(snapshot.format([]), 0, struct.pack(">h", version))
    for cut in (data, data[:2]):
        error = refused(cut)
        assert (error.reason, error.got, error.wanted, error.position) == (CorruptionReason.VERSION, version, 1, 0)


def test_every_flipped_bit_is_found():
    """PST-058: a garbled file, and one with a wrong checksum."""
    data = snapshot.format(GOLDEN_ENTRIES["one-producer"])
    for at in range(len(data)):
        for bit in range(8):
            flipped = replaced(data, at, bytes([data[at] ^ 1 << bit]))
            if at < 2:
                wanted = CorruptionReason.VERSION
            elif flipped[6:10] not in (bytes(4), data[6:10]):
                wanted = CorruptionReason.ENTRY_COUNT
            else:
                wanted = CorruptionReason.CRC
            assert refused(flipped).reason is wanted


def test_bytes_behind_the_last_entry_are_damage_only_if_the_checksum_does_not_cover_them():
    """As Kafka's reader has it, which takes the checksum to the end of the file and reads as far as the count says."""
    data = snapshot.format(GOLDEN_ENTRIES["one-producer"])
    for size in (1, 45, 46, 100):
        longer = data + b"\x07" * size
        error = refused(longer)
        assert (error.reason, error.position) == (CorruptionReason.CRC, 2)
        assert snapshot.parse(sealed(longer)) == GOLDEN_ENTRIES["one-producer"]


@given(st.binary(max_size=200), st.booleans())
@example(b"\x00\x01" + bytes(8), True)
def test_random_bytes_give_entries_that_they_are_the_bytes_of_or_a_typed_error(data, is_sealed):
    if is_sealed and len(data) >= HEADER_BYTES:
        data = sealed(b"\x00\x01" + data[2:6] + b"\x00\x00\x00" + bytes([data[9] % 5]) + data[10:])
    check_hostile(data)


@given(entry_lists, st.data())
def test_a_changed_file_gives_entries_that_it_is_the_bytes_of_or_a_typed_error(entries, data):
    changed = bytearray(snapshot.format(entries))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed)))
        changed[at : at + data.draw(st.integers(0, 50))] = data.draw(st.binary(max_size=50))
    if data.draw(st.booleans()) and len(changed) >= HEADER_BYTES:
        changed = bytearray(sealed(bytes(changed)))
    check_hostile(bytes(changed))


def check_hostile(data: bytes) -> None:
    try:
        entries = snapshot.parse(data, "5.snapshot")
    except CorruptSnapshot as error:
        assert error.path == "5.snapshot"
        assert error.position is not None
        assert 0 <= error.position <= len(data)
        return
    size = HEADER_BYTES + ENTRY_BYTES * len(entries)
    written = snapshot.format(entries)
    assert written[6:] == data[6:size]
    assert written == data or size < len(data)  # bytes behind, covered by the checksum
