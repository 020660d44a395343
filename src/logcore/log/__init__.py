"""A partition's log, on files that Apache Kafka reads and writes too. Deterministic: time, chance and the disk are
handed in.

In reading order:

    disk.py                  the seam: every open, write, fsync, rename and unlink of a log goes through one object
    names.py, config.py      what files and directories are called; settings by Kafka's names
    text_files.py, uuids.py, checkpoints.py, partition_metadata.py, root_files.py
                             the small files, as Kafka writes them
    epochs.py                where each leader epoch begins
    snapshot.py, snapshot_files.py, producer_entry.py, producer_append.py, transactions.py, verification.py,
    producers.py
                             what is known of producers, in memory and on the disk
    txnindex.py              aborted transactions of a segment
    segment.py, segments.py  four files that are a segment; the segments of a log
    view.py, searching.py    what readers see of a log; records by their time
    appending.py, feeding.py batches that are ready to be written; from their headers to producers
    partition.py             the log: append, roll, flush, close
    truncation.py, retention.py
                             cutting off the end, and the beginning
    recovery.py, loader.py, swapping.py, splitting.py
                             from files to a log
    cleaned_transactions.py, compaction.py
                             what is compacted, and how
    readonly.py              a log that somebody else writes
    root.py                  a log root: lock, checkpoints, clean shutdown
"""
