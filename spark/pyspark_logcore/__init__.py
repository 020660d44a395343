"""Logs as DataFrames: `spark.read.format("logcore").option("path", root).option("subscribe", "orders").load()`.

Spark finds this package by its name (`pyspark_…`) and takes DefaultSource from it; nothing has to be registered. What
options mean is docs/spark.md. In reading order:

    options.py      the options, checked: ReadOptions
    limits.py       where a read starts and ends: earliest, latest, offsets, timestamps
    selection.py    which partitions: subscribe, subscribePattern, assign
    paths.py        the option path: log roots
    replicas.py     the partitions of all roots, each once
    bounds.py       from limits to offsets
    dividing.py     from ranges to splits
    planning.py     all of it: the splits of a read
    pushdown.py     Spark's filters, as far as they spare reading
    schema.py       the columns, and which of them are wanted
    batches.py      from a split to Arrow RecordBatches
    source.py       what Spark calls
    errors.py       what is raised, beside what the library raises

Of these only schema.py and source.py need pyspark, and batches.py pyarrow.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .source import DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    # Made when Spark asks for it: options and planning are of use, and tested, without pyspark.
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .source import DefaultSource

    return DefaultSource
