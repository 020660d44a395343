"""Logs in your own process: what is behind logcore.open_log() and logcore.open_root(). Threads, clocks and waiting are
here.

roots.py         log roots that this process has open for writing, each once, however often it is asked for
log.py           Log: append, read, follow, flush, retain, compact, from any thread
log_root.py      LogRoot: many partitions, topics, keyed appends
reading.py       a log as columns
sharing.py       a log that another process writes, for many threads of this one
following.py     waiting for more
committing.py    many threads, one sync
background.py    what time drives, in a thread
arguments.py     checks of what callers hand in
directories.py   whether a path is a partition's or a root's
clock.py         the system's time and randomness
"""
