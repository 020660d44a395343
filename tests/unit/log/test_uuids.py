"""Kafka's Uuid: one text for each id, and ids that are reserved."""

from __future__ import annotations

import uuid as python_uuid

import pytest

from logcore.errors import UsageError, UsageTypeError
from logcore.log.uuids import (
    METADATA_TOPIC_ID,
    RESERVED_UUIDS,
    ZERO_UUID,
    bytes_of,
    draw_topic_id,
    parse_topic_id,
    parse_uuid,
    uuid_of,
)


def test_an_id_is_16_bytes_in_22_characters():
    data = bytes(range(240, 256))
    assert uuid_of(data) == "8PHy8_T19vf4-fr7_P3-_w"
    assert bytes_of(uuid_of(data)) == data
    assert uuid_of(bytes(16)) == ZERO_UUID
    assert bytes_of(METADATA_TOPIC_ID) == bytes(15) + b"\1"


@pytest.mark.parametrize("text", ["AAAAAAAAAAAAAAAAAAAAAA==", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAAAP"])
def test_other_texts_of_an_id_become_the_one(text):
    assert parse_uuid(text) == ZERO_UUID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAA=",
        "AAAAAAAAAAAAAAAAAAAAAA==\n",
        "AAAAAAAAAAAAAAAAAAAAA+",
        "AAAAAAAAAAAAAAAAAAAAA/",
        "AAAAAAAAAAAAAAAAAAAA AA",
        "\u00c4AAAAAAAAAAAAAAAAAAAAA",
        "A" * 100_000,
    ],
)
def test_what_is_no_id_is_refused(text):
    with pytest.raises(UsageError, match="wanted the 22 characters of 16 bytes in base64 for URLs"):
        parse_uuid(text)


def test_ids_are_texts_and_bytes_of_their_size():
    with pytest.raises(UsageTypeError, match="got bytes, wanted a str"):
        parse_uuid(b"AAAAAAAAAAAAAAAAAAAAAA")
    with pytest.raises(UsageError, match="got 15 bytes, wanted 16 bytes"):
        uuid_of(bytes(15))


def test_a_topic_may_have_any_id_but_zero():
    assert parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ") == METADATA_TOPIC_ID
    with pytest.raises(UsageError, match="wanted another id than zero"):
        parse_topic_id(ZERO_UUID)


def test_a_drawn_id_is_a_random_uuid_that_begins_with_no_dash():
    draws = iter([b"\xfb" * 16, b"\xf8" + b"\xff" * 15, bytes(16)])
    drawn = draw_topic_id(lambda size: next(draws))
    assert python_uuid.UUID(bytes=bytes_of(drawn)).version == 4
    assert python_uuid.UUID(bytes=bytes_of(drawn)).variant == python_uuid.RFC_4122
    assert drawn == "AAAAAAAAQACAAAAAAAAAAA"
    assert drawn not in RESERVED_UUIDS


def test_a_source_that_is_not_random_is_refused_after_some_draws():
    with pytest.raises(UsageError, match='random bytes: got 100 ids that begin with "-"'):
        draw_topic_id(lambda size: b"\xfb" * size)
    with pytest.raises(UsageError, match="random bytes: got 3, wanted 16"):
        draw_topic_id(lambda size: b"abc")
