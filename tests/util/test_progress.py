"""The progress display: when it is shown, as a bar or as lines, and where."""

import io
import sys
import types
import warnings

import pytest

from dpverify.errors import DPVerifyWarning
from dpverify.util import progress
from dpverify.util.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_automatic_display_writes_to_terminals_only():
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        show = Progress(None, stream=stream)
        show.plan(10**6)
        show.announce(100.0)
        show.close()
        assert bool(stream.getvalue()) is shown


@pytest.mark.parametrize(
    ("shown", "runs", "level"), [(None, 10**5, "WARNING"), (None, 3000, "INFO"), (False, 10**5, "WARNING")]
)
def test_a_long_run_is_announced_where_nothing_is_shown(shown, runs, level, caplog):
    """At 100 runs per second, 10 000 runs take more than a minute; `progress=False` logs and does not warn."""
    show = Progress(shown, stream=io.StringIO())
    show.plan(runs, "cheaper ways")
    with caplog.at_level("INFO"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        show.announce(100.0)
    assert [record.levelname for record in caplog.records] == [level]
    assert ("cheaper ways" in caplog.text) == (level == "WARNING")
    assert [each.category for each in caught] == [DPVerifyWarning] * (shown is None and level == "WARNING")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        show.announce(100.0)  # a slow machine is no error


def test_plain_lines_without_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    stream = Terminal()
    show = Progress(None, stream=stream)
    show.plan(10**6, "advice")
    show.announce(100.0)
    show.stage("test runs")
    show.advance(10)
    show.close()
    assert stream.getvalue().splitlines() == [
        "dpverify: about 2.8 h for 1 000 000 runs at 100 runs/s; advice; Ctrl-C stops it",
        "dpverify: test runs: 10 of 1 000 000 runs",
    ]


def test_the_duration_is_announced_when_the_speed_is_known(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.4 * next(clock))
    stream = io.StringIO()
    show = Progress(True, stream=stream)
    show.plan(1_000_000)
    show.stage("test")
    for _ in range(40):
        show.advance(1000)
    lines = stream.getvalue().splitlines()
    assert "about 7 min for 997 000 runs at 2 500 runs/s; Ctrl-C stops it" in lines[0]
    assert 1 < len(lines) < 6
    assert "test: " in lines[-1]


def test_the_start_of_workers_is_not_taken_for_slow_runs(monkeypatch):
    """The first block is drawn in this process; the workers then need 3 s to start and draw the rest quickly."""
    clock = iter([3.0, 3.6])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    show = Progress(True, stream=stream)
    show.plan(10_000)
    show.skip(100)
    show.advance(900)
    show.advance(8000)
    assert stream.getvalue() == ""


def test_a_notebook_shows_a_bar_and_writes_nothing_to_stderr(monkeypatch, capsys):
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content)

    def display(content, raw, display_id):
        shown.append(content)
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_DISPLAYS", 0.0)
    show = Progress(None)
    show.plan(1000)
    show.announce(1.0)
    show.stage("test runs")
    show.advance(10)
    show.close()
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith("dpverify: about 17 min for 1 000 runs at 1 runs/s")
    assert '<progress value="10" max="1000"' in shown[1]["text/html"]
    assert shown[1]["text/plain"] == "test runs: 10 of 1 000 runs"
    assert shown[-1]["text/html"] == ""


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace()], ids=["script", "IPython on a terminal"])
def test_other_shells_are_no_notebooks(monkeypatch, shell):
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    stream = Terminal()
    show = Progress(None, stream=None if shell is None else stream)
    show.plan(1000)
    show.announce(1.0)
    assert not isinstance(show._bar, progress.NotebookBar)
    show.close()


def test_names_of_a_stage_are_no_markup():
    stream = io.StringIO()
    bar = progress.RichBar(100, stream)
    bar.update(10, "x[/a] [bold]")
    bar._bar.refresh()
    assert "x[/a] [bold]" in "".join(column.render(bar._bar.tasks[0]).plain for column in bar._bar.columns[:1])
    bar.close()
