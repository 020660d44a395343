"""What Spark calls: DefaultSource on the driver, the reader on the driver and, copied, in every task.

Where things run. Spark makes the DataSource in one Python process and hands it, pickled, to others: one asks for the
schema, one for the reader and its partitions (after it has pickled the reader), and each task calls read() on a copy of
that reader with one of the partitions. So nothing that planning finds out can be kept in the reader; it goes with the
partitions.
"""

import time
import warnings
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition, Not
from pyspark.sql.types import StructType

from .bounds import Range
from .options import ReadOptions, parse_options, unused_options
from .planning import plan
from .pushdown import Condition, Wanted
from .schema import check_schema, schema_of

if TYPE_CHECKING:
    import pyarrow as pa


class UnusedOptionWarning(UserWarning):
    """Options were given that a read of logs does not use."""


class DefaultSource(DataSource):
    """`format("logcore")`: the logs of Kafka's partitions, read from their directories."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Once a load(): what is made later, in other processes, is unpickled.
        unused = unused_options(options)
        if unused:
            warnings.warn(f"logcore does not use these options: {', '.join(unused)}", UnusedOptionWarning, stacklevel=2)

    @classmethod
    def name(cls) -> str:
        """What format() is told."""
        return "logcore"

    def schema(self) -> StructType:
        """The columns, where the caller gives none. Wrong options are told here, by load() already."""
        return schema_of(parse_options(self.options))

    def reader(self, schema: StructType) -> "LogReader":
        """A batch read."""
        return LogReader(parse_options(self.options), schema)


@dataclass
class Split(InputPartition):
    """A part of a partition, for one task."""

    range: Range


class PushFilters:
    """LogReader.pushFilters: the method, in a form that Spark takes with its filter push-down on and off.

    With spark.sql.python.filterPushdown.enabled off, Spark refuses a reader that overrides pushFilters, and tells that
    by the function behind the bound method. Off, nobody calls it: so it may say that it is not overridden.
    """

    def __init__(self, reader: "LogReader") -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take what spares reading; returns the filters that Spark has to look at itself."""
        left = []
        for one in filters:
            condition = _condition(one)
            is_done = False
            if condition is not None:
                self._reader.wanted, is_done = self._reader.wanted.narrow(condition)
            if not is_done:
                left.append(one)
        return iter(left)


def _condition(one: Filter) -> Condition | None:
    """A filter in words that pushdown.py knows; None for one on a part of a column."""
    is_negated = isinstance(one, Not)
    inner: Any = one.child if isinstance(one, Not) else one
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1:
        return None
    return Condition(type(inner).__name__, path[0].lower(), getattr(inner, "value", None), is_negated)


class LogReader(DataSourceReader):
    """Reads logs in batches. Plans on the driver; read() runs in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = check_schema(schema)
        self.wanted = Wanted()

    @property
    def pushFilters(self) -> PushFilters:
        """See PushFilters."""
        return PushFilters(self)

    def partitions(self) -> list[InputPartition]:
        """The splits, planned now."""
        return [Split(found) for found in plan(self._options, self.wanted, time.time_ns() // 1_000_000)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a split; none if Spark made one up because there was none."""
        from .batches import RowFormat, read_rows  # pyarrow is not needed to plan, and takes its time to import

        if not isinstance(partition, Split):
            return iter(())
        rows = RowFormat.of(self._columns, self._schema)
        return read_rows(
            partition.range, rows, self._options.isolation, fail_on_data_loss=self._options.fail_on_data_loss
        )
