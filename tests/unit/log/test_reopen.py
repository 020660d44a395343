"""What opening a log that was closed touches: the active segment, from its last index entry on, and nothing else."""

import pytest

from logcore import open_log, scan_batches
from logcore.bench.footprint import count_reopening


@pytest.mark.parametrize("segments", [1, 2, 1000])
def test_a_closed_log_opens_only_its_active_segment(tmp_path, segments):
    path = tmp_path / "a-0"
    with open_log(path) as log:
        for number in range(segments):
            if number:
                log.roll()
            log.append([(b"k", b"v")] * 10)
        active = log.segments[-1]
    disk = count_reopening(str(path))
    name = f"{active.base_offset:020}"
    assert [one for one in disk.opened if one.endswith((".log", ".txnindex"))] == [f"{name}.log"]
    assert {one.partition(".")[0] for one in disk.mapped} == {name}
    assert {one for one, _, _ in disk.read if one.endswith(".log")} == {f"{name}.log"}


def test_of_the_active_segment_only_what_lies_behind_its_last_index_entry_is_read(tmp_path):
    path = tmp_path / "a-0"
    with open_log(path) as log:
        for _ in range(200):
            log.append([(b"k", b"v" * 100)] * 10)
        [active] = log.segments
    with open(active.path, "rb") as file:
        headers = scan_batches(file.read()).headers
    index = (tmp_path / "a-0" / f"{0:020}.index").read_bytes()
    last_entry = int.from_bytes(index[-4:], "big")
    assert last_entry in headers["position"].tolist()
    disk = count_reopening(str(path))
    spans = [(position, position + size) for name, position, size in disk.read if name.endswith(".log")]
    assert min(position for position, _ in spans) == last_entry
    assert active.size_in_bytes - last_entry < 3 * 4096
    assert sum(end - position for position, end in spans) < 5 * 4096


def test_a_log_that_was_not_closed_is_read_from_its_recovery_point_on(tmp_path):
    """The other side of it: a crash is paid for when the log is opened."""
    path = tmp_path / "a-0"
    with open_log(path) as log:
        for number in range(5):
            if number:
                log.roll()
            log.append([(b"k", b"v")] * 10)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    disk = count_reopening(str(path))
    assert sum(one.endswith(".log") for one in disk.opened) == 5
