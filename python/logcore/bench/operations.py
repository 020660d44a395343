"""What is measured of logcore: each operation on each fetch of a workload, checksums included unless it says not."""

from collections.abc import Callable, Sequence
from functools import partial

from logcore import decode_batches, decode_columns, encode_batch, scan_batches, validate
from logcore._compression import codec_id, compress, decompress
from logcore.bench.measure import Task
from logcore.bench.workload import Fetch, Workload

LOGCORE = "logcore"

ENCODE_ROWS = "encode rows"
DECODE_ROWS = "decode rows"
ENCODE_COLUMNS = "encode columns"
DECODE_COLUMNS = "decode columns"
DECODE_VIEW = "decode view"
SCAN = "scan"
VALIDATE = "validate"
# Beside the peers only: what a bar compares with.
DECODE_EACH = "decode columns, batch by batch"
DECODE_COLUMNS_UNCHECKED = "decode columns, no CRC"
DECODE_VIEW_UNCHECKED = "decode view, no CRC"
COMPRESS = "compress"
DECOMPRESS = "decompress"

_DECOMPRESSED_BYTES_MAX = 128 << 20


def logcore_tasks(workload: Workload) -> list[Task]:
    """Every operation, in the order of the report."""
    case = workload.case

    def encode_rows(batches: Sequence[Sequence[tuple[object, ...]]]) -> None:
        for batch in batches:
            encode_batch(batch, compression=case.codec, level=case.level)  # type: ignore[arg-type]

    return [
        task(workload, ENCODE_ROWS, LOGCORE, lambda fetch: partial(encode_rows, _row_tuples(fetch))),
        task(workload, DECODE_ROWS, LOGCORE, lambda fetch: partial(decode_rows, fetch.stored)),
        task(workload, ENCODE_COLUMNS, LOGCORE, lambda fetch: partial(workload.encode, fetch.columns)),
        task(workload, DECODE_COLUMNS, LOGCORE, lambda fetch: partial(decode_columns, fetch.stored)),
        task(workload, DECODE_VIEW, LOGCORE, lambda fetch: partial(decode_columns, fetch.stored, layout="view")),
        task(workload, SCAN, LOGCORE, lambda fetch: partial(scan_batches, fetch.stored)),
        validate_task(workload),
    ]


def validate_task(workload: Workload) -> Task:
    """A broker's checks; a call a batch, because a producer sends one at a time to a partition."""
    check = partial(validate, now_ms=max(int(fetch.columns.timestamp.max()) for fetch in workload.fetches))
    return task(workload, VALIDATE, LOGCORE, lambda fetch: partial(_each, check, fetch.produced))


def bar_tasks(workload: Workload) -> list[Task]:
    """What the bars compare the operations with."""
    more = unchecked_tasks if workload.case.codec == "none" else compression_tasks
    return [decode_each_task(workload), *more(workload)]


def compression_tasks(workload: Workload) -> list[Task]:
    """The codec's own step: Kafka's framing, its checks and its cap around the library, without the records."""
    codec = codec_id(workload.case.codec)
    pack = partial(compress, codec, level=workload.case.level)
    unpack = partial(decompress, codec, bytes_max=_DECOMPRESSED_BYTES_MAX)
    return [
        task(workload, COMPRESS, LOGCORE, lambda fetch: partial(_each, pack, fetch.payloads)),
        task(workload, DECOMPRESS, LOGCORE, lambda fetch: partial(_each, unpack, fetch.streams)),
    ]


def decode_each_task(workload: Workload) -> Task:
    """Decoding with as many calls as validating has."""
    return task(workload, DECODE_EACH, LOGCORE, lambda fetch: partial(_each, decode_columns, fetch.produced))


def unchecked_tasks(workload: Workload) -> list[Task]:
    """Decoding where the checksum was verified before, as between a log and its own reader."""
    decode = partial(decode_columns, verify_crc=False)
    return [
        task(workload, DECODE_COLUMNS_UNCHECKED, LOGCORE, lambda fetch: partial(decode, fetch.stored)),
        task(workload, DECODE_VIEW_UNCHECKED, LOGCORE, lambda fetch: partial(decode, fetch.stored, layout="view")),
    ]


def task(workload: Workload, operation: str, by: str, call_of: Callable[[Fetch], Callable[[], object]]) -> Task:
    """A task of one call a fetch."""
    fetches = workload.fetches
    return Task(operation, by, [call_of(fetch) for fetch in fetches], [fetch.records for fetch in fetches])


def decode_rows(buffer: bytes) -> None:
    """Make every Record of `buffer`, and keep a batch's together."""
    for batch in decode_batches(buffer):
        list(batch)


def _each(call: Callable[[bytes], object], batches: Sequence[bytes]) -> None:
    for batch in batches:
        call(batch)


def _row_tuples(fetch: Fetch) -> list[list[tuple[object, ...]]]:
    """The shortest tuples that say it all: headers only where there are some."""
    return [[row if row[3] else row[:3] for row in batch] for batch in fetch.rows]
