"""Control records: an int16 version and an int16 type in the key, a value that depends on the type."""

from __future__ import annotations

import struct

from .model import RefRecord, Refused

TYPE_NAMES = (
    "ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS",
)  # fmt: skip


def control_type(record: RefRecord) -> tuple[int, str]:
    """The type's number and name ("UNKNOWN" for numbers of later versions); bytes after it are ignored."""
    if record.key is None or len(record.key) < 4:
        raise Refused("CONTROL_RECORD", "a control record's key has at least 4 bytes")
    version, number = struct.unpack_from(">hh", record.key)
    if version < 0:
        raise Refused("CONTROL_RECORD", f"a control record of version {version}")
    return number, TYPE_NAMES[number] if 0 <= number < len(TYPE_NAMES) else "UNKNOWN"


def end_transaction_marker(record: RefRecord) -> tuple[str, int]:
    """How the transaction ended (COMMIT, ABORT) and the coordinator's epoch; later versions may have more bytes."""
    _, name = control_type(record)
    if name not in ("COMMIT", "ABORT"):
        raise Refused("CONTROL_RECORD", f"{name} does not end a transaction")
    value = record.value or b""
    version = struct.unpack_from(">h", value)[0] if len(value) >= 2 else -1
    if version < 0 or len(value) < 6:
        raise Refused("CONTROL_RECORD", f"an end-of-transaction value of {len(value)} bytes, version {version}")
    return name, struct.unpack_from(">i", value, 2)[0]


def encode_key(name: str) -> bytes:
    return struct.pack(">hh", 0, TYPE_NAMES.index(name))


def encode_end_transaction_value(coordinator_epoch: int) -> bytes:
    return struct.pack(">hi", 0, coordinator_epoch)
