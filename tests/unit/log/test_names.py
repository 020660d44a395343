"""What files and directories of a log are called, compared with what Kafka makes of such names."""

import pytest

from logcore.errors import UsageError, UsageTypeError
from logcore.log import names
from logcore.log.names import (
    OFFSET_MAX,
    OffsetFile,
    TopicPartition,
    check_topic,
    file_name,
    moving_directory,
    parse_directory,
    parse_file_name,
)
from tests.helpers import golden_lines

UNIQUE = "0f3cd5b8a1e94c6f8d2b7a6e5c4d3b2a"

# --------------------------------------------------------------------------------------------------------------- files


def test_a_segments_files_are_its_base_offset_with_twenty_digits_and_a_suffix():
    """SEG-049: and behind that what becomes of the file."""
    assert [file_name(23423423, kind) for kind in names.SEGMENT_SUFFIXES] == [
        "00000000000023423423.log",
        "00000000000023423423.index",
        "00000000000023423423.timeindex",
        "00000000000023423423.txnindex",
    ]
    assert file_name(0, names.SNAPSHOT) == "00000000000000000000.snapshot"
    assert file_name(OFFSET_MAX, names.LOG) == "09223372036854775807.log"
    for suffix in (names.DELETED, names.CLEANED, names.SWAP):
        assert file_name(170, names.TIME_INDEX, suffix) == f"00000000000000000170.timeindex{suffix}"
    assert sorted([file_name(10**10, names.LOG), file_name(9, names.LOG)])[0] == file_name(9, names.LOG)


def test_what_a_files_name_says_is_what_it_was_made_of():
    """SEG-049."""
    for offset in (0, 1, 170, 2**31, 2**32, OFFSET_MAX):
        for kind in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT):
            for suffix in ("", names.DELETED, names.CLEANED, names.SWAP):
                assert parse_file_name(file_name(offset, kind, suffix)) == OffsetFile(offset, kind, suffix)


@pytest.mark.parametrize("offset", [-1, OFFSET_MAX + 1, 10**20])
def test_no_file_is_named_by_what_is_no_offset(offset):
    with pytest.raises(UsageError, match=r"^offset, name of a \.log file: got -?\d+, wanted 0 to 9223372036854775807$"):
        file_name(offset, names.LOG)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".log",
        "170.log",
        "0000000000000000170.log",
        "000000000000000000170.log",
        "00000000000000000170",
        "00000000000000000170.",
        "00000000000000000170.log\n",
        "00000000000000000170.log.swap.deleted",
        "0000000000000000017a.log",
        "-0000000000000000170.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١٧٠.log",
        "09223372036854775808.log",
        "00000000000000000170-0000000003.checkpoint",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ],
)
def test_other_files_are_no_offsets(name):
    """SEG-049: Kafka takes any number before the first "." for the offset, and then looks for the file of 20 digits."""
    assert parse_file_name(name) is None


# --------------------------------------------------------------------------------------------------------------- topics


@pytest.mark.parametrize("topic", ["valid", "TOPIC", "ar6", "VaL1d", "_0-9_.", "...", "-", "a" * 249])
def test_a_topic_that_kafka_takes_is_taken(topic):
    assert check_topic(topic) == topic


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "foo bar", "foo:bar", "foo=bar", "a/b", "a\n", "a\0", "ü", "٣", "a" * 250, "a" * 10**6]
)
def test_a_topic_that_kafka_refuses_is_refused(topic):
    with pytest.raises(UsageError, match=r"^topic: got .*, wanted 1 to 249 of letters, digits,") as caught:
        check_topic(topic)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("topic", [None, 5, b"orders"])
def test_a_topic_is_text(topic):
    with pytest.raises(UsageTypeError, match=r"^topic: got .*, wanted a str: 1 to 249 of"):
        check_topic(topic)


# ---------------------------------------------------------------------------------------------------------- directories


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        ("test_topic-143", "test_topic", 143, ""),
        ("my-orders-12", "my-orders", 12, ""),
        (f"foo.bar-testtopic-42.{UNIQUE}-delete", "foo.bar-testtopic", 42, "-delete"),
        (f"orders-0.{UNIQUE}-future", "orders", 0, "-future"),
        (f"orders-0.{UNIQUE}-stray", "orders", 0, "-stray"),
        ("orders-2147483647", "orders", 2147483647, ""),
        ("orders-delete-0", "orders-delete", 0, ""),
    ],
)
def test_a_directory_is_a_topic_and_a_partition_split_at_the_last_dash(name, topic, partition, kind):
    """LOG-127."""
    assert parse_directory(name) == (TopicPartition(topic, partition), kind)


@pytest.mark.parametrize("end", ["", f".{UNIQUE}-delete", ".-delete", "-delete", f".{UNIQUE}-future", "-stray"])
@pytest.mark.parametrize("begin", ["", "test_topic1999", "-1999", "test_topic-", "test_topic-1999a", "non_kafka_dir"])
def test_what_has_no_topic_or_no_partition_is_refused(begin, end):
    """LOG-127: also where it is to be deleted."""
    with pytest.raises(UsageError, match=r"^partition directory: got '.*', wanted a topic, "):
        parse_directory(begin + end)


def test_what_kafka_makes_of_a_directorys_name_we_make_of_it():
    """LOG-127, LOG-128: it asks little of what stands before "-delete", and "+" and leading zeros are fine with it."""
    taken = refused = 0
    for verdict in golden_lines("directory-verdicts.jsonl.gz"):
        name = verdict["name"]
        if "refused" in verdict:
            refused += 1
            with pytest.raises(UsageError):
                parse_directory(name)
        else:
            taken += 1
            found, kind = parse_directory(name)
            assert found == (verdict["topic"], verdict["partition"]), name
            assert kind == next((end for end in names.MOVING_DIRECTORIES if name.endswith(end)), "")
    assert (taken, refused) == (279, 1321)


def test_a_name_of_any_length_is_refused_in_few_words():
    for name in ("a-" + "9" * 100_000, "-." * 100_000 + "-delete", "a-" + "0" * 100_000, "-" * 100_000):
        with pytest.raises(UsageError) as caught:
            parse_directory(name)
        assert len(str(caught.value)) < 500


def test_a_partitions_directory_is_called_what_it_prints_as():
    assert str(TopicPartition("orders", 12)) == "orders-12"
    assert parse_directory(str(TopicPartition("my-orders", 12))) == (("my-orders", 12), "")


@pytest.mark.parametrize("kind", names.MOVING_DIRECTORIES)
def test_a_directory_that_goes_or_comes_has_something_unique_behind_its_name(kind):
    """LOG-128."""
    name = moving_directory(TopicPartition("foo", 3), UNIQUE, kind)
    assert name == f"foo-3.{UNIQUE}{kind}"
    assert parse_directory(name) == (("foo", 3), kind)


def test_the_topic_of_a_directory_that_goes_is_cut_where_the_name_were_too_long():
    """LOG-128: 249 characters become 213. Its log is not opened again under that name."""
    topic = "n" + "o" * 248
    name = moving_directory(TopicPartition(topic, 5), UNIQUE, names.DELETE_DIRECTORY)
    assert name == f"n{'o' * 212}-5.{UNIQUE}-delete"
    assert len(name) == 255
    assert len(moving_directory(TopicPartition(topic, 2147483647), UNIQUE, names.STRAY_DIRECTORY)) == 255
    assert parse_directory(name) == ((topic[:213], 5), "-delete")


def test_the_topic_of_a_directory_that_is_being_filled_is_never_cut():
    """LOG-128: Kafka makes the whole name, and the file system refuses it. It will be the log of that very topic."""
    fits = "n" * 213
    assert len(moving_directory(TopicPartition(fits, 5), UNIQUE, names.FUTURE_DIRECTORY)) == 255
    with pytest.raises(
        UsageError, match=r"^topic, -future directory of partition 5: got 214 char.*, wanted at most 213$"
    ):
        moving_directory(TopicPartition(fits + "n", 5), UNIQUE, names.FUTURE_DIRECTORY)


def test_a_directory_that_goes_or_comes_is_one_of_three_kinds_with_32_digits():
    for unique in ("", UNIQUE[1:], UNIQUE + "0", UNIQUE.upper(), UNIQUE[:31] + "\n", UNIQUE[:31] + "/"):
        with pytest.raises(UsageError, match=r"^unique: got '.*', wanted 32 hexadecimal digits$"):
            moving_directory(TopicPartition("foo", 3), unique, names.DELETE_DIRECTORY)
    with pytest.raises(UsageError, match=r"^kind of directory: got '-gone', wanted -delete or -future or -stray$"):
        moving_directory(TopicPartition("foo", 3), UNIQUE, "-gone")
