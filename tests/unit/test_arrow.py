"""Columns through Arrow's C data interface: who shares our memory and who copies it, and what may be encoded.

"Shares" is always shown by addresses. Where an importer's memory cannot be seen from outside (DuckDB), only what it
reads is compared.
"""

import ctypes
import gc
import struct
import subprocess
import sys

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pytest

from logcore import Record, UsageError, UsageTypeError, decode_columns, encode_batch, encode_columns
from tests.arrow_c import Array, Produced, Schema, opened

LAYOUTS = ("binary", "view")
LONG = b" and more than twelve bytes"


def sample(count: int = 100, *, codec: str = "none", base_offset: int = 0) -> bytes:
    """Records with long values, short keys, every seventh key null, and headers on every fifth."""
    return encode_batch(
        [
            (
                None if n % 7 == 0 else b"key-%d" % n,
                b"value %d" % n + LONG,
                1_700_000_000_000 + n,
                [("trace", b"%d" % n + LONG), ("none", None)] if n % 5 == 0 else [],
            )
            for n in range(count)
        ],
        base_offset=base_offset,
        compression=codec,
    )


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def addresses(array: pyarrow.Array) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in array.buffers()]


def within(pointer: int, buffer: object) -> bool:
    start = address(np.frombuffer(buffer, np.uint8))
    return start <= pointer < start + memoryview(buffer).nbytes


# -------------------------------------------------------------------------------------------------------- pyarrow


def test_pyarrow_takes_the_binary_layout_without_copying():
    columns = decode_columns(sample())
    for table in (
        pyarrow.table(columns),
        columns.to_arrow(),
        pyarrow.RecordBatchReader.from_stream(columns).read_all(),
    ):
        table.validate(full=True)
        for name in ("key", "value"):
            column = getattr(columns, name)
            validity = None if column.validity is None else address(column.validity)
            shared = [validity, address(column.offsets), address(column.data)]
            assert addresses(table.column(name).chunk(0)) == shared
        for name in ("offset", "timestamp"):
            assert addresses(table.column(name).chunk(0)) == [None, address(getattr(columns, name))]
        headers = table.column("headers").chunk(0)
        assert headers.buffers()[1].address == address(columns.headers.offsets)
        assert headers.values.field("key").buffers()[2].address == address(columns.headers.names.data)
        assert headers.values.field("value").buffers()[2].address == address(columns.headers.values.data)


def test_pyarrow_takes_the_view_layout_without_copying_and_it_points_into_the_buffer():
    data = sample()
    columns = decode_columns(data, layout="view")
    table = pyarrow.table(columns)
    table.validate(full=True)
    value = table.column("value").chunk(0)
    assert value.type == pyarrow.binary_view()
    assert addresses(value) == [None, address(columns.value.views), address(np.frombuffer(data, np.uint8))]
    assert value.to_pylist() == [record.value for record in columns]
    header_values = table.column("headers").chunk(0).values.field("value")
    assert header_values.buffers()[2].address == address(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_views_of_a_compressed_batch_point_into_its_decompressed_records(codec):
    plain, packed = sample(), sample(codec=codec, base_offset=100)
    columns = decode_columns(plain + packed, layout="view")
    source, decompressed = columns.value.buffers
    assert within(address(np.frombuffer(source, np.uint8)), source)
    assert decompressed.nbytes == len(plain) - 61
    views = columns.value.views.copy().view(np.uint32).reshape(-1, 4)
    assert views[:100, 2].tolist() == [0] * 100
    assert views[100:, 2].tolist() == [1] * 100
    table = pyarrow.table(columns)
    table.validate(full=True)
    assert addresses(table.column("value").chunk(0))[2:] == [
        address(np.frombuffer(source, np.uint8)),
        address(np.frombuffer(decompressed, np.uint8)),
    ]
    assert table.column("value").to_pylist() == 2 * decode_columns(plain).to_arrow().column("value").to_pylist()


@pytest.mark.parametrize("size", [0, 1, 4, 7, 8, 9, 11, 12, 13, 16, 17])
def test_a_view_holds_up_to_twelve_bytes_itself_and_pads_them_with_zeros(size):
    # At the end of the buffer, too, where no sixteen bytes can be loaded at once.
    columns = decode_columns(encode_batch([(None, b"v" * size)] * 3), layout="view", columns=("value",))
    for view in columns.value.views:
        assert int.from_bytes(view[:4].tobytes(), "little") == size
        if size <= 12:
            assert view[4:].tobytes() == (b"v" * size).ljust(12, b"\0")
    assert pyarrow.array(columns.value).to_pylist() == [b"v" * size] * 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_column_alone_is_an_arrow_array(layout):
    columns = decode_columns(sample(), layout=layout)
    rows = list(columns)
    assert pyarrow.array(columns.key).to_pylist() == [row.key for row in rows]
    assert pyarrow.array(columns.value).to_pylist() == [row.value for row in rows]
    shown = [[(pair["key"], pair["value"]) for pair in row] for row in pyarrow.array(columns.headers).to_pylist()]
    assert shown == [list(row.headers) for row in rows]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_buffer_without_records_is_a_table_without_rows(layout):
    columns = decode_columns(b"", layout=layout)
    table = pyarrow.table(columns)
    table.validate(full=True)
    assert (table.num_rows, table.column_names) == (0, ["offset", "timestamp", "key", "value", "headers"])
    assert polars.DataFrame(columns).height == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_header_names_that_are_no_utf8_become_replacement_characters(layout):
    names = [b"\xff", b"\xe2\x82", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80z", b"\xf0\x9f\x98\x80"]
    headers = [(name.decode("utf-8", "surrogateescape"), b"x") for name in names]
    columns = decode_columns(encode_batch([Record(headers=headers)]), layout=layout)
    table = pyarrow.table(columns)
    table.validate(full=True)
    shown = [pair["key"] for pair in table.column("headers")[0].as_py()]
    assert shown == [name.decode("utf-8", "replace") for name in names]


# --------------------------------------------------------------------------------------------- polars, duckdb, pandas


def polars_buffers(series: polars.Series) -> list[int | None]:
    return addresses(series.to_arrow(compat_level=polars.CompatLevel.newest()))


def test_polars_keeps_our_bytes_and_integers_and_makes_its_own_views_of_the_binary_layout():
    columns = decode_columns(sample())
    frame = polars.DataFrame(columns)
    _, views, data = polars_buffers(frame["value"])
    assert data == address(columns.value.data)
    assert views != address(columns.value.offsets)
    for name in ("offset", "timestamp"):
        assert frame[name].to_arrow().buffers()[1].address == address(getattr(columns, name))
    assert frame["value"].to_list() == [row.value for row in columns]


def test_polars_takes_the_view_layout_whole():
    data = sample()
    columns = decode_columns(data, layout="view")
    frame = polars.DataFrame(columns)
    shared = [None, address(columns.value.views), address(np.frombuffer(data, np.uint8))]
    assert polars_buffers(frame["value"]) == shared
    assert frame["key"].to_list() == [row.key for row in columns]
    shown = [[(pair["key"], pair["value"]) for pair in row] for row in frame["headers"].to_list()]
    assert shown == [list(row.headers) for row in columns]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_duckdb_queries_columns_by_their_variable_name(layout):
    columns = decode_columns(sample(5000) + sample(10, codec="zstd", base_offset=5000), layout=layout)
    rows = list(columns)
    asked = 'select sum("offset"), max(octet_length(value)), count(*) filter (key is null) from columns'
    assert duckdb.sql(asked).fetchall() == [
        (sum(row.offset for row in rows), max(len(row.value) for row in rows), sum(row.key is None for row in rows))
    ]
    fetched = duckdb.sql('select key, value from columns order by "offset"').fetchall()
    assert fetched == [(row.key, row.value) for row in rows]
    found = duckdb.sql("select distinct len(headers), headers[1].key from columns where len(headers) > 0").fetchall()
    assert found == [(2, "trace")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pandas_shares_our_memory_with_arrow_types_and_copies_into_objects_without(layout):
    columns = decode_columns(sample(), layout=layout)
    rows = list(columns)
    shared = columns.to_arrow().to_pandas(types_mapper=pandas.ArrowDtype)
    assert pyarrow.array(shared["value"]).buffers()[2].address == (
        address(columns.value.data)
        if layout == "binary"
        else address(np.frombuffer(columns.value.buffers[0], np.uint8))
    )
    assert pyarrow.array(shared["offset"]).buffers()[1].address == address(columns.offset)
    copied = columns.to_arrow().to_pandas()
    assert copied["value"].dtype == object
    assert copied["value"].tolist() == shared["value"].tolist() == [row.value for row in rows]
    assert copied["offset"].tolist() == [row.offset for row in rows]


# ------------------------------------------------------------------------------------------------------- the protocol


def shape(schema: Schema) -> tuple:
    nullable = bool(schema.flags & 2)
    children = tuple(shape(schema.children[n].contents) for n in range(schema.n_children))
    return (schema.format, schema.name, nullable, children)


@pytest.mark.parametrize(("layout", "bytes_format", "buffer_count"), [("binary", b"z", 3), ("view", b"vz", 4)])
def test_the_capsules_hold_what_the_interface_asks_for(layout, bytes_format, buffer_count):
    columns = decode_columns(sample(), layout=layout)
    schema_capsule, array_capsule = columns.__arrow_c_array__()
    entry = (b"+s", b"element", False, ((b"u", b"key", False, ()), (bytes_format, b"value", True, ())))
    assert shape(opened(schema_capsule, b"arrow_schema", Schema)) == (
        b"+s",
        b"",
        False,
        (
            (b"l", b"offset", False, ()),
            (b"l", b"timestamp", False, ()),
            (bytes_format, b"key", True, ()),
            (bytes_format, b"value", True, ()),
            (b"+l", b"headers", False, (entry,)),
        ),
    )
    array = opened(array_capsule, b"arrow_array", Array)
    assert (array.length, array.null_count, array.offset, array.n_children) == (100, 0, 0, 5)
    key, value = array.children[2].contents, array.children[3].contents
    assert (key.length, key.null_count, key.n_buffers) == (100, columns.key.null_count, buffer_count)
    assert key.buffers[0] == address(columns.key.validity)
    assert value.buffers[0] is None
    if layout == "binary":
        assert [value.buffers[1], value.buffers[2]] == [address(columns.value.offsets), address(columns.value.data)]
    else:
        assert value.buffers[1] == address(columns.value.views)
        # The last buffer of a view array tells the sizes of those before it.
        assert ctypes.cast(value.buffers[3], ctypes.POINTER(ctypes.c_int64))[0] == columns.value.buffers[0].nbytes


def test_a_requested_schema_is_taken_as_a_wish():
    columns = decode_columns(sample())
    wish = pyarrow.schema([("offset", pyarrow.int32())])
    schema_capsule, _ = columns.__arrow_c_array__(requested_schema=wish.__arrow_c_schema__())
    assert opened(schema_capsule, b"arrow_schema", Schema).n_children == 5
    assert columns.__arrow_c_stream__(requested_schema=wish.__arrow_c_schema__()) is not None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_capsule_that_nobody_takes_lets_go_of_the_memory(layout):
    columns = decode_columns(sample(), layout=layout)
    before = sys.getrefcount(columns)
    kept = [columns.__arrow_c_array__(), columns.__arrow_c_stream__(), columns.__arrow_c_schema__()]
    assert sys.getrefcount(columns) > before
    del kept
    assert sys.getrefcount(columns) == before


def test_the_protocol_needs_no_arrow_library():
    code = """if True:
        import sys
        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name in ("pyarrow", "polars", "duckdb", "pandas"):
                    raise ModuleNotFoundError(name=name)
        sys.meta_path.insert(0, Missing())
        from logcore import UsageError, decode_columns, encode_batch, encode_columns
        data = encode_batch([(b"k", b"a value of some length"), (None, b"v", 5, [("h", b"1")])])
        for layout in ("binary", "view"):
            columns = decode_columns(data, layout=layout)
            assert encode_columns(columns) == data
            assert len(columns.__arrow_c_array__()) == 2
        try:
            columns.to_arrow()
        except UsageError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("to_arrow: got no pyarrow, wanted pip install pyarrow, or any other consumer")


# ---------------------------------------------------------------------------------------------------------- lifetimes


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_outlives_the_columns_and_the_buffer(layout):
    data = bytearray(sample(1000))
    rows = list(decode_columns(data))
    table = pyarrow.table(decode_columns(data, layout=layout))
    frame = polars.DataFrame(decode_columns(data, layout=layout))
    del data
    gc.collect()
    assert table.column("value").to_pylist() == [row.value for row in rows]
    assert frame["value"].to_list() == [row.value for row in rows]


def test_the_binary_layout_lets_go_of_the_buffer_at_once():
    data = bytearray(sample())
    columns = decode_columns(data)
    data += b"more"
    assert len(columns) == 100


@pytest.mark.parametrize("take", [pyarrow.table, pyarrow.record_batch, polars.DataFrame, list])
def test_the_view_layout_holds_the_buffer_as_long_as_somebody_looks(take):
    data = bytearray(sample())
    columns = decode_columns(data, layout="view")
    taken = take([columns] if take is list else columns)
    del columns
    with pytest.raises(BufferError):
        data += b"more"
    del taken
    gc.collect()
    data += b"more"


# ----------------------------------------------------------------------------------------------- chunks and projections


@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_begin_a_new_chunk_before_one_grows_too_large(layout):
    batches = [sample(50, base_offset=50 * n, codec="lz4" if n % 3 == 2 else "none") for n in range(12)]
    data = b"".join(batches)
    size_max = 3 * max(map(len, batches))
    whole = decode_columns(data, layout=layout)
    columns = decode_columns(data, layout=layout, chunk_bytes_max=size_max)
    assert len(columns.chunks) > 2
    assert sum(len(chunk) for chunk in columns.chunks) == len(columns) == len(whole) == 600
    for chunk in columns.chunks:
        assert chunk.chunks == (chunk,)
        if layout == "binary":
            assert max(chunk.value.data.size, chunk.key.data.size) <= size_max
        else:
            views = chunk.value.views.copy().view(np.uint32).reshape(-1, 4)
            assert views[:, 3].max() <= size_max  # a position in one of its buffers
    table = pyarrow.table(columns)
    table.validate(full=True)
    assert table.column("value").num_chunks == len(columns.chunks)
    assert table.combine_chunks() == pyarrow.table(whole)
    assert list(columns) == list(whole)
    assert columns.offset.tolist() == list(range(600))
    assert columns.consumed == len(data)
    assert columns.nbytes == sum(chunk.nbytes for chunk in columns.chunks)
    assert encode_columns(columns) == encode_columns(whole)
    assert polars.DataFrame(columns).equals(polars.DataFrame(whole))


def test_several_chunks_are_no_one_array():
    data = sample() + sample(base_offset=100)
    columns = decode_columns(data, chunk_bytes_max=len(data) // 2)
    assert len(columns.chunks) == 2
    assert not hasattr(columns, "__arrow_c_array__")  # so that whoever looks for it first goes on to the stream
    with pytest.raises(UsageError, match=r"value: got columns in 2 chunks, wanted one chunk: take it from \.chunks"):
        _ = columns.value


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_the_columns_asked_for_are_made_in_the_order_asked(layout):
    data = sample()
    whole = pyarrow.table(decode_columns(data, layout=layout))
    for names in (("value",), ("headers", "offset"), ("key", "timestamp"), ["value", "key"]):
        columns = decode_columns(data, columns=names, layout=layout)
        assert columns.names == tuple(names)
        assert pyarrow.table(columns) == whole.select(list(names))
        assert columns.nbytes < decode_columns(data, layout=layout).nbytes
    with pytest.raises(UsageError, match="key: got columns value, wanted a column that was decoded"):
        _ = decode_columns(data, columns=("value",), layout=layout).key


def test_the_timestamp_type_is_a_column_only_when_asked_for():
    data = sample(2) + encode_batch([(None, b"v")], timestamp_type="log_append_time", log_append_time_ms=5)
    data += encode_batch([(None, b"v")], magic=0)
    columns = decode_columns(data, columns=("timestamp_type", "timestamp"))
    assert pyarrow.table(columns).column("timestamp_type").to_pylist() == [0, 0, 1, -1]
    assert columns.timestamp.tolist()[2:] == [5, -1]
    assert encode_columns(
        decode_columns(data, columns=("timestamp_type", "value"))
    )  # not a column of a batch: passed over


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ("value", UsageTypeError, "got str"),
        (5, UsageTypeError, "got int"),
        ((), UsageError, "one name or more"),
        (("value", "value"), UsageError, "each once"),
        (("topic",), UsageError, "'topic', wanted names out of offset, timestamp"),
    ],
)
def test_a_projection_that_makes_no_sense_is_refused(columns, error, message):
    with pytest.raises(error, match=message):
        decode_columns(sample(), columns=columns)


# ------------------------------------------------------------------------------------------------------------ encoding


def producers(data: bytes) -> dict[str, object]:
    """What may hold the records of `data`, by the name of who holds them."""
    columns = decode_columns(data)
    views = decode_columns(data, layout="view")
    table = pyarrow.table(columns)
    return {
        "columns": columns,
        "views": views,
        "pyarrow table": table,
        "pyarrow views": pyarrow.table(views),
        "pyarrow record batch": pyarrow.record_batch(columns),
        "pyarrow reader": pyarrow.RecordBatchReader.from_stream(columns),
        "pyarrow chunks": pyarrow.concat_tables([table.slice(0, 30), table.slice(30)]),
        "polars": polars.DataFrame(columns),
        "polars views": polars.DataFrame(views),
        "duckdb": duckdb.sql("from columns"),
        "pandas": table.to_pandas(),
        "pandas with arrow types": table.to_pandas(types_mapper=pandas.ArrowDtype),
        "dict of pyarrow": {name: table.column(name).chunk(0) for name in table.column_names},
        "dict of ours": {"offset": table.column("offset").chunk(0), "timestamp": table.column("timestamp").chunk(0)}
        | {"key": columns.key, "value": views.value, "headers": columns.headers},
    }


@pytest.mark.parametrize("who", list(producers(sample(1))))
def test_any_arrow_producer_encodes_to_the_bytes_it_came_from(who):
    data = sample()
    assert encode_columns(producers(data)[who]) == data


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slice_encodes_as_the_records_it_shows(layout):
    data = sample()
    table = pyarrow.table(decode_columns(data, layout=layout))
    rows = list(decode_columns(data))[13:58]
    assert encode_columns(table.slice(13, 45)) == encode_batch(rows)
    assert encode_columns(polars.DataFrame(table)[13:58]) == encode_batch(rows)
    struct = table.combine_chunks().to_struct_array()
    struct = struct.chunk(0) if isinstance(struct, pyarrow.ChunkedArray) else struct
    assert encode_columns(struct.slice(13, 45)) == encode_batch(rows)


@pytest.mark.parametrize(
    "kind", ["binary", "large_binary", "string", "large_string", "binary_view", "string_view", "fixed"]
)
def test_every_arrow_type_of_bytes_and_text_is_a_value(kind):
    values = ["twelve bytes", "thirteen byte", None, "sixteen bytes…!"] if kind != "fixed" else ["four", None, "byte"]
    arrow_type = pyarrow.binary(4) if kind == "fixed" else getattr(pyarrow, kind)()
    stored = [None if value is None else value.encode() for value in values]
    column = pyarrow.array(values if "string" in kind else stored, arrow_type)
    assert encode_columns({"value": column}) == encode_batch([(None, value) for value in stored])


@pytest.mark.parametrize(
    ("unit", "stored", "milliseconds"),
    [("s", -2, -2000), ("s", 5, 5000), ("ms", 5, 5), ("us", 5999, 5), ("us", 0, 0), ("ns", 7_999_999, 7)],
)
def test_a_timestamp_of_any_unit_becomes_milliseconds_rounded_down(unit, stored, milliseconds):
    column = pyarrow.array([stored, None]).cast(pyarrow.timestamp(unit))
    rows = {"timestamp": column, "value": pyarrow.array([b"a", b"b"])}
    if milliseconds < -1:
        with pytest.raises(UsageError, match=f"timestamp, row 0: got {milliseconds}, wanted -1 or more"):
            encode_columns(rows)
        return
    assert decode_columns(encode_columns(rows, now_ms=9)).timestamp.tolist() == [milliseconds, 9]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_of_any_width_are_offsets_and_timestamps(kind):
    most = min(int(np.iinfo(kind).max), 2**63 - 1)
    arrow_type = getattr(pyarrow, kind)()
    offsets = pyarrow.array([0, 5, most - 1, most], arrow_type)
    times = pyarrow.array([7, most, None, 0], arrow_type)
    rows = {"offset": offsets.slice(1), "timestamp": times.slice(1), "value": pyarrow.array([b"a", b"b", b"c"])}
    if most - 5 >= 2**31:
        rows["offset"] = pyarrow.array([most - 2, most - 1, most], arrow_type)
    for given in (rows, pyarrow.table(rows)):
        found = decode_columns(encode_columns(given, now_ms=9))
        assert found.offset.tolist() == rows["offset"].to_pylist()
        assert found.timestamp.tolist() == [most, 9, 0]
    if kind.startswith("int"):
        with pytest.raises(UsageError, match="timestamp, row 0: got -2, wanted -1 or more"):
            encode_columns({"timestamp": pyarrow.array([-2], arrow_type)})


def test_what_is_null_in_a_column_of_uint64_is_not_looked_at():
    values = pyarrow.array([2**64 - 1, 5], pyarrow.uint64())
    times = pyarrow.Array.from_buffers(values.type, 2, [pyarrow.py_buffer(b"\x02"), values.buffers()[1]])
    assert decode_columns(encode_columns({"timestamp": times})).timestamp.tolist() == [-1, 5]
    with pytest.raises(UsageError, match=f"timestamp, row 0: got {2**64 - 1}, wanted less than 2\\^63"):
        encode_columns({"timestamp": values})


def test_a_row_index_of_polars_is_an_offset():
    frame = polars.DataFrame({"value": [b"a", b"b"]}).with_row_index("offset", offset=7)
    assert encode_columns(frame) == encode_batch([(None, b"a"), (None, b"b")], base_offset=7)


def test_rows_are_numbered_and_stamped_where_they_say_nothing():
    data = encode_columns({"value": pyarrow.array([b"a", b"b"])}, base_offset=7, now_ms=5)
    assert data == encode_batch([(None, b"a", 5), (None, b"b", 5)], base_offset=7)


def test_headers_may_be_a_list_a_large_list_or_a_map():
    pairs = [[("a", b"1"), ("b", None)], None, [], [("a", b"2")]]
    entry = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    swapped = pyarrow.struct([("value", pyarrow.binary()), ("key", pyarrow.string())])
    wanted = encode_batch([(None, b"v", None, headers) for headers in pairs])
    for kind in (pyarrow.map_(pyarrow.string(), pyarrow.binary()), pyarrow.list_(entry), pyarrow.large_list(entry)):
        rows = pairs if pyarrow.types.is_map(kind) else [
            row and [{"key": name, "value": value} for name, value in row] for row in pairs
        ]  # fmt: skip
        given = {"value": pyarrow.array([b"v"] * 4), "headers": pyarrow.array(rows, kind)}
        assert encode_columns(given) == wanted
    rows = [row and [{"key": name, "value": value} for name, value in row] for row in pairs]
    assert (
        encode_columns({"value": pyarrow.array([b"v"] * 4), "headers": pyarrow.array(rows, pyarrow.list_(swapped))})
        == wanted
    )


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (5, UsageTypeError, "columns: got int, wanted Columns, an Arrow producer"),
        ({"value": [b"v"]}, UsageTypeError, "columns, 'value': got list, wanted an Arrow array"),
        ({"topic": pyarrow.array([b"v"])}, UsageError, "a column named 'topic'"),
        ({"value": pyarrow.array([5])}, UsageTypeError, "column type, value: got int64, wanted binary"),
        ({"offset": pyarrow.array([b"v"])}, UsageTypeError, "column type, offset: got binary, wanted integers"),
        ({"offset": pyarrow.array([1, None])}, UsageError, "offset, row 1: got null"),
        ({"offset": pyarrow.array([5, 5])}, UsageError, "offset, row 1: got 5, wanted 6"),
        ({"timestamp": pyarrow.array([-2])}, UsageError, "timestamp, row 0: got -2"),
        ({"value": pyarrow.array([b"v"]).dictionary_encode()}, UsageTypeError, "dictionary"),
        ({"value": pyarrow.array([], pyarrow.binary())}, UsageError, "got no rows"),
        (
            {"value": pyarrow.array([b"v"]), "key": pyarrow.array([b"a", b"b"])},
            UsageError,
            "'key': got 2 rows, wanted 1",
        ),
        ({"value": pyarrow.chunked_array([[b"a"], [b"b"]])}, UsageError, "'value': got 2 chunks"),
        ({"headers": pyarrow.array([b"v"])}, UsageTypeError, "headers: got binary, wanted a list"),
        (pyarrow.array([b"v"]), UsageTypeError, "got an array of binary, wanted a table"),
    ],
)
def test_columns_that_make_no_batch_are_refused(columns, error, message):
    with pytest.raises(error, match=message):
        encode_columns(columns)


def test_a_null_header_name_is_refused():
    entry = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    headers = pyarrow.array([[{"key": None, "value": b"v"}]], pyarrow.list_(entry))
    with pytest.raises(UsageError, match="header name, row 0: got null, wanted text"):
        encode_columns({"headers": headers})


class Taken:
    """A producer whose capsules another consumer has emptied."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        array = pyarrow.array([{"value": b"v"}])
        capsules = array.__arrow_c_array__()
        pyarrow.Array._import_from_c_capsule(*capsules)
        return capsules


class Failing:
    """A producer whose stream breaks off."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        def batches():
            yield pyarrow.record_batch([pyarrow.array([b"v"])], names=["value"])
            raise ValueError("the disk is gone")

        schema = pyarrow.schema([("value", pyarrow.binary())])
        return pyarrow.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__()


class Wrong:
    """A producer that hands out something else."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return object(), object()


@pytest.mark.parametrize(
    ("producer", "message"),
    [
        (Taken(), "a capsule that was taken already"),
        (Failing(), "the disk is gone"),
        (Wrong(), 'wanted a capsule named "arrow_schema"'),
    ],
)
def test_a_producer_that_breaks_the_protocol_is_refused(producer, message):
    with pytest.raises(UsageError, match=message):
        encode_columns(producer)


def views(index: int, position: int, size: int = 20) -> Produced:
    """A view array of one value: 20 bytes at `position` of buffer `index`."""
    words = struct.pack("<iiii", size, 0, index, position)
    return Produced(b"vz", [None, words, bytes(25), struct.pack("<q", 25)], length=1)


def test_views_are_followed_to_the_last_byte_of_their_buffer():
    assert decode_columns(encode_columns({"value": views(0, 5)})).value[0] == bytes(20)


@pytest.mark.parametrize("where", [(1, 0), (-1, 0), (0, 6), (0, -1), (0, 2**31 - 1), (0, 0, -1), (0, 0, 26)], ids=str)
def test_views_that_point_outside_their_buffers_are_refused(where):
    with pytest.raises(UsageError, match="row 0: got Arrow offsets or views that point outside their buffers"):
        encode_columns({"value": views(*where)})


def test_offsets_that_point_outside_their_buffer_are_refused():
    offsets = pyarrow.array([0, 5, 2, 9], pyarrow.int32()).buffers()[1]
    array = pyarrow.Array.from_buffers(pyarrow.binary(), 3, [None, offsets, pyarrow.py_buffer(b"123456789")])
    with pytest.raises(UsageError, match="row 1: got Arrow offsets or views that point outside their buffers"):
        encode_columns({"value": array})
