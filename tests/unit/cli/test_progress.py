"""The progress bar is drawn late, seldom, only where it is seen, and leaves nothing behind."""

import io

from logcore.cli._progress import Progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def progress_of(total, is_shown=True):
    clock, out = Clock(), io.StringIO()
    return Progress(total, out=out, is_shown=is_shown, clock=clock), clock, out


def test_short_work_draws_nothing():
    progress, clock, out = progress_of(1000)
    progress.update(500)
    clock.now = 0.9
    progress.update(900)
    progress.clear()
    assert out.getvalue() == ""


def test_long_work_draws_how_far_it_is_and_clears_it():
    progress, clock, out = progress_of(2_000_000)
    clock.now = 1.0
    progress.update(1_000_000)
    clock.now = 1.05
    progress.update(1_100_000)
    assert out.getvalue() == "\r\x1b[K 50% [###############...............] 1.0 MB of 2.0 MB"
    clock.now = 1.2
    progress.update(4_000_000)  # a file that grew
    assert out.getvalue().endswith("\r\x1b[K100% [##############################] 4.0 MB of 2.0 MB")
    progress.clear()
    progress.clear()
    assert out.getvalue().endswith("2.0 MB\r\x1b[K")


def test_without_a_total_it_counts():
    progress, clock, out = progress_of(None)
    clock.now = 5.0
    progress.update(1_500_000)
    assert out.getvalue() == "\r\x1b[K1.5 MB"


def test_nobody_looking_means_nothing_drawn():
    progress, clock, out = progress_of(1000, is_shown=False)
    clock.now = 5.0
    progress.update(500)
    progress.clear()
    assert out.getvalue() == ""


def test_it_is_shown_on_a_terminal_that_does_not_show_the_output_as_it_comes(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stdout, stderr, beside_output, shown in (
        (io.StringIO(), Terminal(), True, True),
        (Terminal(), Terminal(), True, False),
        (Terminal(), Terminal(), False, True),
        (io.StringIO(), io.StringIO(), False, False),
    ):
        monkeypatch.setattr("sys.stdout", stdout)
        monkeypatch.setattr("sys.stderr", stderr)
        clock = Clock()
        progress = Progress(1000, beside_output=beside_output, clock=clock)
        clock.now = 5.0
        progress.update(500)
        assert bool(stderr.getvalue()) == shown
