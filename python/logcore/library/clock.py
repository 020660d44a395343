"""The system's time and randomness, for an engine that has neither."""

import os
import secrets
import time
from collections.abc import Callable

from logcore.log.root import Chance

Clock = Callable[[], int]  # milliseconds since 1970


def system_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


SYSTEM_CHANCE = Chance(secrets.randbelow, os.urandom)
