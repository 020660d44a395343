"""Arrow structs that lie: whatever their formats, offsets, views and sizes say, they are encoded or refused.

What cannot be checked is not tried: how long a buffer is, Arrow's structs do not say, so the last offset of binary and
the sizes of view buffers stay within what is there. Under the sanitizers every byte read outside is seen.
"""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logcore import LogcoreError, decode_columns, encode_columns
from tests.arrow_c import Produced, ProducedStream, table

ROWS = 4
DATA = b"0123456789abcdefghijklmnop"
INT32 = st.sampled_from([0, 0, 1, 2, 12, 13, 26, 27, -1, -(2**31), 2**31 - 1])
INT64 = INT32 | st.sampled_from([2**31, 2**32, -(2**63), 2**63 - 1, 2**62])
VALIDITY = st.none() | st.binary(min_size=1, max_size=1)


@st.composite
def offsets(draw: st.DrawFn, code: str, rows: int, last_max: int) -> bytes:
    """rows + 1 offsets: sound ones, or anything at all but for the last."""
    if draw(st.booleans()):
        ends = sorted(draw(st.lists(st.integers(0, last_max), min_size=rows + 1, max_size=rows + 1)))
    else:
        ends = draw(st.lists(INT64 if code == "q" else INT32, min_size=rows, max_size=rows))
        ends.append(draw(st.integers(-5, last_max)))
    return struct.pack(f"<{rows + 1}{code}", *ends)


@st.composite
def columns(draw: st.DrawFn, name: bytes, rows: int) -> Produced:
    """A column of bytes in any layout; `rows` is what its buffers hold."""
    kind = draw(st.sampled_from(["z", "u", "Z", "U", "vz", "vu", "w:3", "w:0", "n", "b", "\udcff", "w:-1", "w:"]))
    options: dict[str, Any] = {
        "name": name,
        "shift": draw(st.sampled_from([0, 0, 1, 4])),
        "null_count": draw(st.sampled_from([0, -1, 2])),
        "offset": draw(st.sampled_from([0, 0, 1, rows, -1, 2**62])),
    }
    options["length"] = draw(st.sampled_from([rows, max(rows - options["offset"], 0), 1, 0, -1, 2**62]))
    if options["offset"] >= 0 and 0 < options["length"] < 100 and options["length"] + options["offset"] > rows:
        options["length"] = max(rows - options["offset"], 0)
    validity = draw(VALIDITY)
    data = draw(st.sampled_from([DATA, DATA, None]))
    buffers: list[bytes | None] = [validity]
    if kind in ("z", "u"):
        buffers += [draw(offsets("i", rows, len(DATA))), data]
    elif kind in ("Z", "U"):
        buffers += [draw(offsets("q", rows, len(DATA))), data]
    elif kind in ("vz", "vu"):
        words = draw(st.lists(st.tuples(INT32, INT32, INT32, INT32), min_size=rows, max_size=rows))
        buffers.append(b"".join(struct.pack("<iiii", *word) for word in words))
        sizes = draw(st.lists(st.sampled_from([len(DATA), 13, 0, -1, -(2**63)]), max_size=3))
        buffers += [data for _ in sizes]
        buffers.append(struct.pack(f"<{len(sizes)}q", *sizes) if sizes or draw(st.booleans()) else None)
    elif kind.startswith("w"):
        buffers.append(DATA)
    if draw(st.integers(0, 9)) == 0:
        buffers = buffers[: draw(st.integers(0, len(buffers)))]
    return Produced(kind.encode("utf-8", "surrogateescape"), buffers, **options)


@st.composite
def integers(draw: st.DrawFn, name: bytes) -> Produced:
    values = draw(st.lists(INT64, min_size=ROWS, max_size=ROWS))
    kind = draw(st.sampled_from([b"l", b"tsm:", b"tss:UTC", b"tsn:", b"tsu:", b"ts", b"i", b"\xff"]))
    return Produced(
        kind,
        [draw(VALIDITY), draw(st.sampled_from([struct.pack(f"<{ROWS}q", *values)] * 4 + [None]))],
        name=name,
        length=ROWS,
        null_count=draw(st.sampled_from([0, -1])),
        shift=draw(st.sampled_from([0, 0, 3])),
    )


@st.composite
def headers(draw: st.DrawFn) -> Produced:
    kind = draw(st.sampled_from([b"+l", b"+l", b"+L", b"+m", b"+w:1", b"\xff"]))
    pair = [draw(columns(name, ROWS)) for name in draw(st.permutations([b"key", b"value"]))]
    length = draw(st.sampled_from([ROWS, 2, 0, -1, 2**62]))
    entry = Produced(
        draw(st.sampled_from([b"+s", b"+s", b"z"])),
        [draw(VALIDITY)],
        name=b"element",
        length=length,
        null_count=draw(st.sampled_from([0, -1])),
        offset=draw(st.sampled_from([0, 0, 1])),
        children=pair if draw(st.integers(0, 9)) else pair[:1],
    )
    ends = draw(offsets("q" if kind == b"+L" else "i", ROWS, ROWS + 1))
    return Produced(kind, [draw(VALIDITY), ends], name=b"headers", length=ROWS, null_count=-1, children=[entry])


@given(
    columns(b"value", ROWS) | columns(b"key", ROWS),
    st.none() | integers(b"timestamp") | integers(b"offset"),
    st.none() | headers(),
    st.sampled_from([ROWS, ROWS, 2, 0]),
    st.sampled_from([0, 0, 1]),
    st.booleans(),
)
def test_structs_that_lie_are_encoded_or_refused(
    first: Produced, second: Produced | None, third: Produced | None, length: int, offset: int, as_stream: bool
) -> None:
    given = table(*[one for one in (first, second, third) if one is not None], length=length, offset=offset)
    producer: Any = ProducedStream(given.schema, [given.array]) if as_stream else given
    try:
        data = encode_columns(producer, now_ms=7)
    except LogcoreError:
        pass
    else:
        assert len(decode_columns(data)) == length
    assert given.released == {"schema": 1, "array": 1}
