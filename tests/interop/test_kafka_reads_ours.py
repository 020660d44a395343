"""Kafka's own reader accepts what logcore writes, and reads the same out of any bytes. One JVM for all of it.

Where the two differ on damaged bytes is listed in known_difference(), and nowhere else. Seeds are fixed: two runs
of one commit ask the same questions, and LOGCORE_FULL=1 asks ten times as many.
"""

import gzip
import itertools
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from logcore import (
    Record,
    crc32c,
    decode_batches,
    decode_columns,
    encode_batch,
    encode_columns,
    encode_empty_batch,
    encode_transaction_marker,
)
from logcore._compression import codec_id, compress
from tests.interop.cases import LEGACY_CODECS, LEVELS, MORE, Dice, expected, shapes, with_control_key
from tests.interop.kafka import dump_log, our_answer, plain, records_of, verdict

pytestmark = pytest.mark.peers

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("codec", LEVELS)
def test_kafka_reads_a_batch_of_any_level_and_shape(kafka, codec):
    for level, (name, records) in itertools.product(LEVELS[codec], shapes().items()):
        data = encode_batch(records, compression=codec, level=level)
        answer = kafka.read(data)
        assert plain(records_of(answer)) == expected(records), (level, name)
        assert verdict(answer) == verdict(our_answer(data)), (level, name)


@pytest.mark.parametrize("codec", LEVELS)
def test_kafka_reads_every_header_field_as_it_was_given(kafka, codec):
    plain_records = shapes()["headers"]
    control_records = [with_control_key(record, 1) for record in plain_records]
    last = len(plain_records) - 1
    for given in (
        {"base_offset": 2**40, "last_offset": 2**40 + 500},
        {"base_offset": 2**63 - 1 - last},
        {"leader_epoch": 2**31 - 1},
        {"producer_id": 2**63 - 1, "producer_epoch": 2**15 - 1, "base_sequence": 2**31 - 2},
        {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True},
        {"producer_id": 9, "producer_epoch": 0, "is_transactional": True, "is_control": True},
        {"delete_horizon_ms": 1_800_000_000_000},
        {"is_control": True},
        {"timestamp_type": "log_append_time", "log_append_time_ms": 77},
        {"timestamp_type": "log_append_time", "log_append_time_ms": 0, "delete_horizon_ms": 0},
    ):
        records = control_records if given.get("is_control") else plain_records
        data = encode_batch(records, compression=codec, **given)
        answer = kafka.read(data)
        (batch,) = answer["batches"]
        first = given.get("base_offset", 0)
        assert plain(records_of(answer)) == expected(records, timestamp=given.get("log_append_time_ms"), first=first)
        assert verdict(answer) == verdict(our_answer(data)), given
        for name, value in given.items():
            if name == "timestamp_type":
                assert batch[name] == "LogAppendTime"
            else:
                assert batch["max_timestamp" if name == "log_append_time_ms" else name] == value, given


def test_kafka_reads_empty_batches_and_transaction_markers(kafka):
    for data in (
        encode_empty_batch(5, 5),
        encode_empty_batch(5, 2**31 + 4, max_timestamp=7, producer_id=9, producer_epoch=1, base_sequence=3),
        encode_transaction_marker(9, 1, commit=True, coordinator_epoch=4, offset=10, timestamp=8),
        encode_transaction_marker(9, 1, commit=False, coordinator_epoch=2**31 - 1, leader_epoch=3),
    ):
        answer = kafka.read(data)
        assert verdict(answer) == verdict(our_answer(data))
        assert len(records_of(answer)) == answer["batches"][0]["count"]
    (commit,) = records_of(kafka.read(encode_transaction_marker(9, 1, commit=True, coordinator_epoch=4)))
    assert commit[3:5] == ["00000001", "000000000004"]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_reads_message_sets_of_the_older_formats(kafka, magic, codec):
    for name, records in shapes().items():
        bare = [Record(record.offset, record.timestamp, record.key, record.value) for record in records]
        for append_time in [None] if magic == 0 else [None, 77]:
            options = {} if append_time is None else {
                "timestamp_type": "log_append_time", "log_append_time_ms": append_time,
            }  # fmt: skip
            for level in LEVELS[codec][:3]:
                data = encode_batch(bare, magic=magic, compression=codec, level=level, **options)
                answer = kafka.read(data)
                shown = -1 if magic == 0 else append_time
                assert plain(records_of(answer)) == expected(bare, timestamp=shown), name
                assert verdict(answer) == verdict(our_answer(data)), name


@pytest.mark.parametrize("codec", LEVELS)
def test_kafka_reads_batches_made_of_columns(kafka, codec):
    for name, records in shapes().items():
        numbered = [
            Record(index if record.offset < 0 else record.offset, *list(record)[1:])
            for index, record in enumerate(records)
        ]
        rows = {
            "offset": pyarrow.array([record.offset for record in numbered], pyarrow.int64()),
            "timestamp": pyarrow.array([record.timestamp for record in numbered], pyarrow.int64()),
            "key": pyarrow.array([record.key for record in numbered], pyarrow.binary()),
            "value": pyarrow.array([record.value for record in numbered], pyarrow.large_binary()),
            "headers": pyarrow.array(
                [list(record.headers) for record in numbered], pyarrow.map_(pyarrow.string(), pyarrow.binary())
            ),
        }
        for batch_bytes in (1, 4096, 2**20):
            producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 2**31 - 3}
            data = encode_columns(rows, batch_bytes=batch_bytes, compression=codec, **producer)
            answer = kafka.read(data)
            assert plain(records_of(answer)) == expected(numbered), (name, batch_bytes)
            assert verdict(answer) == verdict(our_answer(data)), (name, batch_bytes)
            assert encode_columns(decode_columns(data, layout="view"), batch_bytes=2**30) == encode_batch(numbered)


# --------------------------------------------------------------------------------------------------------- random


def test_kafka_and_logcore_agree_on_thousands_of_random_batches(kafka):
    for seed in range(3000 * MORE):
        records, options, data = Dice(seed).batch()
        answer = kafka.read(data)
        shown = -1 if options["magic"] == 0 else options.get("log_append_time_ms")
        assert plain(records_of(answer)) == expected(records, timestamp=shown), f"seed {seed}: {options}"
        assert verdict(answer) == verdict(our_answer(data)), f"seed {seed}: {options}"


# --------------------------------------------------------------------------------------------------------- golden


def golden() -> Iterator[dict[str, Any]]:
    with gzip.open(GOLDEN / "batches.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def test_kafka_reads_its_own_vectors_as_logcore_does(kafka):
    read = 0
    for vector in golden():
        data = bytes.fromhex(vector["hex"])
        answer = kafka.read(data)
        assert answer["refused"] is None
        assert verdict(answer) == verdict(our_answer(data)), vector["i"]
        read += 1
    assert read == 392


def encoded_again(batch: Any) -> bytes:
    """A batch from its own fields and records, as its writer gave them."""
    records = list(batch.records(stored_timestamps=True))
    appended = {"timestamp_type": "log_append_time", "log_append_time_ms": batch.max_timestamp}
    times = appended if batch.timestamp_type == "log_append_time" else {}
    if batch.magic < 2:
        return encode_batch(records, magic=batch.magic, compression=batch.compression, **times)
    fields = {
        name: getattr(batch, name)
        for name in ("producer_id", "producer_epoch", "base_sequence", "leader_epoch", "is_transactional", "is_control")
    }
    span = {"base_offset": batch.base_offset, "last_offset": batch.last_offset}
    if not records:
        return encode_empty_batch(**span, max_timestamp=batch.max_timestamp, **fields, **times)
    horizon = {"delete_horizon_ms": batch.delete_horizon_ms}
    return encode_batch(records, compression=batch.compression, **span, **fields, **times, **horizon)


def test_vectors_written_again_are_the_same_bytes_or_the_same_records_to_kafka(kafka):
    plain_count = compressed_count = 0
    for vector in golden():
        data = bytes.fromhex(vector["hex"])
        for batch in decode_batches(data):
            again = encoded_again(batch)
            if not batch.is_compressed:
                assert again == bytes(batch.data), vector["i"]
                plain_count += 1
                continue
            ours, theirs = (verdict(kafka.read(one))["batches"][0] for one in (again, bytes(batch.data)))
            for name in ("crc", "size_in_bytes"):  # The library's own: another one finds other matches.
                del ours[name], theirs[name]
            assert ours == theirs, vector["i"]
            compressed_count += 1
    assert plain_count > 100
    assert compressed_count > 100


# --------------------------------------------------------------------------------------------------------- damage


def mended(data: bytes) -> bytes:
    """`data` with a size field and a checksum that fit, so that damage reaches the parser."""
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    if len(data) < 26:
        return data
    if data[16] == 2:
        return data if len(data) < 61 else data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]
    return data[:12] + struct.pack(">I", zlib.crc32(data[16:])) + data[16:]


def mutated(dice: Dice, data: bytes, first: int) -> bytes:
    """`data` with a few bytes from `first` on changed, inserted or removed."""
    damaged = bytearray(data)
    for _ in range(dice.random.choice([1, 1, 1, 2, 4])):
        if len(damaged) <= first:
            break
        at = dice.random.randrange(first, len(damaged))
        match dice.random.randrange(6):
            case 0:
                damaged[at] = dice.random.randrange(256)
            case 1:
                damaged[at] ^= 1 << dice.random.randrange(8)
            case 2:
                damaged[at] = dice.random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
            case 3:
                damaged.insert(at, dice.random.choice([0, 0x80, 0xFF]))
            case 4:
                del damaged[at]
            case 5:
                del damaged[at : at + dice.random.randrange(1, 9)]
    return bytes(damaged)


def damaged_inside(dice: Dice, records: list[Record], options: dict[str, Any]) -> bytes:
    """A compressed batch whose stream is sound, and what it decompresses to is damaged."""
    codec, magic = codec_id(options["compression"]), options["magic"]
    if magic == 2:
        whole = encode_batch(records, **options | {"compression": "none", "level": None})
        stream = compress(codec, mutated(dice, whole[61:], 0))
        return whole[:22] + bytes([whole[22] | codec]) + whole[23:61] + stream
    first = records[0].offset if magic == 1 else 0
    inner = encode_batch([Record(row.offset - first, *list(row)[1:]) for row in records], magic=magic)
    stream = compress(codec, mutated(dice, inner, 0), magic=magic)
    wrapper = encode_batch([Record(records[-1].offset, 5, None, stream)], magic=magic)
    return wrapper[:17] + bytes([wrapper[17] | codec]) + wrapper[18:]


def damaged(dice: Dice) -> bytes:
    """A batch with damage in its header, its records or its compressed stream; behind it, often, a sound one."""
    records, options, data = dice.batch()
    if options["compression"] != "none" and dice.maybe(0.5):
        data = mended(damaged_inside(dice, records, options))
    else:
        first = dice.random.choice([12, 17, 21, 57, 61, 61, 61] if options["magic"] == 2 else [12, 16, 18, 18, 26])
        data = mutated(dice, data, first)
        if dice.maybe(0.9):
            data = mended(data)
    return data + (encode_batch([(b"next", b"one")]) if dice.maybe(0.5) else b"")


def known_difference(theirs: dict[str, Any], ours: dict[str, Any]) -> str | None:
    """Why the two may differ on these bytes; None: they may not."""
    for their_batch, our_batch in zip(theirs["batches"], ours["batches"], strict=False):
        refusal = our_batch.get("refused", "")
        if "OutOfMemoryError" in their_batch.get("refused", ""):
            return "Java allocates a length before it looks whether the bytes are there"
        if refusal and "refused" not in their_batch:
            if "gzip stream" in refusal and "unknown header flags" in refusal:
                return "reserved flags of a gzip header"
            if "snappy" in refusal and "header" in refusal:
                return "a snappy header in mid-stream that is none"
            if "zstd" in refusal and "frame" in refusal:
                return "a zstd frame cut off behind a whole one"
    return None


def test_kafka_and_logcore_refuse_or_read_the_same_damaged_batches(kafka):
    refused = read = 0
    known: list[str] = []
    for seed in range(6000 * MORE):
        data = damaged(Dice(seed))
        theirs, ours = kafka.read(data), our_answer(data)
        if verdict(theirs, with_sequences=False) != verdict(ours, with_sequences=False):
            difference = known_difference(theirs, ours)
            assert difference, f"seed {seed}: {data.hex()}\nKafka: {theirs}\nlogcore: {ours}"
            known.append(difference)
        elif ours["refused"] or any("refused" in batch for batch in ours["batches"]):
            refused += 1
        else:
            read += 1
    # The test is worth something only if both happen a lot, and excuses hardly ever.
    assert refused > 1000 * MORE
    assert read > 1000 * MORE
    assert len(known) < 100 * MORE, known


# ----------------------------------------------------------------------------------------------------------- dump


def test_dump_log_segments_prints_a_log_file_of_ours_without_complaint(tmp_path):
    log = tmp_path / "00000000000000000000.log"
    batches, keys, offset = [], [], 0
    for codec in LEVELS:
        records = [(b"key-%d" % (offset + n), b"value", 1_700_000_000_000 + n, [("h", b"1")]) for n in range(50)]
        keys += [f"key-{offset + n}" for n in range(50)]
        batches.append(encode_batch(records, base_offset=offset, compression=codec, leader_epoch=1))
        offset += 50
    marker = encode_transaction_marker(
        9, 0, commit=True, coordinator_epoch=3, offset=offset, timestamp=1_700_000_000_000
    )
    log.write_bytes(b"".join([*batches, marker, encode_empty_batch(offset + 1, offset + 3)]))

    printed = dump_log(log)

    lines = printed.splitlines()
    headers = [line for line in lines if line.startswith("baseOffset:")]
    assert len(headers) == len(LEVELS) + 2
    assert all("isvalid: true" in line and "magic: 2" in line for line in headers)
    assert [f"compresscodec: {codec}" in line for codec, line in zip(LEVELS, headers, strict=False)] == [True] * 5
    shown = [line for line in lines if line.startswith("| offset:")]
    assert [line.split(" key: ")[1].split()[0] for line in shown if " key: " in line] == keys
    assert "endTxnMarker: COMMIT coordinatorEpoch: 3" in printed
    for complaint in (
        "Found invalid",
        "Found mismatch",
        "Non-consecutive",
        "Non-secutive",
        "invalid bytes",
        "Exception",
    ):
        assert complaint not in printed
