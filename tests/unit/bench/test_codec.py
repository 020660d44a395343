import argparse
import json
import math
import sys
from importlib.metadata import entry_points

import pytest

from logcore import StorageError, UsageError, encode_batch
from logcore.bench import codec, peers, plot
from logcore.bench.operations import bar_tasks, logcore_tasks

RESULT_FIELDS = {
    *("codec", "level", "batch_bytes", "value_bytes", "operation", "by", "records_per_second"),
    *("megabytes_per_second", "bytes_per_record", "compression_ratio", "cpu", "rounds"),
}
BAR_FIELDS = {
    *("codec", "level", "batch_bytes", "value_bytes", "operation", "against", "against_by"),
    *("ratio", "at_least", "is_met"),
}
OPERATIONS = ["encode rows", "decode rows", "encode columns", "decode columns", "decode view", "scan", "validate"]


def _run(*flags):
    parser = argparse.ArgumentParser(exit_on_error=False)
    codec.add_arguments(parser)
    return codec.run(parser.parse_args([*flags, "--repeat", "1"]))


def _document(capsys, *flags):
    assert _run("--json", *flags) == 0
    return json.loads(capsys.readouterr().out)


def test_it_is_what_the_entry_point_names():
    [entry] = entry_points(group="logcore.bench", name="codec")
    assert entry.load() is codec


def test_the_document_has_the_machine_the_options_and_every_operation(capsys):
    document = _document(capsys, "--codec", "lz4", "--batch-size", "2K", "--record-size", "50")
    assert document.keys() == {"machine", "options", "results", "bars", "skipped"}
    assert {"logcore", "processor", "cores", "pinned_to_core", "python", "packages"} <= document["machine"].keys()
    assert document["options"]["batch_size"] == [2048]
    assert [result["operation"] for result in document["results"]] == OPERATIONS
    for result in document["results"]:
        assert result.keys() == RESULT_FIELDS
        assert (result["codec"], result["level"], result["batch_bytes"], result["value_bytes"]) == ("lz4", 9, 2048, 50)
        assert result["by"] == "logcore"
        assert result["rounds"] == 1
        assert result["records_per_second"] > 0
        assert result["compression_ratio"] > 1
        plain_bytes_per_record = result["bytes_per_record"] * result["compression_ratio"]
        expected = result["records_per_second"] * plain_bytes_per_record / 1e6
        assert math.isclose(result["megabytes_per_second"], expected)
    assert document["bars"] == document["skipped"] == []


def test_every_combination_is_a_case_and_a_codec_without_levels_is_one(capsys):
    document = _document(
        capsys, "--codec", "none", "zstd", "--level", "1", "3", "--batch-size", "1K", "2K", "--record-size", "20", "50"
    )
    fields = ("codec", "level", "value_bytes", "batch_bytes")
    cases = list(dict.fromkeys(tuple(result[name] for name in fields) for result in document["results"]))
    assert cases == [
        (*codec, value, batch)
        for codec in (("none", None), ("zstd", 1), ("zstd", 3))
        for value in (20, 50)
        for batch in (1024, 2048)
    ]


def test_with_peers_there_are_bars_and_what_is_missing_is_told(capsys, monkeypatch, c_limits):
    def missing(name):
        raise UsageError(name, got="nothing", wanted="a peer")

    monkeypatch.setattr(peers, "Peer", missing)
    document = _document(capsys, "--codec", "none", "gzip", "--batch-size", "2K", "--record-size", "50", "--peers")
    assert document["skipped"] == ["aiokafka: got nothing, wanted a peer", "kafka-python: got nothing, wanted a peer"]
    contenders = {result["by"] for result in document["results"]}
    assert contenders == {"logcore", "memcpy", "CRC-32C", "crc32c package", "C loop", "zlib"}
    assert all(bar.keys() == BAR_FIELDS for bar in document["bars"])
    assert {(bar["codec"], bar["operation"], bar["against_by"]) for bar in document["bars"]} >= {
        ("none", "decode columns", "C loop"),
        ("none", "encode columns", "C loop"),
        ("none", "scan", "CRC-32C"),
        ("gzip", "compress", "zlib"),
        ("gzip", "decompress", "zlib"),
    }
    assert all(bar["is_met"] == (bar["ratio"] >= bar["at_least"]) for bar in document["bars"])


def test_without_a_compiler_the_rest_is_measured(capsys, monkeypatch):
    def missing(workload):
        raise UsageError("no compiler")

    monkeypatch.setattr(codec.limits, "limit_tasks", missing)
    document = _document(capsys, "--codec", "zstd", "--batch-size", "2K", "--record-size", "50", "--peers")
    assert "no compiler" in document["skipped"]
    assert {"logcore", "zstandard"} <= {result["by"] for result in document["results"]}


def test_the_table_has_a_line_for_each_operation_and_the_ratios(capsys, c_limits):
    assert _run("--codec", "none", "--batch-size", "2K", "--record-size", "50", "--peers") == 0
    out = capsys.readouterr().out
    for operation in OPERATIONS:
        assert f"  {operation}  " in out
    assert "logcore beside other clients and what the machine allows" in out
    assert "missed" not in out
    assert "C loop: decode columns" in out


@pytest.mark.parametrize("name", ["sample.jsonl", "sample.parquet", "sample.log"])
def test_the_users_own_rows_are_measured(capsys, tmp_path, name):
    path = tmp_path / name
    if name.endswith(".jsonl"):
        path.write_text('{"key": "k", "value": "some text"}\n' * 40)
    elif name.endswith(".log"):
        path.write_bytes(encode_batch([(b"k", b"some text")] * 40))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"key": ["k"] * 40, "text": ["some text"] * 40}), path)
    flags = ["--file", str(path), "--codec", "none", "--batch-size", "64K", "--value-column", "text"]
    document = _document(capsys, *flags)
    assert [result["operation"] for result in document["results"]] == OPERATIONS
    for result in document["results"]:
        assert result["value_bytes"] is None
        # 61 bytes of header; a record has 18 bytes, or 19 where a delta takes two bytes.
        assert 18 < result["bytes_per_record"] < 22


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"nowhere\.jsonl"):
        _run("--file", str(tmp_path / "nowhere.jsonl"))


def test_a_picture_is_drawn(capsys, tmp_path, fonts):
    path = tmp_path / "out.png"
    assert (
        _run("--codec", "none", "lz4", "--batch-size", "2K", "4K", "8K", "--record-size", "50", "--plot", str(path))
        == 0
    )
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("no/such/place.png", StorageError),
        ("out.gif", UsageError),
        ("out", UsageError),
        ("made.png", StorageError),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_measured(monkeypatch, tmp_path, name, error):
    (tmp_path / "made.png").mkdir()
    monkeypatch.setattr(codec, "measure", lambda *args, **options: pytest.fail("measured"))
    with pytest.raises(error, match=name):
        _run("--codec", "none", "--batch-size", "2K", "--record-size", "50", "--plot", str(tmp_path / name))


def test_looking_whether_a_picture_can_be_written_changes_no_file(tmp_path):
    path = tmp_path / "out.PNG"
    plot.check_path(str(path))
    assert not path.exists()
    path.write_bytes(b"kept")
    plot.check_path(str(path))
    assert path.read_bytes() == b"kept"


def test_a_picture_without_matplotlib_is_refused_in_one_line_before_anything_is_measured(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(codec, "measure", lambda *args, **options: pytest.fail("measured"))
    with pytest.raises(UsageError) as caught:
        _run("--plot", "out.png")
    assert str(caught.value) == "--plot needs matplotlib: pip install 'logcore[plot]'"


@pytest.mark.parametrize(
    "flags",
    [
        ["--file", "x.jsonl", "--record-size", "10"],
        ["--file", "x.jsonl", "--key-size", "10"],
        ["--key-size", "-1"],
        ["--seconds", "-1"],
        ["--seconds", "nan"],
        ["--codec", "zstd", "--level", "99"],
        ["--codec", "gzip", "--level", "0"],
    ],
)
def test_what_makes_no_sense_is_refused(flags):
    with pytest.raises(UsageError, match=r"got .*wanted"):
        _run(*flags)


def test_no_rounds_are_refused():
    with pytest.raises(UsageError, match="--repeat: got 0, wanted at least 1"):
        codec.run(_arguments("--repeat", "0"))


def _arguments(*flags):
    parser = argparse.ArgumentParser()
    codec.add_arguments(parser)
    return parser.parse_args(flags)


@pytest.mark.parametrize(
    ("text", "size"), [("16384", 16384), ("16K", 16384), ("16KiB", 16384), ("1m", 1 << 20), ("1MiB", 1 << 20)]
)
def test_sizes_may_have_a_unit(text, size):
    assert codec.size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "K", "1G", "1.5M", "2000M", "²"])
def test_other_sizes_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="wanted a size"):
        codec.size(text)


def test_every_operation_of_logcore_runs_on_every_fetch():
    workload = codec.Workload(codec.Case("none", None, 2048, 50), codec.synthetic_rows(50, plain_bytes=40_000))
    for task in [*logcore_tasks(workload), *bar_tasks(workload)]:
        assert len(task.calls) == len(workload.fetches)
        assert sum(task.records) == workload.records
        for call in task.calls:
            call()
