"""Rows cut into fetches: about 1 MiB of batches each, as one call of a consumer or producer has them.

A case is measured on a few distinct fetches in turn. One buffer alone would stay in the nearest cache and teach the
branch predictor its lengths by heart; many would measure the machine's memory. Four are more than the nearest caches
hold and stay in the last, where a network card or a read() leaves them too. Every operation, peer and limit gets the
same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from logcore import Columns, decode_batches, decode_columns, encode_batch, encode_columns, patch_batch, split_batches
from logcore.bench.data import Row, head

FETCH_BYTES = 1 << 20
FETCHES_MAX = 4
FETCHES_MIN = 2
WORKLOAD_BYTES_MAX = 32 << 20  # fewer fetches, rather than more memory, where batches are large
HEADER_BYTES = 61  # of a v2 batch; its records follow


@dataclass(frozen=True)
class Case:
    """One combination of the parameters. `value_bytes` is None for the rows of a file."""

    codec: str
    level: int | None
    batch_bytes: int
    value_bytes: int | None

    def __str__(self) -> str:
        level = "" if self.level is None else f" {self.level}"
        values = "file" if self.value_bytes is None else f"{size_text(self.value_bytes)} values"
        return f"{self.codec}{level}, {size_text(self.batch_bytes)} batches, {values}"


def size_text(size: int) -> str:
    """A size as people say it: 16384 is "16 KiB", 100 is "100 B"."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def workload_bytes(batch_bytes: int) -> int:
    """How many plain bytes of rows a case wants."""
    fetch = max(FETCH_BYTES, batch_bytes)
    return fetch * max(FETCHES_MIN, min(FETCHES_MAX, WORKLOAD_BYTES_MAX // fetch))


@dataclass(frozen=True)
class Fetch:
    """One call's worth of batches, in the shapes that operations take.

    plain: its batches, uncompressed, end to end; stored: the same in the case's codec
    columns: decoded from `plain`, binary layout
    """

    plain: bytes
    stored: bytes
    columns: Columns

    @property
    def records(self) -> int:
        """How many records it has."""
        return len(self.columns)

    @cached_property
    def payloads(self) -> list[bytes]:
        """The record bytes of each batch: what a codec is given."""
        return [bytes(batch[HEADER_BYTES:]) for batch in split_batches(self.plain)]

    @cached_property
    def streams(self) -> list[bytes]:
        """The compressed record bytes of each stored batch."""
        return [bytes(batch[HEADER_BYTES:]) for batch in split_batches(self.stored)]

    @cached_property
    def produced(self) -> list[bytes]:
        """Each stored batch as a producer sends it: alone, and from offset 0 on."""
        found = [bytearray(batch) for batch in split_batches(self.stored)]
        for batch in found:
            patch_batch(batch, base_offset=0)
        return list(map(bytes, found))

    @cached_property
    def rows(self) -> list[list[Row]]:
        """The rows of each batch. Made only where asked for: they are Python objects, ten times the size."""
        return [
            [(record.key, record.value, record.timestamp, record.headers) for record in batch]
            for batch in decode_batches(self.plain)
        ]


class Workload:
    """A case with its fetches."""

    def __init__(self, case: Case, rows: Sequence[Row]) -> None:
        self.case = case
        columns = decode_columns(encode_batch(head(rows, workload_bytes(case.batch_bytes))))
        plain = encode_columns(columns, batch_bytes=case.batch_bytes)
        self.fetches = [self._fetch(cut) for cut in _fetch_cuts(plain, max(FETCH_BYTES, case.batch_bytes))]
        self.records = sum(fetch.records for fetch in self.fetches)
        self.plain_bytes = sum(len(fetch.plain) for fetch in self.fetches)
        self.stored_bytes = sum(len(fetch.stored) for fetch in self.fetches)
        self.has_headers = any(row[3] for row in rows)

    def _fetch(self, plain: bytes) -> Fetch:
        columns = decode_columns(plain)
        # The very same object where nothing is compressed: all contenders share one copy in the caches.
        return Fetch(plain, plain if self.case.codec == "none" else self.encode(columns), columns)

    def encode(self, columns: Columns) -> bytes:
        """`columns` as this case has them written."""
        case = self.case
        return encode_columns(columns, batch_bytes=case.batch_bytes, compression=case.codec, level=case.level)


def _fetch_cuts(plain: bytes, fetch_bytes: int) -> list[bytes]:
    cuts: list[bytes] = []
    held: list[memoryview] = []
    size = 0
    for batch in split_batches(plain):
        if held and size + len(batch) > fetch_bytes:
            cuts.append(b"".join(held))
            held, size = [], 0
        held.append(batch)
        size += len(batch)
    # A short rest would weigh as much as a whole fetch in the round-robin.
    if not cuts or size > fetch_bytes // 2:
        cuts.append(b"".join(held))
    return cuts
