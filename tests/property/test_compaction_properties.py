"""The offset map, filling it and filtering by it, against the slow reference: whole logs, any batches, and damage."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logcore import Batch, CorruptBatch, Record, UsageError
from logcore._filter import FilterResult, filter_batches, filter_batches_by
from logcore._offsetmap import OffsetMap, map_keys, siphash128
from tests.reference import compaction, siphash
from tests.reference.model import RefRecord, Refused
from tests.reference.stream import Batch as RefBatch
from tests.reference.stream import decode_batches
from tests.strategies import CODEC_NAMES, LEGACY_CODECS, Draft, as_control, damaged_buffers, drafts

SLOT_BYTES = 24
SEED = bytes(range(100, 116))
NOW = 5_000
RETENTION = 300

# --- the hash and the table -----------------------------------------------------------------------------------------


@given(st.binary(max_size=80), st.binary(min_size=16, max_size=16))
def test_the_hash_is_that_of_the_reference(data: bytes, seed: bytes) -> None:
    assert siphash128(data, seed=seed) == siphash.siphash128(data, seed)


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2**63 - 1)), max_size=80))
def test_a_table_of_any_size_holds_what_a_dict_holds(slots: int, puts: list[tuple[int, int]]) -> None:
    ours, theirs = OffsetMap(slots * SLOT_BYTES + SLOT_BYTES - 1, seed=SEED), compaction.RefOffsetMap(slots)
    assert ours.slots == slots
    for number, offset in puts:
        key = b"%d" % number
        with contextlib.suppress(ValueError):
            theirs.put(key, offset)
        with contextlib.suppress(UsageError):
            ours.put(key, offset)
        assert (len(ours), ours.latest_offset) == (len(theirs), theirs.latest_offset)
        ours.check_invariants()
    assert [ours.get(b"%d" % number) for number in range(51)] == [theirs.get(b"%d" % number) for number in range(51)]


# --- logs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """A log, and a round of cleaning it."""

    drafts: list[Draft]
    chunk_sizes: list[int]
    first_offset: int
    limit: int
    discard_salt: int
    last_records: dict[int, tuple[int | None, int]]
    retain_legacy_deletes: bool
    upper_bound_offset: int | None
    is_noted: bool

    def data(self) -> bytes:
        return b"".join(draft.by_reference() for draft in self.drafts)

    def should_discard(self, batch: Batch | RefBatch) -> bool:
        return drawn(self.discard_salt, batch.last_offset, 2)


def drawn(salt: int, number: int, one_in: int) -> bool:
    """Yes or no, by the number alone, so that two who ask get the same answer."""
    return zlib.crc32(b"%d %d" % (salt, number)) % one_in == 0


_KEYS = st.sampled_from((b"a", b"b", b"c", b"d", b"", b"a longer key than the others", None))
_VALUES = st.sampled_from((None, b"", b"v", b"value" * 9))
_RECORDS = st.lists(
    st.tuples(st.sampled_from((1, 1, 1, 2, 9)), st.integers(-1, 900), _KEYS, _VALUES, st.booleans()),
    min_size=1,
    max_size=6,
)
_KINDS = st.sampled_from(("plain", "plain", "idempotent", "transactional", "control"))
_OPTIONS = st.tuples(
    st.sampled_from((2, 2, 2, 1, 0)),
    st.sampled_from(CODEC_NAMES),
    _KINDS,
    st.integers(0, 3),
    st.none() | st.integers(0, 900),
    st.none() | st.sampled_from((NOW - 1, NOW, NOW + 1)),
)


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    offset = draw(st.sampled_from((0, 3, 10**12)))
    first = offset
    made, last_offsets = [], []
    for (magic, codec, kind, producer_id, append_time, horizon), rows in draw(
        st.lists(st.tuples(_OPTIONS, _RECORDS), min_size=1, max_size=6)
    ):
        records = []
        for gap, timestamp, key, value, has_headers in rows:
            headers = [("h", b"x"), ("", None)] if has_headers and magic == 2 else ()
            records.append(Record(offset, timestamp, key, value, headers))
            offset += gap
        options: dict[str, Any] = {}
        if append_time is not None and magic:
            options |= {"timestamp_type": "log_append_time", "log_append_time_ms": append_time}
        if magic == 2:
            options |= {"leader_epoch": producer_id, "base_offset": records[0].offset, "last_offset": offset - 1}
            if horizon is not None:
                options["delete_horizon_ms"] = horizon
            if kind != "plain":
                options |= {"producer_id": producer_id, "producer_epoch": 1}
                options |= {"base_sequence": -1 if kind == "control" else 7}
                options |= {"is_transactional": kind != "idempotent", "is_control": kind == "control"}
            if kind == "control":
                records = [as_control(record) for record in records]
        elif codec == "zstd":
            codec = draw(st.sampled_from(LEGACY_CODECS))
        made.append(Draft(records, magic, codec, options))
        last_offsets.append(options.get("last_offset", records[-1].offset))
    lasts = st.tuples(st.none() | st.sampled_from(last_offsets), st.integers(0, 2))
    return Round(
        made,
        draw(st.lists(st.integers(1, 2000), max_size=4)),
        draw(st.integers(first, offset)),
        draw(st.integers(0, 8)),
        draw(st.integers(0, 99)),
        draw(st.dictionaries(st.integers(0, 3), lasts, max_size=3)),
        draw(st.booleans()),
        draw(st.none() | st.sampled_from(last_offsets).map(lambda last: last + 1)),
        draw(st.booleans()),
    )


def empty_map(cleaning: Round) -> OffsetMap:
    return OffsetMap(8 * SLOT_BYTES, seed=SEED, first_offset=cleaning.first_offset if cleaning.is_noted else None)


def mapped(cleaning: Round, data: bytes) -> tuple[OffsetMap, compaction.RefOffsetMap]:
    """The map of a round, ours and theirs, which are the same."""
    ours, theirs = empty_map(cleaning), compaction.RefOffsetMap(8)
    options = {"first_offset": cleaning.first_offset, "limit": cleaning.limit}
    expected = compaction.map_keys(data, theirs, should_discard_batch=cleaning.should_discard, **options)
    result = map_keys(data, ours, should_discard_batch=cleaning.should_discard, **options)
    assert (result.consumed, result.is_full, result.messages_read) == (
        expected.consumed,
        expected.is_full,
        expected.messages_read,
    )
    assert (len(ours), ours.latest_offset) == (len(theirs), theirs.latest_offset)
    assert {key: ours.get(key) for key in theirs.offsets} == theirs.offsets
    ours.check_invariants()
    return ours, theirs


def cleaned(cleaning: Round, data: bytes, offset_map: OffsetMap, **options: Any) -> FilterResult:
    return filter_batches(
        data,
        offset_map,
        now_ms=NOW,
        delete_retention_ms=RETENTION,
        should_discard_batch=cleaning.should_discard,
        last_records=cleaning.last_records,
        retain_legacy_deletes=cleaning.retain_legacy_deletes,
        upper_bound_offset=cleaning.upper_bound_offset,
        **options,
    )


def assert_same(ours: FilterResult, theirs: compaction.Filtered) -> None:
    """All numbers alike; batches byte for byte, except that a codec may compress in more than one way."""
    for name in ("consumed", "messages_read", "messages_retained", "max_offset", "max_timestamp",
                 "shallow_offset_of_max_timestamp"):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    batches, consumed, damage = decode_batches(ours.output)
    assert (consumed, damage) == (len(ours.output), None)
    assert len(batches) == len(theirs.pieces)
    for batch, (expected, is_same) in zip(batches, theirs.pieces, strict=True):
        if is_same or not batch.is_compressed:
            assert batch.data == expected
            continue
        (other,), _, _ = decode_batches(expected)
        mine, other_header = batch.header(), other.header()
        for name in ("position", "crc", "size_in_bytes"):
            del mine[name], other_header[name]
        assert mine == other_header
        assert batch.payload() == other.payload()


@given(rounds())
def test_a_round_of_cleaning_keeps_what_the_reference_keeps(cleaning: Round) -> None:
    data = cleaning.data()
    ours, theirs = mapped(cleaning, data)
    cleaner = compaction.Cleaner(
        theirs,
        NOW,
        cleaning.should_discard,
        cleaning.last_records,
        cleaning.retain_legacy_deletes,
        cleaning.upper_bound_offset,
    )
    try:
        expected = compaction.filter_batches(
            data, cleaner.check_batch_retention, cleaner.should_retain_record, NOW, RETENTION
        )
    except compaction.EmptyLegacy:
        try:
            cleaned(cleaning, data, ours)
        except UsageError as error:
            assert "batch that must stay" in str(error)
            return
        raise AssertionError("an older batch stayed empty") from None
    result = cleaned(cleaning, data, ours)
    assert_same(result, expected)
    assert result.invalid_messages_read == cleaner.invalid_messages_read


@given(rounds())
def test_a_log_in_chunks_comes_to_the_same_as_in_one(cleaning: Round) -> None:
    """REC-102: also if the output is cut."""
    data = cleaning.data()
    whole, _ = mapped(cleaning, data)
    chunked = empty_map(cleaning)
    sizes = [*cleaning.chunk_sizes, len(data)]
    position, is_full = 0, False
    for size in sizes:
        if not is_full:
            result = map_keys(
                data[position : position + size],
                chunked,
                first_offset=cleaning.first_offset,
                limit=cleaning.limit,
                should_discard_batch=cleaning.should_discard,
            )
            position, is_full = position + result.consumed, result.is_full
    assert (len(chunked), chunked.latest_offset) == (len(whole), whole.latest_offset)
    try:
        expected = cleaned(cleaning, data, whole)
    except UsageError:
        return
    parts, position = [], 0
    while position < len(data):
        size, sizes = sizes[0], sizes[1:] or sizes
        part = cleaned(cleaning, data[position : position + size], whole, output_bytes_max=size, base_position=position)
        parts.append(part)
        position += part.consumed
    assert b"".join(part.output for part in parts) == expected.output
    for name in ("messages_read", "messages_retained", "invalid_messages_read"):
        assert sum(getattr(part, name) for part in parts) == getattr(expected, name)
    assert max(part.max_offset for part in parts) == expected.max_offset


@given(rounds())
def test_the_two_forms_are_one_machine(cleaning: Round) -> None:
    data = cleaning.data()
    ours, theirs = mapped(cleaning, data)
    cleaner = compaction.Cleaner(
        theirs, NOW, cleaning.should_discard, cleaning.last_records, cleaning.retain_legacy_deletes, None
    )
    by_map = filter_batches(
        data,
        ours,
        now_ms=NOW,
        delete_retention_ms=RETENTION,
        should_discard_batch=cleaning.should_discard,
        last_records=cleaning.last_records,
        retain_legacy_deletes=cleaning.retain_legacy_deletes,
    )
    asked = filter_batches_by(
        data,
        cleaner.check_batch_retention,
        cleaner.should_retain_record,
        now_ms=NOW,
        delete_retention_ms=RETENTION,
    )
    assert asked.output == by_map.output
    assert repr(asked) == repr(by_map)


@given(rounds())
def test_what_was_cleaned_stays_as_it_is(cleaning: Round) -> None:
    """A second round with the same map, at the same time, changes nothing: horizons stay, and so do the batches."""
    data = cleaning.data()
    offset_map, _ = mapped(cleaning, data)
    options: dict[str, Any] = {"now_ms": NOW, "delete_retention_ms": RETENTION}
    once = filter_batches(data, offset_map, retain_legacy_deletes=cleaning.retain_legacy_deletes, **options)
    again = filter_batches(once.output, offset_map, **options)
    assert again.output == once.output
    assert again.messages_read == again.messages_retained == once.messages_retained


# --- any batches, any decision --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decisions:
    """Answers that depend on what is asked about, and on a salt."""

    salt: int
    one_in: int

    def batch(self, batch: Any) -> tuple[str, bool]:
        kind = zlib.crc32(b"%d %d" % (self.salt, batch.position)) % 7
        if kind == 0:
            return "delete", False
        if kind < 4:
            return "delete_empty", kind == 3
        return "retain_empty" if batch.magic == 2 else "delete_empty", kind == 6

    def record(self, batch: Any, record: Record | RefRecord) -> bool:
        return not drawn(self.salt, record.offset, self.one_in)


DECISIONS = st.builds(Decisions, st.integers(0, 999), st.sampled_from((1, 2, 2, 3, 10**9)))


@given(st.lists(drafts(), min_size=1, max_size=3), DECISIONS, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
@example([Draft([Record(0, 5, b"k", None)])], Decisions(0, 10**9), 2**63 - 1, 1)  # no horizon: past 2^63 - 1
def test_any_batches_come_out_as_the_reference_writes_them(
    made: list[Draft], decisions: Decisions, now_ms: int, delete_retention_ms: int
) -> None:
    data = b"".join(draft.by_reference() for draft in made)
    expected = compaction.filter_batches(data, decisions.batch, decisions.record, now_ms, delete_retention_ms)
    result = filter_batches_by(
        data, decisions.batch, decisions.record, now_ms=now_ms, delete_retention_ms=delete_retention_ms
    )
    assert_same(result, expected)


@given(damaged_buffers(), DECISIONS)
def test_damage_is_refused_where_the_reference_refuses_it(data: bytes, decisions: Decisions) -> None:
    """Else the result is the same: also of bytes that nobody would write."""
    try:
        expected = compaction.filter_batches(data, decisions.batch, decisions.record, NOW, RETENTION)
    except (Refused, compaction.Unwritable):
        try:
            filter_batches_by(data, decisions.batch, decisions.record, now_ms=NOW, delete_retention_ms=RETENTION)
        except CorruptBatch as error:
            assert error.position is not None
            assert str(error)
            return
        raise AssertionError("filtered what the reference refuses") from None
    result = filter_batches_by(data, decisions.batch, decisions.record, now_ms=NOW, delete_retention_ms=RETENTION)
    assert_same(result, expected)


@given(damaged_buffers(), st.integers(0, 99), st.integers(0, 8), st.integers(0, 40))
def test_damage_met_while_mapping_is_refused_where_the_reference_refuses_it(
    data: bytes, salt: int, limit: int, first_offset: int
) -> None:
    def should_discard(batch: Any) -> bool:
        return drawn(salt, batch.last_offset, 2)

    ours, theirs = OffsetMap(8 * SLOT_BYTES, seed=SEED), compaction.RefOffsetMap(8)
    try:
        expected = compaction.map_keys(data, theirs, first_offset, limit, should_discard)
    except Refused:
        try:
            map_keys(data, ours, first_offset=first_offset, limit=limit, should_discard_batch=should_discard)
        except CorruptBatch as error:
            assert error.position is not None
            ours.check_invariants()
            return
        raise AssertionError("mapped what the reference refuses") from None
    try:
        result = map_keys(data, ours, first_offset=first_offset, limit=limit, should_discard_batch=should_discard)
    except CorruptBatch:
        # Some damage is seen before the first record is. Kafka would not get there, with a map that is full.
        assert expected.is_full
        with pytest.raises(Refused):
            next(batch for batch in decode_batches(data)[0] if batch.position == expected.consumed).records()
        return
    assert (result.consumed, result.is_full, result.messages_read) == (
        expected.consumed,
        expected.is_full,
        expected.messages_read,
    )
    assert (len(ours), ours.latest_offset) == (len(theirs), theirs.latest_offset)
    assert {key: ours.get(key) for key in theirs.offsets} == theirs.offsets
