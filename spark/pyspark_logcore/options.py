"""The options of a read, checked: their names in any case, their values told by name when they cannot be.

What the Kafka connector takes is taken; what concerns only a broker, a consumer or a stream is put aside and told once,
so that a job moves here by another format and a path.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from logcore.log.view import Isolation

from .errors import option_error
from .limits import Limit, OnNoMatch, check_order, parse_end, parse_start, parse_strategy
from .selection import NAMES as SELECTION_NAMES
from .selection import Selection, parse_selection

Bound = Literal["valid", "high_watermark"]

_INT_MAX = 0x7FFFFFFF
_LONG_MAX = 0x7FFFFFFFFFFFFFFF

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

_NAMES = frozenset(
    name.lower()
    for name in (
        *("path", "paths", "columns", "bound", "isolation.level", "kafka.isolation.level", "failOnDataLoss"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
        *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
        *("minPartitions", "maxRecordsPerPartition", "includeHeaders", *SELECTION_NAMES),
    )
)


@dataclass(frozen=True)
class ReadOptions:
    """What a batch read was asked for."""

    paths: tuple[str, ...]  # as given: paths.py makes roots of them
    selection: Selection
    start: Limit
    end: Limit
    on_no_match: OnNoMatch
    min_partitions: int | None
    max_records: int | None
    fail_on_data_loss: bool
    include_headers: bool
    isolation: Isolation
    bound: Bound
    columns: tuple[str, ...] | None  # None: all of them


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a batch read. UsageError names the first that cannot be, with what was got and wanted."""
    given = {name.lower(): value for name, value in options.items()}
    start, end = parse_start(given), parse_end(given)
    check_order(start, end)
    include_headers = _flag(given, "includeHeaders", otherwise=False)
    return ReadOptions(
        paths=_paths(given),
        selection=parse_selection(given),
        start=start,
        end=end,
        on_no_match=parse_strategy(given),
        min_partitions=_count(given, "minPartitions", _INT_MAX),
        max_records=_count(given, "maxRecordsPerPartition", _LONG_MAX),
        fail_on_data_loss=_flag(given, "failOnDataLoss", otherwise=True),
        include_headers=include_headers,
        isolation=_isolation(given),
        bound=_bound(given),
        columns=_columns(given, include_headers),
    )


def unused_options(options: Mapping[str, str]) -> list[str]:
    """The names of options that a batch read does not use, in order."""
    return sorted(name for name in options if name.lower() not in _NAMES)


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """The option path; and paths, which is how Spark hands over load([...])."""
    found = tuple(given[name] for name in ("path", "paths") if given.get(name, "").strip())
    if not found:
        raise option_error(
            "path", given.get("path", "no such option"), "a log root: a directory such as Kafka's log.dirs"
        )
    return found


def _flag(given: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return otherwise
    if text.strip().lower() not in ("true", "false"):
        raise option_error(name, text, "true or false")
    return text.strip().lower() == "true"


def _count(given: Mapping[str, str], name: str, limit: int) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text.strip())
    except ValueError:
        number = 0
    if not 1 <= number <= limit:
        raise option_error(name, text, f"a number from 1 to {limit}")
    return number


def _isolation(given: Mapping[str, str]) -> Isolation:
    name = "isolation.level" if "isolation.level" in given else "kafka.isolation.level"
    text = given.get(name, "read_committed").strip().lower()
    if text == "read_committed":
        return "read_committed"
    if text == "read_uncommitted":
        return "read_uncommitted"
    raise option_error(name, given[name], "read_committed or read_uncommitted")


def _bound(given: Mapping[str, str]) -> Bound:
    text = given.get("bound", "valid").strip().lower()
    if text == "valid":
        return "valid"
    if text == "high_watermark":
        return "high_watermark"
    raise option_error("bound", given["bound"], "valid or high_watermark")


def _columns(given: Mapping[str, str], include_headers: bool) -> tuple[str, ...] | None:
    text = given.get("columns")
    if text is None:
        return None
    known = {name.lower(): name for name in COLUMNS}
    found = [name.strip().lower() for name in text.split(",") if name.strip()]
    wanted = f"some of {', '.join(COLUMNS)}, each once"
    if not found or len(set(found)) < len(found) or not set(found) <= known.keys():
        raise option_error("columns", text, wanted)
    if "headers" in found and "includeheaders" in given and not include_headers:
        raise option_error("columns", text, "no headers, with includeHeaders=false")
    return tuple(known[name] for name in found)
