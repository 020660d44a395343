"""The command line of the fuzzer.

    python -m tests.fuzz --seed 7 --count 100000 --jobs 2     a run
    python -m tests.fuzz --seed 7 --case 1234                 one case again, in this process
    python -m tests.fuzz --files …                            damaged files of a log instead

In the sanitize build: tools/sanitize.sh .venv-sanitize/bin/python -m tests.fuzz …
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.fuzz import driver


def main(arguments: list[str]) -> int:
    """Parse, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Hostile bytes into every decoder.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this case alone, here")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--worker", nargs=4, metavar=("FIRST", "COUNT", "STEP", "PROGRESS"), help=argparse.SUPPRESS)
    parser.add_argument("--files", action="store_true", help="damaged files of a log, not batches")
    parser.add_argument("--abort-at", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        first, count, step, progress = options.worker
        return driver.work(
            options.seed, int(first), int(count), int(step), progress, options.abort_at, is_of_files=options.files
        )
    if options.case is not None and options.files:
        wrong = driver.run_case(options.seed, options.case, is_of_files=True)
        print(wrong or "nothing wrong")
        return 1 if wrong else 0
    if options.case is not None:
        from tests.fuzz import mutate

        case = mutate.make_case(options.seed, options.case)
        print(f"case {options.case} of seed {options.seed}: {case.kind}, {len(case.buffer)} bytes")
        print(case.buffer[:2000].hex())
        wrong = driver.run_case(options.seed, options.case)
        print(wrong or "nothing wrong")
        return 1 if wrong else 0
    started = time.monotonic()
    done, reports = driver.run(options.seed, options.count, options.jobs, *["--files"] * options.files)
    seconds = time.monotonic() - started
    print(f"{done} cases of seed {options.seed} in {seconds:.0f} s, {done / seconds:.0f} a second")
    print("\n".join(reports) or "nothing wrong")
    return 1 if reports else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
