"""The tour of `make demo`, about a minute: a log in every codec, killed half-way, recovered, asked, compacted, damaged.

python tools/demo.py [RECORDS]     three million unless told
"""

import argparse
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import logcore
from logcore._compression import CODECS
from logcore.bench.data import synthetic_rows
from logcore.bench.machine import machine_facts
from logcore.bench.table import Progress, aligned, rate_text
from logcore.cli import main as command

RECORDS = 3_000_000
POOL_BYTES = 12 << 20  # distinct rows, far more than any codec's window; written again and again
KEYS = 5_000
KILL_AT_OFFSET = 500_000
BENCH = ["bench", "log", "--peers", "--seconds", "0.1"]
progress = Progress(sys.stderr)

WRITER = """if True:
    import sys, logcore
    log = logcore.open_log(sys.argv[1], config={"internal.segment.bytes": 16 << 20})
    batch = [(b"key-%d" % n, b"x" * 100) for n in range(1000)]
    while True:
        print(log.append(batch).last_offset, flush=True)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tour."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("records", nargs="?", type=int, default=RECORDS, help="how many to make (default: %(default)s)")
    count = max(1000, parser.parse_args(arguments).records)
    facts = machine_facts(None)
    print(f"logcore {facts['logcore']} on {facts['processor']}, {facts['cores']} cores, {facts['python']}")
    home = Path(tempfile.mkdtemp(prefix="logcore-demo-"))
    try:
        _write_in_every_codec(home, count)
        _kill_a_writer(home)
        _read_by_offset_and_time(home)
        _ask_duckdb(home)
        _ask_polars(home)
        _compact(home)
        _damage_a_byte(home)
        _compare_with_peers()
    finally:
        shutil.rmtree(home)
    return 0


def _write_in_every_codec(home: Path, count: int) -> None:
    """A topic for each codec, of events with a 10-byte key and a 100-byte value, columns in and out."""
    progress.tell(0, "making events")
    rows = synthetic_rows(100, 10, plain_bytes=min(POOL_BYTES, 118 * count))
    pool = logcore.decode_columns(logcore.encode_batch(rows), columns=("key", "value"))
    progress.clear()
    rounds = -(-count // len(pool))
    total = rounds * len(pool)
    _title(f"Append {total / 1e6:.1f} million records in every codec, flush, and read them back")
    table = []
    for codec in CODECS:
        with logcore.open_log(home / f"events-{codec}-0") as log:
            start = time.perf_counter()
            for index in range(rounds):
                progress.tell(index / rounds, f"append {codec}")
                log.append_columns(pool, compression=codec)
            log.flush()
            written = time.perf_counter() - start
            start = time.perf_counter()
            read = 0
            for columns in log.read_columns(0):
                read += len(columns)
                progress.tell(read / total, f"read {codec}")
            columns_seconds = time.perf_counter() - start
            start = time.perf_counter()
            rows_read = sum(1 for _ in log.read(0, max_bytes=log.size_in_bytes // 4))
            rows_seconds = time.perf_counter() - start
            progress.clear()
            if read != total:
                raise SystemExit(f"{codec}: {read} records of {total}")
            size = log.size_in_bytes
            log.roll()  # what was written is sealed now
        table.append(
            [
                *(codec, rate_text(total / written), rate_text(read / columns_seconds)),
                *(rate_text(rows_read / rows_seconds), f"{size / 1e6:,.0f}", f"{size / total:.1f}"),
            ]
        )
    heads = ("codec", "appended/s", "read as columns/s", "read as rows/s", "MB", "B/record")
    print(aligned(heads, table, {"codec"}))


def _kill_a_writer(home: Path) -> None:
    _title("Kill a writer half-way, and open its log again")
    path = home / "killed" / "orders-0"  # a log root of its own: the others were closed in order
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        last = 0
        for line in writer.stdout:
            last = int(line)
            if last > KILL_AT_OFFSET:
                writer.send_signal(signal.SIGKILL)
                break
        for line in writer.stdout:  # what it had said before it died
            last = int(line)
    with logcore.open_log(path, progress=lambda _: progress.tell(0, "recovering")) as log:
        progress.clear()
        recovery = log.recovery
        print(f"the last append that returned ended with {last:,}; the log ends at {log.log_end_offset:,}")
        print(
            f"recovery read {recovery.segments_read} segments and {recovery.bytes_read / 1e6:,.0f} MB, found the end "
            f"{recovery.outcome}, and cut off {recovery.bytes_cut} bytes"
        )
        if log.log_end_offset <= last:
            raise SystemExit("an append that returned is not there")
    print(f"\n$ logcore verify {path.parent.name}", flush=True)
    before = os.getcwd()
    os.chdir(home)
    try:
        status = command(["verify", path.parent.name])
    finally:
        os.chdir(before)
    if status:
        raise SystemExit("the log is damaged")


def _read_by_offset_and_time(home: Path) -> None:
    _title("Read by offset and by time")
    with logcore.open_log(home / "events-zstd-0", read_only=True) as log:
        middle = log.log_end_offset // 2
        start = time.perf_counter()
        record = next(iter(log.read(middle)))
        print(f"offset {middle:,}, in {(time.perf_counter() - start) * 1e6:.0f} µs: {record.value[:60]!r}…")
        start = time.perf_counter()
        found = log.offset_for_timestamp(record.timestamp)
        print(f"the first record of {record.timestamp}, in {(time.perf_counter() - start) * 1e6:.0f} µs: {found}")


def _ask_duckdb(home: Path) -> None:
    _title("Ask DuckDB: what kind of event moved the most money?")
    duckdb = _import("duckdb")
    if duckdb is None:
        return
    start = time.perf_counter()
    with logcore.open_log(home / "events-zstd-0", read_only=True) as log:
        connection = duckdb.connect()
        connection.register("events", log.read_columns(0, columns=("value",)))
        answer = connection.execute(
            """
            select regexp_extract(text, '"kind":"([a-z]+)"', 1) as kind, count(*) as records,
                   sum(regexp_extract(text, '"amount":([0-9.]+)', 1)::double) as total
            from (select decode(value) as text from events)
            group by kind order by total desc limit 3
            """
        ).fetchall()
    for kind, records, total in answer:
        print(f"  {kind:<10} {records:>9,} records  {total:>16,.2f}")
    print(f"({time.perf_counter() - start:.2f} s: reading the log, handing over by Arrow's C interface, and the query)")


def _ask_polars(home: Path) -> None:
    _title("Ask polars: how many keys end in 7?")
    polars = _import("polars")
    if polars is None:
        return
    start = time.perf_counter()
    with logcore.open_log(home / "events-lz4-0", read_only=True) as log:
        frame = polars.DataFrame(log.read_columns(0, columns=("offset", "key")))
    found = frame.select(polars.col("key").bin.ends_with(b"7").sum()).item()
    print(f"{found:,} of {len(frame):,}   ({time.perf_counter() - start:.2f} s)")


def _import(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed (pip install 'logcore[demo]'): skipped")
        return None


def _compact(home: Path) -> None:
    _title(f"Compact a log of a million updates to {KEYS:,} keys")
    with logcore.open_log(
        home / "customers-0", config={"cleanup.policy": "compact", "internal.segment.bytes": 8 << 20}
    ) as log:
        for index in range(200):
            progress.tell(index / 200, "updating")
            log.append([(b"customer-%d" % (n % KEYS), b'{"update": %d}' % (index * KEYS + n)) for n in range(KEYS)])
        log.roll()
        before = log.size_in_bytes
        start = time.perf_counter()
        done = log.compact(progress=lambda read, total: progress.tell(read / total, "compacting"))
        seconds = time.perf_counter() - start
        progress.clear()
        if done is None:
            raise SystemExit("there was nothing to compact")
        print(
            f"{done.records_read:,} records became {done.records_written:,}, {before / 1e6:,.1f} MB became "
            f"{log.size_in_bytes / 1e6:,.1f} MB, in {seconds:.2f} s ({rate_text(done.records_read / seconds)}/s)"
        )


def _damage_a_byte(home: Path) -> None:
    _title("Flip one bit in the middle of a sealed segment")
    path = home / "events-none-0"
    segment = sorted(path.glob("*.log"))[0]
    at = segment.stat().st_size // 2
    with segment.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    good = 0
    try:
        with logcore.open_log(path, read_only=True) as log:
            for columns in log.read_columns(0):
                good += len(columns)
    except logcore.CorruptBatch as error:
        print(f"{good:,} records before it were read, and then:\n")
        print(f"  {type(error).__name__}: {str(error).replace(str(home) + os.sep, '')}")
    else:
        raise SystemExit("the damage was not noticed")


def _compare_with_peers() -> None:
    _title("Against what a Python user would pick instead: logcore bench log --peers")
    command(BENCH)


def _title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
