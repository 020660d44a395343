""".kafka_cleanshutdown and meta.properties."""

from __future__ import annotations

import errno

import pytest

from logcore.errors import CorruptionReason, StorageError, UsageError
from logcore.log.disk import SYSTEM_DISK
from logcore.log.root_files import (
    MetaProperties,
    common_broker_epoch,
    format_clean_shutdown,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_properties,
    read_clean_shutdown,
    read_meta_properties,
    take_clean_shutdown,
    write_clean_shutdown,
)
from tests.unit.log.test_checkpoints import RecordingDisk, refusal

# --------------------------------------------------------------------------------------------- .kafka_cleanshutdown


def test_a_clean_shutdown_is_json_with_version_and_broker_epoch():
    """LOG-143: fields that are not known are ignored."""
    assert format_clean_shutdown(354) == b'{"version":0,"brokerEpoch":354}'
    assert format_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
    assert parse_clean_shutdown(format_clean_shutdown(2**63 - 1), "x") == 2**63 - 1
    assert parse_clean_shutdown(b'{"version":0,"brokerEpoch":10,"unknown":123}', "x") == 10
    assert parse_clean_shutdown(b'\n{"more":{"a":[1,"\xff"]},"version":7,"brokerEpoch":10} and more', "x") == 10
    assert parse_clean_shutdown(b'{"brokerEpoch":10,"version":null}', "x") == 10


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "content got Expecting value: line 1 column 1 (char 0), wanted a JSON object"),
        (b"[]", "content got list, wanted a JSON object"),
        (b"{}", "brokerEpoch got nothing, wanted an int of 64 bits"),
        (b'{"brokerEpoch":null}', "brokerEpoch got nothing, wanted an int of 64 bits"),
        (b'{"brokerEpoch":"1"}', "brokerEpoch got str, wanted an int of 64 bits"),
        (b'{"brokerEpoch":1.0}', "brokerEpoch got float, wanted an int of 64 bits"),
        (b'{"brokerEpoch":true}', "brokerEpoch got bool, wanted an int of 64 bits"),
        (b'{"brokerEpoch":9223372036854775808}', "brokerEpoch got 9223372036854775808, wanted an int of 64 bits"),
        (b'{"brokerEpoch":1,"version":"0"}', "version got str, wanted an int of 32 bits"),
        (b'{"brokerEpoch":1,"a":NaN}', "content got NaN is not JSON, wanted a JSON object"),
    ],
)
def test_what_is_no_clean_shutdown_is_refused(data, message):
    error = refusal(parse_clean_shutdown, data)
    assert error.reason is CorruptionReason.MALFORMED
    assert str(error) == f"checkpoint in some-checkpoint: {message}"


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 60_000,
        b'{"brokerEpoch":' * 4000,
        b'{"brokerEpoch":' + b"9" * 5000 + b"}",
        b'{"brokerEpoch":-' + b"9" * 4000 + b"}",
        b'{"brokerEpoch":1' + b" " * 60_000,
    ],
)
def test_deep_and_long_json_is_refused(data):
    assert len(str(refusal(parse_clean_shutdown, data))) < 250


def test_a_clean_shutdown_is_read_and_gone_before_anything_else_happens(tmp_path):
    """LOG-143: gone for good, or a crash while loading would look like a clean shutdown."""
    root = str(tmp_path)
    write_clean_shutdown(SYSTEM_DISK, root, 354)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":354}'
    assert read_clean_shutdown(SYSTEM_DISK, root) == 354
    disk = RecordingDisk()
    assert take_clean_shutdown(disk, root) == 354
    assert disk.calls == [
        ("open", ".kafka_cleanshutdown"),
        ("unlink", ".kafka_cleanshutdown"),
        ("sync_directory", tmp_path.name),
    ]
    assert list(tmp_path.iterdir()) == []
    assert take_clean_shutdown(disk, root) is None
    assert len(disk.calls) == 3


@pytest.mark.parametrize("data", [b"", b"0\n", b'{"version":0}', b" " * 100_000])
def test_a_clean_shutdown_that_cannot_be_read_is_clean_of_an_unknown_epoch(tmp_path, data):
    """LOG-143: that the file is there is what counts; the first brokers wrote an empty one."""
    (tmp_path / ".kafka_cleanshutdown").write_bytes(data)
    assert read_clean_shutdown(SYSTEM_DISK, str(tmp_path)) == -1
    assert take_clean_shutdown(SYSTEM_DISK, str(tmp_path)) == -1
    assert list(tmp_path.iterdir()) == []


def test_a_clean_shutdown_is_there_whole_or_not_at_all(tmp_path):
    for call in ("append", "sync", "rename"):
        with pytest.raises(StorageError):
            write_clean_shutdown(RecordingDisk(**{call: errno.ENOSPC}), str(tmp_path), 1)
        assert read_clean_shutdown(SYSTEM_DISK, str(tmp_path)) is None


def test_a_disk_that_fails_is_neither_clean_nor_unclean(tmp_path):
    write_clean_shutdown(SYSTEM_DISK, str(tmp_path), 1)
    with pytest.raises(StorageError):
        take_clean_shutdown(RecordingDisk(open=errno.EIO), str(tmp_path))
    assert take_clean_shutdown(SYSTEM_DISK, str(tmp_path)) == 1


def test_a_broker_epoch_that_does_not_fit_is_not_written():
    with pytest.raises(UsageError):
        format_clean_shutdown(2**63)


@pytest.mark.parametrize(
    ("found", "epoch"),
    [
        ([354], 354),
        ([354, 354, 354], 354),
        ([354, 355], -1),
        ([354, None], -1),
        ([None, 354], -1),
        ([None], -1),
        ([354, -1], -1),
        ([-1, 354], -1),
        ([-1, -1], -1),
        ([], -1),
        ([0, 0], 0),
    ],
)
def test_a_broker_epoch_is_believed_if_every_root_has_it(found, epoch):
    """LOG-145: None is a root without the file."""
    assert common_broker_epoch(found) == epoch


# -------------------------------------------------------------------------------------------------- meta.properties


def test_meta_properties_say_whose_directory_it_is(tmp_path):
    assert read_meta_properties(SYSTEM_DISK, str(tmp_path)) is None
    (tmp_path / "meta.properties").write_bytes(
        b"#\n#Wed Nov 18 05:57:38 UTC 2026\nnode.id=1\ndirectory.id=yG6BgJkGPyrNBtmDhYFd2w\nversion=1\n"
        b"cluster.id=BeMU7GzZSzSGU12VFMhhAA\n"
    )
    found = read_meta_properties(SYSTEM_DISK, str(tmp_path))
    assert found == MetaProperties(1, "BeMU7GzZSzSGU12VFMhhAA", 1, "yG6BgJkGPyrNBtmDhYFd2w")


def test_version_0_promises_no_field():
    assert parse_meta_properties(b"", "x") == MetaProperties(0, None, None, None)
    assert parse_meta_properties(b"version=0\nbroker.id=5\nnode.id=6", "x") == MetaProperties(0, None, 5, None)
    assert parse_meta_properties(b"version= 1 \nnode.id=6\ncluster.id=", "x") == MetaProperties(1, "", 6, None)


@pytest.mark.parametrize(
    ("data", "reason", "message"),
    [
        (b"version=2", "VERSION", "version got 2, wanted 0 or 1"),
        (b"version=one", "MALFORMED", "version got 'one', wanted 0 or 1"),
        (b"version=1\ncluster.id=x", "MALFORMED", "node.id got '', wanted an int of 32 bits"),
        (b"version=1\nnode.id=1 \ncluster.id=x", "MALFORMED", "node.id got '1 ', wanted an int of 32 bits"),
        (b"broker.id=2147483648", "MALFORMED", "broker.id got '2147483648', wanted an int of 32 bits"),
        (b"version=1\nnode.id=1", "MALFORMED", "cluster.id got '', wanted an id"),
        (
            b"directory.id=x",
            "MALFORMED",
            "directory.id got 'x', wanted the 22 characters of 16 bytes in base64 for URLs",
        ),
        (b"a=\\u004", "MALFORMED", "escape got '\\\\u004', wanted four hexadecimal digits behind \\u"),
        (b"a=\\ud83d", "MALFORMED", "escape got '\\\\ud83d', wanted text"),
    ],
)
def test_what_is_no_meta_properties_is_refused_with_its_field(data, reason, message):
    error = refusal(parse_meta_properties, data)
    assert (error.reason.name, str(error)) == (reason, f"checkpoint in some-checkpoint: {message}")


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b"a=1\nb:2\nc 3\nd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        (b" \t\x0ca = 1\r\nb \t: 2\rc==3\nd : = 4", {"a": "1", "b": "2", "c": "=3", "d": "= 4"}),
        (b"# a=1\n  ! b=2\\\nc=3 # not a comment", {"c": "3 # not a comment"}),
        (b"a=1  \n\n\n=2", {"a": "1  ", "": "2"}),
        (b"a=1\\\n   2\\\r\n\t3\\\r#4\n#5", {"a": "123#4"}),
        (b"a=1\\\n\nb=2\\\\\nc=3\\", {"a": "1", "b": "2\\", "c": "3"}),
        (b"\\\n# a=1\nb=2", {"b": "2"}),
        (b"a\\ b\\=c\\:d\\#=1", {"a b=c:d#": "1"}),
        (b'a=\\t\\n\\r\\f\\q\\\\\\"', {"a": '\t\n\r\fq\\"'}),
        (b"a=\\u00e9\\u20AC\\ud83d\\ude00\xe9", {"a": "\u00e9\u20ac\U0001f600\u00e9"}),
        (b"\\u0061=1\na=2", {"a": "2"}),
    ],
)
def test_the_syntax_is_that_of_java(data, pairs):
    assert parse_properties(data, "x") == pairs


@pytest.mark.parametrize("data", [b"a\\\n" * 20_000, b"\\" * 60_001, b"=" * 60_000, b"\\u0041" * 10_000, b" " * 60_000])
def test_long_lines_take_no_time(data):
    parse_properties(data, "x")
