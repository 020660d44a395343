"""Hostile bytes into every decoder, encoder and converter; see the map in __init__.py."""

from __future__ import annotations

import collections
import os
import random

import pytest

import logcore
from tests.fuzz import driver, mutate, targets

FULL = os.environ.get("LOGCORE_FULL") == "1"
SHORT = os.environ.get("LOGCORE_SHORT") == "1"
COUNT = 1_000_000 if FULL else 2_000 if SHORT else 10_000
# Fresh cases in a full run, the same ones otherwise.
SEED = random.SystemRandom().randrange(2**32) if FULL else 20_110_111


def test_hostile_bytes_end_in_a_typed_error_or_a_right_result() -> None:
    done, reports = driver.run(SEED, COUNT, jobs=os.cpu_count() or 1)
    assert not reports, "\n".join(reports)
    assert done == COUNT


def test_a_case_is_made_by_its_seed_and_number_alone() -> None:
    once = [mutate.make_case(5, number) for number in range(300)]
    assert once == [mutate.make_case(5, number) for number in range(300)]
    assert once != [mutate.make_case(6, number) for number in range(300)]


def test_half_of_the_cases_are_mended_and_the_parser_is_reached() -> None:
    kinds: collections.Counter[str] = collections.Counter()
    reasons: set[str] = set()
    right, records = 0, 0
    count = 3_000
    for number in range(count):
        case = mutate.make_case(9, number)
        kinds[case.kind] += 1
        reading = targets.read(case.buffer, verify_crc=True)
        reasons |= {refusal.reason.name for refusal in reading.refusals()}
        right += bool(reading.batches)
        records += len(reading.all_rows())
    mended = sum(seen for kind, seen in kinds.items() if kind.endswith("mended"))
    assert 0.45 < mended / count < 0.55
    assert right / count > 0.5
    assert records > count / 2
    assert {kind.removesuffix(", mended") for kind in kinds} == set(mutate.KIND_NAMES)
    # Every reason that a batch can be refused for, but those that only writers and validators give, and other files.
    others = {"TRUNCATED", "OFFSET_ORDER", "INNER_MAGIC", "CONTROL_RECORD", "DECOMPRESSED_SIZE"}
    others |= {"ENTRY_SIZE", "ENTRY_ORDER", "VERSION", "ENTRY_COUNT", "MALFORMED"}  # of other files than batches
    assert reasons | others >= {reason.name for reason in logcore.CorruptionReason}


def test_each_monster_and_each_bomb_is_met_once() -> None:
    refused = set()
    for turn, buffer in enumerate((*mutate.monsters(), *mutate.bombs())):
        for shift in range(2):
            reading = targets.check(buffer, turn + shift)
            refused |= {refusal.reason.name for refusal in reading.refusals()}
    assert {
        "DECOMPRESSED_SIZE",
        "NESTED_COMPRESSION",
        "VARINT",
        "RECORD_COUNT",
        "BATCH_SIZE",
        "WRAPPER_VALUE",
    } <= refused


def test_a_wrong_result_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver.run_case(1, 3) is None
    monkeypatch.setattr(targets, "TARGETS", (lambda context: targets.require(False, "made to fail", context.turn),))
    wrong = driver.run_case(1, 3)
    assert wrong is not None
    assert "WrongResult: made to fail: 3" in wrong


def test_a_crash_is_told_with_its_seed_its_case_and_a_command_that_replays_it() -> None:
    done, (report,) = driver.run(7, 40, 2, "--abort-at", "13")
    assert done < 40
    assert report.startswith("seed 7, case 13 ended the process with code -6")
    assert "-m tests.fuzz --seed 7 --case 13" in report
