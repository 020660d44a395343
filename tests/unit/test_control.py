"""Control records: transaction markers whole, KRaft's by type, version and bytes."""

from __future__ import annotations

import struct

import pytest

from logcore import (
    ControlRecord,
    CorruptBatch,
    CorruptionReason,
    UsageError,
    encode_batch,
    encode_transaction_marker,
)
from logcore.errors import InvalidRecordError
from tests.helpers import only_batch, v2_batch
from tests.reference import batch_v2
from tests.reference.model import RefRecord

TYPES = ["ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"]
CONTROL = 0x20


def control(key: bytes | None, value: bytes | None = b"\0\0\0\0\0\7") -> ControlRecord:
    """What is read of a control batch with one record."""
    payload = batch_v2.encode_record(RefRecord(0, 0, key, value), 0, 0)
    (record,) = only_batch(v2_batch(payload, 1, attributes=CONTROL, base_offset=40)).control_records()
    return record


def refused(key: bytes | None, value: bytes | None = b"\0\0\0\0\0\7") -> CorruptBatch:
    with pytest.raises(CorruptBatch) as caught:
        control(key, value)
    error = caught.value
    assert (error.reason, error.kafka_error) == (CorruptionReason.CONTROL_RECORD, InvalidRecordError)
    assert (error.position, error.offset) == (0, 40)
    return error


@pytest.mark.parametrize(("number", "name"), list(enumerate(TYPES)))
def test_the_type_of_a_control_record_is_in_its_key(number: int, name: str) -> None:
    """REC-113: int16 version 0 and int16 type, 4 bytes."""
    read = control(struct.pack(">hh", 0, number))
    assert (read.type, read.type_id, read.version) == (name, number, 0)
    assert (read.value, read.offset) == (b"\0\0\0\0\0\7", 40)
    assert read.coordinator_epoch == (7 if number < 2 else None)


def test_control_types_of_later_versions_are_read_as_far_as_they_are_known() -> None:
    """REC-114: type 337 is UNKNOWN, version 5 with more bytes has its type, a version below 0 is invalid."""
    unknown = control(struct.pack(">hh", 0, 337), b"whatever")
    assert (unknown.type, unknown.type_id, unknown.value) == ("UNKNOWN", 337, b"whatever")
    assert control(struct.pack(">hh", 0, -1), None).type == "UNKNOWN"
    later = control(struct.pack(">hhi", 5, 1, 9))
    assert (later.type, later.version, later.coordinator_epoch) == ("COMMIT", 5, 7)
    error = refused(struct.pack(">hh", -1, 1))
    assert (error.what, error.got, error.wanted) == ("control record version", -1, "0 or more")


@pytest.mark.parametrize(("key", "got"), [(None, "null"), (b"", "0 bytes"), (b"\0\0\0", "3 bytes")])
def test_a_control_record_without_a_whole_key_is_invalid(key: bytes | None, got: str) -> None:
    error = refused(key)
    assert (error.what, error.got, error.wanted) == ("control record key", got, "4 bytes")


@pytest.mark.parametrize("commit", [False, True])
def test_the_value_of_a_marker_is_a_version_and_the_coordinators_epoch(commit: bool) -> None:
    """REC-115: int16 0 and int32; later versions may be longer; a negative one is invalid; only COMMIT and ABORT."""
    batch = only_batch(encode_transaction_marker(7, 2, commit=commit, coordinator_epoch=123456))
    (record,) = batch
    assert record.key == struct.pack(">hh", 0, int(commit))
    assert record.value == struct.pack(">hi", 0, 123456)
    (marker,) = batch.control_records()
    assert (marker.type, marker.coordinator_epoch) == ("COMMIT" if commit else "ABORT", 123456)
    key = struct.pack(">hh", 0, int(commit))
    assert control(key, struct.pack(">hiq", 3, 55, 1)).coordinator_epoch == 55
    assert refused(key, struct.pack(">hi", -1, 55)).what == "transaction marker version"
    for value, got in ((None, "null"), (b"", "0 bytes"), (b"\0" * 5, "5 bytes")):
        error = refused(key, value)
        assert (error.what, error.got, error.wanted) == ("transaction marker", got, "6 bytes")


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_batch_is_one_record_of_known_size(commit: bool) -> None:
    """REC-116: offset and timestamp delta 0, base sequence -1, both bits set, 61 + 17 bytes."""
    data = encode_transaction_marker(
        15, 3, commit=commit, coordinator_epoch=8, offset=900, timestamp=1234, leader_epoch=5
    )
    batch = only_batch(data)
    assert len(data) == 61 + 17
    assert data[61:66] == bytes([16 << 1, 0, 0, 0, 4 << 1])
    assert (batch.count, batch.base_offset, batch.last_offset) == (1, 900, 900)
    assert (batch.base_timestamp, batch.max_timestamp, batch.leader_epoch) == (1234, 1234, 5)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (15, 3, -1)
    assert (batch.is_transactional, batch.is_control, batch.compression) == (True, True, "none")


@pytest.mark.parametrize("option", ["is_transactional", "is_control"])
def test_a_marker_is_only_written_to_a_batch_that_is_transactional_and_control(option: str) -> None:
    """REC-073: its writer sets both and takes neither as an option."""
    batch = only_batch(encode_transaction_marker(1, 0, commit=True, coordinator_epoch=0))
    assert getattr(batch, option) is True
    with pytest.raises(TypeError, match=option):
        encode_transaction_marker(1, 0, commit=True, coordinator_epoch=0, **{option: False})


@pytest.mark.parametrize("key", [None, b"", b"key", struct.pack(">hh", -1, 0)])
def test_ordinary_records_do_not_go_into_a_control_batch(key: bytes | None) -> None:
    """REC-075: what has no key of a control record is none, and a reader could not tell what it is."""
    with pytest.raises(UsageError):
        encode_batch([(key, b"value")], is_control=True)


def test_ordinary_batches_have_no_control_records() -> None:
    """REC-075: the kind is the batch's, so all of its records have it."""
    ordinary = only_batch(encode_batch([(struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 1))]))
    with pytest.raises(UsageError) as caught:
        ordinary.control_records()
    assert str(caught.value) == "control_records, batch at position 0: got an ordinary batch, wanted a control batch"


def test_control_records_compare_by_their_fields() -> None:
    assert control(b"\0\0\0\1") == control(b"\0\0\0\1")
    assert control(b"\0\0\0\1") != control(b"\0\0\0\0")
    assert control(b"\0\0\0\1") != "COMMIT"
    assert repr(control(b"\0\0\0\1")).startswith("ControlRecord(coordinator_epoch=7, offset=40, ")
