"""Benchmarks: `logcore bench NAME` finds them by the entry-point group `logcore.bench`; bench/ builds on them too.

Reading order:

    codec.py       `logcore bench codec`: the flags, the cases, and one run from data to report
    data.py        rows to measure with: synthetic ones, or the user's own file
    workload.py    rows cut into fetches of batches, in every shape that an operation takes
    measure.py     the clock: tasks in interleaved rounds, on one core
    operations.py  what is measured of logcore
    peers.py       the same work done by aiokafka and kafka-python
    limits.py      what the machine can do: memcpy, CRC-32C, the same loop in plain C, the compression libraries alone
    bars.py        the ratios that the project promises, and whether they hold here
    table.py       results as text, and the progress bar
    plot.py        results as a picture

    log.py          `logcore bench log`: the flags, and one run to the report
    log_sections.py what is measured of a log, in tasks that are timed together
    stores.py       our log, and sqlite3, lmdb and rocksdict in its place
    disk_limits.py  write(2), pread(2) and fdatasync(2) of the same bytes, alone and with the C loops around them
    timers.py       timers beside heapq
    footprint.py    what opening touches, and the memory of long work
    log_bars.py     what the project promises of it

    machine.py     what a result depends on besides the code

limits.c and checksum.h lie beside these in an installed package; their sources are bench/ and src/logcore/.
"""
