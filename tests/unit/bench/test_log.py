"""Logs of a few kilobytes: what is measured and reported, never how fast it is."""

import argparse
import json
from importlib.metadata import entry_points

import pytest

from logcore import StorageError, UsageError
from logcore.bench import disk_limits, footprint, log, log_sections, stores, timers

RESULT_FIELDS = {
    *("section", "operation", "by", "records_per_second", "megabytes_per_second", "spread", "cpu", "rounds"),
}
BAR_FIELDS = {"operation", "against", "against_by", "than_in", "ratio", "at_least", "at_most", "is_met"}
OURS = {
    "rows": {"append rows", "read rows"},
    "columns": {"append_columns", "read_columns"},
    "flush": {"append and flush"},
    "points": {
        *("point, 4-KiB batches", "point, 4-KiB batches, long log"),
        *("point, 1000 a batch", "point, 1000 a batch, long log"),
    },
    "compact": {"compact, a tenth stays", "compact, all stays", "read_columns + append_columns"},
    "timers": {"timers of a broker", "timers, few pending", "timers, many pending"},
}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    for name, value in {
        "SLICE_BATCHES": 2,
        "RESTART_SLICES": 2,
        "SCAN_RECORDS": 2000,
        "COLUMNS_BYTES": 1 << 10,
        "POINT_RECORDS": 2000,
        "TIMES_LONGER": 2,
        "POINTS_A_CALL": 5,
        "COMPACT_RECORDS": 2000,
        "FEW_TIMERS": timers.STEPS,
        "MANY_TIMERS": timers.STEPS,
    }.items():
        monkeypatch.setattr(log_sections, name, value)
    monkeypatch.setattr(footprint, "SEGMENTS", 5)
    monkeypatch.setattr(footprint, "REOPENINGS", 1)


def _arguments(*flags):
    parser = argparse.ArgumentParser(exit_on_error=False)
    log.add_arguments(parser)
    return parser.parse_args(flags)


def _document(capsys, *flags):
    assert log.run(_arguments("--json", "--repeat", "3", *flags)) == 0
    return json.loads(capsys.readouterr().out)


def test_it_is_what_the_entry_point_names():
    [entry] = entry_points(group="logcore.bench", name="log")
    assert entry.load() is log


@pytest.mark.parametrize("section", OURS)
def test_every_operation_of_a_section_is_measured(capsys, tmp_path, section):
    document = _document(capsys, "--only", section, "--directory", str(tmp_path))
    assert {result["operation"] for result in document["results"]} == OURS[section]
    for result in document["results"]:
        assert result.keys() == RESULT_FIELDS
        assert (result["section"], result["by"], result["rounds"]) == (section, "logcore", 3)
        assert result["records_per_second"] > 0
        assert result["spread"] >= 1
    assert document["bars"] == document["skipped"] == []
    assert list(tmp_path.iterdir()) == []


def test_with_peers_every_bar_has_both_its_sides(capsys, tmp_path, c_limits):
    pytest.importorskip("lmdb")
    pytest.importorskip("rocksdict")
    document = _document(capsys, "--peers", "--directory", str(tmp_path), "--only", *OURS)
    assert document["skipped"] == []
    assert len(document["bars"]) == len(log.log_bars.BARS)
    for bar in document["bars"]:
        assert bar.keys() == BAR_FIELDS
        if bar["at_least"] is not None:
            assert bar["is_met"] == (bar["ratio"] >= bar["at_least"])
        else:
            assert bar["is_met"] == (bar["ratio"] <= bar["at_most"])
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_what_is_missing_is_told_and_the_rest_is_measured(capsys, monkeypatch, tmp_path, c_limits):
    def missing(name, directory):
        raise UsageError(name, got="nothing", wanted="a store")

    monkeypatch.setattr(log_sections, "open_peer", missing)
    document = _document(capsys, "--peers", "--directory", str(tmp_path), "--only", "rows")
    assert document["skipped"] == [f"{name}: got nothing, wanted a store" for name in stores.PEERS]
    assert {result["by"] for result in document["results"]} == {"logcore", "write(2), pread(2)"}
    assert document["bars"] == []


def test_the_table_has_every_part(capsys, tmp_path, c_limits):
    flags = ["--repeat", "2", "--peers", "--directory", str(tmp_path), "--only", "columns", "reopen"]
    assert log.run(_arguments(*flags)) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    at = lines.index("append_columns")
    assert [line.split("  ")[1] for line in lines[at + 1 : at + 3]] == ["logcore", "C loop"]
    assert "≥ 0.7" in out
    assert "a log of 5 segments opened in" in out
    assert "1 .log and 2 index files" in out


def test_a_table_fits_a_terminal_of_80_columns_and_marks_what_is_missed():
    results = [
        {"section": "points", "operation": bar.ours, "by": by, "records_per_second": 123456789.0,
         "megabytes_per_second": 12345.6, "spread": 1.25, "cpu": 1.0}
        for bar in log.log_bars.BARS for by in ("logcore", "write(2), pread(2)")
    ]  # fmt: skip
    verdicts = [log.log_bars.LogVerdict(bar, ratio) for bar in log.log_bars.BARS for ratio in (0.01, 1.0, 99.9)]
    bars = [log._verdict(verdict) for verdict in verdicts]
    text = log._bars_text(bars)
    for line in (*log._results_text(results).splitlines(), *text.splitlines(), *log.GOALS.splitlines()):
        assert len(line) <= 80
    assert [line.endswith("!") for line in text.splitlines()[2:]] == [not bar["is_met"] for bar in bars]


@pytest.mark.parametrize("flags", [["--seconds", "-1"], ["--seconds", "nan"], ["--repeat", "0"]])
def test_what_makes_no_sense_is_refused(flags):
    with pytest.raises(UsageError, match=r"got .*wanted"):
        log.run(_arguments(*flags))


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StorageError, match="nowhere"):
        log.run(_arguments("--only", "flush", "--directory", str(tmp_path / "nowhere")))


@pytest.mark.parametrize("name", ["logcore", *stores.PEERS])
def test_every_store_keeps_what_is_appended(tmp_path, name):
    if name != "logcore" and name != stores.SQLITE3:
        pytest.importorskip(name.partition(" ")[0])
    directory = str(tmp_path / "store")
    store = stores.LogStore(directory) if name == "logcore" else stores.open_peer(name, directory)
    assert store.name == name
    rows = [(b"%010d" % number, b"value %d" % number) for number in range(30)]
    for first in range(0, 30, 10):
        store.append(store.batch(rows[first : first + 10]))
    assert [store.get(offset) for offset in range(30)] == rows
    store.scan()
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_the_c_loops_write_and_read_what_the_log_does(tmp_path, c_limits):
    [rows] = log_sections.row_batches(1)
    store = stores.LogStore(str(tmp_path / "log"))
    store.append(rows)
    [segment] = store.log.segments
    [columns] = store.log.read_columns(0)
    loop = disk_limits.CFile(2000, 1 << 20)
    file = disk_limits.LimitFile(str(tmp_path / "limit"))
    loop.append_call(file, columns, 1 << 20)()
    with open(segment.path, "rb") as ours, open(file.path, "rb") as theirs:
        data, written = ours.read(), theirs.read()
        # All but the leader epoch, which a loop without a log does not have.
        assert (data[:12], data[16:]) == (written[:12], written[16:])
        assert loop.fetch_call(ours.fileno())() == 1000
        assert loop.read_call(ours.fileno())() == len(data)
        assert loop.points_call(ours.fileno(), [0, 0], [len(data)] * 2)() == 2
    file.restart()
    assert file.size == 0
    file.write_and_sync(data)
    assert file.size == len(data)
    file.close()
    store.close()


def test_keys_repeat_as_often_as_asked():
    pieces = list(log_sections.key_columns(250, 25, piece=100))
    keys = [piece["key"][row] for piece in pieces for row in range(len(piece["key"]))]
    assert len(keys) == 250
    assert len(set(keys)) == 25
    assert [len(piece["value"]) for piece in pieces] == [100, 100, 50]
