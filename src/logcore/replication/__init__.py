"""Replication, as state machines: time comes in as `now_ms`, and no thread, socket or lock is inside.

    purgatory.py    operations that wait: for an event under one of their keys, or for their deadline

Not here yet: replicas and their high watermark, the ISR, leader epochs.
"""

from .purgatory import DelayedOperation, Purgatory

__all__ = ["DelayedOperation", "Purgatory"]
