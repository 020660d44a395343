"""The same work done by the two Python clients, as their own producers and consumers do it.

aiokafka: the Cython records of its wheels. kafka-python: pure Python. Both write a batch with DefaultRecordBatchBuilder
(append, then build) and read a fetch with MemoryRecords (next_batch, validate_crc, iterate). A codec that a peer has
no library for is left out, and the report says so.
"""

import importlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from logcore import UsageError
from logcore._compression import codec_id
from logcore.bench.data import Row
from logcore.bench.measure import Task
from logcore.bench.operations import DECODE_ROWS, ENCODE_ROWS, task
from logcore.bench.workload import HEADER_BYTES, Workload

AIOKAFKA = "aiokafka"
KAFKA_PYTHON = "kafka-python"
_INSTALL = "pip install 'logcore[bench]'"
# Beyond the limit a builder refuses the record; ours may be a byte or two longer than the peers estimate theirs.
_BUILDER_SLACK = 1 << 16


class Peer:
    """One client's classes for record batches; raises UsageError if it is not installed, or not as it should be."""

    def __init__(self, name: str) -> None:
        self.name = name
        package = {AIOKAFKA: "aiokafka", KAFKA_PYTHON: "kafka"}[name]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # what a peer calls on import is its own affair
                self._records = importlib.import_module(f"{package}.record.memory_records").MemoryRecords
                self._builder = importlib.import_module(f"{package}.record.default_records").DefaultRecordBatchBuilder
        except (ImportError, AttributeError) as error:
            raise UsageError(name, got=str(error), wanted=_INSTALL) from None
        if name == AIOKAFKA and "_crecords" not in self._builder.__module__:
            raise UsageError(name, got="its pure Python records", wanted="its compiled ones")

    def tasks(self, workload: Workload) -> list[Task]:
        """Encode and decode rows; raises UsageError if the peer cannot do the case's codec."""
        encode = partial(self.encode, codec=codec_id(workload.case.codec), batch_bytes=workload.case.batch_bytes)
        calls: list[tuple[str, Callable[[Any], Callable[[], object]]]] = [
            (ENCODE_ROWS, lambda fetch: partial(encode, _listed(fetch.rows))),
            (DECODE_ROWS, lambda fetch: partial(self.decode, fetch.stored)),
        ]
        try:
            # Once each, outside the clock: a missing library shows here.
            for _, call_of in calls:
                call_of(workload.fetches[0])()
        except Exception as error:  # each peer has its own tree of errors, and some are AssertionErrors
            got = str(error) or type(error).__name__
            raise UsageError(
                self.name, where=workload.case.codec, got=got.splitlines()[0], wanted="its codec"
            ) from None
        return [task(workload, operation, self.name, call_of) for operation, call_of in calls]

    def encode(self, batches: list[list[tuple[Any, ...]]], *, codec: int, batch_bytes: int) -> list[bytes]:
        """One buffer a batch."""
        built = []
        for rows in batches:
            builder = self._builder(
                magic=2,
                compression_type=codec,
                is_transactional=0,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                batch_size=batch_bytes + HEADER_BYTES + _BUILDER_SLACK,
            )
            append = builder.append
            for offset, (key, value, timestamp, headers) in enumerate(rows):
                append(offset, timestamp, key, value, headers)
            built.append(builder.build())
        return built

    def decode(self, buffer: bytes) -> int:
        """Make every record of `buffer` and keep a batch's together, as our rows and columns are kept."""
        records = self._records(buffer)
        right = 0
        while records.has_next():
            batch = records.next_batch()
            right += bool(batch.validate_crc())
            list(batch)
        return right


def _listed(batches: list[list[Row]]) -> list[list[tuple[Any, ...]]]:
    """Headers as lists, which the peers insist on."""
    return [[(key, value, timestamp, list(headers)) for key, value, timestamp, headers in rows] for rows in batches]
