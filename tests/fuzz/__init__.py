"""Hostile bytes: mutated and random buffers into every decoder, encoder and converter.

In reading order:

    mutate.py       the cases: a case is a buffer, made from one seed and one number and nothing else
    targets.py      what each case goes into, and what may come out: a typed error with a position, or a right result
    files.py        damaged files of a log: made, opened, read and written on
    driver.py       runs of many cases in worker processes, under bounds of time and memory
    __main__.py     the command line; `python -m tests.fuzz --seed S --case N` replays one case
    coverage.py     the coverage-guided fuzzer (`make fuzz-coverage`): keeps what reaches new code
    trace.c         what the coverage build calls at every basic block
    corpus.py       what that fuzzer kept, in corpus.zip, minimised; replayed by every test run
"""
