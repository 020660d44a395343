"""The exception tree and Kafka's error table."""

import errno
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from logcore import errors
from logcore.errors import CorruptBatch, CorruptionError, CorruptionReason, RecordError

GOLDEN = Path(__file__).parents[2] / "golden" / "errors.tsv"

# The exceptions of Kafka's client that extend InvalidMetadataException.
REFRESH_METADATA = {
    "UNKNOWN_TOPIC_OR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
    "REPLICA_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "KAFKA_STORAGE_ERROR",
    "LISTENER_NOT_FOUND",
    "FENCED_LEADER_EPOCH",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "ELECTION_NOT_NEEDED",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
}

ONE_OF_EACH = [
    errors.LogcoreError("plain"),
    errors.InvariantError("high watermark beyond the log end"),
    errors.UsageError("level", where="gzip", got=12, wanted="1 to 9"),
    errors.UsageTypeError("key", where="record 3", got="str", wanted="bytes or None"),
    errors.PeerError("frame size", where="127.0.0.1:4242", got=-1, wanted="0 or more"),
    errors.StorageError("append", errno=errno.ENOSPC, path="orders-0/0.log"),
    errors.KafkaError("no code of its own"),
    errors.InvalidRecordError("refused", record_errors=[RecordError(3, "key is null"), RecordError(5, "too old")]),
    *(
        cls("what", reason=CorruptionReason.CRC, got="0x1f", wanted="0x9a", path="f", position=1, offset=2, at=4)
        for cls in (CorruptionError, CorruptBatch, errors.CorruptIndex, errors.CorruptSnapshot)
    ),
]


def attributes(error: Exception) -> dict[str, object]:
    """Everything that can be read from an error, whether kept in the instance, a slot or the class."""
    unset = {"characters_written"}  # an OSError has it only when a write was cut short
    names = [name for name in dir(error) if not name.startswith("_") and name not in unset]
    return {name: value for name in names if not callable(value := getattr(error, name)) or isinstance(value, type)}


# --- Kafka's table


def test_the_table_equals_kafkas() -> None:
    ours = [(str(row.code), row.name, str(row.retriable).lower()) for row in errors.ERROR_TABLE]
    header, *golden = (tuple(line.split("\t")) for line in GOLDEN.read_text().splitlines())
    assert header == ("code", "name", "retriable")
    assert len(golden) == 135
    assert ours == golden


def test_metadata_is_refreshed_for_the_errors_kafka_refreshes_it_for() -> None:
    assert {row.name for row in errors.ERROR_TABLE if row.refresh_metadata} == REFRESH_METADATA


@pytest.mark.parametrize("row", [row for row in errors.ERROR_TABLE if row.code], ids=lambda row: row.name)
def test_every_row_but_none_has_its_class(row: errors.ErrorRow) -> None:
    cls = errors.error_for_code(row.code)
    assert cls is errors.error_for_name(row.name) is getattr(errors, row.class_name)
    assert cls.__bases__ == (errors.KafkaError,)
    assert (cls.__module__, cls.__qualname__) == ("logcore.errors", row.class_name)
    assert (cls.code, cls.name, cls.retriable, cls.refresh_metadata) == row


def test_class_names_are_camel_case_and_end_in_error_once() -> None:
    assert errors.InvalidRecordError.code == 87
    assert errors.UnsupportedForMessageFormatError.code == 43
    assert errors.KafkaStorageError.code == 56
    assert errors.UnknownServerError.code == -1
    assert errors.NetworkExceptionError.code == 13


def test_none_is_no_error() -> None:
    with pytest.raises(errors.UsageError, match=r"^Kafka error code: got 0 \(NONE\), wanted the code of an error$"):
        errors.error_for_code(0)
    with pytest.raises(errors.UsageError, match=r"^Kafka error name: got 'NONE', wanted a name"):
        errors.error_for_name("NONE")
    assert not hasattr(errors, "NoneError")


@pytest.mark.parametrize("code", [-2, 134, 32767])
def test_an_unknown_code_is_an_unknown_server_error_that_tells_the_code(code: int) -> None:
    assert errors.error_for_code(code) is errors.UnknownServerError
    assert str(errors.kafka_error(code)) == f"unknown error code {code}"
    assert str(errors.kafka_error(code, "later")) == f"unknown error code {code}: later"


def test_a_known_code_without_a_message_tells_its_name() -> None:
    assert str(errors.kafka_error(10)) == "MESSAGE_TOO_LARGE"
    error = errors.kafka_error(87, "refused", record_errors=[RecordError(3, "key is null")])
    assert type(error) is errors.InvalidRecordError
    assert (str(error), error.record_errors) == ("refused", (RecordError(3, "key is null"),))


def test_an_unknown_name_is_a_usage_error() -> None:
    with pytest.raises(errors.UsageError, match="got 'INVALID_RECROD'"):
        errors.error_for_name("INVALID_RECROD")


def test_a_misspelt_class_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match=r"'logcore\.errors' has no attribute 'InvalidRecrodError', and Kafka no"):
        _ = errors.InvalidRecrodError
    with pytest.raises(ImportError, match="InvalidRecrodError"):
        from logcore.errors import InvalidRecrodError  # noqa: F401


# --- the tree


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_keeps_the_type_the_message_and_every_attribute(error: Exception, protocol: int) -> None:
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert attributes(copy) == attributes(error)


def test_every_error_is_a_logcore_error_and_the_builtin_that_callers_expect() -> None:
    assert all(isinstance(error, errors.LogcoreError) for error in ONE_OF_EACH)
    assert issubclass(errors.UsageError, ValueError)
    assert issubclass(errors.UsageTypeError, errors.UsageError)
    assert issubclass(errors.UsageTypeError, TypeError)
    assert issubclass(errors.StorageError, OSError)
    assert not issubclass(errors.PeerError, errors.UsageError)


@pytest.mark.parametrize("cls", [errors.UsageError, errors.UsageTypeError, errors.PeerError])
def test_a_broken_rule_tells_what_where_got_wanted(cls: type[errors.UsageError]) -> None:
    assert str(cls("key", where="record 3", got="str", wanted="bytes")) == "key, record 3: got str, wanted bytes"
    assert str(cls("batch size", got=0, wanted=1)) == "batch size: got 0, wanted 1"
    assert str(cls("records", wanted="at least one")) == "records: wanted at least one"
    assert str(cls("buffer was released", where="decode_batches")) == "buffer was released, decode_batches"
    assert str(cls("buffer was released")) == "buffer was released"


def test_a_storage_error_keeps_errno_and_path(tmp_path: Path) -> None:
    error = errors.StorageError("sync", errno=errno.EIO, path=tmp_path / "0.log")
    assert (error.errno, error.path, error.filename) == (errno.EIO, str(tmp_path / "0.log"), str(tmp_path / "0.log"))
    assert str(error) == f"sync, {tmp_path}/0.log: got errno {errno.EIO} ({error.strerror})"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({}, "batch: size got 3, wanted at least 14"),
        ({"position": 0}, "batch at position 0: size got 3, wanted at least 14"),
        ({"path": "0.log"}, "batch in 0.log: size got 3, wanted at least 14"),
        ({"path": "0.log", "position": 64}, "batch at position 64 of 0.log: size got 3, wanted at least 14"),
        ({"position": 64, "offset": 9}, "batch at position 64, offset 9: size got 3, wanted at least 14"),
        ({"position": 64, "at": 8}, "batch at position 64, byte 8: size got 3, wanted at least 14"),
        ({"position": 64, "record_index": 0}, "batch at position 64, record 0: size got 3, wanted at least 14"),
        (
            {"path": "0.log", "position": 64, "offset": 9, "record_index": 7, "at": 0},
            "batch at position 64 of 0.log, offset 9, record 7 at byte 0: size got 3, wanted at least 14",
        ),
    ],
)
def test_corruption_tells_what_where_got_wanted(place: dict[str, Any], message: str) -> None:
    error = CorruptBatch("size", reason=CorruptionReason.BATCH_SIZE, got=3, wanted="at least 14", **place)
    assert str(error) == message


def test_corruption_names_the_thing_that_is_corrupt() -> None:
    reason = CorruptionReason.TRUNCATED
    assert str(errors.CorruptIndex("no whole entry", reason=reason, path=Path("0.index"))) == (
        "index in 0.index: no whole entry"
    )
    assert str(errors.CorruptSnapshot("cut", reason=reason, position=6)) == "snapshot at position 6: cut"
    assert str(CorruptionError("cut", reason=reason)) == "data: cut"


def test_at_path_moves_a_copy_into_the_file() -> None:
    try:
        raise CorruptBatch(
            "crc", reason=CorruptionReason.CRC, got="0x1f", wanted="0x9a", position=96, offset=7, record_index=2, at=17
        ) from ZeroDivisionError()
    except CorruptBatch as caught:
        error = caught
    moved = error.at_path(Path("orders-0") / "0.log", 4000)

    assert type(moved) is CorruptBatch
    place = "batch at position 4096 of orders-0/0.log, offset 7, record 2 at byte 17"
    assert str(moved) == f"{place}: crc got 0x1f, wanted 0x9a"
    assert (error.path, error.position) == (None, 96)
    assert attributes(moved) == attributes(error) | {
        "path": "orders-0/0.log",
        "position": 4096,
        "where": place,
    }
    assert moved.__cause__ is error.__cause__
    assert traceback.extract_tb(moved.__traceback__) == traceback.extract_tb(error.__traceback__)


def test_at_path_leaves_an_unknown_position_unknown() -> None:
    moved = CorruptBatch("cut", reason=CorruptionReason.TRUNCATED).at_path("0.log", 4000)
    assert (moved.path, moved.position) == ("0.log", None)


@pytest.mark.parametrize("reason", CorruptionReason, ids=lambda reason: reason.name)
def test_a_reason_maps_to_corrupt_message_if_bytes_were_damaged_on_the_way_and_else_to_invalid_record(
    reason: CorruptionReason,
) -> None:
    on_the_way = {"BATCH_SIZE", "MAGIC", "CRC", "TRUNCATED", "DECOMPRESSION", "DECOMPRESSED_SIZE"}
    wanted = errors.CorruptMessageError if reason.name in on_the_way else errors.InvalidRecordError
    assert CorruptBatch("what", reason=reason).kafka_error is wanted


def test_a_record_error_is_frozen() -> None:
    error = RecordError(3, "key is null")
    with pytest.raises(AttributeError):
        error.index = 4  # type: ignore[misc]


def test_errors_import_nothing_else_of_logcore() -> None:
    package = Path(errors.__file__).parent
    script = (
        "import sys, types; parent = types.ModuleType('logcore'); parent.__path__ = [sys.argv[1]];"
        "sys.modules['logcore'] = parent; import logcore.errors;"
        "print(*sorted(name for name in sys.modules if name.startswith('logcore')))"
    )
    run = subprocess.run([sys.executable, "-c", script, package.parent], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["logcore", "logcore.errors", "logcore.errors.kafka", "logcore.errors.tree"]
