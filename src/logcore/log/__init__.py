"""A partition's log, on files that Apache Kafka reads and writes too. Deterministic: time and the disk are handed in.

In reading order:

    disk.py          the seam: every open, write, fsync, rename and unlink of a log goes through one object
    names.py         what files and directories are called
"""
