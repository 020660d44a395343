"""What the files and directories of a log are called.

orders-0/                                a partition's directory: topic, "-", partition
    00000000000000000170.log             a segment whose first offset is 170, and
    00000000000000000170.index           what is kept beside it
    00000000000000000170.timeindex
    00000000000000000170.txnindex
    00000000000000000170.snapshot        the producers' state before offset 170
    leader-epoch-checkpoint
    partition.metadata
orders-0.0f3c…-delete/                   to be deleted; -future: being copied here; -stray: belongs to nobody

.deleted    behind a file's name: to be deleted
.cleaned    written by a compaction that is not finished: to be deleted
.swap       written by a compaction that is: to take the place of what it replaces

What is written is strict, and what is read as lax as Kafka is: of directories it takes "orders-00" and "orders-+0" too,
both for orders-0. So two directories may be one partition's; whoever lists a root looks for that.
"""

import re
from typing import NamedTuple

from logcore.errors import UsageError, UsageTypeError

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

RECOVERY_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
META_PROPERTIES = "meta.properties"
REMOTE_INDEX_CACHE = "remote-log-index-cache"  # a directory of Kafka's tiered storage, no partition's

DELETE_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"
STRAY_DIRECTORY = "-stray"
MOVING_DIRECTORIES = (DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY)

DIRECTORY_NAME_MAX = 255  # what file systems take
TOPIC_NAME_MAX = 249
PARTITION_MAX = 0x7FFFFFFF
OFFSET_MAX = 0x7FFFFFFFFFFFFFFF

_SHOWN_MAX = 300  # characters of what was got

_OFFSET_FILE = re.compile(r"(\d{20})(\.[a-z]+)((?:\.[a-z]+)?)", re.ASCII)
_SPACE = re.compile(r"\s", re.ASCII)
_NUMBER = re.compile(rf"\+?\d{{1,{DIRECTORY_NAME_MAX}}}")  # any script's digits, as in Java
_UNIQUE = re.compile(r"[0-9a-f]{32}")
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_MAX}}}")


class OffsetFile(NamedTuple):
    """A file that has an offset for a name: `00000000000000000170.log.swap` is (170, ".log", ".swap")."""

    offset: int
    kind: str
    suffix: str


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def file_name(offset: int, kind: str, suffix: str = "") -> str:
    """The name of a file of the segment, or of the snapshot, at `offset`.

    >>> file_name(170, LOG)
    '00000000000000000170.log'
    """
    if not 0 <= offset <= OFFSET_MAX:
        raise UsageError("offset", where=f"name of a {kind} file", got=offset, wanted=f"0 to {OFFSET_MAX}")
    return f"{offset:020}{kind}{suffix}"


def parse_file_name(name: str) -> OffsetFile | None:
    """What a file's name says; None if it is not an offset's.

    >>> parse_file_name("00000000000000000170.timeindex")
    OffsetFile(offset=170, kind='.timeindex', suffix='')
    """
    found = _OFFSET_FILE.fullmatch(name)
    if found is None or int(found[1]) > OFFSET_MAX:
        return None
    return OffsetFile(int(found[1]), found[2], found[3])


def check_topic(topic: object) -> str:
    """`topic` if Kafka takes it for a name: letters, digits, ".", "_", "-", at most 249, and not "." or ".."."""
    wanted = f'1 to {TOPIC_NAME_MAX} of letters, digits, ".", "_" and "-", but not "." or ".."'
    if not isinstance(topic, str):
        raise UsageTypeError("topic", got=type(topic).__name__, wanted=f"a str: {wanted}")
    if topic in (".", "..") or not _TOPIC.fullmatch(topic):
        raise UsageError("topic", got=repr(topic)[:_SHOWN_MAX], wanted=wanted)
    return topic


def parse_directory(name: str) -> tuple[TopicPartition, str]:
    """The partition of a directory, and what becomes of it: "", "-delete", "-future" or "-stray".

    UsageError if the name is no partition's: Kafka starts with no such directory in a root. The topic may be one that
    check_topic() refuses; of a directory that is to be deleted, or belongs to nobody, it may be cut.

    >>> parse_directory("my-orders-12")
    (TopicPartition(topic='my-orders', partition=12), '')
    >>> parse_directory("orders-0.0f3cd5b8a1e94c6f8d2b7a6e5c4d3b2a-delete")
    (TopicPartition(topic='orders', partition=0), '-delete')
    """
    kind = next((kind for kind in MOVING_DIRECTORIES if name.endswith(kind)), "")
    if kind and not _is_moving(name.removesuffix(kind)):
        raise _no_partition(name)
    topic, _, number = (name[: name.rindex(".")] if kind else name).rpartition("-")
    # Java looks at halves of what lies beyond the first plane, and finds no digit.
    if not topic or not _NUMBER.fullmatch(number) or max(number) > "\uffff" or int(number) > PARTITION_MAX:
        raise _no_partition(name)
    return TopicPartition(topic, int(number)), kind


def _is_moving(rest: str) -> bool:
    """Whether `rest` is something, "-", something, ".", something, as Kafka wants it before "-delete"."""
    dash, dot = rest.find("-", 1), rest.rfind(".", 0, len(rest) - 1)
    return 0 < dash < dot - 1 and not _SPACE.search(rest)


def _no_partition(name: str) -> UsageError:
    return UsageError(
        "partition directory",
        got=repr(name)[:_SHOWN_MAX],
        wanted='a topic, "-" and a partition number, as in "orders-0"',
    )


def moving_directory(partition: TopicPartition, unique: str, kind: str) -> str:
    """The name of a directory that is to be deleted (-delete), filled (-future) or ignored (-stray).

    unique: 32 hexadecimal digits. A topic that is too long for a file name is cut, but not of a directory that is being
    filled: what it holds will be the log of that topic, which its name alone tells. Such a one is refused.

    >>> moving_directory(TopicPartition("orders", 0), "0f3cd5b8a1e94c6f8d2b7a6e5c4d3b2a", DELETE_DIRECTORY)
    'orders-0.0f3cd5b8a1e94c6f8d2b7a6e5c4d3b2a-delete'
    """
    if kind not in MOVING_DIRECTORIES:
        raise UsageError("kind of directory", got=repr(kind)[:_SHOWN_MAX], wanted=" or ".join(MOVING_DIRECTORIES))
    if not _UNIQUE.fullmatch(unique):
        raise UsageError("unique", got=repr(unique)[:_SHOWN_MAX], wanted="32 hexadecimal digits")
    end = f"-{partition.partition}.{unique}{kind}"
    topic_max = DIRECTORY_NAME_MAX - len(end)
    if kind == FUTURE_DIRECTORY and len(partition.topic) > topic_max:
        raise UsageError(
            "topic",
            where=f"{FUTURE_DIRECTORY} directory of partition {partition.partition}",
            got=f"{len(partition.topic)} characters",
            wanted=f"at most {topic_max}",
        )
    return partition.topic[:topic_max] + end
