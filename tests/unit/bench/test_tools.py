"""The demo and the chart, on as little as they take."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[3]


def _load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_demo_goes_through_all_its_stations(capsys, monkeypatch, c_limits):
    demo = _load("demo")
    monkeypatch.setattr(demo, "BENCH", ["bench", "log", "--help"])
    monkeypatch.setattr(demo, "KILL_AT_OFFSET", 5000)
    monkeypatch.setattr(demo, "KEYS", 50)
    assert demo.main(["2000"]) == 0
    out = capsys.readouterr().out
    stations = [
        "Append 0.0 million",
        "Kill a writer",
        "logcore verify killed",
        "Read by offset",
        "Ask DuckDB",
        "Ask polars",
        "Compact",
        "Flip one bit",
        "Against",
    ]
    assert [station in out for station in stations] == [True] * len(stations)
    assert "CorruptBatch: batch at position 0 of events-none-0/00000000000000000000.log, byte 17: crc got" in out
    assert "\x1b" not in out
    assert "missed" not in out


def test_the_demo_does_without_what_is_not_installed(capsys, monkeypatch):
    demo = _load("demo")
    monkeypatch.setattr(demo.importlib, "import_module", _refuse)
    demo._ask_duckdb(Path())
    demo._ask_polars(Path())
    out = capsys.readouterr().out
    assert "duckdb is not installed" in out
    assert "polars is not installed" in out


def _refuse(name):
    raise ImportError(name)


def test_the_chart_is_drawn_from_a_document_and_leaves_out_what_was_not_measured(tmp_path, fonts):
    case = {"codec": "none", "batch_bytes": 16384, "value_bytes": 100, "records_per_second": 5e6}
    document = {
        "machine": {"processor": "p", "python": "CPython", "packages": {"aiokafka": "1", "kafka-python": None}},
        "results": [
            {**case, "operation": "encode rows", "by": "logcore"},
            {**case, "operation": "decode rows", "by": "aiokafka"},
            {**case, "batch_bytes": 1, "operation": "decode rows", "by": "logcore"},
        ],
    }
    path = tmp_path / "images/chart.svg"
    chart = _load("make_chart")
    chart.draw(document, path)
    assert path.read_bytes().startswith(b"<?xml")
