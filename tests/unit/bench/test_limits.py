import os
from pathlib import Path

import numpy as np
import pytest

from logcore import UsageError, encode_batch
from logcore._compression import CODECS
from logcore.bench import limits
from logcore.bench.data import synthetic_rows
from logcore.bench.limits import (
    C_LOOP,
    CRC_ALONE,
    CRC_PACKAGE,
    LIBRARIES,
    MEMCPY,
    CLoop,
    library_calls,
    library_tasks,
    limit_tasks,
)
from logcore.bench.workload import Case, Workload

ROOT = Path(__file__).parents[3]


def _workload(codec="none", batch_bytes=2048, rows=None):
    return Workload(Case(codec, None, batch_bytes, 50), rows or synthetic_rows(50, plain_bytes=40_000))


@pytest.mark.parametrize(("name", "source"), [("limits.c", "bench"), ("checksum.h", "src/logcore")])
def test_the_package_ships_the_c_sources_of_the_repository(name, source):
    assert Path(limits.__file__).with_name(name).read_bytes() == (ROOT / source / name).read_bytes()


@pytest.mark.parametrize("batch_bytes", [2048, 8192])
def test_the_c_loop_encodes_the_same_bytes(c_limits, batch_bytes):
    workload = _workload(batch_bytes=batch_bytes)
    loop = CLoop(workload)
    [fetch, *_] = workload.fetches
    size = loop.encode_call(fetch)()
    assert loop.encoded[:size].tobytes() == fetch.plain


def test_the_c_loop_decodes_the_same_columns(c_limits):
    rows = [(None if i % 5 == 0 else b"k%d" % i, None if i % 7 == 0 else b"v" * i, 1000 - i, ()) for i in range(200)]
    workload = _workload(rows=rows)
    loop = CLoop(workload)
    for fetch in workload.fetches:
        loop.key_validity[:] = loop.value_validity[:] = 0xFF
        count = loop.decode_call(fetch)()
        columns = fetch.columns
        assert np.array_equal(loop.offset[:count], columns.offset)
        assert np.array_equal(loop.timestamp[:count], columns.timestamp)
        for ends, data, validity, column in (
            (loop.key_ends, loop.key, loop.key_validity, columns.key),
            (loop.value_ends, loop.value, loop.value_validity, columns.value),
        ):
            assert np.array_equal(ends[: count + 1], column.offsets)
            assert data[: ends[count]].tobytes() == column.data.tobytes()
            valid = np.unpackbits(validity, bitorder="little", count=count).astype(bool)
            assert valid.tolist() == [column[row] is not None for row in range(count)]


def test_the_c_loop_notices_a_wrong_checksum(c_limits):
    [fetch, *_] = _workload().fetches
    damaged = bytearray(fetch.stored)
    damaged[-1] ^= 1
    batches = c_limits.lc_limit_crc(fetch.stored, len(fetch.stored))
    assert batches == 4
    assert c_limits.lc_limit_crc(bytes(damaged), len(damaged)) == batches - 1


def test_every_limit_runs_on_every_fetch(c_limits):
    tasks = limit_tasks(_workload())
    assert [task.by for task in tasks] == [MEMCPY, CRC_ALONE, CRC_PACKAGE, C_LOOP, C_LOOP]
    for task in tasks:
        for call in task.calls:
            call()


def test_what_the_c_loop_does_not_do_is_not_measured_by_it(c_limits):
    with_headers = _workload(rows=[(b"k", b"v", 5, (("h", b"x"),))])
    assert [task.by for task in limit_tasks(with_headers)] == [MEMCPY, CRC_ALONE, CRC_PACKAGE]
    assert [task.by for task in limit_tasks(_workload("zstd"))] == [MEMCPY, CRC_ALONE, CRC_PACKAGE]


def test_what_was_compiled_once_is_kept(c_limits, tmp_path, monkeypatch):
    [kept] = (tmp_path / "cache/logcore").iterdir()
    limits.load_limits.cache_clear()
    monkeypatch.setattr(limits.subprocess, "run", lambda *command, **options: pytest.fail("compiled again"))
    limits.load_limits()
    assert list((tmp_path / "cache/logcore").iterdir()) == [kept]


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file, where a directory should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(limits.tempfile, "tempdir", str(tmp_path))
    directory = limits._cache_directory()
    assert directory.parent == tmp_path
    assert os.access(directory, os.W_OK)


def test_a_compiler_that_refuses_is_told_in_one_line(monkeypatch, tmp_path):
    compiler = tmp_path / "refusing-cc"
    compiler.write_text("#!/bin/sh\necho 'planted refusal' >&2\necho 'and more' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    limits.load_limits.cache_clear()
    with pytest.raises(UsageError) as caught:
        limits.load_limits()
    assert str(caught.value) == f"limits.c, {compiler}: got planted refusal, wanted a C compiler that takes it"
    assert list((tmp_path / "cache/logcore").iterdir()) == []


def test_no_compiler_at_all_is_told_in_one_line(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(limits.sysconfig, "get_config_var", lambda name: "gcc -pthread")
    limits.load_limits.cache_clear()
    with pytest.raises(UsageError, match="got no C compiler on PATH"):
        limit_tasks(_workload())


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", None), ("gzip", 1), ("snappy", None), ("lz4", None), ("lz4", 1), ("zstd", None), ("zstd", 9)],
)
def test_the_library_alone_gives_back_what_it_took(codec, level):
    compress, decompress = library_calls(codec, level)
    plain = encode_batch([(b"key", b"value " * 20)] * 50)
    stream = bytes(compress(plain))
    assert len(stream) < len(plain)
    assert bytes(decompress(stream)) == plain


def test_every_codec_but_none_has_a_library():
    assert set(LIBRARIES) == set(CODECS) - {"none"}


@pytest.mark.parametrize("codec", LIBRARIES)
def test_the_library_is_timed_on_the_record_bytes_of_each_batch(codec):
    tasks = library_tasks(_workload(codec))
    assert [task.by for task in tasks] == [LIBRARIES[codec]] * 2
    for task in tasks:
        for call in task.calls:
            call()
