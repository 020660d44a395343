"""The tour of `make demo`, about a minute: encode, read back, query, damage, compare.

python tools/demo.py [RECORDS]     three million unless told
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np

from logcore import Columns, CorruptBatch, decode_batches, decode_columns, encode_batch, encode_columns
from logcore._compression import CODECS
from logcore.bench import codec as bench_codec
from logcore.bench.data import synthetic_rows
from logcore.bench.machine import machine_facts
from logcore.bench.table import Progress, aligned, rate_text

RECORDS = 3_000_000
POOL_BYTES = 12 << 20  # distinct rows, far more than any codec's window; written again and again under new offsets
BATCH_BYTES = 1 << 20
PEERS_FLAGS = ["--codec", "none", "--record-size", "100", "--batch-size", "16K", "1M"]
progress = Progress(sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tour."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("records", nargs="?", type=int, default=RECORDS, help="how many to make (default: %(default)s)")
    count = max(1, parser.parse_args(arguments).records)
    facts = machine_facts(None)
    print(f"logcore {facts['logcore']} on {facts['processor']}, {facts['cores']} cores, {facts['python']}")

    pool = _pool(count)
    encoded = _encode_in_every_codec(pool, count)
    _read_back(encoded, count)
    columns = [decode_columns(chunk) for chunk in encoded["zstd"]]
    _ask_numpy(columns)
    _ask_duckdb(encoded["zstd"])
    _ask_polars(encoded["zstd"])
    del columns
    _damage_a_byte(encoded["none"][0])
    _compare_with_peers()
    return 0


def _pool(count: int) -> Columns:
    """Events with a 10-byte key and a 100-byte value; without an offset column, so that each use gives new offsets."""
    progress.tell(0, "making events")
    rows = synthetic_rows(100, 10, plain_bytes=min(POOL_BYTES, 118 * count))
    progress.clear()
    return decode_columns(encode_batch(rows), columns=("timestamp", "key", "value"))


def _encode_in_every_codec(pool: Columns, count: int) -> dict[str, list[bytes]]:
    _title(f"Encode {count / 1e6:g} million records in every codec (columns in, {BATCH_BYTES >> 20}-MiB batches out)")
    chunk_count = -(-count // len(pool))
    encoded: dict[str, list[bytes]] = {}
    table = []
    for codec in CODECS:
        chunks = []
        start = time.perf_counter()
        for index in range(chunk_count):
            progress.tell(index / chunk_count, codec)
            base = index * len(pool)
            chunks.append(encode_columns(pool, batch_bytes=BATCH_BYTES, compression=codec, base_offset=base))
        seconds = time.perf_counter() - start
        progress.clear()
        encoded[codec] = chunks
        records, size = chunk_count * len(pool), sum(map(len, chunks))
        plain = sum(map(len, encoded["none"]))
        table.append(
            [
                *(codec, f"{seconds:.2f}", rate_text(records / seconds), f"{plain / seconds / 1e6:,.0f}"),
                *(f"{size / 1e6:,.0f}", f"{size / records:.1f}", f"{plain / size:.2f}"),
            ]
        )
    print(aligned(("codec", "seconds", "records/s", "MB/s", "MB", "B/record", "ratio"), table, {"codec"}))
    return encoded


def _read_back(encoded: dict[str, list[bytes]], count: int) -> None:
    _title("Read them back, as rows (a Record each) and as Arrow columns")
    table = []
    for codec, chunks in encoded.items():
        rows, row_seconds = _timed(
            chunks, lambda chunk: sum(1 for batch in decode_batches(chunk) for _ in batch), codec
        )
        read, column_seconds = _timed(chunks, lambda chunk: len(decode_columns(chunk)), codec)
        if not rows == read >= count:
            raise SystemExit(f"{codec}: {rows} rows and {read} in columns, of {count}")
        table.append([codec, f"{rows:,}", rate_text(rows / row_seconds), rate_text(read / column_seconds)])
    print(aligned(("codec", "records", "rows/s", "columns, records/s"), table, {"codec"}))
    [*_, batch] = decode_batches(encoded["zstd"][-1])
    [*_, record] = batch
    print(f"\nthe last one: {record}")


def _timed(chunks: list[bytes], read: Callable[[bytes], int], text: str) -> tuple[int, float]:
    total = 0
    start = time.perf_counter()
    for index, chunk in enumerate(chunks):
        progress.tell(index / len(chunks), text)
        total += read(chunk)
    seconds = time.perf_counter() - start
    progress.clear()
    return total, seconds


def _ask_numpy(columns: list[Columns]) -> None:
    _title("Ask numpy: which second had the most records, and how many bytes were in its values?")
    start = time.perf_counter()
    second = np.concatenate([chunk.timestamp for chunk in columns]) // 1000
    size = np.concatenate([np.diff(chunk.value.offsets) for chunk in columns])
    seconds, counts = np.unique(second, return_counts=True)
    busiest = seconds[np.argmax(counts)]
    answer = f"second {busiest}: {counts.max():,} records, {size[second == busiest].sum():,} bytes"
    print(f"{answer}   ({time.perf_counter() - start:.2f} s over {len(second):,} records, no Python object for any)")


def _ask_duckdb(chunks: list[bytes]) -> None:
    _title("Ask DuckDB: what kind of event moved the most money?")
    duckdb = _import("duckdb")
    if duckdb is None:
        return
    start = time.perf_counter()
    events = decode_columns(b"".join(chunks), columns=("value",))
    connection = duckdb.connect()
    connection.register("events", events)
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
    print(f"({time.perf_counter() - start:.2f} s: decoding, handing over by Arrow's C interface, and the query)")


def _ask_polars(chunks: list[bytes]) -> None:
    _title("Ask polars: how many keys end in 7?")
    polars = _import("polars")
    if polars is None:
        return
    start = time.perf_counter()
    frame = polars.DataFrame(decode_columns(b"".join(chunks), columns=("offset", "key")))
    found = frame.select(polars.col("key").bin.ends_with(b"7").sum()).item()
    print(f"{found:,} of {len(frame):,}   ({time.perf_counter() - start:.2f} s)")


def _import(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed (pip install 'logcore[demo]'): skipped")
        return None


def _damage_a_byte(data: bytes) -> None:
    _title("Damage one byte in the middle")
    damaged = bytearray(data)
    at = len(damaged) // 2
    damaged[at] ^= 0x01
    good = 0
    try:
        for batch in decode_batches(damaged):
            good += batch.count or 0
    except CorruptBatch as error:
        print(f"byte {at:,} of {len(damaged):,} flipped; {good:,} records before it were read, and then:\n")
        print(f"  {type(error).__name__}: {error}")
        print(f"  reason {error.reason.name}, position {error.position}, for a client: {error.kafka_error.__name__}")
    else:
        raise SystemExit("the damage was not noticed")


def _compare_with_peers() -> None:
    _title("Against the other Python clients and the machine's limits: logcore bench codec --peers")
    parser = argparse.ArgumentParser()
    bench_codec.add_arguments(parser)
    bench_codec.run(parser.parse_args([*PEERS_FLAGS, "--peers"]))


def _title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
