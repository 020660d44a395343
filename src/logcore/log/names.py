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
"""

import re
from typing import NamedTuple

from logcore.errors import UsageError

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

DELETE_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"
STRAY_DIRECTORY = "-stray"

DIRECTORY_NAME_MAX = 255  # what file systems take
TOPIC_NAME_MAX = 249
OFFSET_MAX = 0x7FFFFFFFFFFFFFFF

_OFFSET_FILE = re.compile(r"(\d{20})(\.[a-z]+)((?:\.[a-z]+)?)", re.ASCII)
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)", re.ASCII | re.DOTALL)
_MOVING = re.compile(
    r"(?P<name>.+-\d+)\.(?P<unique>[0-9a-f]{32})(?P<kind>-delete|-future|-stray)", re.ASCII | re.DOTALL
)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


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
    if not isinstance(topic, str) or topic in (".", "..") or not _TOPIC.fullmatch(topic):
        raise UsageError(
            "topic", got=repr(topic)[:300], wanted='1 to 249 of letters, digits, ".", "_" and "-", but not "." or ".."'
        )
    return topic


def parse_directory(name: str) -> tuple[TopicPartition, str]:
    """The partition of a directory, and what becomes of it: "", "-delete", "-future" or "-stray".

    UsageError if the name is no partition's.

    >>> parse_directory("my-orders-12")
    (TopicPartition(topic='my-orders', partition=12), '')
    """
    moving = _MOVING.fullmatch(name)
    found = _PARTITION.fullmatch(moving["name"] if moving else name)
    if found is None or int(found["partition"]) > 0x7FFFFFFF:
        raise UsageError(
            "partition directory", got=repr(name), wanted='a topic, "-" and a partition number, as in "orders-0"'
        )
    return TopicPartition(found["topic"], int(found["partition"])), moving["kind"] if moving else ""


def moving_directory(partition: TopicPartition, unique: str, kind: str) -> str:
    """The name of a directory that is to be deleted (-delete), filled (-future) or ignored (-stray).

    unique: 32 hexadecimal digits. A topic that is too long for a file name is cut.
    """
    end = f"-{partition.partition}.{unique}{kind}"
    return partition.topic[: DIRECTORY_NAME_MAX - len(end)] + end
