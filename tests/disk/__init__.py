"""Disks for tests, behind the seam of logcore.log.disk: one in memory, one that dies, one that fails.

Nothing here opens a file, reads a clock or draws a number that it was not handed. Reading order:

    volume.py   a file system in memory: files, directories, and the few changes that they know
    memory.py   MemoryDisk: a volume behind the seam, with what SystemDisk answers and refuses
    damage.py   what may be left of a file, and of a tree, of which not everything was synced
    crash.py    CrashDisk: a MemoryDisk that remembers what is durable, dies where it is told to, and comes back as
                any disk that it may legally be afterwards
    cases.py    crash_cases(): a workload, killed at each of its operations
    faulty.py   FaultyDisk: any disk, with calls that fail, reads that lie, and a list of all that was asked of it
    twins.py    the same calls, done to two disks, to compare what comes of them

A disk in memory is right only if it is like a real one: tests/unit/disk/test_conformance.py asks the same of it and of
SystemDisk, and tests/property/test_disk_properties.py does anything at all to both and compares.
"""
