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
    machine.py     what a result depends on besides the code

limits.c and checksum.h lie beside these in an installed package; their sources are bench/ and src/logcore/.
"""
