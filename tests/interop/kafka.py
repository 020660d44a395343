"""Apache Kafka's own programs, run on what logcore writes: its reader (Reader.java) and its DumpLogSegments."""

import json
import os
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from logcore import Batch, CorruptBatch, Record, decode_batches, increment_sequence

TIMESTAMP_TYPES = {"create_time": "CreateTime", "log_append_time": "LogAppendTime", "none": "NoTimestampType"}
_SAME_FIELDS = (
    "magic",
    "last_offset",
    "size_in_bytes",
    "crc",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_sequence",
    "leader_epoch",
    "is_transactional",
    "is_control",
    "count",
    "delete_horizon_ms",
)


def classpath() -> str:
    """Every jar of LOGCORE_KAFKA_JARS; it must be set, and must hold Kafka's."""
    jars = Path(os.environ["LOGCORE_KAFKA_JARS"])
    if not list(jars.glob("kafka-tools-*.jar")):
        raise FileNotFoundError(f"LOGCORE_KAFKA_JARS: no kafka-tools-*.jar in {jars} (make test-peers fetches them)")
    return f"{jars}/*"


class KafkaReader:
    """A running Reader.java. One buffer in, one answer out, so that neither side waits on a full pipe."""

    def __init__(self) -> None:
        # A small heap: a length that Kafka believes before it looks (some tests hand it such) fails at once.
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", classpath(), str(Path(__file__).with_name("Reader.java"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def read(self, buffer: bytes) -> dict[str, Any]:
        """What Kafka reads out of `buffer`: see Reader.java."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(struct.pack(">i", len(buffer)) + buffer)
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Kafka's reader ended with {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End of input, which ends the program."""
        self._process.communicate()
        assert self._process.returncode == 0


def dump_log(log: Path) -> str:
    """What Kafka's DumpLogSegments prints of a .log file, errors included."""
    command = ["java", "-cp", classpath(), "org.apache.kafka.tools.DumpLogSegments"]
    arguments = ["--deep-iteration", "--print-data-log", "--files", str(log)]
    done = subprocess.run(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, encoding="utf-8"
    )
    return done.stdout


def our_answer(buffer: bytes) -> dict[str, Any]:
    """What logcore reads out of `buffer`, in the form of KafkaReader.read()."""
    answer: dict[str, Any] = {"batches": [], "refused": None}
    try:
        for batch in decode_batches(buffer):
            answer["batches"].append(_describe(batch))
    except CorruptBatch as error:
        answer["refused"] = str(error)
    return answer


def _describe(batch: Batch) -> dict[str, Any]:
    described = {name: getattr(batch, name) for name in _SAME_FIELDS}
    described["timestamp_type"] = TIMESTAMP_TYPES[batch.timestamp_type]
    if batch.magic == 2:
        described["base_timestamp"] = batch.base_timestamp
    described["compression"] = None if batch.compression.startswith("unknown") else batch.compression
    described["base_offset"] = None
    if described["compression"] is not None:
        try:
            described["base_offset"] = batch.base_offset
        except CorruptBatch:
            described["base_offset"] = None
    try:
        described["records"] = [describe_record(record, batch) for record in batch]
    except CorruptBatch as error:
        described["refused"] = str(error)
    return described


def describe_record(record: Record, batch: Batch) -> list[Any]:
    """A record as Reader.java tells it. The checksum of a message inside a set is not told: our reader has none."""
    delta = record.offset - batch.base_offset
    # A damaged batch may step back; Java counts on from there, increment_sequence() refuses to.
    is_numbered = batch.base_sequence >= 0 and 0 <= delta < 2**31
    sequence = increment_sequence(batch.base_sequence, delta) if is_numbered else -1
    return [record.offset, record.timestamp, sequence, *content(record)]


def content(record: Record) -> list[Any]:
    """Key, value and headers in hex; what is no UTF-8 in a name becomes U+FFFD, as in a Java string."""
    headers = [
        [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), _hex(value)]
        for name, value in record.headers
    ]
    return [_hex(record.key), _hex(record.value), headers]


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def records_of(answer: dict[str, Any]) -> list[list[Any]]:
    """The records of an answer in which nothing is refused and every checksum is right."""
    assert answer["refused"] is None, answer["refused"]
    found = []
    for batch in answer["batches"]:
        assert "refused" not in batch, batch["refused"]
        for *record, is_valid in batch["records"]:
            assert is_valid
            found.append(record)
    return found


def plain(records: Iterable[list[Any]]) -> list[list[Any]]:
    """Records without their sequence, which only a batch can tell."""
    return [[offset, timestamp, *rest] for offset, timestamp, _, *rest in records]


def verdict(answer: dict[str, Any], *, with_sequences: bool = True) -> dict[str, Any]:
    """An answer with what two readers may say differently taken out: the words of a refusal, inner checksums.

    with_sequences: False for damaged headers. The sequence of a single record is not logcore's to tell, and behind an
        offset that steps back increment_sequence() refuses to.
    """
    batches = []
    for batch in answer["batches"]:
        kept = {name: value for name, value in batch.items() if name not in ("records", "refused")}
        if "refused" in batch:
            kept["refused"] = True
            if kept["magic"] < 2:
                # Kafka finds the first offset of a set without looking at its keys and values, logcore parses all.
                del kept["base_offset"]
        else:
            kept["records"] = [record[:6] for record in batch["records"]]
        if not with_sequences:
            kept["records"] = plain(kept.get("records", []))
        batches.append(kept)
    return {"batches": batches, "refused": answer["refused"] is not None}
