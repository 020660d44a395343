"""What a closed log leaves in its directory."""

from logcore import open_log


def names(directory):
    return sorted(one.name for one in directory.iterdir())


def test_an_active_segment_that_nothing_was_appended_to_has_indexes_when_it_is_closed(tmp_path):
    """Kafka takes a segment without them for one to recover, also after a clean shutdown."""
    with open_log(tmp_path / "orders-0"):
        pass
    files = names(tmp_path / "orders-0")
    assert "00000000000000000000.index" in files
    assert "00000000000000000000.timeindex" in files
    with open_log(tmp_path / "orders-0") as log:
        log.append([(b"key", b"value")])
        log.roll()
    for suffix in ("index", "timeindex"):
        assert (tmp_path / "orders-0" / f"00000000000000000001.{suffix}").read_bytes() == b""


def test_opening_and_closing_an_empty_log_again_changes_no_file(tmp_path):
    with open_log(tmp_path / "orders-0"):
        pass
    before = {one: one.stat().st_mtime_ns for one in (tmp_path / "orders-0").iterdir()}
    with open_log(tmp_path / "orders-0"):
        pass
    assert {one: one.stat().st_mtime_ns for one in (tmp_path / "orders-0").iterdir()} == before
