"""Kafka's Uuid: 16 bytes, shown as the 22 characters of their base64 (the alphabet for URLs, without padding).

Topics and directories have one. It is kept as its text, which is what every file and message shows; each id has one
such text, so ids are compared as texts. The bytes are for the wire.

    AAAAAAAAAAAAAAAAAAAAAA    zero: no id
    AAAAAAAAAAAAAAAAAAAAAQ    one: the id of __cluster_metadata
"""

import base64
import re
from collections.abc import Callable
from typing import Final, NewType

from logcore.errors import UsageError, UsageTypeError

from .text_files import shown

Uuid = NewType("Uuid", str)
TopicId = NewType("TopicId", Uuid)  # never zero

UUID_BYTES = 16

ZERO_UUID: Final = Uuid("AAAAAAAAAAAAAAAAAAAAAA")
METADATA_TOPIC_ID: Final = TopicId(Uuid("AAAAAAAAAAAAAAAAAAAAAQ"))
RESERVED_UUIDS: Final = frozenset({ZERO_UUID, METADATA_TOPIC_ID})  # not to be drawn

# One draw in 64 begins with "-"; a source that gives a hundred such does not give random bytes.
_DRAWS_MAX = 100

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?", re.ASCII)


def parse_uuid(text: object) -> Uuid:
    """The id that a text says; UsageError if it is none.

    As in Kafka, padding may be there, and the last character's four bits too many say nothing.

    >>> parse_uuid("G6yKAFZ_QT2Z-XISta5K6w=="), parse_uuid("AAAAAAAAAAAAAAAAAAAAAB")
    ('G6yKAFZ_QT2Z-XISta5K6w', 'AAAAAAAAAAAAAAAAAAAAAA')
    """
    if not isinstance(text, str):
        raise UsageTypeError("uuid", got=type(text).__name__, wanted="a str")
    if not _TEXT.fullmatch(text):
        raise UsageError("uuid", got=shown(text), wanted="the 22 characters of 16 bytes in base64 for URLs")
    return uuid_of(base64.urlsafe_b64decode(text[:22] + "=="))


def parse_topic_id(text: object) -> TopicId:
    """The same for a topic's id, which zero is not."""
    uuid = parse_uuid(text)
    if uuid == ZERO_UUID:
        raise UsageError("topic id", got=uuid, wanted="another id than zero, which stands for none")
    return TopicId(uuid)


def uuid_of(data: bytes) -> Uuid:
    """The id that 16 bytes are.

    >>> uuid_of(bytes(15) + b"\\1") == METADATA_TOPIC_ID
    True
    """
    if len(data) != UUID_BYTES:
        raise UsageError("uuid", got=f"{len(data)} bytes", wanted=f"{UUID_BYTES} bytes")
    return Uuid(base64.urlsafe_b64encode(data)[:22].decode("ascii"))


def bytes_of(uuid: Uuid) -> bytes:
    """The 16 bytes of an id."""
    return base64.urlsafe_b64decode(parse_uuid(uuid) + "==")


def draw_topic_id(random_bytes: Callable[[int], bytes]) -> TopicId:
    """A new topic's id, from a source of random bytes such as os.urandom.

    As Kafka draws it: a random UUID of version 4, which no reserved id is, and none that begins with "-", which a
    command line would take for an option.
    """
    for _ in range(_DRAWS_MAX):
        drawn = bytearray(random_bytes(UUID_BYTES))
        if len(drawn) != UUID_BYTES:
            raise UsageError("random bytes", got=len(drawn), wanted=UUID_BYTES)
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        uuid = uuid_of(bytes(drawn))
        if not uuid.startswith("-"):
            return TopicId(uuid)
    raise UsageError("random bytes", got=f'{_DRAWS_MAX} ids that begin with "-"', wanted="others now and then")
