"""The memory of long work has a bound that does not grow with the log."""

import os

import pytest

from logcore import open_log
from logcore.bench import footprint
from logcore.bench.log_sections import key_columns

pytestmark = [
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc"),
    pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="AddressSanitizer keeps freed memory back"),
]


def _log(path, megabytes):
    count = megabytes * (1 << 20) // 118
    with open_log(path, config={"segment.bytes": 16 << 20}) as log:
        for piece in key_columns(count, count):
            log.append_columns(piece)
        log.roll()


@pytest.mark.parametrize("work", ["read", "read_columns", "recover"])
def test_the_memory_of_reading_and_recovering_does_not_grow_with_the_log(tmp_path, work):
    peaks = []
    for megabytes in (32, 128):
        path = str(tmp_path / str(megabytes) / "bench-0")
        _log(path, megabytes)
        peaks.append(footprint.peak_of(work, path) - footprint.peak_of("nothing", path))
    assert max(peaks) < footprint.MEMORY_BYTES_MAX[work]
    assert peaks[1] - peaks[0] < 24 << 20  # generous: allocators differ, the log has 96 MiB more


def test_the_memory_of_compacting_is_the_map_and_a_few_chunks(tmp_path):
    path = str(tmp_path / "bench-0")
    _log(path, 128)
    taken = footprint.peak_of("compact", path) - footprint.peak_of("nothing", path)
    assert taken < footprint.MEMORY_BYTES_MAX["compact"]
