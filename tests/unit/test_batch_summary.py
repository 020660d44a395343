"""What an append asks of the headers of a scan, answered at once: the same as asking numpy."""

import numpy as np
import pytest

from logcore import UsageError, encode_batch, scan_batches
from logcore._batch import BatchSummary, summarize


def _headers(*batches):
    return scan_batches(b"".join(batches)).headers


def test_a_summary_says_what_the_headers_say():
    headers = _headers(
        encode_batch([(b"k", b"v", 50)] * 3, base_offset=7, leader_epoch=4),
        encode_batch([(b"k", b"longer value", 70)] * 2, base_offset=20, leader_epoch=4),
        encode_batch([(b"k", b"v", 60)], base_offset=22, leader_epoch=4),
    )
    found = summarize(headers)
    assert (found.first_offset, found.first_last_offset, found.last_offset) == (7, 9, 22)
    assert (found.first_max_timestamp, found.max_timestamp) == (50, 70)
    assert found.record_count == 6
    assert found.size_max == int(headers["size_in_bytes"].max())
    assert (found.magic, found.leader_epoch, found.is_one_epoch, found.has_producer) == (2, 4, True, False)


def test_a_summary_of_a_part_is_of_that_part():
    headers = _headers(*(encode_batch([(b"k", b"v")], base_offset=offset) for offset in range(5)))
    assert (summarize(headers[1:3]).first_offset, summarize(headers[1:3]).last_offset) == (1, 2)


def test_one_batch_of_another_epoch_or_format_is_enough_to_look_closer():
    two = _headers(encode_batch([(b"k", b"v")], leader_epoch=1), encode_batch([(b"k", b"v")], leader_epoch=2))
    assert not summarize(two).is_one_epoch
    assert summarize(two).leader_epoch == 2
    old = _headers(encode_batch([(b"k", b"v", 5)], magic=1))
    assert not summarize(old).is_one_epoch
    assert summarize(old).record_count == -1


def test_a_producer_shows_wherever_it_is():
    plain = encode_batch([(b"k", b"v")])
    produced = encode_batch([(b"k", b"v")], producer_id=3, producer_epoch=0, base_sequence=0)
    assert summarize(_headers(plain, produced)).has_producer
    assert not summarize(_headers(plain, plain)).has_producer


@pytest.mark.parametrize("headers", [np.empty(0, np.uint8), np.zeros(5, np.uint8)])
def test_what_is_not_headers_is_refused(headers):
    with pytest.raises(UsageError, match=r"headers: got \d bytes"):
        summarize(headers)


def test_a_summary_comes_from_headers_only():
    with pytest.raises(TypeError, match="summarize"):
        BatchSummary()
