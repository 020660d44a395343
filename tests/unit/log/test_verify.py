"""verify finds what was planted, in every kind of file, and nothing where nothing was."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import logcore
from logcore import encode_batch, encode_transaction_marker
from logcore.log.disk import SYSTEM_DISK
from logcore.log.finding import Finding
from logcore.log.verify import PartitionCheck, RootCheck, check_of, is_partition, is_root

GOLDEN = Path(__file__).parents[2] / "golden" / "logdirs"
NOW = 1_700_000_000_000
EPOCHS = "leader-epoch-checkpoint"


def unpacked(kind: str, where: Path) -> Path:
    with tarfile.open(GOLDEN / f"logdir-{kind}.tar.gz") as archive:
        archive.extractall(where, filter="data")
    return where / "logs"


def verify(path: Path) -> tuple[RootCheck | PartitionCheck, list[Finding]]:
    check = check_of(SYSTEM_DISK, str(path))
    return check, list(check.run())


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("clean", tmp_path_factory.mktemp("clean"))


def test_a_root_that_kafka_closed_has_nothing_to_find_and_is_not_touched(clean: Path) -> None:
    before = contents(clean)
    check, findings = verify(clean)
    assert findings == []
    assert isinstance(check, RootCheck)
    assert len(check.partitions) == 29
    ends = {Path(one.directory).name: (one.log_start_offset, one.log_end_offset) for one in check.partitions}
    assert ends["trimmed-0"] == (40, 160)
    assert ends["plain-none-1"] == (0, 16028)
    assert contents(clean) == before


def test_a_root_that_kafka_did_not_close_has_notes_of_what_recovery_will_read(tmp_path: Path) -> None:
    root = unpacked("crashed", tmp_path)
    check, findings = verify(root)
    assert isinstance(check, RootCheck)
    assert {(one.severity, one.reason) for one in findings} == {("note", "not_closed")}
    assert len(findings) == len(check.partitions)
    [plain] = [one for one in findings if one.path.endswith("plain-none-1")]
    assert "reads 1 of 2 segments" in plain.text
    assert plain.offset == 8048


# --- a log of ours with everything in it, and each thing in it damaged ---------------------------------------------


def marker(offset: int, leader_epoch: int, *, commit: bool) -> bytes:
    return encode_transaction_marker(
        7, 0, commit=commit, coordinator_epoch=0, offset=offset, timestamp=NOW + offset, leader_epoch=leader_epoch
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one partition: three segments, compressed batches, aborted and committed transactions, two epochs."""
    root = tmp_path_factory.mktemp("made")
    config = {"internal.segment.bytes": 6000, "index.interval.bytes": 200, "producer.id.expiration.ms": 2**31 - 1}
    with logcore.open_log(root / "orders-0", config=config, clock=lambda: NOW) as log:
        offset = 0
        for number in range(60):
            records = [(b"key-%d" % i, b"value-%d-%d" % (number, i), NOW + offset + i) for i in range(10)]
            is_open = number % 6 in (3, 4)
            producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": offset} if is_open else {}
            batch = encode_batch(
                records, base_offset=offset, leader_epoch=0 if number < 30 else 1, is_transactional=is_open,
                compression=("none", "zstd", "lz4")[number % 3], **producer,
            )  # fmt: skip
            log.append_batches(batch, leader_epoch=1, origin="follower")
            offset += 10
            if number % 6 == 4:
                ended = marker(offset, 0 if number < 30 else 1, commit=number % 12 != 4)
                log.append_batches(ended, leader_epoch=1, origin="follower")
                offset += 1
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "root"))


def test_what_logcore_writes_and_closes_has_nothing_to_find(made: Path) -> None:
    _, findings = verify(made)
    assert findings == []
    names = {path.name for path in (made / "orders-0").iterdir()}
    assert sum(name.endswith(".log") for name in names) >= 2
    assert sum(name.endswith(".txnindex") for name in names) >= 1
    assert sum(name.endswith(".snapshot") for name in names) >= 1


def first(root: Path, pattern: str) -> Path:
    return min(path for path in (root / "orders-0").glob(pattern) if path.stat().st_size)


def flip(path: Path, position: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def insert(path: Path, position: int, more: bytes) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:position] + more + data[position:])


def second_batch(path: Path) -> int:
    return int(logcore.scan_batches(path.read_bytes()).headers[1]["position"])


def batch_with_bad_records(path: Path) -> None:
    """A batch whose checksum is right and whose first record is not."""
    data = bytearray(path.read_bytes())
    size = int(logcore.scan_batches(data).headers[0]["size_in_bytes"])
    data[61] ^= 0x20  # the record's length
    data[17:21] = logcore.crc32c(bytes(data[21:size])).to_bytes(4, "big")
    path.write_bytes(data)


def with_offset_back(path: Path) -> None:
    """The second batch says that it begins at 0, which no checksum covers."""
    data = bytearray(path.read_bytes())
    at = second_batch(path)
    data[at : at + 8] = bytes(8)
    path.write_bytes(data)


def without_second_entry(path: Path, entry_bytes: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[entry_bytes : 2 * entry_bytes] + data[:entry_bytes] + data[2 * entry_bytes :])


def rewritten(name: str, text: str) -> Callable[[Path], None]:
    def do(root: Path) -> None:
        (root / name).write_text(text)

    return do


LOG_DAMAGES: dict[str, Callable[[Path], None]] = {
    "a flipped bit of a record": lambda root: flip(first(root, "*.log"), 100),
    "a flipped bit of the magic": lambda root: flip(first(root, "*.log"), 16, 0x40),
    "a flipped bit of a size": lambda root: flip(first(root, "*.log"), 10, 0x01),
    "a flipped bit of a compressed batch": lambda root: flip(p := first(root, "*.log"), second_batch(p) + 80),
    "an end cut off": lambda root: cut(first(root, "*.log"), 5),
    "the end of the last segment cut off": lambda root: cut(
        max(path for path in (root / "orders-0").glob("*.log") if path.stat().st_size), 5
    ),
    "bytes put in": lambda root: insert(p := first(root, "*.log"), second_batch(p), b"abc"),
    "zeros put in": lambda root: insert(p := first(root, "*.log"), second_batch(p), bytes(100)),
    "zeros behind the end": lambda root: insert(p := first(root, "*.log"), p.stat().st_size, bytes(100)),
    "a batch twice": lambda root: insert(p := first(root, "*.log"), 0, p.read_bytes()[: second_batch(p)]),
    "an offset that goes back": lambda root: with_offset_back(first(root, "*.log")),
    "records that do not decode": lambda root: batch_with_bad_records(first(root, "*.log")),
}

OTHER_DAMAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "an index position": (".index", lambda root: flip(first(root, "*.index"), 7)),
    "an index offset": (".index", lambda root: flip(first(root, "*.index"), 3)),
    "an index position behind the log": (".index", lambda root: flip(first(root, "*.index"), 4, 0x40)),
    "a negative index position": (".index", lambda root: flip(first(root, "*.index"), 4, 0x80)),
    "half an index entry": (".index", lambda root: cut(first(root, "*.index"), 3)),
    "index entries in the wrong order": (".index", lambda root: without_second_entry(first(root, "*.index"), 8)),
    "zeros behind an index": (".index", lambda root: insert(p := first(root, "*.index"), p.stat().st_size, bytes(80))),
    "zeros in an index": (".index", lambda root: insert(first(root, "*.index"), 8, bytes(8))),
    "no index": (".index", lambda root: first(root, "*.index").unlink()),
    "a time index timestamp": (".timeindex", lambda root: flip(first(root, "*.timeindex"), 7)),
    "a time index offset": (".timeindex", lambda root: flip(first(root, "*.timeindex"), 11, 0x40)),
    "half a time index entry": (".timeindex", lambda root: cut(first(root, "*.timeindex"), 1)),
    "a last time index entry": (".timeindex", lambda root: cut(first(root, "*.timeindex"), 12)),
    "time index entries in the wrong order": (
        ".timeindex", lambda root: without_second_entry(first(root, "*.timeindex"), 12),
    ),
    "no time index": (".timeindex", lambda root: first(root, "*.timeindex").unlink()),
    "an aborted transaction's producer": (".txnindex", lambda root: flip(first(root, "*.txnindex"), 9)),
    "an aborted transaction's version": (".txnindex", lambda root: flip(first(root, "*.txnindex"), 1)),
    "an aborted transaction's first offset": (".txnindex", lambda root: flip(first(root, "*.txnindex"), 17, 0x40)),
    "an aborted transaction's first offset, lower": (".txnindex", lambda root: flip(first(root, "*.txnindex"), 17, 2)),
    "an aborted transaction's last offset": (".txnindex", lambda root: flip(first(root, "*.txnindex"), 25, 0x40)),
    "an aborted transaction's last stable offset": (".txnindex", lambda root: flip(first(root, "*.txnindex"), 32)),
    "half an aborted transaction": (".txnindex", lambda root: cut(first(root, "*.txnindex"), 4)),
    "an aborted transaction that is missing": (".txnindex", lambda root: cut(first(root, "*.txnindex"), 34)),
    "no transaction index": (".txnindex", lambda root: first(root, "*.txnindex").unlink()),
    "a snapshot's entry": (".snapshot", lambda root: flip(first(root, "*.snapshot"), -1)),
    "a snapshot's version": (".snapshot", lambda root: flip(first(root, "*.snapshot"), 1)),
    "a cut snapshot": (".snapshot", lambda root: cut(first(root, "*.snapshot"), 1)),
    "an epoch's start": (EPOCHS, rewritten(f"orders-0/{EPOCHS}", "0\n2\n0 0\n1 320\n")),
    "an epoch that is missing": (EPOCHS, rewritten(f"orders-0/{EPOCHS}", "0\n1\n0 0\n")),
    "epochs that contradict": (
        EPOCHS, rewritten(f"orders-0/{EPOCHS}", "0\n2\n1 305\n0 0\n"),
    ),
    "an epoch behind the end": (
        EPOCHS, rewritten(f"orders-0/{EPOCHS}", "0\n3\n0 0\n1 305\n2 9999\n"),
    ),
    "no epochs": (EPOCHS, lambda root: (root / "orders-0/leader-epoch-checkpoint").unlink()),
    "epochs that cannot be read": (EPOCHS, rewritten(f"orders-0/{EPOCHS}", "0\n1\nx\n")),
    "a topic id": ("partition.metadata", rewritten("orders-0/partition.metadata", "version: 0\ntopic_id: x")),
    "a recovery point behind the end": (
        "recovery-point-offset-checkpoint", rewritten("recovery-point-offset-checkpoint", "0\n1\norders 0 9999\n"),
    ),
    "a recovery point that is no number": (
        "recovery-point-offset-checkpoint", rewritten("recovery-point-offset-checkpoint", "0\n1\norders 0 x\n"),
    ),
    "a log start behind the end": (
        "log-start-offset-checkpoint", rewritten("log-start-offset-checkpoint", "0\n1\norders 0 9999\n"),
    ),
    "a high watermark behind the end": (
        "replication-offset-checkpoint", rewritten("replication-offset-checkpoint", "0\n1\norders 0 9999\n"),
    ),
    "a negative cleaner offset": (
        "cleaner-offset-checkpoint", rewritten("cleaner-offset-checkpoint", "0\n1\norders 0 -5\n"),
    ),
    "a clean-shutdown file": (".kafka_cleanshutdown", rewritten(".kafka_cleanshutdown", "{")),
    "meta.properties": ("meta.properties", rewritten("meta.properties", "version=7\n")),
}  # fmt: skip


def damages(root: Path) -> list[Finding]:
    before = contents(root)
    _, findings = verify(root)
    assert contents(root) == before
    return [one for one in findings if one.is_damage]


@pytest.mark.parametrize("name", LOG_DAMAGES)
def test_damage_in_a_log_is_found_with_its_position(root: Path, name: str) -> None:
    LOG_DAMAGES[name](root)
    found = damages(root)
    assert any(one.path.endswith(".log") and one.position is not None for one in found), found


@pytest.mark.parametrize("name", OTHER_DAMAGES)
def test_damage_in_another_file_is_found_there_and_nowhere_else(root: Path, name: str) -> None:
    ending, damage = OTHER_DAMAGES[name]
    damage(root)
    found = damages(root)
    assert found
    assert {one.path.endswith(ending) for one in found} == {True}, found


def test_damage_does_not_end_the_check(root: Path) -> None:
    logs = sorted(path for path in (root / "orders-0").glob("*.log") if path.stat().st_size)
    for path in logs[:2]:
        third = int(logcore.scan_batches(path.read_bytes()).headers[2]["position"])
        flip(path, 100)
        flip(path, third + 70)
    found = [one for one in damages(root) if one.path.endswith(".log")]
    assert [Path(one.path).name for one in found] == [logs[0].name] * 2 + [logs[1].name] * 2
    assert found[0].position == 0


# --- what is no damage ---------------------------------------------------------------------------------------------


def test_the_torn_end_of_a_log_that_was_not_closed_is_a_note_and_recovery_cuts_there(root: Path) -> None:
    (root / ".kafka_cleanshutdown").unlink()
    path = max(path for path in (root / "orders-0").glob("*.log") if path.stat().st_size)
    headers = logcore.scan_batches(path.read_bytes()).headers
    checkpoint = root / "recovery-point-offset-checkpoint"
    checkpoint.write_text(f"0\n1\norders 0 {headers[-1]['base_offset']}\n")
    (root / "replication-offset-checkpoint").unlink()
    cut(path, 5)
    _, findings = verify(root)
    torn = [one for one in findings if one.reason == "torn"]
    assert [one.position for one in torn] == [int(headers[-1]["position"])]
    assert not any(one.is_damage for one in findings if one.path.endswith(".log"))
    with logcore.open_log(root / "orders-0") as log:
        assert log.log_end_offset == torn[0].offset == headers[-1]["base_offset"]


def test_the_same_end_is_damage_below_the_recovery_point(root: Path) -> None:
    (root / ".kafka_cleanshutdown").unlink()
    cut(max(path for path in (root / "orders-0").glob("*.log") if path.stat().st_size), 5)
    assert any(one.path.endswith(".log") for one in damages(root))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders-0/00000000000000000000.log.deleted", "to be deleted"),
        ("orders-0/00000000000000000000.log.cleaned", "not finished"),
        ("orders-0/00000000000000000000.log.swap", "was done"),
        ("orders-0/leader-epoch-checkpoint.tmp", "not finished"),
        ("orders-0/00000000000000099999.snapshot", "opening it removes"),
        ("orders-0/00000000000000099999.index", "no .log belongs to it"),
        ("recovery-point-offset-checkpoint.tmp", "not finished"),
        ("orders-1.0f3cd5b8a1e94c6f8d2b7a6e5c4d3b2a-delete/00000000000000000000.log", "to be deleted"),
        ("orders-2.0f3cd5b8a1e94c6f8d2b7a6e5c4d3b2a-stray/00000000000000000000.log", "not looked at"),
        ("no partition/file", "no partition's name"),
    ],
)
def test_leftovers_are_noted(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\0\1\xdc\x16\x80\xc7\0\0\0\0" if name.endswith(".snapshot") else b"")
    _, findings = verify(root)
    found = [one for one in findings if one.severity == "note"]
    assert any(text in one.text for one in found), findings
    assert not any(one.is_damage and not one.path.endswith(".snapshot") for one in findings)


def test_a_log_that_is_written_to_meanwhile_has_no_damage(tmp_path: Path) -> None:
    config = {"internal.segment.bytes": 20_000, "index.interval.bytes": 100}
    with logcore.open_log(tmp_path / "data" / "orders-0", config=config) as log:
        for number in range(30):
            log.append([(b"k", b"v" * 100)] * 20)
            _, findings = verify(tmp_path / "data")
            assert not [one for one in findings if one.is_damage], number


def test_a_partition_is_told_from_a_root(clean: Path, tmp_path: Path) -> None:
    assert is_root(SYSTEM_DISK, str(clean))
    assert not is_partition(SYSTEM_DISK, str(clean))
    assert is_partition(SYSTEM_DISK, str(clean / "txn-0"))
    check, findings = verify(clean / "txn-0")
    assert isinstance(check, PartitionCheck)
    assert (findings, check.log_end_offset) == ([], 380)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(logcore.UsageError, match="got no files of a log"):
        check_of(SYSTEM_DISK, str(tmp_path / "nothing"))


def test_progress_adds_up_to_the_bytes_of_the_logs(clean: Path) -> None:
    told: list[int] = []
    check = check_of(SYSTEM_DISK, str(clean / "plain-none-0"), told.append)
    list(check.run())
    assert isinstance(check, PartitionCheck)
    assert sum(told) == check.size_in_bytes


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_change_of_any_file_is_found_or_harmless_and_never_an_exception(made: Path, data: st.DataObject) -> None:
    """Each file gets bytes changed, cut, put in or replaced. A change inside a .log is always found."""
    paths = sorted(path for path in made.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(paths), label="path")
    before = path.read_bytes()
    changed = bytearray(before)
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "replace"]), label="kind")
    at = data.draw(st.integers(0, max(len(before) - 1, 0)), label="at")
    if kind == "flip" and before:
        changed[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    elif kind == "cut":
        del changed[at:]
    elif kind == "insert":
        changed[at:at] = data.draw(st.binary(min_size=1, max_size=40), label="bytes")
    else:
        changed[:] = data.draw(st.binary(max_size=200), label="bytes")
    path.write_bytes(changed)
    try:
        _, findings = verify(made)
    finally:
        path.write_bytes(before)
    if path.suffix == ".log" and kind in ("flip", "insert") and changed != before:
        assert any(one.is_damage for one in findings)
