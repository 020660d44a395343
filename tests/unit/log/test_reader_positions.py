"""Reading from every offset, whatever the lengths of the batches around it and whatever the index says."""

import itertools
import random

import pytest

from logcore import CorruptBatch, open_log
from tests.helpers import sized, v2_batch
from tests.reference import varint

SIZES = {
    "short": [1],
    "about the interval": [30, 36, 38],
    "long": [300, 1000],
    "mixed": [1, 1, 1, 400, 2, 1, 38, 900, 1],
}


def _filled(path, sizes, *, batches_a_segment=60):
    """A log with batches of so many records in turn, and its values."""
    log = open_log(path, config={"segment.index.bytes": 1 << 20})
    values = []
    for turn in range(60):
        if turn and turn % batches_a_segment == 0:
            log.roll()
        rows = [(b"k", b"%07d" % (len(values) + index) + b"." * 93) for index in range(sizes[turn % len(sizes)])]
        log.append(rows)
        values += [value for _, value in rows]
    return log, values


@pytest.mark.parametrize("batches_a_segment", [60, 7])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_every_offset_is_found_and_what_follows_it(tmp_path, sizes, batches_a_segment):
    log, values = _filled(tmp_path / "a-0", sizes, batches_a_segment=batches_a_segment)
    with log:
        step = max(len(values) // 500, 1)
        for offset in {*range(0, len(values), step), len(values) - 1}:
            record = next(log.read(offset))
            assert (record.offset, record.value) == (offset, values[offset])
        for offset in random.Random(1).sample(range(len(values)), 5):
            assert [record.value for record in log.read(offset)] == values[offset:]
        assert list(log.read(len(values))) == []


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("damage", ["position", "offset", "empty"])
def test_an_index_that_misleads_costs_time_and_nothing_else(tmp_path, sizes, damage):
    log, values = _filled(tmp_path / "a-0", sizes)
    log.roll()
    log.close()
    path = tmp_path / "a-0" / f"{0:020}.index"
    data = bytearray(path.read_bytes())
    rng = random.Random(2)
    for entry in range(0, len(data), 8):
        if damage == "position":
            data[entry + 4 : entry + 8] = rng.randrange(len(values) * 100).to_bytes(4, "big")
        elif damage == "offset":
            data[entry : entry + 4] = (int.from_bytes(data[entry : entry + 4], "big") + 1).to_bytes(4, "big")
    path.write_bytes(b"" if damage == "empty" else data)
    with open_log(tmp_path / "a-0") as again:
        for offset in random.Random(3).sample(range(len(values)), min(len(values), 40)):
            record = next(again.read(offset))
            assert (record.offset, record.value) == (offset, values[offset])


def _written(tmp_path, deltas, lengths=()):
    """A log of one batch with a right checksum, whose records have these offset deltas, and lengths if given."""
    records = []
    for delta, length in itertools.zip_longest(deltas, lengths):
        body = b"\0" + varint.write(0) + varint.write(delta) + sized(b"k") + sized(b"%d" % delta) + b"\0"
        records.append(varint.write(len(body) if length is None else length) + body)
    path = tmp_path / "a-0"
    path.mkdir()
    (path / f"{0:020}.log").write_bytes(v2_batch(b"".join(records), len(deltas)))
    return open_log(path, read_only=True)


def test_a_record_that_its_number_does_not_lead_to_is_looked_for(tmp_path):
    """The header says that offsets go one by one, and the records say otherwise."""
    with _written(tmp_path, [0, 2, 1, 3, 4]) as log:
        assert [[record.offset for record in log.read(offset)] for offset in range(5)] == [
            [0, 2, 1, 3, 4],
            [2, 1, 3, 4],
            [2, 1, 3, 4],
            [3, 4],
            [4],
        ]


@pytest.mark.parametrize("length", [-3, 0, 10_000, 2**31 - 1])
def test_a_length_that_leads_nowhere_is_told_also_from_behind_it(tmp_path, length):
    with _written(tmp_path, range(9), [None, None, None, length]) as log:
        assert next(log.read(2)).offset == 2
        for offset in range(4, 9):
            with pytest.raises(CorruptBatch, match="record 3 at byte 88: record length"):
                next(log.read(offset))
