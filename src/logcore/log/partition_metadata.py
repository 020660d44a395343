"""partition.metadata: the topic id of a partition, in its directory.

    version: 0
    topic_id: G6yKAFZ_QT2Z-XISta5K6w        no end of line

A partition has one topic id for all its life. It is known before the file has it: the file is written at a moment that
the log chooses, before the first record is appended, before the directory is renamed, and when the log is closed. So a
directory with records can always be told from the same topic of another life.

As in Kafka, nobody looks at the words before the colons nor behind the second line, and a later version is read like
this one. There is no way to change an id, nor to take it away.
"""

import re

from logcore.errors import CorruptCheckpoint, CorruptionReason, InconsistentTopicIdError, InvariantError, UsageError

from .disk import Disk
from .text_files import (
    INT_MAX,
    SMALL_FILE_BYTES_MAX,
    fields_of,
    integer_of,
    lines_of,
    malformed,
    read_bytes,
    replace_file,
    text_of,
)
from .uuids import TopicId, parse_topic_id

VERSION = 0

_COLON = re.compile(r":\s+", re.ASCII)


def parse_partition_metadata(data: bytes, path: str) -> TopicId:
    """The topic id in the bytes of a partition.metadata; `path` is for the error.

    >>> parse_partition_metadata(b"version: 0\\ntopic_id: G6yKAFZ_QT2Z-XISta5K6w", "partition.metadata")
    'G6yKAFZ_QT2Z-XISta5K6w'
    """
    lines = lines_of(text_of(data, path))
    if len(lines) < 2:
        raise malformed(f"line {len(lines) + 1}", "", "two lines, of version and topic id", path)
    version_fields = fields_of(_COLON, lines[0])
    version = integer_of(version_fields[1], INT_MAX) if len(version_fields) == 2 else None
    if version is None:
        raise malformed("line 1", lines[0], f'"version: {VERSION}"', path)
    if version < VERSION:
        raise CorruptCheckpoint(
            "version in line 1", reason=CorruptionReason.VERSION, got=version, wanted=f"{VERSION} or later", path=path
        )
    id_fields = fields_of(_COLON, lines[1])
    if len(id_fields) != 2:
        raise malformed("line 2", lines[1], '"topic_id: " and an id', path)
    try:
        return parse_topic_id(id_fields[1])
    except UsageError as error:
        raise malformed("topic id in line 2", id_fields[1], str(error.wanted), path) from None


def format_partition_metadata(topic_id: TopicId) -> bytes:
    """The bytes of a partition.metadata."""
    return f"version: {VERSION}\ntopic_id: {parse_topic_id(topic_id)}".encode("ascii")


def read_partition_metadata(disk: Disk, path: str) -> TopicId | None:
    """The topic id in the file `path`; None if there is no file."""
    data = read_bytes(disk, path, SMALL_FILE_BYTES_MAX)
    return None if data is None else parse_partition_metadata(data, path)


def write_partition_metadata(disk: Disk, path: str, topic_id: TopicId) -> None:
    """Write the file `path`, for good."""
    replace_file(disk, path, format_partition_metadata(topic_id))


class PartitionMetadata:
    """The topic id of a partition, and whether its file has it yet.

        path    of the file; to be set anew when its directory is renamed

    no id           ── record(id) ──> known, dirty
    known, dirty    ── flush() ─────> known
    known           ── record(id) ──> no change if it is the same id, InconsistentTopicIdError if not
    """

    def __init__(self, path: str, topic_id: TopicId | None = None) -> None:
        """topic_id: what the file has; None if there is no file."""
        self.path = path
        self._topic_id = None if topic_id is None else parse_topic_id(topic_id)
        self._is_dirty = False  # implies that there is an id

    @classmethod
    def load(cls, disk: Disk, path: str, expected: TopicId | None = None) -> "PartitionMetadata":
        """What the file `path` says. `expected` must be that, if anything is; otherwise it is recorded."""
        metadata = cls(path, read_partition_metadata(disk, path))
        if expected is not None:
            metadata.record(expected)
        return metadata

    @property
    def topic_id(self) -> TopicId | None:
        """None as long as nobody has told."""
        return self._topic_id

    @property
    def is_dirty(self) -> bool:
        """Whether there is an id that the file does not have."""
        return self._is_dirty

    def record(self, topic_id: TopicId) -> None:
        """Say which topic it is. InconsistentTopicIdError if another is known already, in the file or not."""
        topic_id = parse_topic_id(topic_id)
        if self._topic_id is None:
            self._topic_id = topic_id
            self._is_dirty = True
        elif self._topic_id != topic_id:
            raise InconsistentTopicIdError(f"topic id, {self.path}: got {topic_id}, wanted {self._topic_id}")

    def flush(self, disk: Disk) -> bool:
        """Write the file if there is an id that it does not have. Returns whether there was."""
        if not self._is_dirty or self._topic_id is None:
            return False
        write_partition_metadata(disk, self.path, self._topic_id)
        self._is_dirty = False
        return True

    def check_invariants(self) -> None:
        """Raise InvariantError at what cannot be."""
        if self._topic_id is None and self._is_dirty:
            raise InvariantError(f"partition metadata, {self.path}: got dirty without an id, wanted an id")
        if self._topic_id is not None and parse_topic_id(self._topic_id) != self._topic_id:
            raise InvariantError(f"partition metadata, {self.path}: got {self._topic_id}, wanted the id's one text")
