"""The options of a read: what the Kafka connector takes is taken, and what cannot be is told by name."""

from __future__ import annotations

from typing import Any

import pytest

from logcore.errors import UsageError
from logcore.log.names import TopicPartition
from pyspark_logcore.limits import Edge, Offsets, OnNoMatch, Timestamp, Timestamps
from pyspark_logcore.options import ReadOptions, parse_options, unused_options
from pyspark_logcore.selection import Assign, Subscribe, SubscribePattern

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def parsed(**options: str) -> ReadOptions:
    return parse_options({"path": "/data", "subscribe": "a", **options})


def refused(**options: str | None) -> str:
    given = {"path": "/data", "subscribe": "a", **options}
    with pytest.raises(UsageError) as caught:
        parse_options({name: value for name, value in given.items() if value is not None})
    message = str(caught.value)
    assert message.startswith("option ")
    assert ": got " in message
    assert ", wanted " in message
    assert "\n" not in message
    return message


def test_without_options_a_read_is_all_of_what_is_committed() -> None:
    assert parsed() == ReadOptions(
        paths=("/data",),
        selection=Subscribe(("a",)),
        start=Edge.EARLIEST,
        end=Edge.LATEST,
        on_no_match=OnNoMatch.ERROR,
        min_partitions=None,
        max_records=None,
        fail_on_data_loss=True,
        include_headers=False,
        isolation="read_committed",
        bound="valid",
        columns=None,
    )


def test_names_are_taken_in_any_case() -> None:
    found = parse_options({"PATH": "/data", "SubScribe": "a", "MINPARTITIONS": "3", "failondataloss": "False"})
    assert (found.min_partitions, found.fail_on_data_loss) == (3, False)


def test_topics_are_separated_by_commas_and_each_counts_once() -> None:
    assert parsed(subscribe=" a , b,,a ").selection == Subscribe(("a", "b"))


def test_a_pattern_and_an_assignment() -> None:
    options = {"path": "/data"}
    assert parse_options({**options, "subscribePattern": " a.* "}).selection == SubscribePattern("a.*")
    found = parse_options({**options, "assign": '{"a": [1, 0, 1], "b": [0]}'}).selection
    assert found == Assign((A1, A0, B0))


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({"startingOffsets": "EARLIEST ", "endingOffsets": " Latest"}, Edge.EARLIEST, Edge.LATEST),
        (
            {"startingOffsets": '{"a": {"0": 23, "1": -2}}', "endingOffsets": '{"a": {"0": 23, "1": -1}}'},
            Offsets("startingOffsets", {A0: 23, A1: -2}),
            Offsets("endingOffsets", {A0: 23, A1: -1}),
        ),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 5}}', "endingOffsetsByTimestamp": '{"a": {"0": 7}}'},
            Timestamps("startingOffsetsByTimestamp", {A0: 5}),
            Timestamps("endingOffsetsByTimestamp", {A0: 7}),
        ),
        (
            {"startingTimestamp": " 5", "endingTimestamp": "7"},
            Timestamp("startingTimestamp", 5),
            Timestamp("endingTimestamp", 7),
        ),
    ],
)
def test_where_a_read_starts_and_ends(options: dict[str, str], start: Any, end: Any) -> None:
    found = parsed(**options)
    assert (found.start, found.end) == (start, end)


def test_a_time_for_all_goes_before_times_of_partitions_and_those_before_offsets() -> None:
    three = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"a": {"0": 6}}',
        "startingOffsets": '{"a": {"0": 7}}',
    }
    assert parsed(**three).start == Timestamp("startingTimestamp", 5)
    del three["startingTimestamp"]
    assert parsed(**three).start == Timestamps("startingOffsetsByTimestamp", {A0: 6})
    # What is not chosen is not looked at.
    assert parsed(startingTimestamp="5", startingOffsets="latest").start == Timestamp("startingTimestamp", 5)


def test_the_isolation_level_by_both_of_its_names_ours_first() -> None:
    assert parsed(**{"isolation.level": "READ_UNCOMMITTED"}).isolation == "read_uncommitted"
    assert parsed(**{"kafka.isolation.level": "read_uncommitted"}).isolation == "read_uncommitted"
    both = {"isolation.level": "read_committed", "kafka.isolation.level": "read_uncommitted"}
    assert parsed(**both).isolation == "read_committed"


def test_columns_are_named_as_spark_shows_them() -> None:
    assert parsed(columns="OFFSET, timestamptype,value").columns == ("offset", "timestampType", "value")
    assert parsed(columns="headers").columns == ("headers",)
    assert parsed(columns="headers", includeHeaders="true").columns == ("headers",)


def test_several_paths_as_spark_hands_them_over() -> None:
    assert parse_options({"paths": '["/a","/b"]', "subscribe": "a"}).paths == ('["/a","/b"]',)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"subscribe": None},
            "option subscribe, subscribePattern, assign: got none of them, wanted exactly one",
        ),
        ({"assign": '{"a": [0]}'}, "got subscribe and assign"),
        ({"subscribe": " , "}, "option subscribe: got ,"),
        ({"subscribe": None, "subscribePattern": "("}, "option subscribePattern: got ("),
        ({"subscribe": None, "subscribePattern": " "}, "option subscribePattern: got nothing"),
        ({"subscribe": None, "assign": "a"}, "option assign: got a, wanted JSON such as"),
        ({"subscribe": None, "assign": "{}"}, "option assign: got {}"),
        ({"subscribe": None, "assign": '{"a": 0}'}, "option assign"),
        ({"subscribe": None, "assign": '{"a": ["0"]}'}, "option assign"),
        ({"subscribe": None, "assign": '{"a": [-1]}'}, "option assign"),
        ({"subscribe": None, "assign": '{"a": [true]}'}, "option assign"),
        ({"path": None}, "option path: got no such option"),
        ({"path": " "}, "option path"),
        ({"startingOffsets": "latest"}, "option startingOffsets: got latest, wanted earliest"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: got earliest, wanted latest"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "option startingOffsets: got -1 (latest) for a-0"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "option endingOffsets: got -2 (earliest) for a-0"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "option startingOffsets: got -3 for a-0"),
        ({"startingOffsets": "soon"}, "option startingOffsets: got soon, wanted earliest, latest or JSON such as {"),
        ({"startingOffsets": '{"a": [0]}'}, "option startingOffsets"),
        ({"startingOffsets": '{"a": {"x": 0}}'}, "option startingOffsets"),
        ({"startingOffsets": '{"a": {"0": 1.5}}'}, "option startingOffsets"),
        ({"startingOffsets": '{"a": {"0": "1"}}'}, "option startingOffsets"),
        ({"startingOffsets": '{"a": {"0": 1, "0": 2}}'}, "option startingOffsets"),
        ({"startingOffsets": '{"a": {"0": 99999999999999999999}}'}, "option startingOffsets"),
        ({"startingOffsets": "[" * 100_000}, "option startingOffsets: got ["),
        ({"endingOffsetsByTimestamp": "7"}, "option endingOffsetsByTimestamp: got 7"),
        ({"endingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "option endingOffsetsByTimestamp: got -1"),
        ({"startingTimestamp": "noon"}, "option startingTimestamp: got noon, wanted a time in ms"),
        ({"startingTimestamp": "-1"}, "option startingTimestamp: got -1"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "option startingOffsetsByTimestampStrategy: got earliest"),
        ({"minPartitions": "0"}, "option minPartitions: got 0, wanted a number from 1 to 2147483647"),
        ({"minPartitions": "many"}, "option minPartitions: got many"),
        ({"maxRecordsPerPartition": "-5"}, "option maxRecordsPerPartition: got -5"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss: got no, wanted true or false"),
        ({"includeHeaders": "1"}, "option includeHeaders: got 1, wanted true or false"),
        ({"isolation.level": "serializable"}, "option isolation.level: got serializable"),
        ({"kafka.isolation.level": "snapshot"}, "option kafka.isolation.level: got snapshot"),
        ({"bound": "end"}, "option bound: got end, wanted valid or high_watermark"),
        ({"columns": "offset,offsets"}, "option columns: got offset,offsets"),
        ({"columns": "offset,offset"}, "option columns"),
        ({"columns": ","}, "option columns"),
        ({"columns": "headers", "includeHeaders": "false"}, "option columns"),
        (
            {"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"0": 4}}'},
            "option endingOffsets: got 4 for a-0, wanted 5 or more",
        ),
        (
            {"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"1": 9}}'},
            "option endingOffsets: got no a-0 and also a-1, wanted exactly those of startingOffsets",
        ),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 5}}', "endingOffsetsByTimestamp": '{"a": {"0": 4}}'},
            "option endingOffsetsByTimestamp: got 4 for a-0",
        ),
    ],
)
def test_what_cannot_be_is_told_by_name_with_what_was_got_and_wanted(options: dict[str, Any], expected: str) -> None:
    assert expected in refused(**options)


def test_a_long_value_is_told_in_short() -> None:
    assert len(refused(startingOffsets="x" * 100_000)) < 600


def test_options_of_brokers_and_streams_are_put_aside() -> None:
    given = {
        "kafka.bootstrap.servers": "host:9092",
        "maxOffsetsPerTrigger": "5",
        "Kafka.Isolation.Level": "read_committed",
        "subscribe": "a",
        "startingOffset": "5",
    }
    assert unused_options(given) == ["kafka.bootstrap.servers", "maxOffsetsPerTrigger", "startingOffset"]
