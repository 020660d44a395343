"""The columns of a read, as those of Spark's Kafka connector; and which of them somebody wants.

Spark's Python API does not tell a source which columns a query uses. So whoever wants few says so: by a schema of these
columns, .schema("offset long, value binary"), or by the option columns. What is not asked for is not decoded.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .errors import option_error
from .options import COLUMNS, ReadOptions

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}


def schema_of(options: ReadOptions) -> StructType:
    """The columns that the options ask for."""
    names = options.columns
    if names is None:
        names = tuple(name for name in COLUMNS if name != "headers" or options.include_headers)
    return StructType([StructField(name, _TYPES[name]) for name in names])


def check_schema(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for, in its order, by their names here. UsageError if it asks for others."""
    known = {name.lower(): name for name in COLUMNS}
    found: list[str] = []
    for field in schema.fields:
        name = known.get(field.name.lower())
        if name is None:
            raise option_error("schema", f"a column {field.name}", f"some of {', '.join(COLUMNS)}")
        if name in found:
            raise option_error("schema", f"{field.name} twice", "each column once")
        if not _is_same(field.dataType, _TYPES[name]):
            got, wanted = field.dataType.simpleString(), _TYPES[name].simpleString()
            raise option_error("schema", f"{field.name} {got}", f"{name} {wanted}")
        found.append(name)
    if not found:
        raise option_error("schema", "no column", f"some of {', '.join(COLUMNS)}")
    return tuple(found)


def _is_same(found: DataType, wanted: DataType) -> bool:
    """Whether two types are the same but for what may be null."""
    return found.simpleString() == wanted.simpleString()
