"""Buffers of many batches against simple models: scanning, splitting, joining, finding, numbering, patching."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import logcore
from logcore import (
    CorruptBatch,
    UsageError,
    assign_offsets,
    concat_batches,
    decode_batches,
    encode_batch,
    find_batch,
    first_batch_size,
    patch_batch,
    scan_batches,
    split_batches,
)
from logcore._checksum import crc32
from tests.reference import batch_v2, checksum, legacy, murmur2, stream
from tests.reference.model import increment_sequence
from tests.strategies import INT31_MAX, INT63_MAX, Draft, damaged_buffers, drafts, rows_of

BUFFERS = st.lists(drafts(max_size=3), min_size=1, max_size=4).map(
    lambda found: [encode_batch(draft.records, **draft.arguments()) for draft in found]
)
V2_BUFFERS = st.lists(drafts(magics=(2,), max_size=3), min_size=1, max_size=4).map(
    lambda found: [encode_batch(draft.records, **draft.arguments()) for draft in found]
)


@given(damaged_buffers(), st.booleans(), st.none() | st.integers(1, 400))
def test_a_scan_sees_what_the_reference_sees(buffer: bytes, verify_crc: bool, batch_bytes_max: int | None) -> None:
    batches, consumed, damage = stream.decode_batches(buffer, verify_crc=verify_crc, batch_bytes_max=batch_bytes_max)
    scan = scan_batches(buffer, verify_crc=verify_crc, batch_bytes_max=batch_bytes_max)
    assert scan.headers["position"].tolist() == [batch.position for batch in batches]
    assert scan.headers["size_in_bytes"].tolist() == [batch.size_in_bytes for batch in batches]
    assert scan.headers["magic"].tolist() == [batch.magic for batch in batches]
    assert scan.headers["last_offset"].tolist() == [batch.last_offset for batch in batches]
    assert scan.headers["count"].tolist() == [-1 if batch.count is None else batch.count for batch in batches]
    assert scan.consumed == consumed
    if damage is None:
        assert scan.error is None
        assert scan.is_partial == (consumed < len(buffer))
    else:
        assert (scan.error.reason.name, scan.error.position) == (damage.reason, consumed)
        assert not scan.is_partial


@given(damaged_buffers())
def test_splitting_gives_the_batches_and_joining_gives_the_buffer_back(buffer: bytes) -> None:
    batches, consumed, damage = stream.decode_batches(buffer, verify_crc=False)
    if damage is not None:
        for use in (split_batches, lambda whole: concat_batches([whole])):
            with pytest.raises(CorruptBatch) as caught:
                use(buffer)
            assert (caught.value.reason.name, caught.value.position) == (damage.reason, consumed)
        return
    parts = split_batches(buffer)
    assert [bytes(part) for part in parts] == [batch.data for batch in batches]
    assert concat_batches(parts) == buffer[:consumed]
    if consumed < len(buffer):
        with pytest.raises(UsageError):
            concat_batches([buffer, *parts])


@given(st.binary(max_size=80), BUFFERS, st.binary(max_size=40))
def test_a_batch_is_found_behind_noise_where_a_slow_search_finds_it(
    noise: bytes, written: list[bytes], tail: bytes
) -> None:
    buffer = noise + b"".join(written) + tail
    found = find_batch(buffer)
    assert found is not None
    assert found <= len(noise)
    first = next(decode_batches(buffer[found:]))
    assert buffer[found : found + first.size_in_bytes] == bytes(first.data)
    event("noise that is a batch" if found < len(noise) else "found behind the noise")
    # Every later batch is found from the byte after the one before it begins.
    position = len(noise)
    for batch in (bytes(part) for buffer_part in written for part in split_batches(buffer_part)):
        assert find_batch(buffer, position=position) == position
        position += len(batch)


def slow_search(buffer: bytes) -> int | None:
    """find_batch() without its arithmetic: every byte is tried, and every checksum computed from all its bytes."""
    for position in range(len(buffer) - 25):
        offset, length, _, magic = struct.unpack_from(">qiib", buffer, position)
        batch = buffer[position : position + 12 + length]
        if length < 14 or not 0 <= magic <= 2 or len(batch) < 12 + length:
            continue
        if magic < 2:
            if not batch[17] & ~0x0F and zlib.crc32(batch[16:]) == int.from_bytes(batch[12:16], "big"):
                return position
        elif len(batch) >= 61:
            crc, attributes, span, _, _, producer, epoch, sequence, count = struct.unpack_from(">IhiqqqhiI", batch, 17)
            if (
                not attributes & ~0x7F
                and 0 <= offset <= offset + span < 1 << 63
                and count <= span + 1
                and min(producer, epoch, sequence) >= -1
                and checksum.crc32c(batch[21:]) == crc
            ):
                return position
    return None


@given(
    st.binary(min_size=1, max_size=9) | st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=1, max_size=70).map(bytes),
    st.integers(1, 300),
    BUFFERS,
    st.integers(0, 600),
)
def test_crafted_bytes_are_searched_with_the_result_of_a_slow_search(
    pattern: bytes, times: int, written: list[bytes], tail: int
) -> None:
    """A short pattern repeated makes headers that claim much of what follows them, batches included."""
    noise = pattern * min(times, 900 // len(pattern) + 1)
    for buffer in (noise + b"".join(written) + noise[:tail], noise + b"".join(written)[:-1]):
        assert find_batch(buffer) == slow_search(buffer)
        assert find_batch(b"\x01" + buffer, position=1) == (None if (at := slow_search(buffer)) is None else at + 1)


@given(damaged_buffers(), st.none() | st.integers(14, 400))
def test_the_first_batchs_size_is_known_from_17_bytes(buffer: bytes, batch_bytes_max: int | None) -> None:
    batches, consumed, damage = stream.decode_batches(buffer, verify_crc=False, batch_bytes_max=batch_bytes_max)
    if len(buffer) < 17:
        assert first_batch_size(buffer, batch_bytes_max=batch_bytes_max) is None
    elif batches:
        assert first_batch_size(buffer[:17], batch_bytes_max=batch_bytes_max) == batches[0].size_in_bytes
        assert first_batch_size(buffer, batch_bytes_max=batch_bytes_max) == batches[0].size_in_bytes
    elif damage is not None and consumed == 0:
        with pytest.raises(CorruptBatch):
            first_batch_size(buffer, batch_bytes_max=batch_bytes_max)
    else:
        size = first_batch_size(buffer, batch_bytes_max=batch_bytes_max)
        assert size is not None
        assert size > len(buffer)


@given(V2_BUFFERS, st.integers(0, 2**62), st.integers(-1, INT31_MAX))
def test_numbering_moves_offsets_and_nothing_else(written: list[bytes], base_offset: int, leader_epoch: int) -> None:
    before = b"".join(written)
    buffer = bytearray(before)
    after = assign_offsets(buffer, base_offset, leader_epoch=leader_epoch)
    expected_base = base_offset
    for old, new in zip(decode_batches(before), decode_batches(buffer), strict=True):
        assert new.base_offset == expected_base
        assert new.last_offset - new.base_offset == old.last_offset - old.base_offset
        assert new.leader_epoch == leader_epoch
        assert [tuple(r)[1:] for r in new] == [tuple(r)[1:] for r in old]
        shift = new.base_offset - old.base_offset
        assert [r.offset for r in new] == [r.offset + shift for r in old]
        old_bytes, new_bytes = bytes(old.data), bytes(new.data)
        assert (old_bytes[8:12], old_bytes[16:]) == (new_bytes[8:12], new_bytes[16:])
        expected_base = new.last_offset + 1
    assert after == expected_base


@given(BUFFERS, st.integers(0, 2**62), st.binary(min_size=1, max_size=20))
def test_numbering_that_is_refused_changes_nothing(written: list[bytes], base_offset: int, tail: bytes) -> None:
    buffer = bytearray(b"".join(written) + tail)
    before = bytes(buffer)
    with pytest.raises(logcore.LogcoreError):
        assign_offsets(buffer, base_offset)
    assert buffer == before


@given(
    drafts(max_size=4),
    st.integers(0, 40),
    st.none() | st.tuples(st.sampled_from(("base_offset", "last_offset")), st.integers(0, INT63_MAX)),
    st.none() | st.integers(-1, INT31_MAX),
    st.none() | st.sampled_from(("create_time", "log_append_time")),
    st.none() | st.integers(-1, INT63_MAX),
)
def test_patching_is_the_header_written_anew(
    draft: Draft, position: int, offset: tuple[str, int] | None, leader_epoch: int | None, kind: str | None,
    max_timestamp: int | None,
) -> None:  # fmt: skip
    batch = bytes(split_batches(encode_batch(draft.records, **draft.arguments()))[0])
    buffer = bytearray(bytes(position) + batch)
    changes: dict[str, Any] = {} if offset is None else dict([offset])
    changes |= {"leader_epoch": leader_epoch, "timestamp_type": kind, "max_timestamp": max_timestamp}
    try:
        resealed = patch_batch(buffer, position=position, **changes)
    except UsageError:
        event("refused")
        assert buffer == bytes(position) + batch
        assert is_refused_by_the_rules(batch, changes)
        return
    assert not is_refused_by_the_rules(batch, changes)
    expected = patched(batch, changes)
    assert buffer[position:] == expected
    assert resealed == (expected[16:] != batch[16:])
    event("resealed" if resealed else "outside the checksum")


def is_refused_by_the_rules(batch: bytes, changes: dict[str, Any]) -> bool:
    magic = batch[16]
    stamped = changes["timestamp_type"] is not None or changes["max_timestamp"] is not None
    if changes["timestamp_type"] == "log_append_time" and changes["max_timestamp"] is None:
        return True
    if magic < 2:
        return changes["leader_epoch"] is not None or "base_offset" in changes or (stamped and magic == 0)
    return "last_offset" in changes and changes["last_offset"] < struct.unpack_from(">i", batch, 23)[0]


def patched(batch: bytes, changes: dict[str, Any]) -> bytes:
    """The model: replace the fields, and mend the checksum if one under it changed."""
    new, magic = bytearray(batch), batch[16]
    if "base_offset" in changes:
        new[:8] = struct.pack(">q", changes["base_offset"])
    elif "last_offset" in changes:
        delta = struct.unpack_from(">i", batch, 23)[0] if magic == 2 else 0
        new[:8] = struct.pack(">q", changes["last_offset"] - delta)
    if changes["leader_epoch"] is not None:
        new[12:16] = struct.pack(">i", changes["leader_epoch"])
    attributes, timestamp = (22, 35) if magic == 2 else (17, 18)
    if changes["timestamp_type"] is not None:
        new[attributes] = new[attributes] & ~8 | (8 if changes["timestamp_type"] == "log_append_time" else 0)
    if changes["max_timestamp"] is not None:
        new[timestamp : timestamp + 8] = struct.pack(">q", changes["max_timestamp"])
    if new[17:] == batch[17:]:
        return bytes(new)
    return batch_v2.with_crc(bytes(new)) if magic == 2 else legacy.with_crc(bytes(new))


@given(drafts(magics=(1, 2), max_size=4), st.integers(0, INT63_MAX))
def test_append_time_becomes_every_records_time(draft: Draft, now_ms: int) -> None:
    buffer = bytearray(split_batches(encode_batch(draft.records, **draft.arguments()))[0])
    patch_batch(buffer, timestamp_type="log_append_time", max_timestamp=now_ms)
    assert {record.timestamp for record in rows_of(bytes(buffer))} == {now_ms}


@given(st.integers(0, INT31_MAX), st.integers(0, INT31_MAX))
def test_sequences_go_on_at_zero_and_back_again(sequence: int, step: int) -> None:
    after = logcore.increment_sequence(sequence, step)
    assert after == increment_sequence(sequence, step) == (sequence + step) % 2**31
    assert logcore.decrement_sequence(after, step) == sequence


@given(st.binary(max_size=300) | st.integers(0, 40_000).map(lambda size: bytes(range(256)) * (size // 256)), st.data())
def test_checksums_and_hashes_are_the_references_and_can_be_continued(data: bytes, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(data)))
    assert logcore.crc32c(data) == checksum.crc32c(data)
    assert logcore.crc32c(data[cut:], logcore.crc32c(data[:cut])) == checksum.crc32c(data)
    assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)
    assert logcore.murmur2(data) == murmur2.murmur2(data)
    for count in (1, 3, INT31_MAX):
        assert logcore.partition_for_key(data, count) == (murmur2.murmur2(data) & 0x7FFFFFFF) % count
