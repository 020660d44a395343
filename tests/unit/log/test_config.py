"""A log's configuration: Kafka's names, defaults, bounds and syntax, and what is refused by name."""

import csv
import dataclasses
import pickle
from typing import Any, NamedTuple

import numpy
import pytest

from logcore import Record, encode_batch
from logcore._validate import validate
from logcore.errors import UsageError, UsageTypeError
from logcore.log.config import BROKER_NAMES, SETTINGS, Compression, LogConfig
from tests.helpers import GOLDEN, golden_lines

LONG_MAX = 2**63 - 1


class Row(NamedTuple):
    name: str
    type: str
    default: str
    importance: str


with (GOLDEN / "topic-configs.tsv").open(encoding="utf-8", newline="") as _lines:
    TOPIC_CONFIGS = [Row(*row) for row in list(csv.reader(_lines, delimiter="\t"))[1:]]

BROKER_CONFIGS = {
    "producer.id.expiration.ms": ("INT", 86400000),
    "transaction.max.timeout.ms": ("INT", 900000),
    "log.cleaner.dedupe.buffer.size": ("LONG", 134217728),
    "log.cleaner.io.buffer.load.factor": ("DOUBLE", 0.9),
}

# Something else than the default, as text and as the value of the field; of what is refused: with the words for it.
HONOURED: dict[str, tuple[str, object]] = {
    "cleanup.policy": ("compact", frozenset({"compact"})),
    "compression.gzip.level": ("9", 9),
    "compression.lz4.level": ("17", 17),
    "compression.type": ("zstd", "zstd"),
    "compression.zstd.level": ("-7", -7),
    "delete.retention.ms": ("0", 0),
    "file.delete.delay.ms": ("0", 0),
    "flush.messages": ("1", 1),
    "flush.ms": ("0", 0),
    "index.interval.bytes": ("0", 0),
    "max.compaction.lag.ms": ("1", 1),
    "max.message.bytes": ("0", 0),
    "message.timestamp.after.max.ms": ("0", 0),
    "message.timestamp.before.max.ms": ("0", 0),
    "message.timestamp.type": ("LogAppendTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": ("0.25", 0.25),
    "min.compaction.lag.ms": ("60000", 60000),
    "preallocate": ("true", True),
    "retention.bytes": ("-5", -5),
    "retention.ms": ("-1", -1),
    "segment.bytes": ("1048576", 1048576),
    "segment.index.bytes": ("4", 4),
    "segment.jitter.ms": ("1000", 1000),
    "segment.ms": ("1", 1),
}
KEPT: dict[str, tuple[str, object]] = {
    "follower.replication.throttled.replicas": ("*", ("*",)),
    "leader.replication.throttled.replicas": ("0:101, 1:102", ("0:101", "1:102")),
    "min.insync.replicas": ("2", 2),
    "unclean.leader.election.enable": ("true", True),
    "remote.log.copy.disable": ("true", True),
    "remote.log.delete.on.disable": ("true", True),
}
REFUSED = {
    "local.retention.bytes": ("1048576", "-2, or -1 as in retention.bytes: .*tiered storage is not here yet"),
    "local.retention.ms": ("1000", "-2, or 604800000 as in retention.ms: .*tiered storage is not here yet"),
    "remote.storage.enable": ("true", "false: tiered storage is not here yet"),
}


def field_of(config: LogConfig, name: str) -> Any:
    return getattr(config, name.replace(".", "_"))


def as_kafka_writes(value: object) -> str:
    """A default as the table has it."""
    if isinstance(value, frozenset | tuple):
        return f"[{','.join(value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


# ----------------------------------------------------------------------------------------------------- Kafka's table


@pytest.mark.parametrize("row", TOPIC_CONFIGS, ids=lambda row: row.name)
def test_every_topic_setting_has_kafkas_type_and_default_and_is_honoured_kept_or_refused(row):
    assert SETTINGS[row.name].kafka_type == row.type
    assert as_kafka_writes(field_of(LogConfig(), row.name)) == row.default
    assert LogConfig.of({row.name: row.default.strip("[]")}) == LogConfig()
    assert [row.name in table for table in (HONOURED, KEPT, REFUSED)].count(True) == 1
    if row.name in REFUSED:
        text, words = REFUSED[row.name]
        with pytest.raises(UsageError, match=f"^{row.name}, log config: got {text}, wanted {words}$"):
            LogConfig.of({row.name: text})
    else:
        text, value = (HONOURED | KEPT)[row.name]
        config = LogConfig.of({row.name: text})
        assert field_of(config, row.name) == value != field_of(LogConfig(), row.name)
        assert type(field_of(config, row.name)) is type(value)


def test_the_settings_are_those_of_the_table_and_a_few_of_brokers():
    internal = {"internal.segment.bytes"}
    assert set(SETTINGS) == {row.name for row in TOPIC_CONFIGS} | set(BROKER_CONFIGS) | internal
    assert {row.importance for row in TOPIC_CONFIGS} == {"MEDIUM"}
    for name, (kafka_type, default) in BROKER_CONFIGS.items():
        assert (SETTINGS[name].kafka_type, field_of(LogConfig(), name)) == (kafka_type, default)


# --------------------------------------------------------------------------------------------------- Kafka's verdicts


def why_stricter(config: dict[str, str]) -> str | None:
    """Why we may refuse what Kafka takes; None: there is no reason to."""
    for name, text in config.items():
        if name in ("local.retention.bytes", "local.retention.ms", "remote.storage.enable"):
            return "tiered storage"
        if name == "min.cleanable.dirty.ratio" and text in ("NaN", "0x1p-1", "0x0.8p0"):
            return "no decimal number"
        if name == "internal.segment.bytes" and text.startswith(("0", "-")):
            return "a segment for no bytes"
    return None


def as_kafka_keeps(name: str, text: str) -> str:
    """A value that Kafka tells, in the order and without the empty elements that ours has."""
    if name == "cleanup.policy":
        return ",".join(sorted(text.split(","))) if text else ""
    if name.endswith(".replicas"):
        return ",".join(part.strip("\0") for part in text.split(",") if part)
    return text


def test_what_kafka_takes_and_refuses_we_take_and_refuse():
    """CLN-012: among others. Each setting with 151 texts, and settings that depend on each other."""
    stricter = set()
    refused = taken = 0
    for verdict in golden_lines("config-verdicts.jsonl.gz"):
        given = verdict["config"]
        if set(given) & set(BROKER_CONFIGS):
            continue  # no names of a topic's
        if "refused" in verdict:
            refused += 1
            with pytest.raises(UsageError) as caught:
                LogConfig.of(given)
            assert caught.value.what[:200] in given, given
            continue
        taken += 1
        try:
            config = LogConfig.of(given)
        except UsageError:
            stricter.add(why_stricter(given))
            continue
        told = config.to_dict()
        for name, text in verdict["values"].items():
            assert as_kafka_writes(told[name]) == as_kafka_keeps(name, text), given
        derived = {
            "segmentSize": config.segment_size,
            "initFileSize": config.init_file_size,
            "maxSegmentMs": config.max_segment_ms,
            "compact": config.is_compacted,
            "delete": config.is_deleting,
        }
        assert {name: as_kafka_writes(value) for name, value in derived.items()} | {
            "compression": verdict["derived"]["compression"]
        } == verdict["derived"], given
        in_kafka = verdict["derived"]["compression"]
        assert config.compression_for().codec == ("none" if in_kafka == "producer" else in_kafka)
    assert (refused, taken) == (4452, 797)
    assert stricter == {"tiered storage", "no decimal number", "a segment for no bytes"}


def test_a_broker_knows_no_smaller_map_for_compaction_and_no_shorter_times():
    for name, good, bad in (
        ("producer.id.expiration.ms", 1, 0),
        ("transaction.max.timeout.ms", 2147483647, 2147483648),
        ("transaction.max.timeout.ms", 1, 0),
        ("log.cleaner.dedupe.buffer.size", 1048577, 1048576),
        ("log.cleaner.io.buffer.load.factor", 1, 1.01),
        ("log.cleaner.io.buffer.load.factor", "0.001", 0),
    ):
        LogConfig.of({name: good})
        with pytest.raises(UsageError, match=f"^{name}, log config: got {bad}, wanted "):
            LogConfig.of({name: bad})


def test_a_map_for_compaction_has_room_for_more_than_one_record():
    small = {"log.cleaner.dedupe.buffer.size": 24 * 50_000}
    LogConfig.of(small | {"log.cleaner.io.buffer.load.factor": 1.01 / 50_000})
    with pytest.raises(
        UsageError, match=r"load\.factor, log config: got 2e-05, wanted .* more than one of 50000 slots"
    ):
        LogConfig.of(small | {"log.cleaner.io.buffer.load.factor": 1 / 50_000})


# --------------------------------------------------------------------------------------------------------- the values


def test_values_may_be_text_int_bool_or_float():
    config = LogConfig.of(
        {"retention.ms": 5, "preallocate": True, "min.cleanable.dirty.ratio": 0.25, "segment.ms": " 7\n"}
    )
    assert (config.retention_ms, config.preallocate, config.min_cleanable_dirty_ratio, config.segment_ms) == (
        *(5, True, 0.25),
        7,
    )
    assert LogConfig.of({"min.cleanable.dirty.ratio": 1}).min_cleanable_dirty_ratio == 1.0
    of_numpy = LogConfig.of({"segment.ms": numpy.int64(7), "min.cleanable.dirty.ratio": numpy.float64(0.25)})
    assert repr(of_numpy) == "LogConfig.of({'segment.ms': 7, 'min.cleanable.dirty.ratio': 0.25})"
    assert LogConfig.of(None) == LogConfig.of({}) == LogConfig.of() == LogConfig()


@pytest.mark.parametrize(
    ("name", "value", "got"),
    [
        ("retention.ms", True, "bool"),
        ("retention.ms", 5.0, "float"),
        ("retention.ms", None, "NoneType"),
        ("retention.ms", b"5", "bytes"),
        ("internal.segment.bytes", 1.5, "float"),
        ("min.cleanable.dirty.ratio", False, "bool"),
        ("min.cleanable.dirty.ratio", 0.5j, "complex"),
        ("preallocate", 1, "int"),
        ("preallocate", 0.0, "float"),
        ("compression.type", 1, "int"),
        ("compression.type", None, "NoneType"),
        ("cleanup.policy", ["compact"], "list"),
        ("cleanup.policy", True, "bool"),
        ("leader.replication.throttled.replicas", ("0:1",), "tuple"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_what_is_wanted(name, value, got):
    with pytest.raises(UsageTypeError, match=f"^{name}, log config: got {got}, wanted ") as caught:
        LogConfig.of({name: value})
    assert SETTINGS[name].wanted in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment.bytes", "1 MiB", "got '1 MiB', wanted an int, 1048576 to 2147483647"),
        ("segment.bytes", 1048575, "got 1048575, wanted an int, 1048576 to 2147483647"),
        ("segment.bytes", 10**400, "got an int of 1329 bits, wanted an int, 1048576 to 2147483647"),
        ("retention.ms", 2**63, "got 9223372036854775808, wanted an int, -1 to 9223372036854775807"),
        ("compression.gzip.level", 0, "got 0, wanted an int, -1 or 1 to 9"),
        ("min.cleanable.dirty.ratio", float("nan"), "got nan, wanted a number, 0 to 1"),
        ("min.cleanable.dirty.ratio", 10**400, "got an int of 1329 bits, wanted a number, 0 to 1"),
        ("preallocate", "yes", "got 'yes', wanted true or false"),
        ("compression.type", "none", "got 'none', wanted one of producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("cleanup.policy", "Compact", 'wanted "compact", "delete", "compact,delete" or "" for neither'),
        ("leader.replication.throttled.replicas", "0", 'wanted "*" or a list of partition:broker'),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_is_wanted(name, value, message):
    with pytest.raises(UsageError) as caught:
        LogConfig.of({name: value})
    assert str(caught.value).startswith(f"{name}, log config: got ")
    assert message in str(caught.value)
    assert not isinstance(caught.value, UsageTypeError)


def test_text_of_any_length_is_refused_in_few_words():
    for name, text in (
        ("retention.ms", "9" * 100_000),
        ("min.cleanable.dirty.ratio", "9" * 100_000),
        ("min.cleanable.dirty.ratio", "9" * 100_000 + "x"),
        ("cleanup.policy", "a" + " " * 1_000_000 + "b"),
        ("leader.replication.throttled.replicas", ",".join(["0:1"] * 100_000) + ",x"),
        ("x" * 100_000, "5"),
    ):
        with pytest.raises(UsageError) as caught:
            LogConfig.of({name: text})
        assert len(str(caught.value)) < 400


def test_an_unknown_name_is_told_with_the_nearest_known_one():
    for unknown, near in (
        ("segment.byte", "segment.bytes"),
        ("segment_bytes", "segment.bytes"),
        ("SEGMENT.BYTES", None),
        ("message.timestamp.difference.max.ms", "message.timestamp.after.max.ms"),
        ("", None),
    ):
        with pytest.raises(
            UsageError, match=f"^{unknown}, log config: got an unknown name, wanted one of Kafka's for topics"
        ) as caught:
            LogConfig.of({"segment.ms": 5, unknown: 5})
        assert str(caught.value).endswith("for topics" if near is None else f"the nearest is {near}")


def test_a_brokers_name_is_told_with_the_topics():
    for given, wanted in BROKER_NAMES.items():
        assert given not in SETTINGS
        with pytest.raises(
            UsageError, match=f"^{given}, log config: got a broker's name, wanted the topic's, {wanted}$"
        ):
            LogConfig.of({given: 5})
        assert wanted in SETTINGS


def test_a_wrong_list_is_told_as_it_was_written():
    with pytest.raises(UsageError, match=r"^cleanup\.policy, log config: got 'compacted', wanted"):
        LogConfig.of({"cleanup.policy": "compacted"})


def test_what_is_no_mapping_of_names_is_refused():
    for config in ([("segment.ms", 5)], "segment.ms=5", 5):
        with pytest.raises(UsageTypeError, match=r"^log config: got .*, wanted a mapping of names"):
            LogConfig.of(config)  # type: ignore[arg-type]
    with pytest.raises(UsageTypeError, match=r"^name of a setting, log config: got int, wanted a str$"):
        LogConfig.of({5: 5})  # type: ignore[dict-item]


# ----------------------------------------------------------------------------------------------------- dependent ones


def test_the_least_lag_of_a_compaction_is_not_over_the_largest():
    LogConfig.of({"min.compaction.lag.ms": 100, "max.compaction.lag.ms": 100})
    with pytest.raises(UsageError, match=r"^min\.compaction\.lag\.ms, log config: got 200, wanted at most max.*, 100$"):
        LogConfig.of({"min.compaction.lag.ms": 200, "max.compaction.lag.ms": 100})


def test_a_local_retention_that_is_the_retention_asks_for_nothing():
    config = LogConfig.of({"retention.ms": 5, "local.retention.ms": 5, "local.retention.bytes": -1})
    assert (config.local_retention_ms, config.local_retention_bytes) == (5, -1)
    with pytest.raises(UsageError, match=r"^local\.retention\.ms, log config: got 5, wanted -2, or 4 "):
        config.with_changes({"retention.ms": 4})
    with pytest.raises(UsageError, match=r"^local\.retention\.ms, log config: got -3, wanted an int, -2 to "):
        LogConfig.of({"local.retention.ms": -3})


def test_small_segments_are_asked_for_by_the_internal_name():
    config = LogConfig.of({"internal.segment.bytes": "1000", "preallocate": True})
    assert (config.segment_size, config.segment_bytes, config.init_file_size) == (1000, 1 << 30, 1000)
    assert LogConfig.of({"segment.bytes": 2 << 20}).segment_size == 2 << 20
    assert LogConfig().init_file_size == 0
    with pytest.raises(UsageError, match=r"^segment\.bytes, log config: got 1000, "):
        LogConfig.of({"internal.segment.bytes": "1000", "segment.bytes": "1000"})


@pytest.mark.parametrize(
    ("policy", "lag_ms", "segment_ms", "max_segment_ms"),
    [
        ("compact", 1000, 5000, 1000),
        ("compact,delete", 1000, 5000, 1000),
        ("compact", 9000, 5000, 5000),
        ("compact", LONG_MAX, LONG_MAX, LONG_MAX),
        ("delete", 1000, 5000, 5000),
        ("", 1000, 5000, 5000),
    ],
)
def test_a_compacted_log_rolls_before_its_records_are_older_than_the_largest_lag(
    policy, lag_ms, segment_ms, max_segment_ms
):
    """CLN-012."""
    config = LogConfig.of(
        {"cleanup.policy": policy, "max.compaction.lag.ms": lag_ms, "segment.ms": segment_ms},
    )
    assert config.max_segment_ms == max_segment_ms


@pytest.mark.parametrize(
    ("jitter_ms", "segment_ms", "bound_ms"), [(0, 5000, 0), (1000, 5000, 1000), (9000, 5000, 5000), (1, 1, 1)]
)
def test_the_jitter_of_a_roll_is_less_than_the_setting_and_than_the_time_itself(jitter_ms, segment_ms, bound_ms):
    """SEG-035: the bound; the log draws."""
    config = LogConfig.of({"segment.jitter.ms": jitter_ms, "segment.ms": segment_ms})
    assert config.segment_jitter_bound_ms == bound_ms


@pytest.mark.parametrize(
    ("policy", "is_compacted", "is_deleting"),
    [
        ("compact", True, False),
        ("delete", False, True),
        (" compact ,\tdelete ", True, True),
        ("delete,delete", False, True),
        ("", False, False),
        ("  ", False, False),
    ],
)
def test_a_log_is_compacted_or_cut_or_both_or_kept_for_ever(policy, is_compacted, is_deleting):
    config = LogConfig.of({"cleanup.policy": policy})
    assert (config.is_compacted, config.is_deleting) == (is_compacted, is_deleting)


@pytest.mark.parametrize(
    ("compression_type", "level", "alone", "requested"),
    [
        ("producer", None, ("none", None), ("gzip", 5)),
        ("uncompressed", None, ("none", None), ("gzip", 5)),
        ("gzip", 5, ("gzip", 5), ("gzip", 5)),
        ("snappy", None, ("snappy", None), ("gzip", 5)),
        ("lz4", 9, ("lz4", 9), ("gzip", 5)),
        ("zstd", -3, ("zstd", -3), ("gzip", 5)),
    ],
)
def test_records_are_encoded_as_requested_or_else_as_the_topic_says(compression_type, level, alone, requested):
    """In the words that the encoder and the validator take."""
    config = LogConfig.of(
        {"compression.type": compression_type, "compression.gzip.level": 5, "compression.zstd.level": -3}
    )
    assert config.compression_level == level
    assert config.compression_for() == Compression(*alone)
    assert config.compression_for("gzip") == Compression(*requested)
    assert config.compression_for("none") == ("none", None)
    with pytest.raises(UsageError, match=r"^compression"):
        encode_batch([], compression=config.compression_for(["gzip"]).codec)  # type: ignore[arg-type]
    codec, level = config.compression_for()
    data = encode_batch([Record(timestamp=5, value=b"v")], compression=codec, level=level)
    validated = validate(
        data,
        now_ms=5,
        timestamp_type=config.timestamp_type,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compacted=config.is_compacted,
        compression=config.compression_type,
        level=config.compression_level,
    )
    assert validated.batch_count == 1


def test_the_type_of_timestamps_is_told_as_the_codec_spells_it():
    assert LogConfig().timestamp_type == "create_time"
    assert LogConfig.of({"message.timestamp.type": "LogAppendTime"}).timestamp_type == "log_append_time"


# --------------------------------------------------------------------------------------------------------- the object


def test_changes_make_another_configuration_and_leave_this_one():
    config = LogConfig.of({"segment.ms": 5, "retention.ms": 7})
    changed = config.with_changes({"retention.ms": "8", "cleanup.policy": "compact"})
    assert changed == LogConfig.of({"segment.ms": 5, "retention.ms": 8, "cleanup.policy": "compact"})
    assert config == LogConfig.of({"segment.ms": 5, "retention.ms": 7})
    assert config.with_changes({}) == config
    with pytest.raises(UsageError, match=r"^retention\.ms, "):
        config.with_changes({"retention.ms": -2})
    with pytest.raises(UsageTypeError, match=r"^log config: got NoneType, "):
        config.with_changes(None)  # type: ignore[arg-type]


def test_what_is_told_by_kafkas_names_makes_the_same_configuration():
    everything = {name: text for name, (text, _) in (HONOURED | KEPT).items() if name != "max.compaction.lag.ms"}
    config = LogConfig.of(everything | {"internal.segment.bytes": 1000})
    assert LogConfig.of(config.to_dict()) == config
    assert LogConfig.of({name: as_kafka_writes(value) for name, value in config.to_dict().items()}) == config
    assert set(config.to_dict()) == set(SETTINGS)
    assert set(LogConfig().to_dict()) == set(SETTINGS) - {"internal.segment.bytes"}
    assert config.to_dict()["leader.replication.throttled.replicas"] == "0:101,1:102"
    assert LogConfig.of({"cleanup.policy": "delete,compact"}).to_dict()["cleanup.policy"] == "compact,delete"


def test_only_what_differs_from_the_defaults_is_shown():
    assert repr(LogConfig()) == "LogConfig()"
    config = LogConfig.of({"retention.ms": 604800000, "cleanup.policy": "", "internal.segment.bytes": 5})
    assert repr(config) == "LogConfig.of({'internal.segment.bytes': 5, 'cleanup.policy': ''})"
    assert eval(repr(config)) == config


def test_a_configuration_never_changes_and_goes_by_its_values():
    config = LogConfig.of({"segment.ms": 5})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.segment_ms = 6  # type: ignore[misc]
    assert not hasattr(config, "__dict__")
    assert {config: 1}[LogConfig.of({"segment.ms": "5"})] == 1
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_configuration_made_field_by_field_is_checked_too():
    assert LogConfig(segment_ms=5) == LogConfig.of({"segment.ms": 5})
    assert dataclasses.replace(LogConfig(), segment_ms=5) == LogConfig(segment_ms=5)
    made: dict[str, Any]
    for made in (
        {"segment_ms": 0},
        {"segment_ms": "5"},
        {"segment_ms": True},
        {"segment_ms": None},
        {"cleanup_policy": "compact"},
        {"cleanup_policy": frozenset({"Compact"})},
        {"cleanup_policy": frozenset({5})},
        {"leader_replication_throttled_replicas": ("*", "0:1")},
        {"leader_replication_throttled_replicas": ("",)},
        {"leader_replication_throttled_replicas": (5,)},
        {"compression_type": "none"},
        {"remote_storage_enable": True},
    ):
        with pytest.raises(UsageError, match=f"^{next(iter(made)).replace('_', '.')}, log config: "):
            LogConfig(**made)
