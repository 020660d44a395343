from collections.abc import Mapping

def encode_columns(
    columns: object | Mapping[str, object],
    *,
    batch_bytes: int = 1048576,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression: str | None = "none",
    level: int | None = None,
    timestamp_type: str = "create_time",
    log_append_time_ms: int | None = None,
    now_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    batch_bytes_max: int | None = None,
    renumber: bool = False,
) -> bytes: ...
