"""Rows to measure with: synthetic ones, or the first 64 MiB of the user's own file."""

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from logcore import CorruptBatch, StorageError, UsageError, decode_batches

Headers = tuple[tuple[str, bytes | None], ...]
Row = tuple[bytes | None, bytes | None, int, Headers]  # key, value, timestamp, headers

FILE_BYTES_MAX = 64 << 20
FIRST_TIMESTAMP = 1_700_000_000_000
_ENVELOPE = {"key", "value", "timestamp", "headers", "offset"}
_VOCABULARY = (
    "account address amount arrived balance basket before behind bright broken button carrier central change city "
    "closed coffee common corner country courier credit customer damaged delayed delivery deposit discount door early "
    "evening express failed family fifteen found gift given green handle hotel hundred inside invoice kitchen label "
    "large late letter light limit local market message missing morning north number office opened order outside "
    "parcel partial payment pending phone picked plain price product quarter quick ready reason receipt refund "
    "return river road sample second sent seven shelf short signed small south station stock store street summer "
    "table their today total tracking travel under updated urgent value vendor village voucher waiting water weight "
    "window winter yellow"
)
_WORDS = _VOCABULARY.split()


def synthetic_rows(value_bytes: int, key_bytes: int = 10, *, plain_bytes: int, seed: int = 1) -> list[Row]:
    """Rows of about `plain_bytes` together: distinct keys, JSON values of exactly `value_bytes`, rising timestamps.

    Ids and amounts are random and the rest is words, so that values compress about as such events do: a constant
    would flatter every codec, noise would defeat them all. `key_bytes` 0 means no key.
    """
    rng = random.Random(seed)
    count = max(1, plain_bytes // (value_bytes + key_bytes + 8))
    rows: list[Row] = []
    timestamp = FIRST_TIMESTAMP
    for index in range(count):
        timestamp += rng.randrange(4)
        # An odd multiplier walks every residue: distinct keys in no order.
        key = b"%0*d" % (key_bytes, index * 2654435761 % 10**key_bytes) if key_bytes else None
        rows.append((key, _event(rng, value_bytes), timestamp, ()))
    return rows


def _event(rng: random.Random, size: int) -> bytes:
    head = (
        f'{{"id":"{rng.getrandbits(48):012x}","user":{rng.randrange(10**6)},"amount":{rng.randrange(10**5) / 100},'
        f'"kind":"{rng.choice(_WORDS)}","note":"'
    )
    room = max(0, size - len(head) - 2)
    note = " ".join(rng.choices(_WORDS, k=room // 4 + 1))[:room]
    return f'{head}{note}"}}'[:size].ljust(size).encode()


def file_rows(path: str, *, value_column: str = "value", key_column: str = "key") -> list[Row]:
    """The rows of a `.jsonl`, a `.parquet`, or a file of record batches such as a `.log`, up to 64 MiB of them.

    jsonl    a line is a value; a line that is an object of "value" and nothing but key, timestamp, headers and offset
             beside it is taken apart
    parquet  `value_column`, and where they exist `key_column` and `timestamp`

    Raises StorageError for a file that cannot be read, UsageError for one without a record or of other contents, and
    CorruptBatch for damaged batches.
    """
    suffix = Path(path).suffix.lower()
    try:
        with open(path, "rb") as file:
            if suffix in {".jsonl", ".ndjson"}:
                rows = list(_up_to_the_limit(_json_rows(file, path)))
            elif suffix == ".parquet":
                rows = list(_up_to_the_limit(_parquet_rows(file, path, value_column, key_column)))
            else:
                rows = list(_up_to_the_limit(_batch_rows(file.read(FILE_BYTES_MAX), path)))
    except StorageError:
        raise
    except OSError as error:
        raise StorageError("read", errno=error.errno or 0, path=path) from error
    if not rows:
        raise UsageError("file", where=path, got="no record", wanted="at least one")
    return rows


def _up_to_the_limit(rows: Iterable[Row]) -> Iterator[Row]:
    size = 0
    for row in rows:
        size += len(row[0] or b"") + len(row[1] or b"")
        if size > FILE_BYTES_MAX:
            return
        yield row


def _json_rows(lines: Iterable[bytes], path: str) -> Iterator[Row]:
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line:
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError("record", where=f"line {number} of {path}", got=_no_json(error), wanted="JSON") from error
        # One that carries no time gets one, a millisecond a line.
        timestamp = FIRST_TIMESTAMP + number
        if isinstance(found, dict) and "value" in found and found.keys() <= _ENVELOPE:
            given = found.get("timestamp")
            headers = tuple(_json_headers(found.get("headers") or ()))
            if isinstance(given, int) and given >= 0:
                timestamp = given
            yield _json_bytes(found.get("key")), _json_bytes(found["value"]), timestamp, headers
        else:
            yield None, line, timestamp, ()


def _no_json(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "arrays or objects nested too deep" if isinstance(error, RecursionError) else str(error)


def _json_bytes(value: object) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _json_headers(headers: Any) -> Iterator[tuple[str, bytes | None]]:
    """Pairs of name and value, as an object or as a list of pairs; anything else is left out."""
    pairs = headers.items() if isinstance(headers, dict) else headers if isinstance(headers, list) else ()
    for pair in pairs:
        if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str):
            yield pair[0], _json_bytes(pair[1])


def _parquet_rows(file: Any, path: str, value_column: str, key_column: str) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(f"--file {path} needs pyarrow: pip install 'logcore[arrow]'") from None
    try:
        table = pyarrow.parquet.ParquetFile(file)
        names = table.schema_arrow.names
        if value_column not in names:
            got = ", ".join(names)
            raise UsageError(f"column {value_column!r}", where=path, got=got, wanted="it, or another by --value-column")
        wanted = [name for name in (value_column, key_column, "timestamp") if name in names]
        number = 0
        for batch in table.iter_batches(batch_size=8192, columns=wanted):
            columns = {name: _arrow_column(pyarrow, batch.column(name), name, path) for name in batch.schema.names}
            count = batch.num_rows
            keys = columns[key_column] if key_column in columns else [None] * count
            times = columns["timestamp"] if "timestamp" in columns and value_column != "timestamp" else [None] * count
            for key, value, given in zip(keys, columns[value_column], times, strict=True):
                number += 1
                yield key, value, FIRST_TIMESTAMP + number if given is None or given < 0 else given, ()
    except pyarrow.ArrowException as error:
        raise UsageError("file", where=path, got=str(error).splitlines()[0], wanted="Parquet") from error


def _arrow_column(pyarrow: Any, column: Any, name: str, path: str) -> Any:
    """A column as a list of bytes, or of milliseconds for `timestamp`."""
    kind = column.type
    is_bytes = pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)
    is_text = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
    if is_bytes or is_text:
        return column.cast(pyarrow.large_binary()).to_pylist()
    if name == "timestamp" and pyarrow.types.is_timestamp(kind):
        return column.cast(pyarrow.timestamp("ms", tz=kind.tz), safe=False).cast(pyarrow.int64()).to_pylist()
    if name == "timestamp" and pyarrow.types.is_integer(kind):
        return column.to_pylist()
    raise UsageError(f"column {name!r}", where=path, got=str(kind), wanted="binary or string")


def _batch_rows(data: bytes, path: str) -> Iterator[Row]:
    try:
        for batch in decode_batches(data):
            if not batch.is_control:
                for record in batch:
                    yield record.key, record.value, max(0, record.timestamp), record.headers
    except CorruptBatch as error:
        if data[error.position :].strip(b"\0"):  # zeros up to the end are a file allocated ahead
            raise error.at_path(path, 0) from None


def head(rows: Iterable[Row], plain_bytes: int) -> list[Row]:
    """The first rows of about `plain_bytes` together, at least one."""
    found: list[Row] = []
    size = 0
    for row in rows:
        size += len(row[0] or b"") + len(row[1] or b"") + 8
        if found and size > plain_bytes:
            break
        found.append(row)
    return found
