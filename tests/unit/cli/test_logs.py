"""The commands on logs: verify --repair, cat, append, compact, retain, export, and dump of what is not a .log."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import logcore
from logcore.cli import main
from logcore.cli._logs import record_fields, record_from, time_from

GOLDEN = Path(__file__).parents[2] / "golden" / "logdirs"
NOW = 1_700_000_000_000
SMALL = {"internal.segment.bytes": 1500, "index.interval.bytes": 200}


def json_lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A closed log of 300 records in several segments."""
    with logcore.open_log(tmp_path / "data" / "orders-0", config=SMALL, clock=lambda: NOW) as log:
        for number in range(30):
            log.append([(b"k%d" % (i % 3), b"v%d" % (10 * number + i), NOW + 10 * number + i) for i in range(10)])
        assert len(log.segments) > 2
    return tmp_path / "data" / "orders-0"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("clean")
    with tarfile.open(GOLDEN / "logdir-clean.tar.gz") as archive:
        archive.extractall(where, filter="data")
    return where / "logs"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def indexes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (".index", ".timeindex")}


# --- every command -------------------------------------------------------------------------------------------------

COMMANDS = ["verify", "cat", "append", "compact", "retain", "export"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", ["append", "compact", "retain", "verify", "verify --repair"])
def test_long_work_draws_a_bar_and_so_does_the_recovery_before_it(
    command: str, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal that shows the result too. The bar is gone when that is printed."""
    monkeypatch.setattr("logcore.cli._progress._SECONDS_BEFORE_FIRST", 0.0)
    monkeypatch.setattr("logcore.cli._progress._SECONDS_BETWEEN", 0.0)
    (orders.parent / ".kafka_cleanshutdown").unlink()
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    name, *flags = command.split()
    arguments = [name, str(orders), *flags, *([os.devnull] if name == "append" else [])]
    with contextlib.suppress(SystemExit):
        main(arguments)
    shown = terminal.getvalue()
    assert shown.startswith("\r\x1b[K"), shown
    assert "100% [##############################]" in shown
    assert not shown.splitlines()[-1].endswith("]"), shown


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: logcore {command}")
    assert "examples:\n" in text
    assert "exit codes:\n" in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("command", ["verify", "cat", "compact", "retain", "export"])
def test_a_directory_that_is_not_there_is_an_error_and_is_not_made(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--to", str(tmp_path / "out.jsonl")] if command == "export" else []
    assert main([command, str(tmp_path / "orders-0"), *more]) == 2
    assert "got errno 2" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["append", "compact", "retain"])
def test_what_writes_is_refused_beside_another_writer(command: str, orders: Path) -> None:
    with logcore.open_log(orders):
        done = subprocess.run(
            [sys.executable, "-m", "logcore", command, str(orders)], input=b"x\n", capture_output=True, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr.startswith(b"logcore: LockedError: lock, ")
    assert f"process {os.getpid()}".encode() in done.stderr


@pytest.mark.parametrize("setting", ["retention.mss=1", "retention.ms=x", "retention.ms"])
def test_a_wrong_setting_is_refused_by_name(setting: str, orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retain", str(orders), "--set", setting]) == 2
    assert "retention.ms" in capsys.readouterr().err


# --- verify --------------------------------------------------------------------------------------------------------


def test_verify_beside_a_writer_finds_no_damage(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logcore.open_log(orders, config=SMALL) as log:
        log.append([(b"k", b"v")])
        assert main(["verify", str(orders.parent), "--json"]) == 0
    found = json_lines(capsys)
    assert {one["type"] for one in found} == {"note", "partition"}


def test_repair_makes_indexes_snapshots_and_epochs_again(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logcore.open_log(orders, config=SMALL) as log:
        before = [(one.offset, one.value) for one in log.read(0)]
    wanted = indexes(orders)
    for name in (".index", ".timeindex"):
        flip(min(path for path in orders.glob(f"*{name}") if path.stat().st_size), 7)
    flip(next(orders.glob("*.snapshot")), 3)
    (orders / "leader-epoch-checkpoint").write_text("nonsense")
    settings = [f"--set={name}={value}" for name, value in SMALL.items()]
    assert main(["verify", str(orders)]) == 1
    assert main(["verify", str(orders), "--repair", *settings]) == 0
    text = capsys.readouterr().out
    assert "plan " in text
    assert text.index("\nplan ") < text.index("\nrepaired ")
    assert main(["verify", str(orders.parent)]) == 0
    with logcore.open_log(orders, config=SMALL) as log:
        assert [(one.offset, one.value) for one in log.read(0)] == before
    assert indexes(orders) == wanted


def test_repair_leaves_flushed_batches_alone_until_it_is_told_to_cut(
    orders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sorted(orders.glob("*.log"))[1]
    base = int(path.stem)
    flip(path, 100)
    before = path.read_bytes()
    assert main(["verify", str(orders), "--repair"]) == 1
    text = capsys.readouterr().out
    assert f"nothing: batches that had been flushed are bad from offset {base} on" in text
    assert "--cut-at-damage" in text
    assert path.read_bytes() == before
    assert len(list(orders.glob("*.log"))) > 2
    assert main(["verify", str(orders), "--repair", "--cut-at-damage"]) == 0
    text = capsys.readouterr().out
    assert f"cut the log at offset {base}" in text
    with logcore.open_log(orders) as log:
        assert [one.offset for one in log.read(0)] == list(range(base))
        assert log.append([(b"k", b"v")]).first_offset == base
    assert main(["verify", str(orders.parent)]) == 0


def test_cut_at_damage_alone_is_wrong_use(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(orders), "--cut-at-damage"]) == 2
    assert "--repair" in capsys.readouterr().err


def test_repair_of_a_root_removes_a_checkpoint_that_cannot_be_read(
    orders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = orders.parent / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\norders zero 5\n")
    assert main(["verify", str(orders.parent), "--repair"]) == 0
    assert "plan" in capsys.readouterr().out
    assert not checkpoint.exists()
    with logcore.open_log(orders) as log:
        assert (log.log_end_offset, bool(log.recovery)) == (300, False)


# --- cat and append ------------------------------------------------------------------------------------------------


def test_lines_come_out_as_they_went_in(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = b"one\n\n\xff\xfe caf\xc3\xa9\r\nlast"
    (tmp_path / "in").write_bytes(lines)
    assert main(["append", str(tmp_path / "data" / "t-0"), str(tmp_path / "in")]) == 0
    capfdbinary.readouterr()
    done = subprocess.run(
        [sys.executable, "-m", "logcore", "cat", str(tmp_path / "data" / "t-0")], capture_output=True, timeout=60
    )
    assert done.stdout == lines + b"\n"


def test_a_log_is_copied_by_cat_and_append(tmp_path: Path, clean: Path) -> None:
    def logcore_command(*arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "logcore", *map(str, arguments)]

    source, copy = clean / "plain-zstd-0", tmp_path / "data" / "copy-0"
    with subprocess.Popen(logcore_command("cat", source, "--json"), stdout=subprocess.PIPE) as reading:
        done = subprocess.run(
            logcore_command("append", copy, "--json"), stdin=reading.stdout, capture_output=True, timeout=120
        )
    assert (done.returncode, done.stderr) == (0, b"")
    with logcore.open_log(source, read_only=True) as one, logcore.open_log(copy, read_only=True) as other:
        assert [tuple(r.headers) for r in one.read(0)] == [tuple(r.headers) for r in other.read(0)]
        assert [(r.offset, r.timestamp, r.key, r.value) for r in one.read(0)] == [
            (r.offset, r.timestamp, r.key, r.value) for r in other.read(0)
        ]


def test_cat_begins_where_it_is_told(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def offsets(*flags: str) -> list[object]:
        assert main(["cat", str(orders), "--json", *flags]) == 0
        return [one["offset"] for one in json_lines(capsys)]

    assert offsets("--count", "3") == [0, 1, 2]
    assert offsets("--from", "297") == [297, 298, 299]
    assert offsets("--from", "latest") == []
    assert offsets("--from-time", str(NOW + 298)) == [298, 299]
    assert offsets("--from-time", "2023-11-14T22:13:20.299Z") == [299]
    assert offsets("--from-time", str(NOW + 5000)) == []
    assert main(["cat", str(orders), "--from", "301"]) == 2
    assert "OffsetOutOfRangeError" in capsys.readouterr().err


def test_cat_leaves_out_aborted_records_if_told(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = []
    for isolation in ("read_uncommitted", "read_committed"):
        assert main(["cat", str(clean / "txn-0"), "--json", "--isolation", isolation]) == 0
        counts.append(len(json_lines(capsys)))
    assert counts[0] > counts[1] > 0


def test_cat_stops_at_damage_with_exit_code_1(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(sorted(orders.glob("*.log"))[1], 100)
    assert main(["cat", str(orders), "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.out.count("\n") == int(sorted(orders.glob("*.log"))[1].stem)
    assert "CorruptBatch: batch at position 0 of" in printed.err


def test_cat_follows_a_writer(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logcore.open_log(orders) as log:
        writer = threading.Timer(0.2, lambda: log.append([(b"k", b"new-%d" % i) for i in range(3)]))
        writer.start()
        assert main(["cat", str(orders), "--json", "--follow", "--from", "299", "--count", "4"]) == 0
        writer.join()
    assert [one["offset"] for one in json_lines(capsys)] == [299, 300, 301, 302]


def test_append_makes_batches_of_the_size_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("".join(f"k{i}:v{i}:\n" for i in range(25)))
    directory = tmp_path / "data" / "t-0"
    flags = ["--key-separator", ":", "--batch-records", "10", "--compression", "gzip", "--flush", "--now-ms", str(NOW)]
    assert main(["append", str(directory), str(tmp_path / "in"), *flags]) == 0
    assert capsys.readouterr().out.startswith("appended records=25 first_offset=0 last_offset=24 size_in_bytes=")
    headers = logcore.scan_batches((directory / "00000000000000000000.log").read_bytes()).headers
    assert headers["last_offset"].tolist() == [9, 19, 24]
    with logcore.open_log(directory, read_only=True) as log:
        [record] = list(log.read(24))
        assert (record.key, record.value, record.timestamp) == (b"k24", b"v24:", NOW)


def test_a_line_that_is_no_record_ends_append_and_what_was_before_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text('{"value": "a"}\n\n{"value": "b"\n')
    flags = ["--json", "--batch-records", "1"]
    assert main(["append", str(tmp_path / "t-0"), str(tmp_path / "in"), *flags]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["records"] == 1
    assert "record, line 3 of" in printed.err
    (tmp_path / "in").write_text("a=1\nb\n")
    assert main(["append", str(tmp_path / "t-0"), str(tmp_path / "in"), "--key-separator", "="]) == 2
    printed = capsys.readouterr()
    assert "appended records=1 first_offset=1" in printed.out
    assert "line 2 of" in printed.err


@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    timestamp=st.integers(0, 2**62),
)
def test_a_record_survives_json(key, value, headers, timestamp) -> None:
    names = [(name.decode("utf-8", "surrogateescape"), content) for name, content in headers]
    batch = logcore.encode_batch([(key, value, timestamp, names)])
    [record] = next(iter(logcore.decode_batches(batch)))
    assert record_from(json.dumps(record_fields(record)).encode(), "here") == (key, value, timestamp, names)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    text=st.binary(max_size=60) | st.sampled_from([b'{"value": "\\ud800"}', b"[" * 5000, b'{"headers": [[null, 1]]}'])
)
def test_any_line_is_a_record_or_a_typed_error(text: bytes) -> None:
    with contextlib.suppress(logcore.UsageError):
        record_from(text, "here")


def test_times_are_numbers_or_iso_8601() -> None:
    assert time_from("2023-11-14") == 1_699_920_000_000
    assert time_from("2023-11-14T22:13:20Z") == NOW


# --- compact, retain, export ---------------------------------------------------------------------------------------


def test_compact_keeps_the_latest_of_each_key(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", str(orders), "--roll", "--now-ms", str(NOW + 1000), "--json"]) == 0
    [result] = json_lines(capsys)
    assert (result["is_done"], result["records_read"], result["records_written"]) == (True, 300, 3)
    with logcore.open_log(orders, read_only=True) as log:
        assert [(one.key, one.value) for one in log.read(0)] == [(b"k1", b"v297"), (b"k2", b"v298"), (b"k0", b"v299")]
    assert main(["verify", str(orders.parent)]) == 0
    capsys.readouterr()
    assert main(["compact", str(orders), "--if-due", "--now-ms", str(NOW + 1000), "--json"]) == 0
    assert json_lines(capsys)[0]["is_done"] is False


def test_compact_of_a_log_that_is_not_to_be_compacted_is_refused(
    orders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compact", str(orders), "--set", "cleanup.policy=delete"]) == 2
    assert "cleanup.policy=delete" in capsys.readouterr().err


def test_retain_deletes_old_segments(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retain", str(orders), "--now-ms", str(NOW + 1000), "--json"]) == 0
    assert json_lines(capsys)[0]["segments_deleted"] == 0
    assert main(["retain", str(orders), "--now-ms", str(NOW + 10_000), "--set", "retention.ms=1000", "--json"]) == 0
    [result] = json_lines(capsys)
    assert result["segments_deleted"] > 1
    assert result["log_start_offset"] == result["log_end_offset"] == 300
    assert main(["verify", str(orders.parent)]) == 0


def test_export_writes_what_the_log_has(orders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    for name in ("out.parquet", "out.arrow", "out.jsonl"):
        flags = ["--from", "5", "--count", "200", "--json"]
        assert main(["export", str(orders), "--to", str(tmp_path / name), *flags]) == 0
        assert json_lines(capsys)[0]["rows"] == 200
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("offset").to_pylist() == list(range(5, 205))
    assert table.column("value").to_pylist() == [b"v%d" % i for i in range(5, 205)]
    with pyarrow.ipc.open_file(tmp_path / "out.arrow") as file:
        assert file.read_all().equals(table)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(one["offset"], one["value"]) for one in lines] == [(i, f"v{i}") for i in range(5, 205)]


def test_export_of_some_columns_and_of_nothing(
    orders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out.parquet"
    assert main(["export", str(orders), "--to", str(out), "--columns", "value,key"]) == 0
    assert parquet.read_table(out).column_names == ["value", "key"]
    assert main(["export", str(orders), "--to", str(out), "--from", "latest"]) == 0
    assert parquet.read_table(out).num_rows == 0
    assert main(["export", str(orders), "--to", str(out), "--columns", "value,keys"]) == 2
    assert parquet.read_table(out).num_rows == 0


def test_an_export_that_fails_leaves_no_file(orders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(sorted(orders.glob("*.log"))[1], 100)
    for name in ("out.parquet", "out.arrow", "out.jsonl"):
        if name != "out.jsonl":
            pytest.importorskip("pyarrow")
        assert main(["export", str(orders), "--to", str(tmp_path / name)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert main(["export", str(orders), "--to", str(tmp_path / "nowhere" / "out.jsonl")]) == 2
    assert "write, " in capsys.readouterr().err


# --- dump ----------------------------------------------------------------------------------------------------------


def test_every_file_of_a_kafka_root_is_dumped(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumped = 0
    for path in sorted(clean.rglob("*")):
        if path.suffix == ".checkpoint" or path.name == "quorum-state":
            continue
        assert main(["dump", str(path), "--json", "--limit", "3"]) == 0, path
        first, *rest = json_lines(capsys)
        kind = "partition" if path.is_dir() else "file"
        assert first["type"] == kind
        assert rest or not path.stat().st_size or path.suffix == ".snapshot", path
        dumped += 1
    assert dumped > 150


def test_a_file_that_is_to_go_or_to_come_is_dumped_as_what_it_is(
    orders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in (".index", ".timeindex", ".log", ".snapshot"):
        path = max(orders.glob(f"*{kind}"), key=lambda found: found.stat().st_size)
        assert main(["dump", "--json", str(path)]) == 0
        wanted = json_lines(capsys)[1:]
        for suffix in (".deleted", ".cleaned", ".swap"):
            moved = path.with_name(path.name + suffix)
            moved.write_bytes(path.read_bytes())
            assert main(["dump", "--json", str(moved)]) == 0
            assert json_lines(capsys)[1:] == wanted


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_damage_in_a_dumped_file_is_exit_code_1(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"00000000000000000000{kind}"
    path.write_bytes(b"\x01" * 41)
    assert main(["dump", "--json", str(path)]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["type"] == "damage"
    assert printed.err.count("\n") == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    name=st.sampled_from(
        [
            *(f"00000000000000000007{kind}" for kind in (".index", ".timeindex", ".txnindex", ".snapshot")),
            *("leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "partition.metadata", "meta.properties"),
            ".kafka_cleanshutdown",
        ]
    ),
    data=st.binary(max_size=100),
)
def test_any_bytes_are_dumped_or_are_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str], name, data) -> None:
    (tmp_path / name).write_bytes(data)
    for flags in ([], ["--json"]):
        status = main(["dump", *flags, str(tmp_path / name)])
        printed = capsys.readouterr()
        assert status in (0, 1)
        assert (status == 1) == ("logcore: Corrupt" in printed.err)
        assert printed.out.replace("\n", "").isprintable()


def test_a_log_root_in_place_of_a_partition_is_told_with_what_is_in_it(
    orders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(orders.parent)
    for command in (["cat"], ["compact"], ["retain"], ["export", "--to", "x.jsonl"], ["append"]):
        assert main([*command, root]) == 2
        assert capsys.readouterr().err.endswith(": got a log root, wanted one of its partitions: orders-0\n")
