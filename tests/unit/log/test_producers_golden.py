"""What Kafka's ProducerStateManager did with random appends, truncations and snapshots, done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logcore.errors import KafkaError, UsageError, error_for_name
from logcore.log import snapshot
from logcore.log.disk import SYSTEM_DISK
from logcore.log.names import SNAPSHOT, file_name
from logcore.log.producer_append import EndTxnMarker, ProducerAppend
from logcore.log.producers import ProducerState
from logcore.log.transactions import CompletedTxn
from tests.helpers import golden_lines

REFUSED: dict[str, type[Exception]] = {
    "OutOfOrderSequenceException": error_for_name("OUT_OF_ORDER_SEQUENCE_NUMBER"),
    "InvalidProducerEpochException": error_for_name("INVALID_PRODUCER_EPOCH"),
    "InvalidTxnStateException": error_for_name("INVALID_TXN_STATE"),
    "TransactionCoordinatorFencedException": error_for_name("TRANSACTION_COORDINATOR_FENCED"),
    "IllegalArgumentException": UsageError,
}

Line = dict[str, Any]


def opened(directory: Path) -> ProducerState:
    return ProducerState(
        SYSTEM_DISK, str(directory), producer_id_expiration_ms=10_000, max_transaction_timeout_ms=5_000
    )


def seen(state: ProducerState, directory: Path, now_ms: int) -> Line:
    """The state, as the golden file has it."""
    unstable = state.first_unstable_offset()
    return {
        "producers": [
            [
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.last_timestamp,
                -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
                [[*batch, batch.first_sequence] for batch in entry.batches],
            ]
            for _, entry in sorted(state.active_producers.items())
        ],
        "unstable": None if unstable is None else [-1 if part is None else part for part in unstable],
        "undecided": state.first_undecided_offset(),
        "end": state.map_end_offset,
        "empty": state.is_empty,
        "late": state.has_late_transaction(now_ms),
        "oldest": -1 if state.snapshots.oldest() is None else state.snapshots.oldest(),
        "latest": -1 if state.snapshots.latest() is None else state.snapshots.latest(),
        "files": sorted(path.name for path in directory.iterdir()),
        "verified": [
            [producer_id, entry.lowest_sequence, entry.producer_epoch]
            for producer_id in range(4)
            if (entry := state.verifications.entry(producer_id)) is not None
        ],
    }


def append_batch(candidate: ProducerAppend, batch: Line) -> CompletedTxn | None:
    if "marker" in batch:
        return candidate.append_control(
            batch["epoch"],
            batch["offset"],
            None if batch["marker"] is None else EndTxnMarker(*batch["marker"]),
            transaction_version=None if batch["version"] < 0 else batch["version"],
        )
    candidate.append(
        batch["epoch"],
        batch["base"],
        batch["last"],
        batch["offset"],
        batch["offset"] + batch["delta"],
        batch["ts"],
        batch["txn"],
        None if batch["seg"] < 0 else batch["seg"],
        None if batch["pos"] < 0 else batch["pos"],
    )
    return None


def append(state: ProducerState, step: Line) -> None:
    candidates: dict[int, ProducerAppend] = {}
    results: list[CompletedTxn | None] = []
    refused: Exception | None = None
    for batch in step["batches"]:
        producer_id = batch["id"]
        if producer_id not in candidates:
            candidates[producer_id] = state.prepare(producer_id, step["origin"])
        try:
            results.append(append_batch(candidates[producer_id], batch))
        except (KafkaError, UsageError) as error:
            refused = error
            break
    assert [None if one is None else list(one) for one in results] == step["results"]
    if step["refused"] is not None:
        assert type(refused) is REFUSED[step["refused"]]
        return
    assert refused is None
    for candidate in candidates.values():
        state.update(candidate)
    stable = []
    for completed in results:
        if completed is not None:
            stable.append(state.last_stable_offset(completed))
            state.complete_transaction(completed)
    assert stable == step["stable"]
    state.map_end_offset = step["next"]


def change(state: ProducerState, directory: Path, step: Line, now_ms: int) -> None:
    what, offset = step["op"], step.get("offset")
    if what == "append":
        append(state, step)
    elif what == "high_watermark":
        state.on_high_watermark_updated(offset)
    elif what == "snapshot":
        path = state.take_snapshot(sync=False)
        assert (path is None) == (step["written"] is None)
        if path is not None:
            ours, kafkas = Path(path).read_bytes(), bytes.fromhex(step["written"])
            assert len(ours) == len(kafkas)
            assert sorted(snapshot.parse(ours)) == sorted(snapshot.parse(kafkas))
    elif what == "truncate":
        state.truncate_and_reload(step["start"], step["end"], now_ms)
        assert state.map_end_offset == step["reached"]
        state.map_end_offset = step["end"]
    elif what == "truncate_fully":
        state.truncate_fully_and_start_at(offset)
    elif what == "log_start":
        state.on_log_start_offset_incremented(offset)
    elif what == "expire":
        state.remove_expired(now_ms)
    elif what == "rewrite":
        (directory / file_name(offset, SNAPSHOT)).write_bytes(bytes.fromhex(step["data"]))
    elif what == "delete_before":
        state.delete_snapshots_before(offset)
    elif what == "mark":
        if step["gone"]:
            (directory / file_name(offset, SNAPSHOT)).unlink(missing_ok=True)
        assert (state.mark_snapshot_for_deletion(offset) is not None) == step["marked"]
    elif what == "stray":
        state.remove_stray_snapshots(step["bases"])
    elif what == "verify":
        state.verifications.start(
            step["id"],
            sequence=step["sequence"],
            producer_epoch=step["epoch"],
            supports_epoch_bump=step["bump"],
            now_ms=now_ms,
        )
    else:
        assert what == "wait"


@pytest.mark.parametrize("line", golden_lines("producers.jsonl.gz"), ids=lambda line: str(line["i"]))
def test_every_step_ends_in_the_state_that_kafka_was_in(line: Line, tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.truncate_fully_and_start_at(line["start"])
    now_ms = 1_000_000
    for number, step in enumerate(line["steps"]):
        now_ms = step.get("now", now_ms)
        if step["op"] == "reopen":
            state = opened(tmp_path)
            state.truncate_and_reload(step["start"], step["end"], now_ms)
            assert state.map_end_offset == step["reached"]
            state.map_end_offset = step["end"]
        else:
            change(state, tmp_path, step, now_ms)
        state.check_invariants()
        assert seen(state, tmp_path, now_ms) == step["state"], f"step {number}: {step}"
