"""Kafka's own reader on batches that logcore rewrote: converted to another magic, or made ready to be appended."""

from typing import Any

import pytest

from logcore import Record, encode_batch
from logcore._convert import convert_batches
from logcore._validate import validate_and_assign
from tests.interop.cases import LEGACY_CODECS, LEVELS, MORE, Dice, expected
from tests.interop.kafka import our_answer, plain, records_of, verdict

pytestmark = pytest.mark.peers


def converted_records(records: list[Record], options: dict[str, Any], magic: int) -> list[list[Any]]:
    """What is left of a batch when it is converted to `magic`."""
    is_down = magic < options["magic"]
    if is_down and options.get("is_control"):
        return []
    shown = -1 if options["magic"] == 0 or (is_down and magic == 0) else options.get("log_append_time_ms")
    kept = [Record(*list(record)[:4]) for record in records] if is_down else records
    return expected(kept, timestamp=shown)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_kafka_reads_converted_batches_as_the_records_they_were(kafka, magic):
    rewritten = 0
    for seed in range(500 * MORE):
        parts = [Dice(3 * seed + n).batch() for n in range(3)]
        data = b"".join(part for _, _, part in parts)
        # zstd is younger than magic 1: whoever goes down has to choose another codec.
        has_zstd = any(options["compression"] == "zstd" and magic < 2 for _, options, _ in parts)
        converted = convert_batches(data, magic, compression="gzip" if has_zstd else None)
        answer = kafka.read(converted)
        wanted = [row for records, options, _ in parts for row in converted_records(records, options, magic)]
        assert plain(records_of(answer)) == wanted, f"seed {seed}"
        assert verdict(answer) == verdict(our_answer(converted)), f"seed {seed}"
        assert {batch["magic"] for batch in answer["batches"]} <= ({2} if magic == 2 else set(range(magic + 1)))
        rewritten += converted != data
    assert rewritten > 100 * MORE


def test_kafka_reads_what_a_leader_would_append(kafka):
    converted = 0
    for seed in range(1000 * MORE):
        dice = Dice(seed)
        codec = dice.random.choice(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
        given = [Record(-1, *list(record)[1:]) for record in dice.records(2)]
        options = {"compression": dice.random.choice(list(LEVELS)), "magic": 2}
        if dice.maybe(0.3):
            options["magic"], options["compression"] = dice.random.choice([0, 1]), dice.random.choice(LEGACY_CODECS)
            given = [Record(-1, *list(record)[1:4]) for record in given]
        data = encode_batch(given, **options)
        kind = dice.random.choice(["create_time", "log_append_time"])
        made = validate_and_assign(
            data, first_offset=1000, now_ms=2**41, timestamp_type=kind, compression=codec, leader_epoch=4
        )
        shown = 2**41 if kind == "log_append_time" else -1 if options["magic"] == 0 else None
        answer = kafka.read(bytes(made.data))
        assert plain(records_of(answer)) == expected(given, timestamp=shown, first=1000), f"seed {seed}"
        assert verdict(answer) == verdict(our_answer(bytes(made.data))), f"seed {seed}"
        for batch in answer["batches"]:
            assert (batch["magic"], batch["leader_epoch"]) == (2, 4)
            if codec != "producer":
                assert batch["compression"] == {"uncompressed": "none"}.get(codec, codec)
        converted += made.converted
    assert converted > 100 * MORE
