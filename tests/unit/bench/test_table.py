import io

import pytest

from logcore.bench.table import Progress, aligned, rate_text, ratios_text, results_text

RESULT = {
    "codec": "zstd",
    "level": 3,
    "batch_bytes": 16384,
    "value_bytes": 100,
    "operation": "decode rows",
    "by": "logcore",
    "records_per_second": 12_345_678.0,
    "megabytes_per_second": 1490.4,
    "bytes_per_record": 42.31,
    "compression_ratio": 2.854,
    "cpu": 0.999,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_result_is_a_line_under_its_headings():
    heading, _, line = results_text([RESULT]).splitlines()
    assert " ".join(heading.split()) == "codec level batch value operation by records/s MB/s B/record ratio CPU"
    assert " ".join(line.split()) == "zstd 3 16 KiB 100 B decode rows logcore 12.35 M 1,490 42.3 2.85 1.00"


def test_cases_are_set_apart():
    other = {**RESULT, "level": None, "value_bytes": None, "codec": "none"}
    lines = results_text([RESULT, RESULT, other]).splitlines()
    assert [bool(line) for line in lines] == [True, True, True, True, False, True]
    assert lines[-1].split()[:4] == ["none", "16", "KiB", "file"]


def test_a_ratio_is_told_with_whom_it_is_to_and_what_is_aimed_at():
    bar = {
        **RESULT,
        "against": "decode rows",
        "against_by": "aiokafka",
        "ratio": 2.345,
        "at_least": 2,
        "is_met": True,
    }
    heading, _, line = ratios_text([bar]).splitlines()
    assert " ".join(heading.split()) == "codec batch value logcore's beside times as fast goal"
    assert " ".join(line.split()) == "zstd 16 KiB 100 B decode rows aiokafka: decode rows 2.35 2"


@pytest.mark.parametrize(
    ("rate", "text"), [(2.5e9, "2.5 G"), (12_345_678, "12.35 M"), (1000, "1 k"), (999, "999"), (1.5, "1.5")]
)
def test_rates_have_their_magnitude(rate, text):
    assert rate_text(rate).strip() == text


def test_numbers_are_aligned_to_the_right_and_names_to_the_left():
    assert aligned(("name", "n"), [["a", "1"], ["long one", "100"]], {"name"}).splitlines() == [
        "name        n",
        "--------  ---",
        "a           1",
        "long one  100",
    ]


def test_the_bar_of_a_terminal_grows_and_is_taken_away():
    stream = Terminal()
    progress = Progress(stream)
    progress.tell(0.5, "half of it")
    assert stream.getvalue() == f"\r[{'#' * 15}{'.' * 15}]  50%  half of it"
    progress.tell(1.0, "all")
    progress.clear()
    shown = stream.getvalue().split("\r")
    assert shown[-1] == ""
    assert shown[-2].strip() == ""


def test_nothing_is_written_where_there_is_no_terminal():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.tell(0.5, "half")
    progress.clear()
    assert stream.getvalue() == ""
