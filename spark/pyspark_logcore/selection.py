"""Which partitions are read: the options subscribe, subscribePattern and assign, of which one is given.

subscribe           orders, payments                      all partitions of these topics
subscribePattern    orders.*                              of the topics in whose name the pattern is found
assign              {"orders": [0, 1], "payments": [0]}   these partitions
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logcore.errors import UnknownTopicOrPartitionError
from logcore.log.names import TopicPartition

from .errors import option_error
from .limits import checked_partition, parse_json

NAMES = ("subscribe", "subscribePattern", "assign")

# What a broker does not list among the topics: its own, and the log of the controller.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})

_WANTED = 'JSON such as {"topicA": [0, 1], "topicB": [0]}'


@dataclass(frozen=True)
class Subscribe:
    """All partitions of some topics."""

    topics: tuple[str, ...]

    def choose(self, found: Iterable[TopicPartition], where: str) -> list[TopicPartition]:
        """The partitions that are read, of those found `where`. UnknownTopicOrPartitionError if a topic has none."""
        chosen = sorted(partition for partition in found if partition.topic in self.topics)
        missing = sorted(set(self.topics) - {partition.topic for partition in chosen})
        if missing:
            raise UnknownTopicOrPartitionError(
                f"option subscribe: got {', '.join(missing)}, wanted topics that have a partition in {where}"
            )
        return chosen


@dataclass(frozen=True)
class SubscribePattern:
    """All partitions of the topics in whose names a regular expression is found; internal ones are left out."""

    pattern: str

    def choose(self, found: Iterable[TopicPartition], where: str) -> list[TopicPartition]:
        """The partitions that are read; there may be none."""
        search = re.compile(self.pattern).search
        return sorted(one for one in found if one.topic not in INTERNAL_TOPICS and search(one.topic))


@dataclass(frozen=True)
class Assign:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]

    def choose(self, found: Iterable[TopicPartition], where: str) -> list[TopicPartition]:
        """The partitions that are read. UnknownTopicOrPartitionError if one is missing."""
        missing = sorted(set(self.partitions) - set(found))
        if missing:
            raise UnknownTopicOrPartitionError(
                f"option assign: got {', '.join(map(str, missing))}, wanted partitions that are in {where}"
            )
        return sorted(set(self.partitions))


Selection = Subscribe | SubscribePattern | Assign


def parse_selection(options: Mapping[str, str]) -> Selection:
    """The one of the three options that is given; `options` have lower-case names."""
    given = [name for name in NAMES if name.lower() in options]
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        raise option_error(", ".join(NAMES), got, "exactly one of them")
    [name] = given
    text = options[name.lower()]
    if name == "assign":
        return Assign(_parse_assign(text))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise option_error(name, text, "one topic or more, separated by commas")
        return Subscribe(topics)
    pattern = text.strip()
    try:
        re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise option_error(name, pattern, f"a regular expression of Python's re ({error})") from None
    if not pattern:
        raise option_error(name, text, "a regular expression")
    return SubscribePattern(pattern)


def _parse_assign(text: str) -> tuple[TopicPartition, ...]:
    found = []
    for topic, numbers in parse_json("assign", text, _WANTED).items():
        if not isinstance(numbers, list):
            raise option_error("assign", text, _WANTED)
        for number in numbers:
            if isinstance(number, str):
                raise option_error("assign", text, _WANTED)
            found.append(checked_partition("assign", text, topic, number, _WANTED))
    if not found:
        raise option_error("assign", text, f"one partition or more, in {_WANTED}")
    return tuple(dict.fromkeys(found))
