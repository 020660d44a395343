"""The command around the subcommands: exit codes, one-line errors, benchmarks by entry point, broken pipes."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint, distribution
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import logcore
from logcore import UsageError, encode_batch
from logcore.cli import bench, main
from logcore.cli.command import one_line


def run(*arguments, **options):
    """`logcore` in a process of its own."""
    command = [sys.executable, "-m", "logcore", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=60, **options)


@pytest.fixture
def segment(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(encode_batch([(b"k", b"v" * 100)] * 100, base_offset=i * 100) for i in range(100)))
    return path


def test_the_version_is_the_librarys(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"logcore {logcore.__version__}\n"


def test_the_installed_command_is_main():
    [script] = distribution("logcore").entry_points.select(group="console_scripts")
    assert script.name == "logcore"
    assert script.load() is main


def test_python_m_logcore_is_the_command(segment):
    done = run("dump", "--limit", 1, "--batches-only", segment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"file ")


@pytest.mark.parametrize("arguments", [[], ["dump"], ["bench"], ["bench", "codec"]])
def test_help_is_printed_teaches_by_examples_and_is_a_success(arguments, capsys):
    assert main([*arguments, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(" ".join(["usage: logcore", *arguments]))
    assert "examples:\n  logcore " in text
    assert "logcore.bench" not in text, "a user knows no modules"
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("arguments", [[], ["dump"], ["bench"], ["bench", "codec"]])
def test_a_flag_that_does_not_exist_points_to_the_help_of_its_command(arguments, capsys):
    assert main([*arguments, *(["a.log"] if arguments == ["dump"] else []), "--jsn"]) == 2
    assert capsys.readouterr().err.endswith(f" ({' '.join(['logcore', *arguments])} --help tells more)\n")


def test_the_help_of_dump_tells_the_exit_codes_the_json_scheme_and_examples(capsys):
    main(["dump", "--help"])
    text = capsys.readouterr().out
    for part in ("exit codes:", "examples:", '{"base64": "…"}', r"\xNN is a byte", "--salvage"):
        assert part in text


def test_an_unknown_command_is_one_typed_line(capsys):
    assert main(["frobnicate"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("logcore: UsageError: argument COMMAND: invalid choice: 'frobnicate'")
    assert printed.err.count("\n") == 1


def test_a_file_name_cannot_break_the_line(capsys):
    assert main(["dump", "no\nsuch\x1b[31m\udcff"]) == 2
    assert capsys.readouterr().err == (
        "logcore: StorageError: open, no\\nsuch\\x1b[31m\\udcff: got errno 2 (No such file or directory)\n"
    )
    assert one_line("a\tb é") == "a\\tb é"


def test_a_reader_that_goes_away_is_no_error(segment):
    for arguments in (["dump"], ["dump", "--json"]):
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-m", "logcore", *arguments, str(segment)]
        try:
            done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60)
        finally:
            os.close(writing)
        assert (done.returncode, done.stderr) == (141, b"")


def shell(line, *arguments):
    """`logcore` in a process of its own, its streams redirected as `line` says."""
    command = ["sh", "-c", f'exec "$@" {line}', "sh", sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=60)


NEEDS_FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


@NEEDS_FULL
@pytest.mark.parametrize("python", [["-m"], ["-u", "-m"]])
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["dump", "--help"], ["dump", "SEGMENT"]])
def test_a_full_disk_is_one_typed_line(python, arguments, segment):
    done = shell(">/dev/full", *python, "logcore", *(segment if a == "SEGMENT" else a for a in arguments))
    assert done.stderr == b"logcore: StorageError: write, standard output: got errno 28 (No space left on device)\n"
    assert done.returncode == 2


@pytest.mark.parametrize("arguments", [["--version"], ["dump", "SEGMENT"], ["bench", "codec", "--help"]])
def test_a_closed_stdout_is_one_typed_line(arguments, segment):
    done = shell(">&-", "-m", "logcore", *(segment if a == "SEGMENT" else a for a in arguments))
    assert done.stderr == b"logcore: StorageError: write, standard output: got errno 9 (Bad file descriptor)\n"
    assert done.returncode == 2


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="needs pipes that keep writes apart")
def test_an_unbuffered_python_writes_no_record_by_itself(tmp_path):
    with logcore.open_log(tmp_path / "orders-0") as log:
        log.append([(b"k", b"v")] * 3)
    for flags in ([], ["--json"], ["--key-separator", ":"]):
        reading, writing = os.pipe2(os.O_DIRECT)
        try:
            command = [sys.executable, "-u", "-m", "logcore", "cat", tmp_path / "orders-0", *flags]
            subprocess.run(command, stdout=writing, check=True, timeout=60)
            assert os.read(reading, 4096).count(b"\n") == 3
        finally:
            os.close(reading)
            os.close(writing)


@pytest.mark.parametrize("line", ["2>&-", pytest.param("2>/dev/full", marks=NEEDS_FULL)])
def test_without_a_stderr_the_exit_code_and_the_output_are_the_same(line, segment):
    assert shell(line, "-m", "logcore", "dump", "missing").returncode == 2
    assert shell(f"{line} >&-", "-m", "logcore", "--version").returncode == 2
    damaged = segment.with_name("damaged.log")
    damaged.write_bytes(segment.read_bytes()[:-1] + b"x")
    done = shell(line, "-m", "logcore", "dump", "--batches-only", damaged)
    assert (done.returncode, done.stdout.count(b"batch position=")) == (1, 99)


def test_a_closed_stdin_is_one_typed_line():
    done = shell("<&-", "-m", "logcore", "dump", "-")
    assert done.stderr == b"logcore: StorageError: open, standard input: got errno 9 (Bad file descriptor)\n"
    assert done.returncode == 2


@pytest.mark.parametrize(("text", "line"), [("", "MemoryError"), ("8 bytes for it", "MemoryError: 8 bytes for it")])
def test_too_little_memory_is_one_line(segment, monkeypatch, capsys, text, line):
    def refuse(*_):
        raise MemoryError(text)

    monkeypatch.setattr("logcore.cli.dump.open_source", refuse)
    assert main(["dump", str(segment)]) == 2
    assert capsys.readouterr().err == f"logcore: {line}\n"


def test_text_that_the_terminal_cannot_show_is_escaped_not_fatal(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(encode_batch([(b"k", "é".encode())]))
    done = run("dump", path, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb'value="\xe9"' in done.stdout
    done = run("dump", "--help", env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (done.returncode, done.stderr) == (0, b"")


def test_standard_input_is_read_as_it_comes(segment):
    done = run("dump", "--json", "--limit", 1, "-", input=segment.read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["file", "batch", "record"]


def test_an_interrupt_is_quiet(segment, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("logcore.cli.dump.open_source", interrupt)
    assert main(["dump", str(segment)]) == 130
    assert capsys.readouterr().err == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_file_holds_the_dump_is_json_and_an_exit_code(data, tmp_path, capsys):
    whole = [
        encode_batch([(b"k", b"v%d" % i, 5, [("h", b"x")])], base_offset=i, compression=codec)
        for i, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"])
    ]
    whole.append(encode_batch([(b"k", b"old")], magic=1, base_offset=5, compression="gzip"))
    batches = [bytearray(batch) for batch in whole]
    for _ in range(data.draw(st.integers(0, 4))):
        batch = data.draw(st.sampled_from(batches))
        batch[data.draw(st.integers(0, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
        if data.draw(st.booleans()) and batch[16] == 2:  # with its checksum right, so that the records are reached
            batch[17:21] = logcore.crc32c(batch[21:]).to_bytes(4, "big")
    path = tmp_path / "some.log"
    path.write_bytes(b"".join(batches))

    status = main(["dump", "--json", "--salvage", str(path)])
    printed = capsys.readouterr()
    kinds = [json.loads(line)["type"] for line in printed.out.splitlines()]
    assert status == (1 if "damage" in kinds else 0)
    assert printed.err.count("\n") == kinds.count("damage")
    if batches == whole:
        assert kinds == ["file", *["batch", "record"] * len(batches)]

    assert main(["dump", "--full", "--salvage", str(path)]) == status
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


# ---------------------------------------------------------------------------------------------------- benchmarks


def entry(name, value):
    return EntryPoint(name, value, bench.GROUP)


@pytest.fixture
def benchmarks(monkeypatch):
    """Puts benchmarks in the place of the installed ones."""

    def install(*entries):
        monkeypatch.setattr(bench, "entry_points", lambda group: [e for e in entries if e.group == group])

    return install


def plant(monkeypatch, **attributes):
    monkeypatch.setitem(sys.modules, "planted_benchmark", SimpleNamespace(**attributes))


def test_a_benchmark_is_found_by_its_entry_point_and_returns_the_exit_code(benchmarks, monkeypatch, capsys):
    plant(
        monkeypatch,
        add_arguments=lambda parser: parser.add_argument("--size", type=int),
        run=lambda args: print("ran", args.size) or 7,
    )
    benchmarks(entry("planted", "planted_benchmark"))
    assert main(["bench", "planted", "--size", "3"]) == 7
    assert capsys.readouterr().out == "ran 3\n"


def test_an_entry_point_may_name_an_object_of_a_module(benchmarks, monkeypatch):
    plant(monkeypatch, main=SimpleNamespace(add_arguments=lambda parser: None, run=lambda args: 0))
    benchmarks(entry("planted", "planted_benchmark:main"))
    assert main(["bench", "planted"]) == 0


def test_benchmarks_are_listed_without_being_imported(benchmarks, capsys):
    benchmarks(entry("second", "no_such_module_b"), entry("first", "no_such_module_a"))
    assert main(["bench", "--help"]) == 0
    text = capsys.readouterr().out
    assert text.index("no_such_module_a") < text.index("no_such_module_b")


def test_dump_does_not_look_for_benchmarks(segment, monkeypatch, capsys):
    monkeypatch.setattr(bench, "entry_points", lambda group: pytest.fail("looked"))
    assert main(["dump", "--limit", "1", str(segment)]) == 0


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:no_such_name", "AttributeError: module 'json' has no attribute 'no_such_name'"),
        ("json", "no add_arguments and no run"),
    ],
)
def test_an_entry_point_that_is_no_benchmark_is_one_typed_line(value, got, benchmarks, capsys):
    with pytest.raises(UsageError) as caught:
        bench.load_benchmark(entry("broken", value))
    assert caught.value.got == got
    benchmarks(entry("broken", value))
    assert main(["bench", "broken"]) == 2
    assert capsys.readouterr().err == f"logcore: UsageError: {caught.value}\n"


def test_damage_that_a_benchmark_meets_is_its_line_and_exit_code_1(tmp_path, capsys):
    path = tmp_path / "damaged.log"
    path.write_bytes(encode_batch([(b"k", b"v")])[:-1] + b"x")
    assert main(["bench", "codec", "--file", str(path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"logcore: CorruptBatch: batch at position 0 of {path}, byte 17: crc got 0x")
    assert printed.err.count("\n") == 1


def test_a_benchmarks_usage_error_is_one_line_too(benchmarks, monkeypatch, capsys):
    def refuse(args):
        raise UsageError("codec", got="brotli", wanted="gzip")

    plant(monkeypatch, add_arguments=lambda parser: None, run=refuse)
    benchmarks(entry("planted", "planted_benchmark"))
    assert main(["bench", "planted"]) == 2
    assert capsys.readouterr().err == "logcore: UsageError: codec: got brotli, wanted gzip\n"
