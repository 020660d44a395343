"""The coverage-guided fuzzer: mutates what reached new code, and keeps what reaches more.

    make fuzz-coverage                                                   ten minutes, from the kept corpus on
    tools/sanitize.sh .venv-coverage/bin/python -m tests.fuzz.coverage --seconds 60 --seed 3

It needs the coverage build: every basic block of the compiled modules calls into trace.c, which is compiled here and
loaded before them. Each case runs through all of targets.py, so it finds wrong results as well as crashes; the build
has the sanitizers in it. The work is done in a second process. Before each case it writes it to a file, so that the
case that ended it is not lost: it is saved below build/coverage and printed with a command that replays it.

Growth is printed as it happens. At the end the queue is reduced to as few small cases as have the same edges, and
saved as build/coverage/corpus.zip; copy that to tests/fuzz/corpus.zip to have every test run replay it.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import random
import resource
import shlex
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.corpus import Entry
from tests.fuzz.driver import HANG_SECONDS, MEMORY_BYTES_MAX, ROOT

BUILD = ROOT / "build" / "coverage"
BUFFER_BYTES_MAX = 4096  # of what is kept: small cases run faster and say more
REPORT_SECONDS = (1, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540)
TURNS = 420  # after that many, every combination of the targets' options has come


class CaseFile:
    """The case at work, in a file that both processes map: what is in it survives the one that dies of it."""

    _HEAD = struct.Struct("=QQQ")  # how many cases have begun; turn and size of the last
    _ROOM = 1 << 20

    def __init__(self, path: Path, is_new: bool) -> None:
        if is_new:
            path.write_bytes(bytes(self._ROOM))
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), self._ROOM)

    def write(self, run: int, entry: Entry) -> None:
        self._HEAD.pack_into(self.memory, 0, run, entry.turn, len(entry.buffer))
        self.memory[self._HEAD.size : self._HEAD.size + len(entry.buffer)] = entry.buffer

    def read(self) -> tuple[int, Entry]:
        run, turn, size = self._HEAD.unpack_from(self.memory)
        return run, Entry(turn, self.memory[self._HEAD.size : self._HEAD.size + size])


class Trace:
    """The compiled trace.c."""

    def __init__(self) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        library = BUILD / "trace.so"
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        source = Path(__file__).parent / "trace.c"
        # The compiler must not be preloaded with the sanitizers' runtime that this process runs under.
        plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        command = [*compiler, "-O2", "-Wall", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(command, check=True, env=plain)
        self.library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self.begin = self.library.trace_begin
        self.end = self.library.trace_end
        self.places = (ctypes.c_uint32 * 2**20)()

    @property
    def edges(self) -> int:
        return int(self.library.trace_edges())

    def touched(self) -> set[int]:
        count = self.library.trace_touched(self.places)
        return set(self.places[:count])


class Fuzzer:
    """One run: the queue of what was worth keeping, and the loop."""

    def __init__(self, seed: int, case_path: Path) -> None:
        self.trace = Trace()
        from tests.fuzz import mutate, targets  # These load the compiled modules, which need trace.c's symbols.

        self.mutate, self.targets = mutate, targets
        self.rng = random.Random(seed)
        self.case = CaseFile(case_path, is_new=False)
        self.queue: list[Entry] = []
        self.picked: list[int] = []  # how often each entry was mutated
        self.runs = 0

    def run(self, entry: Entry) -> int:
        """2 or 1 if the case reached something new, else 0."""
        self.runs += 1
        self.case.write(self.runs, entry)
        self.trace.begin()
        try:
            self.targets.check(entry.buffer, entry.turn)
        finally:
            news = int(self.trace.end())
        return news

    def offer(self, entry: Entry) -> None:
        if self.run(entry) and len(entry.buffer) <= BUFFER_BYTES_MAX:
            self.queue.append(entry)
            self.picked.append(0)

    def prime(self) -> None:
        """What the ordinary fuzzer begins with, and what was kept before."""
        sources = [*self.mutate.seeds(), *self.mutate.monsters(), *self.mutate.bombs()]
        for turn, buffer in enumerate(sources):
            self.offer(Entry(turn % TURNS, buffer))
        if corpus.KEPT.exists():
            for entry in corpus.load():
                self.offer(entry)

    def choose(self) -> Entry:
        """The one of a few that was mutated least: what is new comes first, and nothing is forgotten."""
        index = min((self.rng.randrange(len(self.queue)) for _ in range(4)), key=lambda index: self.picked[index])
        self.picked[index] += 1
        return self.queue[index]

    def child(self) -> Entry:
        """A new case out of one or two old ones, most often with its checksums mended."""
        rng, parent = self.rng, self.choose()
        way = rng.random()
        if way < 0.15:
            other = self.choose().buffer
            cut = rng.randrange(len(parent.buffer) + 1)
            buffer = bytearray(parent.buffer[:cut] + other[min(cut, rng.randrange(len(other) + 1)) :])
        elif way < 0.4:
            buffer = self.hurt_inside(parent.buffer)
        else:
            buffer = self.mutate.mutate(rng, parent.buffer)
        made = self.mutate.mend(buffer, rng.random() < 0.7) if rng.random() < 0.8 else bytes(buffer)
        turn = parent.turn if rng.random() < 0.7 else rng.randrange(TURNS)
        return Entry(turn, made[: 4 * BUFFER_BYTES_MAX])

    def hurt_inside(self, buffer: bytes) -> bytearray:
        """A v2 batch whose records are mutated as plain bytes and then compressed, perhaps by another codec."""
        header = self.mutate.HEADER_BYTES
        if len(buffer) <= header or buffer[16] != 2:
            return self.mutate.mutate(self.rng, buffer)
        codec, body = buffer[22] & 7, buffer[header:]
        if codec:
            from logcore import CorruptBatch
            from logcore._compression import decompress

            try:
                body = decompress(codec, body, 1 << 16)
            except CorruptBatch:
                return self.mutate.mutate(self.rng, buffer)
        codec = self.rng.choice((codec, codec, 0, 1, 2, 3, 4))
        packed = self.mutate.compress(codec, bytes(self.mutate.mutate(self.rng, body)))
        size = header - 12 + len(packed)
        head = buffer[:8] + size.to_bytes(4, "big") + buffer[12:22] + bytes([buffer[22] & 0xF8 | codec]) + buffer[23:61]
        return bytearray(head + packed)

    def fuzz(self, seconds: float) -> None:
        started = time.monotonic()
        self.prime()
        self.report(0.0, "seeds")
        marks = [mark for mark in REPORT_SECONDS if mark < seconds]
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds:
            if marks and elapsed >= marks[0]:
                self.report(marks.pop(0), "")
            for _ in range(50):
                self.offer(self.child())
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) << 10
            if grown > MEMORY_BYTES_MAX:
                raise MemoryError(f"resident memory grew by {grown >> 20} MiB within 50 cases before this one")
        self.report(seconds, "")

    def report(self, seconds: float, note: str) -> None:
        name = note or f"{seconds:.0f} s"
        print(f"{name:>8}: {self.trace.edges} edges, {len(self.queue)} kept, {self.runs} cases", flush=True)

    def reduced(self) -> list[Entry]:
        """As few entries, and as small, as have every edge of the queue; the best ones, if that is too many."""
        edges: list[tuple[Entry, set[int]]] = []
        for entry in sorted(self.queue, key=lambda entry: len(entry.buffer)):
            self.run(entry)
            edges.append((entry, self.trace.touched()))
        kept: list[Entry] = []
        covered: set[int] = set()
        size = 0
        while edges and len(kept) < corpus.ENTRIES_MAX:
            # What was covered stays covered, so an entry's news only shrink and one without any is done with.
            edges = [(entry, new) for entry, found in edges if (new := found - covered)]
            if not edges:
                break
            entry, new = max(edges, key=lambda pair: len(pair[1]) / (100 + len(pair[0].buffer)))
            covered |= new
            if size + len(entry.buffer) <= corpus.BYTES_MAX:
                kept.append(entry)
                size += len(entry.buffer)
        return kept


def work(seconds: float, seed: int, case_path: Path) -> int:
    """The process that does it."""
    fuzzer = Fuzzer(seed, case_path)
    fuzzer.fuzz(seconds)
    kept = fuzzer.reduced()
    corpus.save(kept, BUILD / "corpus.zip")
    size = sum(len(entry.buffer) for entry in kept)
    print(f"{len(kept)} cases of {size} bytes in all have the same edges: build/coverage/corpus.zip")
    return 0


def replay(path: Path) -> int:
    """One saved case, in this process."""
    Trace()
    from tests.fuzz import targets

    turn = int(path.name.rpartition("-")[2])
    targets.check(path.read_bytes(), turn)
    print("nothing wrong")
    return 0


def supervise(seconds: float, seed: int) -> int:
    """Start the worker, and tell of the case that ended it, if one did."""
    BUILD.mkdir(parents=True, exist_ok=True)
    case = CaseFile(BUILD / "case", is_new=True)
    module = [sys.executable, "-m", "tests.fuzz.coverage"]
    worker = subprocess.Popen([*module, "--seconds", str(seconds), "--seed", str(seed), "--worker"], cwd=ROOT)
    try:
        code, last = None, -1
        while code is None:
            try:
                code = worker.wait(timeout=HANG_SECONDS)
            except subprocess.TimeoutExpired:
                run, _ = case.read()
                if run == last:
                    print(f"a case did not end within {HANG_SECONDS:.0f} s")
                    break
                last = run
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    if code == 0:
        return 0
    _, entry = case.read()
    found = BUILD / f"finding-{entry.name}"
    found.write_bytes(entry.buffer)
    place, python = os.path.relpath(found, ROOT), os.path.relpath(sys.executable, ROOT)
    print(f"exit code {worker.returncode} at the case saved as {place}")
    print(f"replay: tools/sanitize.sh {python} -m tests.fuzz.coverage --replay {place}")
    return 1


def main(arguments: list[str]) -> int:
    """Parse, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage", description="Coverage-guided fuzzing.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="a saved case to run again")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.replay:
        return replay(options.replay)
    if options.worker:
        return work(options.seconds, options.seed, BUILD / "case")
    return supervise(options.seconds, options.seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
