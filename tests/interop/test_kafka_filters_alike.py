"""Kafka's own filterTo beside ours: the same batches, the same decisions, the same bytes."""

import json
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logcore import Batch, Record, decode_batches
from logcore._filter import FilterResult, filter_batches_by
from tests.interop.cases import MORE, Dice
from tests.interop.kafka import classpath, our_answer, verdict

pytestmark = pytest.mark.peers

NUMBERS = (
    "consumed", "messages_read", "messages_retained", "max_offset", "max_timestamp", "shallow_offset_of_max_timestamp",
)  # fmt: skip


class KafkaFilter:
    """A running Filter.java."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", classpath(), str(Path(__file__).with_name("Filter.java"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def filter(self, salt: int, one_in: int, now_ms: int, delete_retention_ms: int, buffer: bytes) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        head = struct.pack(">qiqqi", salt, one_in, now_ms, delete_retention_ms, len(buffer))
        self._process.stdin.write(head + buffer)
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Kafka's filter ended with {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def kafka_filter() -> Iterator[KafkaFilter]:
    running = KafkaFilter()
    yield running
    running.close()


def drawn(salt: int, number: int, what: str) -> int:
    return zlib.crc32(f"{salt} {number} {what}".encode())


def ours(salt: int, one_in: int, now_ms: int, delete_retention_ms: int, buffer: bytes) -> FilterResult:
    def check_batch_retention(batch: Batch) -> Any:
        kind = drawn(salt, batch.last_offset, "batch") % 7
        if kind == 0:
            return "delete"
        return "retain_empty" if kind > 3 and batch.magic == 2 else "delete_empty", kind in (3, 6)

    def should_retain_record(batch: Batch, record: Record) -> bool:
        return drawn(salt, record.offset, "record") % one_in != 0

    return filter_batches_by(
        buffer, check_batch_retention, should_retain_record, now_ms=now_ms, delete_retention_ms=delete_retention_ms
    )


def unpacked(buffer: bytes) -> Any:
    """What is in the batches, apart from how a codec packed them."""
    answer = verdict(our_answer(buffer))
    for batch in answer["batches"]:
        if batch["compression"] != "none":
            del batch["size_in_bytes"], batch["crc"]
    return answer


def test_kafka_filters_batches_to_the_same_bytes(kafka_filter: KafkaFilter) -> None:
    """Except that a codec may pack the same records in more than one way."""
    exact = emptied = dropped = 0
    for seed in range(1500 * MORE):
        dice = Dice(seed)
        buffer = b"".join(dice.batch()[2] for _ in range(dice.random.choice((1, 1, 2, 4))))
        one_in = dice.random.choice((1, 2, 2, 3, 10**9))
        arguments = (seed, one_in, dice.random.choice((0, 5, 2**41)), dice.random.choice((0, 86_400_000)), buffer)
        answer, result = kafka_filter.filter(*arguments), ours(*arguments)
        assert answer["refused"] is None, f"seed {seed}: {answer['refused']}"
        output = bytes.fromhex(answer["output"])
        assert {name: getattr(result, name) for name in NUMBERS} == {name: answer[name] for name in NUMBERS}, seed
        assert unpacked(result.output) == unpacked(output), f"seed {seed}"
        if all(batch.compression == "none" for batch in decode_batches(output)):
            assert result.output == output, f"seed {seed}"
            exact += bool(output)
        emptied += any(batch.count == 0 for batch in decode_batches(output))
        dropped += 0 < result.messages_retained < result.messages_read
    assert min(exact, emptied, dropped) > 50 * MORE
