import pytest

from logcore._compression import CODECS
from logcore.bench.bars import bars_for, verdicts
from logcore.bench.limits import C_LOOP, LIBRARIES, LIBRARY_COMPRESS, LIBRARY_DECOMPRESS, LIMIT_DECODE
from logcore.bench.measure import Task, Timing
from logcore.bench.operations import (
    COMPRESS,
    DECODE_COLUMNS,
    DECODE_ROWS,
    DECODE_VIEW,
    DECOMPRESS,
    LOGCORE,
)
from logcore.bench.peers import AIOKAFKA
from logcore.bench.workload import Case


def _timing(operation, by, seconds):
    return Timing(Task(operation, by, [print], [1]), [seconds])


def test_a_bar_is_met_at_its_ratio_and_missed_below():
    case = Case("none", None, 16384, 100)
    timings = [
        _timing(DECODE_COLUMNS, LOGCORE, 1.0),
        _timing(DECODE_ROWS, AIOKAFKA, 12.0),
        _timing(LIMIT_DECODE, C_LOOP, 0.75),
    ]
    found = {verdict.bar.theirs: (verdict.ratio, verdict.is_met) for verdict in verdicts(case, timings)}
    assert found == {(DECODE_ROWS, AIOKAFKA): (12.0, True), (LIMIT_DECODE, C_LOOP): (0.75, False)}


@pytest.mark.parametrize(
    ("batch_bytes", "value_bytes", "count"), [(1 << 20, 1024, 2), (16384, 1024, 0), (1 << 20, 100, 0)]
)
def test_the_bars_of_the_view_layout_are_for_long_values_in_large_batches(batch_bytes, value_bytes, count):
    bars = [bar for bar in bars_for("none") if bar.ours == DECODE_VIEW]
    assert sum(bar.applies_to(Case("none", None, batch_bytes, value_bytes)) for bar in bars) == count


@pytest.mark.parametrize("codec", LIBRARIES)
def test_a_codec_is_held_against_its_library_both_ways(codec):
    assert [(bar.ours, bar.theirs, bar.at_least) for bar in bars_for(codec)][:2] == [
        (COMPRESS, (LIBRARY_COMPRESS, LIBRARIES[codec]), 0.9),
        (DECOMPRESS, (LIBRARY_DECOMPRESS, LIBRARIES[codec]), 0.9),
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_not_measured_has_no_verdict(codec):
    assert list(verdicts(Case(codec, None, 16384, 100), [_timing(DECODE_COLUMNS, LOGCORE, 1.0)])) == []
