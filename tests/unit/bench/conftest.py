"""Fetches of a few kilobytes: these tests are about what is measured and reported, never about how fast it is."""

import pytest

from logcore.bench import limits, workload


@pytest.fixture(autouse=True)
def _tiny_fetches(monkeypatch):
    monkeypatch.setattr(workload, "FETCH_BYTES", 8192)


@pytest.fixture
def c_limits(monkeypatch, tmp_path):
    """limits.c, compiled for this test in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    try:
        limits._compiler()
    except limits.UsageError as missing:
        pytest.skip(str(missing))
    limits.load_limits.cache_clear()
    yield limits.load_limits()
    limits.load_limits.cache_clear()


@pytest.fixture(scope="session")
def fonts():
    """Loads the fonts that pictures use: matplotlib keeps their files open for good, which is no leak of ours."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (pip install 'logcore[plot]')")
    from matplotlib.figure import Figure

    figure = Figure()
    for font in ({}, {"weight": "bold"}, {"family": "monospace"}):
        figure.text(0, 0, "text", **font)
    figure.draw_without_rendering()
