"""Many cases in worker processes, under bounds of time and memory.

A worker is a process of its own, so that a crash of the code under test ends the worker and not the run: before each
case it writes the case's number into a small shared file, and that is what the driver tells of a worker that died or
hangs. The bounds:

    time      CASE_SECONDS_MAX of processor time a case; a worker that moves on from no case in HANG_SECONDS is killed
    memory    MEMORY_BYTES_MAX beyond what the worker has after its imports. In ordinary builds it is a limit of the
              address space, so that the allocation itself fails; under AddressSanitizer, which reserves terabytes of
              address space for itself, the resident size is looked at after each case
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CASE_SECONDS_MAX = 5.0
HANG_SECONDS = 60.0
# A batch may decompress to 4 MiB (targets.CAP) and a zstd frame may ask for a window of 128 MiB.
MEMORY_BYTES_MAX = 512 << 20
_PROGRESS = struct.Struct("=qq")  # the case at work, and how many are done


def is_sanitized() -> bool:
    """Whether AddressSanitizer's runtime is loaded."""
    return hasattr(ctypes.CDLL(None), "__asan_init")


def replay_command(seed: int, case: int, more: tuple[str, ...] = ()) -> str:
    """What to type to run one case again."""
    python = os.path.relpath(sys.executable, ROOT)
    prefix = "tools/sanitize.sh " if is_sanitized() else ""
    return " ".join([f"{prefix}{python} -m tests.fuzz --seed {seed} --case {case}", *more])


def run_case(seed: int, number: int, *, is_of_files: bool = False) -> str | None:
    """Run one case in this process; returns what is wrong, or None."""
    from tests.fuzz import files, mutate, targets  # A crash while these load should be told as one of the worker.

    started = time.process_time()
    if is_of_files:
        wrong = files.run_case(seed, number)
        spent = time.process_time() - started
        if wrong is None and spent > CASE_SECONDS_MAX:
            wrong = f"took {spent:.1f} s, wanted at most {CASE_SECONDS_MAX}"
        return wrong
    case = mutate.make_case(seed, number)
    try:
        targets.check(case.buffer, number)
    except Exception:
        return f"{case.kind}, {len(case.buffer)} bytes\n{traceback.format_exc()}"
    spent = time.process_time() - started
    if spent > CASE_SECONDS_MAX:
        return f"{case.kind}, {len(case.buffer)} bytes: took {spent:.1f} s, wanted at most {CASE_SECONDS_MAX}"
    return None


def work(
    seed: int, first: int, count: int, step: int, progress_path: str, abort_at: int | None, *, is_of_files: bool = False
) -> int:
    """A worker: the cases first, first + step, …, up to the first that fails; returns the exit code.

    abort_at: a case to die at, as code under test might; for the test of this driver.
    """
    # Everything is imported and every source is made, before memory is measured.
    run_case(seed, first, is_of_files=is_of_files)
    limit_address_space = not is_sanitized()
    if limit_address_space:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES_MAX, resource.RLIM_INFINITY))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open(progress_path, "r+b") as file, mmap.mmap(file.fileno(), _PROGRESS.size) as progress:
        for done, number in enumerate(range(first, first + count * step, step)):
            _PROGRESS.pack_into(progress, 0, number, done)
            if number == abort_at:
                os.abort()
            wrong = run_case(seed, number, is_of_files=is_of_files)
            if wrong is None and not limit_address_space:
                grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) << 10
                if grown > MEMORY_BYTES_MAX:
                    wrong = f"resident memory grew by {grown >> 20} MiB, wanted at most {MEMORY_BYTES_MAX >> 20}"
            if wrong is not None:
                print(wrong)
                return 1
        _PROGRESS.pack_into(progress, 0, -1, count)
    return 0


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    progress: Path
    output: Path
    last: tuple[int, int] = (-1, 0)
    moved: float = 0.0

    def look(self) -> tuple[int, int]:
        """The case at work and how many are done; remembers when that last changed."""
        case, done = _PROGRESS.unpack(self.progress.read_bytes())
        if (case, done) != self.last:
            self.last, self.moved = (case, done), time.monotonic()
        return case, done


def run(seed: int, count: int, jobs: int, *more: str) -> tuple[int, list[str]]:
    """`count` cases in `jobs` processes; returns how many were done, and a report of each failure.

    more: further arguments for the workers.
    """
    environment = dict(os.environ)
    # What is freed is kept back to catch its use; by default as much as a quarter of a gigabyte.
    environment["ASAN_OPTIONS"] = f"{environment.get('ASAN_OPTIONS', '')}:quarantine_size_mb=32"
    done, reports = 0, []
    with tempfile.TemporaryDirectory() as directory:
        workers = [_start(Path(directory), seed, index, count, jobs, environment, more) for index in range(jobs)]
        try:
            waiting = list(workers)
            while waiting:
                for worker in list(waiting):
                    try:
                        worker.process.wait(timeout=1.0 / len(waiting))
                    except subprocess.TimeoutExpired:
                        worker.look()
                        if time.monotonic() - worker.moved < HANG_SECONDS:
                            continue
                        worker.process.kill()
                        worker.process.wait()
                    waiting.remove(worker)
                    reports += _verdict(worker, seed, more)
                if reports:
                    break
        finally:
            for worker in workers:
                if worker.process.poll() is None:
                    worker.process.kill()
                    worker.process.wait()
                done += worker.look()[1]
    return done, reports


def _start(
    directory: Path, seed: int, index: int, count: int, jobs: int, environment: dict[str, str], more: tuple[str, ...]
) -> _Worker:
    progress, output = directory / f"progress-{index}", directory / f"output-{index}"
    progress.write_bytes(_PROGRESS.pack(index, 0))
    share = len(range(index, count, jobs))
    command = [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--worker", str(index), str(share), str(jobs)]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, str(progress), *more], cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    return _Worker(process, progress, output, moved=time.monotonic())


def _verdict(worker: _Worker, seed: int, more: tuple[str, ...]) -> list[str]:
    """Nothing if the worker came to its end, else one report."""
    code = worker.process.returncode
    if code == 0:
        return []
    case, _ = worker.look()
    if code == 1:
        how = "failed"
    elif time.monotonic() - worker.moved >= HANG_SECONDS:
        how = f"did not end within {HANG_SECONDS:.0f} s"
    else:
        how = f"ended the process with code {code}"
    said = worker.output.read_text(errors="replace")[-6000:]
    command = replay_command(seed, case, tuple(one for one in more if one == "--files"))
    return [f"seed {seed}, case {case} {how}\nreplay: {command}\n{said}"]
