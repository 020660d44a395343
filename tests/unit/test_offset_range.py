"""Reading from an offset on: in the middle of a batch, at its edges, and around it.

The batches hold the offsets 10 to 13, 20 to 23 and 30 to 33, in every magic and codec.
"""

from __future__ import annotations

import operator

import pytest

from logcore import (
    Record,
    UsageError,
    UsageTypeError,
    decode_batches,
    encode_batch,
)
from tests.helpers import CODECS_BY_MAGIC, only_batch

INT63_MAX = 2**63 - 1
BASES = (10, 20, 30)


def batch_at(base: int, magic: int = 2, codec: str = "none") -> bytes:
    """Four records from offset `base` on: with a key, without one, without a value, with a long value and headers."""
    long = bytes([base]) * 40
    made = [
        Record(base, 1000 + base, b"key", b"short"),
        Record(base + 1, 1001 + base, None, b"no key"),
        Record(base + 2, 1002 + base, b"tombstone of %d" % base, None),
        Record(base + 3, 1003 + base, b"k", long, [("a", b"b"), ("long", long), ("none", None)] if magic == 2 else ()),
    ]
    return encode_batch(made, magic=magic, compression=codec)


def log_of(magic: int = 2, codec: str = "none") -> bytes:
    return b"".join(batch_at(base, magic, codec) for base in BASES)


# -------------------------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
def test_rows_begin_at_the_first_offset(magic: int, codec: str) -> None:
    for batch in decode_batches(log_of(magic, codec)):
        for first in (0, *range(8, 36), INT63_MAX):
            found = batch.records(first_offset=first)
            wanted = [record for record in batch if record.offset >= first]
            assert operator.length_hint(found) == len(wanted)
            assert list(found) == wanted
            assert list(found) == []


# ------------------------------------------------------------------------------------------------------- bad use


def test_the_first_offset_of_rows_is_an_offset() -> None:
    batch = only_batch(batch_at(10))
    for given in (-1, 2**63):
        with pytest.raises(UsageError) as caught:
            batch.records(first_offset=given)
        assert (caught.value.what, caught.value.wanted) == ("first_offset", f"0 to {INT63_MAX}")
    with pytest.raises(UsageTypeError, match="first_offset: got str, wanted an int"):
        batch.records(first_offset="5")
    with pytest.raises(TypeError):
        batch.records(False, 5)
