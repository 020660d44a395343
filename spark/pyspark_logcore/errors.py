"""What a read raises, beside what the library raises. Spark shows it behind a Python traceback, as the last line."""

from logcore import LogcoreError, UsageError

_SHOWN_MAX = 300  # characters of what was got


def option_error(name: str, got: object, wanted: str) -> UsageError:
    """An option that cannot be.

    >>> print(option_error("minPartitions", "none", "a number from 1"))
    option minPartitions: got none, wanted a number from 1
    """
    text = " ".join(str(got).split())  # One line: it is the last one that people read.
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
    return UsageError(f"option {name}", got=shown or "nothing", wanted=wanted)


class DataLossError(LogcoreError):
    """Records that were asked for are no longer there: deleted by retention, cut off, or their topic is gone.

    With the option failOnDataLoss=false a read leaves them out instead.
    """
