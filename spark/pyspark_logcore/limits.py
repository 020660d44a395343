"""Where a read starts and ends: earliest, latest, an offset or a timestamp for each partition, or one for all.

The forms and their order of precedence are those of Spark's Kafka connector:

    startingTimestamp                    1717000000000: for all partitions
    startingOffsetsByTimestamp           {"orders": {"0": 1717000000000, "1": 1717000000000}}
    startingOffsets                      earliest, latest, or {"orders": {"0": 23, "1": -2}}: -1 is latest, -2 earliest

and the same with "ending". Only the first one that is given counts; the others are not even looked at.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from logcore.log.names import TopicPartition

from .errors import option_error

LATEST = -1  # in the place of an offset, as the connector has them
EARLIEST = -2

_PARTITION_MAX = 0x7FFFFFFF
_LONG_MAX = 0x7FFFFFFFFFFFFFFF


class Edge(Enum):
    """An end of the log."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OnNoMatch(Enum):
    """What to do when no record is as late as the timestamp that a read is to start at."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True)
class Offsets:
    """An offset for each partition; LATEST or EARLIEST stand for the ends."""

    option: str
    of: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Timestamps:
    """A time for each partition, in ms: the first record that is not older."""

    option: str
    of: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Timestamp:
    """One time for all partitions."""

    option: str
    ms: int


Limit = Edge | Offsets | Timestamps | Timestamp


def parse_start(options: Mapping[str, str]) -> Limit:
    """Where a batch read starts; `options` have lower-case names."""
    limit = _parse(options, "starting", Edge.EARLIEST)
    if limit is Edge.LATEST:
        raise option_error("startingOffsets", "latest", "earliest, or offsets: such a batch is empty")
    if isinstance(limit, Offsets):
        for partition, offset in limit.of.items():
            if offset == LATEST:
                wanted = "an offset, or -2: a batch that starts at the end is empty"
                raise option_error(limit.option, f"-1 (latest) for {partition}", wanted)
    return limit


def parse_end(options: Mapping[str, str]) -> Limit:
    """Where a batch read ends."""
    limit = _parse(options, "ending", Edge.LATEST)
    if limit is Edge.EARLIEST:
        raise option_error("endingOffsets", "earliest", "latest, or offsets: such a batch is empty")
    if isinstance(limit, Offsets):
        for partition, offset in limit.of.items():
            if offset == EARLIEST:
                wanted = "an offset, or -1: a batch that ends at the beginning is empty"
                raise option_error(limit.option, f"-2 (earliest) for {partition}", wanted)
    return limit


def check_order(start: Limit, end: Limit) -> None:
    """Raise if both ends name partitions, and not the same ones, or one ends before it starts."""
    for kind in (Offsets, Timestamps):
        if isinstance(start, kind) and isinstance(end, kind):
            check_partitions(end.option, end.of, start.of, f"those of {start.option}")
            for partition, first in start.of.items():
                last = end.of[partition]
                if first > last and first >= 0 and last >= 0:
                    raise option_error(end.option, f"{last} for {partition}", f"{first} or more, where it starts")


def check_partitions(
    option: str,
    given: Mapping[TopicPartition, int],
    chosen: Iterable[TopicPartition],
    whose: str,
) -> None:
    """Raise unless the partitions that an option names are those that are chosen."""
    wanted = set(chosen)
    if set(given) != wanted:
        missing = ", ".join(map(str, sorted(wanted - set(given))))
        beyond = ", ".join(map(str, sorted(set(given) - wanted)))
        got = " and ".join(part for part in (f"no {missing}" * bool(missing), beyond and f"also {beyond}") if part)
        raise option_error(option, got, f"exactly {whose}: -1 stands for latest, -2 for earliest")


def parse_strategy(options: Mapping[str, str]) -> OnNoMatch:
    """The option startingOffsetsByTimestampStrategy."""
    text = options.get("startingoffsetsbytimestampstrategy", OnNoMatch.ERROR.value)
    try:
        return OnNoMatch(text.strip().lower())
    except ValueError:
        raise option_error("startingOffsetsByTimestampStrategy", text, "error or latest") from None


def _parse(options: Mapping[str, str], side: str, otherwise: Edge) -> Limit:
    text = options.get(f"{side}timestamp")
    if text is not None:
        name = f"{side}Timestamp"
        return Timestamp(name, _checked_time(_whole(name, text), name))
    text = options.get(f"{side}offsetsbytimestamp")
    if text is not None:
        name = f"{side}OffsetsByTimestamp"
        times = parse_partitions(name, text, 'JSON such as {"topicA": {"0": 1717000000000, "1": 1717000000000}}')
        return Timestamps(name, {partition: _checked_time(ms, name) for partition, ms in times.items()})
    name = f"{side}Offsets"
    text = options.get(name.lower())
    if text is None:
        return otherwise
    if text.strip().lower() in ("earliest", "latest"):
        return Edge(text.strip().lower())
    offsets = parse_partitions(
        name, text, 'earliest, latest or JSON such as {"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
    )
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise option_error(name, f"{offset} for {partition}", "an offset from 0 on, -1 (latest) or -2 (earliest)")
    return Offsets(name, offsets)


def _whole(name: str, text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise option_error(name, text, "a time in ms since 1970, as 1717000000000") from None


def _checked_time(ms: int, name: str) -> int:
    # A broker takes -1 and -2 in a request for a time to mean latest and earliest; there are options for that.
    if not 0 <= ms <= _LONG_MAX:
        raise option_error(name, ms, "a time in ms since 1970, from 0 on")
    return ms


def parse_partitions(name: str, text: str, wanted: str) -> dict[TopicPartition, int]:
    """A number for each partition, from JSON: {"topic": {"partition": number}}."""
    found: dict[TopicPartition, int] = {}
    for topic, numbers in parse_json(name, text, wanted).items():
        if not isinstance(numbers, dict):
            raise option_error(name, text, wanted)
        for key, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool) or not -_LONG_MAX - 1 <= number <= _LONG_MAX:
                raise option_error(name, text, wanted)
            found[checked_partition(name, text, topic, key, wanted)] = number
    return found


def checked_partition(name: str, text: str, topic: str, number: object, wanted: str) -> TopicPartition:
    """A partition as JSON names it: its number is a key, or an element."""
    if isinstance(number, str) and number.isascii() and number.isdigit():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _PARTITION_MAX:
        raise option_error(name, text, wanted)
    return TopicPartition(topic, number)


def parse_json(name: str, text: str, wanted: str) -> dict[str, object]:
    """A JSON object without a key that comes twice."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key comes twice")
        return dict(pairs)

    try:
        found = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise option_error(name, text, wanted)
    return found
