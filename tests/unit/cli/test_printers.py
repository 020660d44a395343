"""What reaches the terminal is printable, and what reaches a program loses nothing."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logcore.cli._printers import json_bytes, json_name, text_bytes, text_name, text_time


def from_json(value):
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else value.encode("utf-8")


@given(st.none() | st.binary() | st.text().map(str.encode))
def test_any_bytes_survive_json(data):
    printed = json.dumps(json_bytes(data))
    printed.encode("ascii")
    assert from_json(json.loads(printed)) == data


@given(st.binary())
def test_any_header_name_survives_json_without_a_lone_surrogate(data):
    printed = json.loads(json.dumps(json_name(data.decode("utf-8", "surrogateescape"))))
    json.dumps(printed, ensure_ascii=False).encode("utf-8")  # a lone surrogate would be refused
    assert from_json(printed) == data


@given(st.binary() | st.text().map(str.encode), st.none() | st.integers(0, 40))
def test_text_is_one_printable_line_whatever_the_bytes(data, bytes_max):
    assert text_bytes(data, bytes_max).isprintable()
    assert text_name(data.decode("utf-8", "surrogateescape"), bytes_max).isprintable()


@given(st.binary() | st.text().map(str.encode), st.binary() | st.text().map(str.encode))
def test_different_bytes_never_look_the_same(one, other):
    assert (text_bytes(one) == text_bytes(other)) == (one == other)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", '"plain"'),
        ("naïve 日本".encode(), '"naïve 日本"'),
        (b'"\\\n\r\t', r'"\"\\\n\r\t"'),
        (b"\x00\x1b[31m\x7f", r'"\x00\x1b[31m\x7f"'),
        (b"\xff\xc3", r'"\xff\xc3"'),
        ("\u202e\u0085\U000e0001".encode(), r'"\u202e\u0085\U000e0001"'),
        (rb"\xff", r'"\\xff"'),
        (b"", '""'),
        (None, "null"),
    ],
)
def test_what_is_not_printable_is_escaped(data, text):
    assert text_bytes(data) == text


def test_long_bytes_are_cut_between_characters_and_tell_their_length():
    assert text_bytes(b"abcdef", 4) == '"abcd"...(6 bytes)'
    assert text_bytes(b"abcd", 4) == '"abcd"'
    assert text_bytes("abcé".encode(), 4) == '"abc"...(5 bytes)'
    assert (
        text_bytes(b"\x80" * 6, 4) == r'"\x80"...(6 bytes)'
    )  # no character to spare: at most three bytes are given up


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1700000000005, "2023-11-14T22:13:20.005Z"),
        (253402300799999, "9999-12-31T23:59:59.999Z"),
        (253402300800000, "253402300800000"),
        (-1, "-1"),
        (-(2**63), str(-(2**63))),
        (None, "none"),
    ],
)
def test_a_time_is_utc_or_a_plain_number(timestamp, text):
    assert text_time(timestamp) == text
