"""Compaction of transactions, and of what is kept for producers that may write again."""

from __future__ import annotations

from pathlib import Path

import pytest

import logcore
from logcore.log.compaction import SLOT_BYTES
from tests.compacted import (
    NOW,
    RETENTION_MS,
    Clock,
    batches,
    core_of,
    end,
    left,
    open_compacted,
    produce,
    put,
    shape,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "orders-0"


def compact(log: logcore.Log, **options: int) -> None:
    """Compact, with a new record of another key so that there is something dirty."""
    put(log, "z1")
    log.roll()
    log.compact(**options)


def test_a_marker_goes_in_three_steps(path: Path) -> None:
    """CLN-043, CLN-044: kept while data of its transaction was met; then given a horizon; then removed."""
    clock = Clock()
    with open_compacted(path, clock) as log:
        produce(log, 7, "a1")
        end(log, 7, commit=True)
        produce(log, 7, "a2", sequence=1)
        end(log, 7, commit=True)
        put(log, "a3")
        log.roll()
        log.compact()
        # The last data of the producer stays, empty: its marker stays with it.
        assert shape(log) == "m1 (d2) m3 d4"
        assert [batch.delete_horizon_ms for batch in batches(log)] == [None] * 4
        compact(log)
        assert [batch.delete_horizon_ms for batch in batches(log)][:3] == [NOW + RETENTION_MS, None, None]
        clock.now_ms += RETENTION_MS - 1
        compact(log)
        assert shape(log).startswith("m1 (d2) m3 d4")
        clock.now_ms += 1
        compact(log)
        assert shape(log).startswith("(d2) m3 d4")


def test_aborted_data_goes_at_once_and_its_index_entry_later(path: Path) -> None:
    """CLN-043, CLN-045, CLN-053: the last sequence stays, though its transaction was aborted."""
    with open_compacted(path) as log:
        produce(log, 7, "a1")
        produce(log, 7, "b1", sequence=1)
        end(log, 7, commit=False)
        put(log, "c1")
        log.roll()
        log.compact()
        assert shape(log) == "(d1) m2 d3"
        assert len(core_of(log).view.aborted(0, 4)) == 1
        produce(log, 7, "d1", sequence=2)
        end(log, 7, commit=True)
        compact(log)
        assert shape(log).startswith("m2 d3 d4 m5")
        compact(log)
        assert core_of(log).view.aborted(0, 6) == []


def test_a_map_too_small_for_the_segment_leaves_markers_until_their_time(path: Path) -> None:
    """CLN-046: aborted data goes with the first pass, the index entries with a later one, the markers after a while."""
    clock = Clock()
    with open_compacted(path, clock) as log:
        for producer_id in (7, 8):
            produce(log, producer_id, "a1 b1 c1")
            end(log, producer_id, commit=False)
            produce(log, producer_id, "d1", sequence=3)
            end(log, producer_id, commit=True)
        log.roll()
        log.compact(memory_bytes=2 * SLOT_BYTES)
        assert shape(log) == "m3 (d4) m5 m9 d10 m11"
        assert left(log) == "10:d1"
        compact(log)
        assert core_of(log).view.aborted(0, log.log_end_offset) == []
        clock.now_ms += RETENTION_MS
        compact(log)
        assert "m3" not in shape(log)
        assert "m9" not in shape(log)


def test_data_in_an_earlier_segment_keeps_a_marker_in_a_later_one(path: Path) -> None:
    """CLN-047: also when each is its own group."""
    with open_compacted(path, internal_segment_bytes=90) as log:
        produce(log, 7, "a1")
        log.roll()
        end(log, 7, commit=True)
        log.roll()
        for _ in range(2):
            compact(log)
            assert shape(log).startswith("d0 m1 ")
            assert batches(log)[1].delete_horizon_ms is None


def test_the_last_marker_of_a_producer_without_data_stays_empty(path: Path) -> None:
    """CLN-048, CLN-049, CLN-054: for its epoch; an empty control batch is passed over, by recovery too."""
    clock = Clock()
    with open_compacted(path, clock) as log:
        produce(log, 7, "a1")
        marker = logcore.encode_transaction_marker(7, 1, commit=True, coordinator_epoch=0, timestamp=NOW)
        log.append_batches(marker, leader_epoch=0, origin="coordinator")
        put(log, "a2")
        compact(log)
        assert shape(log) == "m1 d2 d3"
        compact(log)
        clock.now_ms += RETENTION_MS
        compact(log)
        assert shape(log).startswith("(m1) d2 ")
        compact(log)
        assert shape(log).startswith("(m1) d2 ")
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (path.parent / name).unlink()
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()
    with open_compacted(path, clock) as log:
        assert shape(log).startswith("(m1) d2 ")
        compact(log)
        assert left(log).startswith("2:a2")


def test_transactions_that_all_begin_with_sequence_0_let_old_batches_go(path: Path) -> None:
    """CLN-050: as coordinators write them."""
    clock = Clock()
    with open_compacted(path, clock) as log:
        for _ in range(4):
            batch = logcore.encode_batch(
                [(b"a", b"1", NOW)], base_offset=0, producer_id=7, producer_epoch=0, base_sequence=0,
                is_transactional=True,
            )  # fmt: skip
            log.append_batches(batch, leader_epoch=0, origin="coordinator")
            end(log, 7, commit=True)
        compact(log)
        assert shape(log) == "m1 m3 m5 d6 m7 d8"
        compact(log)
        clock.now_ms += RETENTION_MS
        compact(log)
        assert shape(log).startswith("d6 m7 ")


def test_the_last_batch_of_a_producer_stays_empty_until_it_writes_or_expires(path: Path) -> None:
    """CLN-051: each of the two frees it."""
    clock = Clock()
    with open_compacted(path, clock, producer_id_expiration_ms=10_000) as log:
        put(log, "a1", producer_id=7, producer_epoch=0, base_sequence=0)
        put(log, "b1", producer_id=8, producer_epoch=0, base_sequence=0)
        put(log, "a2 b2")
        compact(log)
        assert shape(log).startswith("(d0) (d1) d3")
        put(log, "c1", producer_id=7, producer_epoch=0, base_sequence=1)
        compact(log)
        assert shape(log).startswith("(d1) d3")
        clock.now_ms += 600_000
        log.tick()
        compact(log)
        assert shape(log).startswith("d3")


def test_retries_are_recognised_after_compaction_and_recovery(path: Path) -> None:
    """CLN-052: with the offsets that the batches had: 0 to 2, 3 to 5, 6 to 7."""
    sent = [(1, "a1 b1 c1"), (2, "a2 b2 c2"), (3, "a3 b3")]

    def send(log: logcore.Log) -> list[tuple[int, int, bool]]:
        done = [log.append([(word[:1].encode(), word[1:].encode(), NOW) for word in text.split()],
                           producer_id=number, producer_epoch=0, base_sequence=0) for number, text in sent]  # fmt: skip
        return [(one.first_offset, one.last_offset, one.is_duplicate) for one in done]

    with open_compacted(path) as log:
        assert send(log) == [(0, 2, False), (3, 5, False), (6, 7, False)]
        compact(log)
        assert left(log).startswith("5:c2 6:a3 7:b3")
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (path.parent / name).unlink()
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()
    with open_compacted(path) as log:
        assert send(log) == [(0, 2, True), (3, 5, True), (6, 7, True)]
