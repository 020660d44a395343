"""From a split to Arrow RecordBatches: the compiled decoder's memory, and columns that are alike in all rows.

No Python object is made for a record. A batch is what one read of the log gave, some 2 MiB.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logcore import Columns, HeadersColumn, Log, UsageError, open_log
from logcore.errors import LogTruncatedError, OffsetOutOfRangeError, StorageError
from logcore.log.view import Isolation

from .bounds import Range
from .errors import DataLossError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_US_PER_MS = 1000
_MS_MAX = 0x7FFFFFFFFFFFFFFF // _US_PER_MS

# What the decoder has to be asked for, by the name of the column here.
_DECODED = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}


_ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
}


@dataclass(frozen=True)
class RowFormat:
    """Which columns a batch has, and the Arrow schema that Spark wants them in."""

    columns: tuple[str, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, columns: tuple[str, ...], schema: "StructType") -> "RowFormat":
        """These columns as the fields of a schema: called as they are, and null where they may be."""
        return cls(
            columns,
            pa.schema(
                pa.field(field.name, _arrow_type(name, field.dataType), field.nullable)
                for name, field in zip(columns, schema.fields, strict=True)
            ),
        )

    @property
    def decoded(self) -> tuple[str, ...]:
        """What is decoded for them: at least the offset, which counts the rows."""
        return tuple(_DECODED[name] for name in self.columns if name in _DECODED) or ("offset",)


def _arrow_type(name: str, found: Any) -> pa.DataType:
    """What Spark wants a column in. Of headers a schema may say what is not null."""
    if name != "headers":
        return _ARROW_TYPES[name]
    key, value = found.elementType.fields
    entry = pa.struct([pa.field("key", pa.string(), key.nullable), pa.field("value", pa.binary(), value.nullable)])
    return pa.list_(pa.field("element", entry, found.containsNull))


class RowBatches:
    """Makes the RecordBatches of one partition."""

    def __init__(self, found: Range, rows: RowFormat) -> None:
        self._found = found
        self._rows = rows
        self._alike: dict[str, pa.Array] = {}  # topic and partition, as long as the longest batch so far

    def made(self, columns: Columns) -> pa.RecordBatch:
        """The rows of one chunk."""
        count = len(columns)
        arrays = [
            _headers(columns.headers, field.type) if name == "headers" else self._array(name, columns, count)
            for name, field in zip(self._rows.columns, self._rows.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._rows.schema)

    def _array(self, name: str, columns: Columns, count: int) -> pa.Array:
        if name == "key":
            return pa.array(columns.key)
        if name == "value":
            return pa.array(columns.value)
        if name == "offset":
            return pa.array(columns.offset)
        if name == "timestamp":
            return self._times(columns.timestamp)
        if name == "timestampType":
            return pa.array(columns.timestamp_type)
        known = self._alike.get(name)
        if known is None or len(known) < count:
            partition = self._found.partition
            value = pa.scalar(partition.topic) if name == "topic" else pa.scalar(partition.partition, pa.int32())
            known = self._alike[name] = pa.repeat(value, count)
        return known.slice(0, count)

    def _times(self, found: npt.NDArray[np.int64]) -> pa.Array:
        """Milliseconds as Spark's microseconds; -1, no time, is a millisecond before 1970, as in the connector."""
        if len(found) and not (int(found.min()) >= -_MS_MAX and int(found.max()) <= _MS_MAX):
            raise UsageError(
                "timestamp",
                where=f"{self._found.partition} in {self._found.root}",
                got=f"{found.min()} to {found.max()} ms",
                wanted=f"at most {_MS_MAX}, the last that Spark's timestamps have; or columns without timestamp",
            )
        return pa.array(found * _US_PER_MS).view(pa.timestamp("us", tz="UTC"))


def _headers(column: HeadersColumn, wanted: pa.DataType) -> pa.Array:
    """Lists of headers; null for a record without, as in the connector."""
    entries = pa.StructArray.from_arrays(
        [pa.array(column.names), pa.array(column.values)], fields=list(wanted.value_type)
    )
    is_null = pa.array(column.offsets[1:] == column.offsets[:-1])
    return pa.ListArray.from_arrays(pa.array(column.offsets), entries, type=wanted, mask=is_null)


def read_rows(
    found: Range, rows: RowFormat, isolation: Isolation, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a split. What is no longer there is a DataLossError, or left out."""
    try:
        with open_log(f"{found.root}/{found.partition}", read_only=True) as log:
            _check_same_topic(log, found)
            yield from _read(log, found, rows, isolation, fail_on_data_loss)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        if fail_on_data_loss:
            raise _loss(found, f"no {error.path}") from None


def _read(
    log: Log, found: Range, rows: RowFormat, isolation: Isolation, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    batches = RowBatches(found, rows)
    start = found.start
    while True:
        first, end = log.log_start_offset, log.log_end_offset
        if fail_on_data_loss and (start < first or found.end > end):
            raise _loss(found, f"offsets {first} to {end}")
        start = max(start, first)
        if start >= min(found.end, end):
            return
        try:
            for columns in log.read_columns(start, isolation=isolation, columns=rows.decoded, end_offset=found.end):
                for chunk in columns.chunks:
                    yield batches.made(chunk)
            return
        except LogTruncatedError as error:
            if fail_on_data_loss:
                raise _loss(found, f"a log that was cut to {error.offset}") from None
            return  # What was read is all there is of what was asked for.
        except OffsetOutOfRangeError:
            # Retention deleted segments that were to be read next: everything before them was read.
            if fail_on_data_loss:
                raise _loss(found, f"offsets from {log.log_start_offset} on") from None
            start = log.log_start_offset


def _check_same_topic(log: Log, found: Range) -> None:
    if found.topic_id is not None and log.topic_id is not None and log.topic_id != found.topic_id:
        raise StorageError("open", errno=errno.ENOENT, path=f"{log.path} of topic id {found.topic_id}")


def _loss(found: Range, got: str) -> DataLossError:
    return DataLossError(
        f"read of {found.partition} in {found.root}: got {got}, wanted {found.start} to {found.end} "
        "(failOnDataLoss=false leaves out what is lost)"
    )
