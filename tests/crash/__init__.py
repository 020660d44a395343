"""Killing the log: random work on a disk that dies, and what must be true of what it leaves.

    cases.py      run_seed(): one history, of up to three lives
    workload.py   Worker: does anything a log can do, drawn from a seed, and notes what it was promised
    check.py      recovers what is left, and compares it with what was promised
    rules.py      what indexes and epochs must be, told from the batches alone: slow, and nothing of the engine in it

The disks are those of tests/disk. Tests: tests/property/test_crash_log.py, tests/unit/log/test_crash_steps.py.
"""
