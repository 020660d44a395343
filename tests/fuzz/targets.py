"""What each case goes into, and what may come out of it.

A decoder, encoder or converter that is given hostile bytes either raises the error it is documented to raise, with the
position of what is wrong where that is damage, or gives a result that is right: rows and columns agree, and what was
decoded is the same after it was encoded again. Anything else ends the run.

`TARGETS` is the list; `check(buffer, turn)` runs all of it on one case. `turn` is a number that chooses among options
(a projection, a codec), so that a run goes through all of them without each case paying for each.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import crc32c

import logcore
from logcore import CorruptBatch, KafkaError, LogcoreError, UsageError
from logcore._checksum import crc32
from logcore._compression import compress, decompress
from logcore._filter import FilterResult, filter_batches, filter_batches_by
from logcore._offsetmap import OffsetMap, map_keys

CAP = 4 << 20  # max_decompressed_bytes of every call
INT63_MAX = 2**63 - 1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NAMES = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
PROJECTIONS = (
    ("value",),
    ("offset", "key"),
    ("headers",),
    ("timestamp", "timestamp_type"),
    ("headers", "offset", "key"),
)
FIELDS = (
    "position", "magic", "last_offset", "size_in_bytes", "crc", "attributes", "compression", "is_compressed",
    "timestamp_type", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
    "last_sequence", "leader_epoch", "is_transactional", "is_control", "delete_horizon_ms", "count",
)  # fmt: skip
Row = tuple[Any, ...]


class WrongResult(AssertionError):
    """A target returned something that another one contradicts, or raised without saying where."""


def require(condition: object, what: str, *facts: object) -> None:
    """Not `assert`: a run under `python -O` must find the same."""
    if not condition:
        raise WrongResult(f"{what}: {', '.join(map(repr, facts))}"[:2000])


class Reading(NamedTuple):
    """What decode_batches() and iteration gave: the batches, their rows, and each refusal in order of position."""

    batches: list[logcore.Batch]
    rows: list[list[Row] | CorruptBatch]
    error: CorruptBatch | None
    consumed: int

    def refusals(self) -> list[CorruptBatch]:
        found = [rows for rows in self.rows if isinstance(rows, CorruptBatch)]
        return found if self.error is None else [*found, self.error]

    def all_rows(self) -> list[Row]:
        return [row for rows in self.rows if not isinstance(rows, CorruptBatch) for row in rows]


def damage(error: CorruptBatch, size: int) -> CorruptBatch:
    """The error, if it says where in a buffer of `size` bytes it is about."""
    require(error.position is not None and 0 <= error.position <= size, "damage without a position", error)
    require(str(error), "damage without words")
    return error


def read(buffer: bytes, verify_crc: bool) -> Reading:
    """By rows; everything a Batch can say is asked for."""
    batches, rows, error = [], [], None
    iterator = logcore.decode_batches(buffer, verify_crc=verify_crc, max_decompressed_bytes=CAP)
    try:
        for batch in iterator:
            batches.append(batch)
            rows.append(read_records(batch, len(buffer)))
    except CorruptBatch as caught:
        error = damage(caught, len(buffer))
    return Reading(batches, rows, error, iterator.consumed)


def read_records(batch: logcore.Batch, size: int) -> list[Row] | CorruptBatch:
    for name in FIELDS:
        getattr(batch, name)
    require(batch.data.nbytes == batch.size_in_bytes, "size of a batch", batch)
    try:
        rows = [tuple(record) for record in batch]
    except CorruptBatch as error:
        return damage(error, size)
    if batch.magic < 2:
        require(batch.base_offset == rows[0][0], "base offset", batch.base_offset, rows[0])
    if batch.is_control:
        try:
            require(len(batch.control_records()) == len(rows), "control records", batch)
        except CorruptBatch as error:
            damage(error, size)
    return rows


# --- the targets ------------------------------------------------------------------------------------------------------


class Context(NamedTuple):
    """One case, and what rows made of it with and without checksums."""

    buffer: bytes
    turn: int
    strict: Reading
    lenient: Reading


def check_scan(context: Context) -> None:
    buffer = context.buffer
    for reading, verify_crc in ((context.strict, True), (context.lenient, False)):
        scan = logcore.scan_batches(buffer, verify_crc=verify_crc)
        require(len(scan) == len(reading.batches), "scanned batches", len(scan), len(reading.batches))
        require(scan.consumed == reading.consumed, "scanned bytes", scan.consumed, reading.consumed)
        require(told(scan.error) == told(reading.error), "what the scan met", scan.error, reading.error)
        if scan.error is None:
            require(scan.is_partial == (scan.consumed < len(buffer)), "partial", scan)
        sizes = scan.headers["size_in_bytes"].tolist()
        require(sizes == [batch.size_in_bytes for batch in reading.batches], "sizes", sizes)


def told(error: CorruptBatch | None) -> Row | None:
    """What two readers that met the same damage say alike."""
    if error is None:
        return None
    if error.reason is logcore.CorruptionReason.DECOMPRESSION:
        # In a library's words, which may depend on what its context has read before.
        return (error.reason, error.position)
    return (error.reason, error.position, error.record_index, error.at, error.got, error.wanted)


def check_buffers(context: Context) -> None:
    buffer, reading = context.buffer, context.lenient
    found = logcore.find_batch(buffer)
    if found is not None:
        require(len(logcore.scan_batches(buffer, position=found)), "a batch that was found", found)
    if context.strict.batches and found is None:
        # Only a header that no writer writes is passed over.
        require(all(not plausible(batch) for batch in context.strict.batches), "a batch that was not found")
    try:
        size = logcore.first_batch_size(buffer)
    except CorruptBatch as error:
        damage(error, len(buffer))
        require(not reading.batches, "a first batch that has no size", error)
    else:
        require(not reading.batches or size == reading.batches[0].size_in_bytes, "size of the first batch", size)
    try:
        parts = logcore.split_batches(buffer)
    except CorruptBatch as error:
        require(told(error) == told(reading.error), "what splitting met", error, reading.error)
    else:
        require([part.nbytes for part in parts] == [b.size_in_bytes for b in reading.batches], "parts", parts)
        require(logcore.concat_batches(parts) == buffer[: reading.consumed], "joined parts")
    try:
        joined = logcore.concat_batches([buffer, buffer])
    except CorruptBatch as error:
        require(told(error) == told(reading.error), "what joining met", error, reading.error)
    except UsageError:
        require(reading.consumed < len(buffer), "joining whole batches was refused")
    else:
        require(joined == buffer + buffer, "joined buffers")


def plausible(batch: logcore.Batch) -> bool:
    if batch.magic < 2:
        return not batch.attributes & ~0x0F
    count = batch.count or 0
    return (
        not batch.attributes & ~0x7F
        and 0 <= batch.base_offset <= batch.last_offset
        and 0 <= count <= batch.last_offset - batch.base_offset + 1
        and min(batch.producer_id, batch.producer_epoch, batch.base_sequence) >= -1
    )


def check_patch(context: Context) -> None:
    buffer, turn = context.buffer, context.turn
    changes: dict[str, Any] = (
        {"base_offset": 12345, "leader_epoch": 7},
        {"last_offset": 10**12},
        {"timestamp_type": "log_append_time", "max_timestamp": 5},
        {"timestamp_type": "create_time"},
        {"max_timestamp": INT63_MAX},
    )[turn % 5]
    changed = bytearray(buffer)
    try:
        resealed = logcore.patch_batch(changed, **changes)
    except LogcoreError as error:
        require(isinstance(error, (UsageError, CorruptBatch)), "refusal to patch", error)
        require(changed == buffer, "a patch that was refused has changed the buffer")
    else:
        require(len(changed) == len(buffer), "a patch that moved bytes")
        if resealed:
            require(len(logcore.scan_batches(changed)), "a patched checksum", changes)
    numbered = bytearray(buffer)
    try:
        after = logcore.assign_offsets(numbered, 10**6, leader_epoch=3)
    except LogcoreError as error:
        require(isinstance(error, (UsageError, CorruptBatch)), "refusal to number", error)
        require(numbered == buffer, "numbering that was refused has changed the buffer")
    else:
        last = list(logcore.decode_batches(numbered, verify_crc=False))[-1]
        require(last.last_offset + 1 == after, "the offset after the last", after, last)


def check_columns(context: Context) -> None:
    turn = context.turn
    for reading, verify_crc, layout in (
        (context.strict, True, ("binary", "view")[turn % 2]),
        (context.lenient, False, ("view", "binary")[turn % 2]),
    ):
        columns = decode_columns(context.buffer, reading, verify_crc=verify_crc, layout=layout)
        if columns is None:
            continue
        expected = [with_replaced_names(row) for row in reading.all_rows()]
        require([tuple(record) for record in columns] == expected, "rows and columns", layout)
        require(columns.consumed == reading.consumed, "consumed", columns.consumed, reading.consumed)


def with_replaced_names(row: Row) -> Row:
    if not row[4]:
        return row
    pairs = tuple((n.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), v) for n, v in row[4])
    return (*row[:4], pairs)


def decode_columns(buffer: bytes, reading: Reading, **options: Any) -> logcore.Columns | None:
    """The columns, or None if they were refused as the rows were."""
    refusals = reading.refusals()
    try:
        columns = logcore.decode_columns(buffer, max_decompressed_bytes=CAP, **options)
    except CorruptBatch as error:
        damage(error, len(buffer))
        # All batches of one call share a budget, which rows, one batch at a time, do not have.
        if error.reason.name != "DECOMPRESSED_SIZE":
            require(refusals, "columns refuse what rows read", error)
            require(told(error) == told(refusals[0]), "first damage of columns and rows", error, refusals[0])
        return None
    require(not refusals, "columns read what rows refuse", *refusals)
    return columns


def check_projection(context: Context) -> None:
    """Some columns, without control batches, in small chunks: also all or nothing, and the same number of rows."""
    turn, reading = context.turn, context.strict
    names = PROJECTIONS[turn % len(PROJECTIONS)]
    layout = ("binary", "view")[turn // 2 % 2]
    chunk_bytes_max = (1, 40, 500, None)[turn % 4]
    columns = decode_columns(context.buffer, reading, columns=names, layout=layout, chunk_bytes_max=chunk_bytes_max)
    if columns is None:
        return
    rows = reading.all_rows()
    require(len(columns) == len(rows) == sum(len(chunk) for chunk in columns.chunks), "rows of a projection", names)
    if "offset" in names:
        require(columns.offset.tolist() == [row[0] for row in rows], "offsets of a projection")
    if names == ("value",):
        require([record.value for record in columns] == [row[3] for row in rows], "values of a projection")
    try:
        without = logcore.decode_columns(
            context.buffer, max_decompressed_bytes=CAP, include_control=False, layout=layout
        )
    except CorruptBatch as error:
        # A control batch is passed over by its header, and its records are not looked at; all else is the same.
        require(error.reason.name == "DECOMPRESSED_SIZE", "columns without control batches", error)
    else:
        kept = [rows for batch, rows in zip(reading.batches, reading.rows, strict=True) if not batch.is_control]
        require(len(without) == sum(map(len, kept)), "rows without control batches", len(without))


def check_arrow(context: Context) -> None:
    """Columns through the C data interface into the encoder and back: no Python object a record."""
    try:
        columns = logcore.decode_columns(
            context.buffer, max_decompressed_bytes=CAP, layout=("view", "binary")[context.turn % 2]
        )
    except CorruptBatch:
        return
    rows = [tuple(record) for record in columns]
    codec = CODECS[context.turn % 5]
    batch_bytes = (100, 1 << 20)[context.turn % 2]
    try:
        written = logcore.encode_columns(columns, compression=codec, batch_bytes=batch_bytes)
    except UsageError as error:
        require(not is_writable(rows), "columns that were not written", error)
        return
    require(is_writable(rows), "columns that should not have been written")
    require(rows_again(written) == rows, "columns written and read again", codec)


def is_writable(rows: list[Row]) -> bool:
    """Whether Kafka could have written such records: offsets from 0 on that increase, timestamps from -1 on."""
    offsets = [row[0] for row in rows]
    return (
        bool(rows)
        and all(timestamp >= -1 for _, timestamp, *_ in rows)
        and offsets[0] >= 0
        and all(one < two for one, two in itertools.pairwise(offsets))
    )


def rows_again(buffer: bytes) -> list[Row]:
    return [tuple(record) for batch in logcore.decode_batches(buffer) for record in batch]


def check_rewriting(context: Context) -> None:
    """What was decoded, encoded again as rows."""
    magic = (2, 2, 1, 0)[context.turn % 4]
    codec = CODECS[context.turn % (5 if magic == 2 else 4)]
    for batch, rows in zip(context.lenient.batches, context.lenient.rows, strict=True):
        if isinstance(rows, CorruptBatch) or any(row[0] == -1 for row in rows):
            continue
        try:
            written = logcore.encode_batch(list(batch), compression=codec, magic=magic)
        except UsageError as error:
            require(not is_encodable(rows, magic), "rows that were not written", error, rows[:3])
            continue
        require(is_encodable(rows, magic), "rows that should not have been written", rows[:3])
        expected = [(row[0], -1 if magic == 0 else row[1], *row[2:]) for row in rows]
        require(rows_again(written) == expected, "rows written and read again", codec, magic)


def is_encodable(rows: list[Row], magic: int) -> bool:
    """As is_writable(), within one batch: an offset of -1 is none, and is given; further apart than 2^31 is refused."""
    if not rows or any(row[1] < -1 for row in rows) or (magic < 2 and any(row[4] for row in rows)):
        return False
    offsets = [row[0] for row in rows]
    return (
        offsets[0] >= 0
        and offsets[-1] - offsets[0] < 2**31
        and all(one < two for one, two in itertools.pairwise(offsets))
    )


def check_validation(context: Context) -> None:
    """The broker's checks; what they make is valid itself."""
    buffer, turn = context.buffer, context.turn
    options: dict[str, Any] = {
        "now_ms": 1_600_000_000_000,
        "max_decompressed_bytes": CAP,
        "timestamp_type": ("create_time", "log_append_time")[turn % 2],
        "compression": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")[turn % 7],
        "compacted": turn % 3 == 0,
        "origin": ("client", "client", "coordinator", "raft_leader", "replication")[turn % 5],
        "check_base_offset": turn % 2 == 0,
        "timestamp_after_max_ms": (3_600_000, INT63_MAX)[turn % 2],
    }
    answer: object
    try:
        answer = logcore.validate(buffer, **options)
    except KafkaError as error:
        require(error.name and str(error), "an answer without words")
        answer = type(error)
    writable = bytearray(buffer)
    try:
        made = logcore.validate_and_assign(writable, first_offset=10**9, **options)
    except KafkaError as error:
        require(writable == buffer, "a buffer that was refused has changed", error)
        require(answer is type(error), "validate and validate_and_assign", answer, error)
        return
    require(not isinstance(answer, type), "validate refuses what validate_and_assign takes", answer)
    if options["origin"] == "client":  # others are trusted to count their offsets right
        offsets = [row[0] for row in rows_again(bytes(made.data))]
        require(offsets == list(range(made.first_offset, made.last_offset + 1)), "assigned offsets", made, offsets[:9])


def check_conversion(context: Context) -> None:
    """Up and down; keys and values come through."""
    buffer, reading, turn = context.buffer, context.strict, context.turn
    magic = (2, 1, 0)[turn % 3]
    codec = (None, None, "none", "gzip", "lz4")[turn % 5]
    try:
        made = logcore.convert_batches(buffer, magic, compression=codec, max_decompressed_bytes=CAP)
    except CorruptBatch as error:
        damage(error, len(buffer))
        if error.reason.name == "OFFSET_ORDER":  # which a reader shows and a writer refuses
            offsets = [row[0] for row in reading.all_rows()]
            in_order = offsets == sorted(set(offsets)) and offsets[0] >= 0 and offsets[-1] - offsets[0] < 2**31
            require(not in_order, "conversion refuses offsets that are in order", offsets[:9])
        elif error.reason.name != "DECOMPRESSED_SIZE":
            require(reading.refusals(), "conversion refuses what rows read", error)
        return
    except LogcoreError as error:
        require(isinstance(error, (KafkaError, UsageError)), "refusal to convert", error)
        return
    require(reading.error is None, "conversion passes over damage", reading.error)
    again = read(made, verify_crc=True)
    require(again.error is None and again.consumed == len(made), "what was converted is damaged", again.error)
    if not reading.refusals():
        kept = [
            row[2:4]
            for batch, rows in zip(reading.batches, reading.rows, strict=True)
            if not (batch.is_control and magic < 2)
            for row in rows
        ]
        require([row[2:4] for row in again.all_rows()] == kept, "keys and values after conversion", magic, codec)


def check_compaction(context: Context) -> None:
    """Keys into a map, and batches filtered by it: what stays is what the rule says, and can be read."""
    buffer, reading, turn = context.buffer, context.strict, context.turn
    offset_map = OffsetMap(24 * (1, 3, 64)[turn % 3], seed=bytes(16))
    discards = turn % 5 == 0
    options: dict[str, Any] = {"max_decompressed_bytes": CAP, "should_discard_batch": lambda batch: discards}
    try:
        mapped = map_keys(buffer, offset_map, first_offset=(0, 3)[turn % 2], **options)
    except CorruptBatch as error:
        damage(error, len(buffer))
        require(reading.refusals(), "mapping refuses what rows read", error)
    else:
        require(mapped.is_full or mapped.consumed == reading.consumed, "mapped bytes", mapped, reading.consumed)
        require(mapped.is_full or reading.error is None, "mapping passes over damage", reading.error)
    offset_map.check_invariants()
    now_ms, retain_legacy_deletes = 1000, turn % 2 == 0
    result = filtered(
        context,
        lambda: filter_batches(
            buffer, offset_map, now_ms=now_ms, delete_retention_ms=10, retain_legacy_deletes=retain_legacy_deletes,
            **options,
        ),
    )  # fmt: skip
    if result is not None and not reading.refusals():

        def stays(batch: logcore.Batch, row: Row) -> bool:
            if batch.is_control:
                return not (discards and batch.delete_horizon_ms is not None and batch.delete_horizon_ms <= now_ms)
            if batch.is_transactional and discards:
                return False
            if row[0] > offset_map.latest_offset:
                return True
            retain_deletes = retain_legacy_deletes
            if batch.magic == 2:
                retain_deletes = batch.delete_horizon_ms is None or now_ms < batch.delete_horizon_ms
            is_latest = row[2] is not None and row[0] >= offset_map.get(row[2])
            return is_latest and (row[3] is not None or retain_deletes)

        expected = [
            (row[0], *row[2:])
            for batch, rows in zip(reading.batches, reading.rows, strict=True)
            for row in rows
            if stays(batch, row)
        ]
        kept = [(row[0], *row[2:]) for row in rows_again(result.output)]
        require(kept == expected, "records after compaction", kept[:9], expected[:9])


def check_filter(context: Context) -> None:
    """Any decision of the caller's."""
    buffer, turn = context.buffer, context.turn
    retention = ("delete_empty", "retain_empty", "delete")[turn % 3]
    one_in = (1, 2, 3, 10**9)[turn % 4]
    result = filtered(
        context,
        lambda: filter_batches_by(
            buffer,
            lambda batch: (retention if batch.magic == 2 else "delete_empty", turn % 2 == 0),
            lambda batch, record: record.offset % one_in != 0,
            now_ms=(5, INT63_MAX)[turn % 2],
            output_bytes_max=(None, 0)[turn // 3 % 2],
            max_decompressed_bytes=CAP,
        ),
    )
    if result is not None and retention != "delete" and not context.strict.refusals():
        wanted = [row[2:] for row in context.strict.all_rows() if row[0] % one_in]
        kept = [row[2:] for row in rows_again(result.output)]
        require(kept == wanted[: len(kept)], "records after a filter", kept[:9], wanted[:9])
        require(len(kept) == result.messages_retained, "counted records", len(kept), result)


def filtered(context: Context, work: Callable[[], FilterResult]) -> FilterResult | None:
    """What filtering made, which can be read; or None if it was refused."""
    reading = context.strict
    try:
        result = work()
    except CorruptBatch as error:
        damage(error, len(context.buffer))
        if error.reason.name == "OFFSET_ORDER":  # which a reader shows and a writer refuses
            offsets = [row[0] for row in reading.all_rows()] + [batch.last_offset for batch in reading.batches]
            sound = min(offsets) >= 0 and not any(
                one[0] >= two[0] or two[0] - one[0] >= 2**31
                for rows in reading.rows
                if not isinstance(rows, CorruptBatch)
                for one, two in itertools.pairwise(rows)
            )
            require(not sound, "filtering refuses offsets that are in order", error, offsets[:9])
        else:
            require(reading.refusals(), "filtering refuses what rows read", error)
        return None
    again = read(result.output, verify_crc=True)
    require(
        not again.refusals() and again.consumed == len(result.output), "what was filtered is damaged", *again.refusals()
    )
    require(result.consumed <= reading.consumed, "filtered bytes", result, reading.consumed)
    return result


def check_checksums(context: Context) -> None:
    buffer = context.buffer
    require(logcore.crc32c(buffer) == crc32c.crc32c(buffer), "crc32c")
    require(crc32(buffer) == zlib.crc32(buffer), "crc32")
    require(-(2**31) <= logcore.murmur2(buffer) < 2**31, "murmur2")
    require(0 <= logcore.partition_for_key(buffer, context.turn % 100 + 1) <= context.turn % 100, "partition")


def check_compression(context: Context) -> None:
    """The codecs alone: on the payload, which may be a stream, and on the stream of the payload, which is one."""
    payload, codec, magic = context.buffer[61:], context.turn % 4 + 1, context.turn // 4 % 3
    try:
        plain = decompress(codec, payload, CAP, magic=magic)
    except CorruptBatch as error:
        require(error.reason.name in ("DECOMPRESSION", "DECOMPRESSED_SIZE") and str(error), "refused stream", error)
    else:
        require(len(plain) <= CAP, "a stream over the cap", len(plain))
        try:
            require(
                len(decompress(codec, payload, max(len(plain) - 1, 0), magic=magic)) < len(plain) or not plain, "cap"
            )
        except CorruptBatch as error:
            require(error.reason.name == "DECOMPRESSED_SIZE", "one byte under the cap", error)
    if len(context.buffer) < 1 << 16:
        stream = compress(codec, context.buffer, magic=magic)
        require(decompress(codec, stream, len(context.buffer), magic=magic) == context.buffer, "codec", codec, magic)


TARGETS: tuple[Callable[[Context], None], ...] = (
    check_scan,
    check_buffers,
    check_patch,
    check_columns,
    check_projection,
    check_arrow,
    check_rewriting,
    check_validation,
    check_conversion,
    check_compaction,
    check_filter,
    check_checksums,
    check_compression,
)


def check(buffer: bytes, turn: int) -> Reading:
    """Run every target on one case; raises whatever should not have happened. Returns what rows made of it."""
    strict = read(buffer, verify_crc=True)
    context = Context(buffer, turn, strict, read(buffer, verify_crc=False))
    for target in TARGETS:
        target(context)
    return strict
