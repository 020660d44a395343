"""A log's configuration, by Kafka's names: what each setting is, what it may be, and what it is unless told.

    mapping of names  ──Setting.read──>  values  ──LogConfig──>  each checked, then all together; frozen
    to text, int, bool                                           (a LogConfig that breaks a rule cannot be made)

Names, types, defaults and bounds are those of Kafka 4.3's topics. Beside them stand a few settings of brokers that a
log needs and topics do not have. Text is read as Kafka reads it: trimmed, lists at commas, "TRUE" is true, "+5" is 5.

A setting is one of three:

    honoured   by the log: most
    kept       for a broker. To a single log min.insync.replicas, unclean.leader.election.enable and the throttled
               replicas mean nothing, as in Kafka.
    refused    if it asks for tiered storage, which is not here yet: remote.storage.enable=true, and a local.retention
               that is not what the retention is. remote.log.copy.disable and remote.log.delete.on.disable are kept:
               they say what is not to be copied and what is to be deleted there, and there is nothing there.

Stricter than Kafka, where it checks nothing: a ratio is a decimal number (no NaN, no hexadecimal digits),
internal.segment.bytes is not 0 or less, log.cleaner.io.buffer.load.factor is not over 1.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, final

from logcore.errors import UsageError, UsageTypeError

INT_MAX = (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

KafkaType = Literal["BOOLEAN", "INT", "LONG", "DOUBLE", "STRING", "LIST"]

_WHERE = "log config"
_SHOWN_MAX = 100  # characters of what was got
_NAME_MAX = 200  # of an unknown name that is compared with the known ones: that takes quadratic time
_OFFSET_MAP_ENTRY_BYTES = 24  # of Kafka's map for compaction: a digest of 16 bytes and an offset

_TRIMMED = "".join(map(chr, range(0x21)))  # what Java's String.trim() takes off
_SPACES = " \t\n\v\f\r"  # what Java's patterns call white space
_INTEGER = re.compile(r"[+-]?\d+")  # any script's digits, as in Java
_DECIMAL = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_REPLICA = re.compile(r"[0-9]+:[0-9]+")


class Compression(NamedTuple):
    """What an encoder is told: `encode_batch(records, compression=codec, level=level)`."""

    codec: str
    level: int | None  # None: the codec has none, or its default


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """What there is to know about a setting, its name aside.

    kafka_type   Kafka's word for what it is
    default      what it is unless told; None: nothing
    wanted       what it may be, in words
    """

    kafka_type: KafkaType
    default: Any
    wanted: str
    _python_type: type | tuple[type, ...]
    _parse: Callable[[str], Any]  # trimmed text to a value; ValueError
    _allows: Callable[[Any], bool]

    def read(self, name: str, given: object) -> Any:
        """The value that a caller means; text is parsed. What is no text is left to check()."""
        if isinstance(given, str):
            try:
                return self._parse(given.strip(_TRIMMED))
            except ValueError:
                raise self._refused(name, given) from None
        if self.kafka_type in ("STRING", "LIST"):
            raise UsageTypeError(name, where=_WHERE, got=type(given).__name__, wanted=f"a str: {self.wanted}")
        if isinstance(given, bool):
            return given
        if isinstance(given, float):
            return float(given)  # and not what is derived from it, as numpy's are
        try:
            return operator.index(given)  # type: ignore[arg-type]  # numpy's ints are ints
        except TypeError:
            return given

    def check(self, name: str, value: object) -> None:
        """Raise UsageError unless the setting may be `value`."""
        if value is None and self.default is None:
            return
        is_stray_bool = isinstance(value, bool) and self._python_type is not bool  # bool is an int to Python
        if is_stray_bool or not isinstance(value, self._python_type):
            raise UsageTypeError(name, where=_WHERE, got=type(value).__name__, wanted=self.wanted)
        if not self._allows(value):
            raise self._refused(name, value)

    def _refused(self, name: str, got: object) -> UsageError:
        if isinstance(got, (frozenset, tuple)) and all(isinstance(part, str) for part in got):
            got = _plain(got)  # as it was written
        return UsageError(
            name, where=_WHERE, got=got if isinstance(got, int) else repr(got)[:_SHOWN_MAX], wanted=self.wanted
        )


def _field(setting: Setting) -> Any:
    """A field of LogConfig; its name has a "_" where Kafka's has a "."."""
    return field(default=setting.default, metadata={"setting": setting})


def _parse_integer(text: str) -> int:
    # Java looks at halves of what lies beyond the first plane, and finds no digit.
    if not _INTEGER.fullmatch(text) or max(text) > "\uffff":
        raise ValueError
    return int(text)


def _parse_decimal(text: str) -> float:
    found = _DECIMAL.fullmatch(text)
    if found is None:
        raise ValueError
    return float(found[1])


def _parse_boolean(text: str) -> bool:
    folded = text.casefold()
    if folded not in ("true", "false"):
        raise ValueError
    return folded == "true"


def _parse_policies(text: str) -> frozenset[str]:
    return frozenset(_split(text))


def _parse_replicas(text: str) -> tuple[str, ...]:
    # Kafka lets empty ones be among them, and they mean nothing.
    return tuple(part.strip(_TRIMMED) for part in _split(text) if part.strip(_TRIMMED))


def _split(text: str) -> list[str]:
    return [part.strip(_SPACES) for part in text.split(",")] if text else []


def _integer(kafka_type: KafkaType, default: int | None, low: int, high: int, also: int | None = None) -> Any:
    wanted = f"an int, {low} to {high}" if also is None else f"an int, {also} or {low} to {high}"

    def allows(value: int) -> bool:
        return low <= value <= high or value == also

    return _field(Setting(kafka_type, default, wanted, int, _parse_integer, allows))


def _int(default: int | None, low: int, high: int = INT_MAX, *, also: int | None = None) -> Any:
    return _integer("INT", default, low, high, also)


def _long(default: int, low: int) -> Any:
    return _integer("LONG", default, low, LONG_MAX)


def _ratio(default: float) -> Any:
    def allows(value: float) -> bool:
        return 0 <= value <= 1

    return _field(Setting("DOUBLE", default, "a number, 0 to 1", (int, float), _parse_decimal, allows))


def _boolean(default: bool) -> Any:
    return _field(Setting("BOOLEAN", default, "true or false", bool, _parse_boolean, lambda value: True))


def _one_of(default: str, *others: str) -> Any:
    choices = (default, *others)
    return _field(Setting("STRING", default, f"one of {', '.join(choices)}", str, str, choices.__contains__))


def _policies(default: str) -> Any:
    policies = frozenset({"compact", "delete"})
    wanted = '"compact", "delete", "compact,delete" or "" for neither'
    return _field(Setting("LIST", frozenset({default}), wanted, frozenset, _parse_policies, policies.issuperset))


def _replicas() -> Any:
    def allows(value: tuple[object, ...]) -> bool:
        return value == ("*",) or all(isinstance(part, str) and _REPLICA.fullmatch(part) for part in value)

    wanted = '"*" or a list of partition:broker such as "0:101,1:102"'
    return _field(Setting("LIST", (), wanted, tuple, _parse_replicas, allows))


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogConfig:
    """A log's configuration: a field a setting, with a "_" where Kafka's name has a ".". Made by LogConfig.of().

    A log asks segment_size, init_file_size, max_segment_ms, segment_jitter_bound_ms, timestamp_type, is_compacted,
    is_deleting, compression_level and compression_for() rather than the fields that these are made of.

    >>> config = LogConfig.of({"segment.bytes": "2097152", "cleanup.policy": "compact, delete", "preallocate": True})
    >>> config
    LogConfig.of({'segment.bytes': 2097152, 'preallocate': True, 'cleanup.policy': 'compact,delete'})
    >>> config.segment_size, config.is_compacted, config.retention_ms
    (2097152, True, 604800000)
    """

    # Segments. internal.segment.bytes wins over segment.bytes, and may be small.
    segment_bytes: int = _int(1 << 30, low=1 << 20)
    internal_segment_bytes: int | None = _int(None, low=1)
    segment_ms: int = _long(7 * 86_400_000, low=1)
    segment_jitter_ms: int = _long(0, low=0)
    segment_index_bytes: int = _int(10 << 20, low=4)
    index_interval_bytes: int = _int(4096, low=0)
    preallocate: bool = _boolean(False)
    file_delete_delay_ms: int = _long(60_000, low=0)
    flush_messages: int = _long(LONG_MAX, low=1)
    flush_ms: int = _long(LONG_MAX, low=0)

    # What may be appended, and as what.
    max_message_bytes: int = _int((1 << 20) + 12, low=0)
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = _one_of("CreateTime", "LogAppendTime")
    message_timestamp_before_max_ms: int = _long(LONG_MAX, low=0)
    message_timestamp_after_max_ms: int = _long(3_600_000, low=0)
    compression_type: Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] = _one_of(
        "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"
    )
    compression_gzip_level: int = _int(-1, low=1, high=9, also=-1)
    compression_lz4_level: int = _int(9, low=1, high=17)
    compression_zstd_level: int = _int(3, low=-131_072, high=22)

    # What goes. A retention of -1 is unlimited; of bytes any negative number is.
    cleanup_policy: frozenset[str] = _policies("delete")
    retention_bytes: int = _long(-1, low=LONG_MIN)
    retention_ms: int = _long(7 * 86_400_000, low=-1)
    delete_retention_ms: int = _long(86_400_000, low=0)
    min_compaction_lag_ms: int = _long(0, low=0)
    max_compaction_lag_ms: int = _long(LONG_MAX, low=1)
    min_cleanable_dirty_ratio: float = _ratio(0.5)

    # Kept for a broker.
    min_insync_replicas: int = _int(1, low=1)
    unclean_leader_election_enable: bool = _boolean(False)
    leader_replication_throttled_replicas: tuple[str, ...] = _replicas()
    follower_replication_throttled_replicas: tuple[str, ...] = _replicas()

    # Tiered storage. A local retention of -2 is what the retention is.
    remote_storage_enable: bool = _boolean(False)
    remote_log_copy_disable: bool = _boolean(False)
    remote_log_delete_on_disable: bool = _boolean(False)
    local_retention_bytes: int = _long(-2, low=-2)
    local_retention_ms: int = _long(-2, low=-2)

    # A broker's in Kafka, with its bounds for one cleaner thread.
    producer_id_expiration_ms: int = _int(86_400_000, low=1)
    transaction_max_timeout_ms: int = _int(900_000, low=1)
    log_cleaner_dedupe_buffer_size: int = _long(128 << 20, low=(1 << 20) + 1)
    log_cleaner_io_buffer_load_factor: float = _ratio(0.9)

    @staticmethod
    def of(config: Mapping[str, str | int | bool | float] | None = None) -> "LogConfig":
        """The configuration that `config` says, by Kafka's names; the defaults for the rest, and for None.

        UsageError names the setting that is unknown or cannot be that; UsageTypeError is one for a wrong type.

        >>> LogConfig.of({"segment.byte": 1048576})
        Traceback (most recent call last):
        logcore.errors.UsageError: segment.byte, log config: got an unknown name, wanted one of Kafka's for topics; the
        nearest is segment.bytes
        >>> LogConfig.of({"segment.bytes": "1 MiB"})
        Traceback (most recent call last):
        logcore.errors.UsageError: segment.bytes, log config: got '1 MiB', wanted an int, 1048576 to 2147483647
        """
        return LogConfig(**({} if config is None else _read(config)))

    def with_changes(self, changes: Mapping[str, str | int | bool | float]) -> "LogConfig":
        """A copy in which `changes` says what is different, checked as in of().

        >>> LogConfig().with_changes({"retention.ms": -1}).retention_ms
        -1
        """
        return replace(self, **_read(changes))

    def to_dict(self) -> dict[str, str | int | bool | float]:
        """Every setting by Kafka's name, such that of() makes an equal configuration of it. Lists are text.

        internal.segment.bytes is left out where there is none.

        >>> LogConfig().to_dict()["cleanup.policy"]
        'delete'
        """
        values = {name: getattr(self, _field_name(name)) for name in SETTINGS}
        return {name: _plain(value) for name, value in values.items() if value is not None}

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.to_dict().items() if value != _plain(SETTINGS[name].default)}
        return f"LogConfig.of({changed!r})" if changed else "LogConfig()"

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            setting.check(name, getattr(self, _field_name(name)))
        self._check_together()

    def _check_together(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise UsageError(
                "min.compaction.lag.ms",
                where=_WHERE,
                got=self.min_compaction_lag_ms,
                wanted=f"at most max.compaction.lag.ms, {self.max_compaction_lag_ms}",
            )
        slots = min(self.log_cleaner_dedupe_buffer_size, INT_MAX) // _OFFSET_MAP_ENTRY_BYTES
        if slots * self.log_cleaner_io_buffer_load_factor <= 1:
            raise UsageError(
                "log.cleaner.io.buffer.load.factor",
                where=_WHERE,
                got=repr(self.log_cleaner_io_buffer_load_factor),
                wanted=f"such that more than one of {slots} slots may be used",
            )
        if self.remote_storage_enable:
            raise UsageError(
                "remote.storage.enable", where=_WHERE, got="true", wanted="false: tiered storage is not here yet"
            )
        for unit in ("bytes", "ms"):
            local, whole = getattr(self, f"local_retention_{unit}"), getattr(self, f"retention_{unit}")
            if local not in (-2, whole):
                raise UsageError(
                    f"local.retention.{unit}",
                    where=_WHERE,
                    got=local,
                    wanted=f"-2, or {whole} as in retention.{unit}: all is local, tiered storage is not here yet",
                )

    @property
    def segment_size(self) -> int:
        """Bytes that a segment may have: internal.segment.bytes, and segment.bytes where there is none."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def init_file_size(self) -> int:
        """Bytes that a new segment's file is given at once."""
        return self.segment_size if self.preallocate else 0

    @property
    def max_segment_ms(self) -> int:
        """After how long a segment is rolled.

        A compacted log rolls after max.compaction.lag.ms at the latest: the active segment is never compacted.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def segment_jitter_bound_ms(self) -> int:
        """A segment is rolled earlier by a random time that is less than this; 0: by none."""
        return min(self.segment_jitter_ms, self.segment_ms)

    @property
    def is_compacted(self) -> bool:
        """Whether of each key only the last record is kept."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleting(self) -> bool:
        """Whether segments go that the retention does not cover. If neither this nor is_compacted, all is kept."""
        return "delete" in self.cleanup_policy

    @property
    def timestamp_type(self) -> Literal["create_time", "log_append_time"]:
        """message.timestamp.type as the codec spells it."""
        return "create_time" if self.message_timestamp_type == "CreateTime" else "log_append_time"

    @property
    def compression_level(self) -> int | None:
        """The level that goes with compression.type: `validate(…, compression=compression_type, level=this)`."""
        return self._level_of(self.compression_type)

    def compression_for(self, requested: str | None = None) -> Compression:
        """How records are to be encoded for this log: with the codec that is requested, or else compression.type.

        A log that leaves it to the producer gets what a producer does unless told: nothing is compressed. Whether there
        is such a codec as requested, the encoder looks.

        >>> config = LogConfig.of({"compression.type": "lz4", "compression.zstd.level": 19})
        >>> config.compression_for()
        Compression(codec='lz4', level=9)
        >>> config.compression_for("zstd")
        Compression(codec='zstd', level=19)
        >>> LogConfig().compression_for()
        Compression(codec='none', level=None)
        """
        if requested is not None:
            return Compression(requested, self._level_of(requested))
        codec = "none" if self.compression_type in ("producer", "uncompressed") else self.compression_type
        return Compression(codec, self._level_of(codec))

    def _level_of(self, codec: str) -> int | None:
        if codec == "gzip":
            return self.compression_gzip_level
        if codec == "lz4":
            return self.compression_lz4_level
        return self.compression_zstd_level if codec == "zstd" else None


# Every setting by its name.
SETTINGS: Mapping[str, Setting] = {
    found.name.replace("_", "."): found.metadata["setting"] for found in fields(LogConfig)
}


# What a topic's setting is called in a broker's server.properties, where that is not its own name.
BROKER_NAMES: Mapping[str, str] = {
    "log.segment.bytes": "segment.bytes",
    "log.roll.ms": "segment.ms",
    "log.roll.hours": "segment.ms",
    "log.roll.jitter.ms": "segment.jitter.ms",
    "log.roll.jitter.hours": "segment.jitter.ms",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.preallocate": "preallocate",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.flush.scheduler.interval.ms": "flush.ms",
    "message.max.bytes": "max.message.bytes",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.retention.minutes": "retention.ms",
    "log.retention.hours": "retention.ms",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.local.retention.bytes": "local.retention.bytes",
    "log.local.retention.ms": "local.retention.ms",
}


def _field_name(name: str) -> str:
    return name.replace(".", "_")


def _plain(value: Any) -> Any:
    """A list as text, as in a file of properties; all else as it is."""
    if isinstance(value, frozenset):
        value = tuple(sorted(value))
    return ",".join(value) if isinstance(value, tuple) else value


def _read(config: Mapping[str, object]) -> dict[str, Any]:
    """The fields that `config` sets."""
    if not isinstance(config, Mapping):
        raise UsageTypeError(_WHERE, got=type(config).__name__, wanted="a mapping of names to str, int, bool or float")
    values = {}
    for name, given in config.items():
        setting = _known(name)
        values[_field_name(name)] = setting.read(name, given)
    return values


def _known(name: object) -> Setting:
    if not isinstance(name, str):
        raise UsageTypeError("name of a setting", where=_WHERE, got=type(name).__name__, wanted="a str")
    if name not in SETTINGS:
        topics = BROKER_NAMES.get(name)
        if topics is not None:
            raise UsageError(name, where=_WHERE, got="a broker's name", wanted=f"the topic's, {topics}")
        near = get_close_matches(name[:_NAME_MAX], SETTINGS, n=1)
        nearest = f"; the nearest is {near[0]}" if near else ""
        raise UsageError(
            name[:_NAME_MAX], where=_WHERE, got="an unknown name", wanted=f"one of Kafka's for topics{nearest}"
        )
    return SETTINGS[name]
