"""DumpLogSegments on a partition's directory: that it has nothing to complain of, and what it says of each file."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from logcore import Batch, decode_batches
from tests.interop.host import Host

INDEXES = (".index", ".timeindex")
COMPLAINTS = (
    "Mismatches in",
    "Found out of order timestamp",
    "isvalid: false",
    "invalid bytes",
    "Found invalid",
    "Exception",
)
_FIELD = re.compile(r"(\w+): (\[.*?\]|[^\s,]+)")


@dataclass
class Dumped:
    """What DumpLogSegments says of a directory's files, by their names. A row is its names and values."""

    batches: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    records: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    rows: dict[str, list[dict[str, str]]] = field(default_factory=dict)  # of indexes, snapshots, transaction indexes
    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def files_of(directory: Path, *suffixes: str) -> list[Path]:
    """The files of a partition that end so, in order."""
    return sorted(one for one in directory.iterdir() if one.suffix in suffixes)


def _run(host: Host, files: Iterable[Path], *flags: str) -> tuple[str, str]:
    arguments = [*flags, "--files", ",".join(map(str, files))]
    answer = host.run("dump", arguments=arguments)
    for complaint in COMPLAINTS:
        assert complaint not in answer["out"], answer["out"]
        assert complaint not in answer["err"], answer["err"]
    return answer["out"], answer["err"]


def dump(host: Host, directory: Path) -> Dumped:
    """Hand DumpLogSegments everything, and fail where it complains."""
    indexes = files_of(directory, *INDEXES)
    out, err = _run(host, indexes, "--index-sanity-check")
    verdicts = [line for line in out.splitlines() if not line.startswith("Dumping ")]
    assert verdicts == [_verdict(one) for one in indexes]
    assert not err
    out, err = _run(host, indexes, "--verify-index-only")
    verdicts = [line for line in out.splitlines() if not line.startswith("Dumping ")]
    assert verdicts == [line for line in map(_verdict, indexes) if line.endswith("is empty.")]
    _check_mismatches(directory, err)
    every = files_of(directory, ".log", ".txnindex", ".snapshot", *INDEXES)
    out, err = _run(host, every, "--deep-iteration")
    return _parsed(out, err)


def _verdict(index: Path) -> str:
    is_empty = index.suffix == ".index" and not index.stat().st_size
    return f"{index} {'is empty.' if is_empty else 'passed sanity check.'}"


def _check_mismatches(directory: Path, err: str) -> None:
    """The tool takes the times of records, the index those of batches: it misses that of a batch that compaction has
    emptied and kept for its producer's sequence. Kafka's own compacted logs have such entries too.
    """
    batches: list[Batch] = []
    for line in err.splitlines():
        if line.startswith("Found timestamp mismatch in :"):
            log = Path(line.split(":", 1)[1]).with_suffix(".log")
            assert log.parent == directory
            batches = list(decode_batches(log.read_bytes()))
        else:
            stated = dict(_FIELD.findall(line.replace(" timestamp", "")))
            assert stated["log"] == "-1", err
            assert int(stated["Index"]) in {one.max_timestamp for one in batches if not one.count}, err


def _parsed(out: str, err: str) -> Dumped:
    found = Dumped()
    name = ""
    for line in out.splitlines():
        if line.startswith("Dumping "):
            name = Path(line.removeprefix("Dumping ")).name
            found.rows[name] = []
            if name.endswith(".log"):
                found.batches[name], found.records[name], found.gaps[name] = [], [], []
        elif line.startswith("baseOffset:"):
            found.batches[name].append(dict(_FIELD.findall(line)))
        elif line.startswith("| offset:"):
            found.records[name].append(dict(_FIELD.findall(line)))
        elif not line.startswith("Log starting offset:") and not line.endswith(" is empty."):
            found.rows[name].append(dict(_FIELD.findall(line)))
    for line in err.splitlines():
        if "timestamp" in line:
            continue
        if line.startswith("Non-consecutive offsets in "):
            name = Path(line.removeprefix("Non-consecutive offsets in ")).name
        else:
            before, after = line.split(" is followed by ")
            found.gaps[name].append((int(before), int(after)))
    return found


def batch_as_dumped(batch: Batch, position: int) -> dict[str, str]:
    """A batch in the words of DumpLogSegments."""
    horizon = batch.delete_horizon_ms
    time_name = "LogAppendTime" if batch.timestamp_type == "log_append_time" else "CreateTime"
    fields: dict[str, Any] = {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.leader_epoch,
        "isTransactional": str(batch.is_transactional).lower(),
        "isControl": str(batch.is_control).lower(),
        "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
        "position": position,
        time_name: batch.max_timestamp,
        "size": batch.size_in_bytes,
        "magic": 2,
        "compresscodec": batch.compression,
        "crc": batch.crc,
        "isvalid": "true",
    }
    return {name: str(value) for name, value in fields.items()}


def expected_indexes(batches: list[Batch], interval_bytes: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The entries that a segment's indexes have by Kafka's rule, after it was closed: (offset, position) and
    (timestamp, offset).
    """
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    position = since = 0
    latest = (-1, -1)

    def note_time() -> None:
        if latest[0] > (times[-1][0] if times else -1):
            times.append(latest)

    for batch in batches:
        if batch.max_timestamp > latest[0]:
            latest = (batch.max_timestamp, batch.last_offset)
        if since > interval_bytes:
            offsets.append((batch.last_offset, position))
            note_time()
            since = 0
        position += batch.size_in_bytes
        since += batch.size_in_bytes
    note_time()
    return offsets, times


def check_dump(host: Host, directory: Path, interval_bytes: int = 512) -> Dumped:
    """Dump a closed log and compare what Kafka says of it with its bytes: batches, offsets, index entries."""
    found = dump(host, directory)
    logs = files_of(directory, ".log")
    assert list(found.batches) == [one.name for one in logs]
    for log in logs:
        batches = list(decode_batches(log.read_bytes()))
        position, wanted = 0, []
        for batch in batches:
            wanted.append(batch_as_dumped(batch, position))
            position += batch.size_in_bytes
        assert found.batches[log.name] == wanted
        assert position == log.stat().st_size

        records = [record for batch in batches for record in batch]
        assert [int(one["offset"]) for one in found.records[log.name]] == [one.offset for one in records]
        # Kafka calls it a gap too when a segment does not begin at 0.
        offsets = [-1, *(one.offset for one in records)]
        gaps = [(a, b) for a, b in pairwise(offsets) if b != a + 1]
        assert sorted(found.gaps[log.name]) == gaps

        by_offset, by_time = expected_indexes(batches, interval_bytes)
        entries = [(int(row["offset"]), int(row["position"])) for row in found.rows[log.with_suffix(".index").name]]
        assert entries == by_offset, log
        times = [(int(row["timestamp"]), int(row["offset"])) for row in found.rows[log.with_suffix(".timeindex").name]]
        assert times == by_time, log
    return found
