import pytest

from logcore import decode_batches, decode_columns, encode_columns, split_batches
from logcore._compression import CODECS, compress
from logcore.bench import workload
from logcore.bench.data import synthetic_rows
from logcore.bench.workload import Case, Workload, size_text, workload_bytes


def _workload(codec="none", batch_bytes=2048, value_bytes=50, **options):
    return Workload(
        Case(codec, None, batch_bytes, value_bytes), synthetic_rows(value_bytes, plain_bytes=40_000, **options)
    )


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_stored_is_what_was_given_in_order(codec):
    rows = synthetic_rows(50, plain_bytes=40_000)
    made = Workload(Case(codec, None, 2048, 50), rows)
    stored = [tuple(record)[1:] for fetch in made.fetches for batch in decode_batches(fetch.stored) for record in batch]
    assert stored == [(timestamp, key, value, ()) for key, value, timestamp, _ in rows[: len(stored)]]
    assert {batch.compression for fetch in made.fetches for batch in decode_batches(fetch.stored)} == {codec}


def test_fetches_are_distinct_and_no_longer_than_asked_for():
    made = _workload()
    assert len(made.fetches) == 4
    assert len({fetch.plain for fetch in made.fetches}) == 4
    assert all(4096 < len(fetch.plain) <= 8192 for fetch in made.fetches)
    assert all(len(split_batches(fetch.plain)) == 4 for fetch in made.fetches)


def test_a_batch_as_large_as_a_fetch_is_a_fetch():
    made = _workload(batch_bytes=8192)
    assert [len(split_batches(fetch.plain)) for fetch in made.fetches] == [1] * len(made.fetches)


def test_records_larger_than_a_batch_get_one_each():
    made = _workload(batch_bytes=100, value_bytes=300)
    assert [fetch.records for fetch in made.fetches] == [len(split_batches(fetch.plain)) for fetch in made.fetches]


def test_a_single_row_is_a_workload():
    made = Workload(Case("zstd", 3, 2048, None), [(None, b"alone", 5, ())])
    assert (len(made.fetches), made.records) == (1, 1)


def test_every_shape_of_a_fetch_holds_the_same_records():
    [fetch, *_] = _workload().fetches
    assert fetch.records == sum(map(len, fetch.rows)) == len(decode_columns(fetch.plain))
    assert encode_columns(fetch.columns, batch_bytes=2048) == fetch.plain
    assert [compress(0, batch[61:]) for batch in split_batches(fetch.plain)] == fetch.payloads


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_producer_sends_is_each_batch_alone_from_offset_0(codec):
    [_, fetch, *_] = _workload(codec).fetches
    [*sent] = [list(decode_batches(data)) for data in fetch.produced]
    assert [len(batches) for batches in sent] == [1] * len(fetch.rows)
    assert [(batches[0].base_offset, batches[0].compression) for batches in sent] == [(0, codec)] * len(sent)
    assert [[record.value for record in batches[0]] for batches in sent] == [
        [row[1] for row in rows] for rows in fetch.rows
    ]


def test_uncompressed_batches_are_held_once():
    assert all(fetch.stored is fetch.plain for fetch in _workload().fetches)


def test_sizes_and_counts_are_those_of_the_fetches():
    made = _workload("gzip")
    assert made.records == sum(len(list(batch)) for fetch in made.fetches for batch in decode_batches(fetch.stored))
    assert made.plain_bytes == sum(len(fetch.plain) for fetch in made.fetches)
    assert made.stored_bytes == sum(len(fetch.stored) for fetch in made.fetches) < made.plain_bytes


def test_headers_are_noticed():
    row = (b"k", b"v", 5, (("h", b"x"),))
    assert Workload(Case("none", None, 2048, None), [row]).has_headers
    assert not _workload().has_headers


def test_large_batches_mean_fewer_fetches_and_not_more_memory(monkeypatch):
    monkeypatch.setattr(workload, "FETCH_BYTES", 1 << 20)
    assert workload_bytes(16 << 10) == workload_bytes(1 << 20) == 4 << 20
    assert workload_bytes(16 << 20) == 32 << 20


@pytest.mark.parametrize(("size", "text"), [(100, "100 B"), (1024, "1 KiB"), (1 << 20, "1 MiB"), (1500, "1500 B")])
def test_sizes_are_told_as_people_say_them(size, text):
    assert size_text(size) == text


def test_a_case_is_told_with_all_its_parameters():
    assert str(Case("zstd", 3, 16384, 100)) == "zstd 3, 16 KiB batches, 100 B values"
    assert str(Case("none", None, 1 << 20, None)) == "none, 1 MiB batches, file"
