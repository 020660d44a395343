"""Damaged files of a log, opened, read and written on; see files.py."""

from __future__ import annotations

import os
import random

from tests.fuzz import driver, files

FULL = os.environ.get("LOGCORE_FULL") == "1"
SHORT = os.environ.get("LOGCORE_SHORT") == "1"
COUNT = 200_000 if FULL else 400 if SHORT else 3_000
# Fresh cases in a full run, the same ones otherwise.
SEED = random.SystemRandom().randrange(2**32) if FULL else 1


def test_hostile_files_end_in_a_typed_error_or_a_right_result() -> None:
    done, reports = driver.run(SEED, COUNT, os.cpu_count() or 1, "--files")
    assert not reports, "\n".join(reports)
    assert done == COUNT


def test_a_case_of_files_is_made_by_its_seed_and_number_alone() -> None:
    once = [files.make_case(5, number) for number in range(50)]
    assert once == [files.make_case(5, number) for number in range(50)]
    assert once != [files.make_case(6, number) for number in range(50)]
    # Many of them leave the log itself alone: then every row has to be there.
    assert sum(case.rows is not None for case in once) > 5
