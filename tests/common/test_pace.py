"""How fast a long run goes: lines for a log, a bar for a terminal."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from tokenlight.common import progress as progress
from tokenlight.common.progress import Rate, format_progress, track_pace


@pytest.mark.parametrize(
    ("done", "total", "rate", "line"),
    [
        (1000, 20_000, 41.25, "1,000 of 20,000 texts, 41.2 texts/s, 7:41 left"),
        (1000, 1_000_000, 10.0, "1,000 of 1,000,000 texts, 10.0 texts/s, 27:45:00 left"),
        (5, None, 2.0, "5 texts, 2.0 texts/s"),
        (5, 5, 0.0, "5 of 5 texts, 0.0 texts/s, 0:00 left"),
    ],
)
def test_rate_and_time_left(done, total, rate, line):
    assert format_progress(done, total, rate) == line


def test_a_log_gets_a_line_per_interval(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with track_pace(100, 40, show=True) as advance:
        for _ in range(4):
            now[0] += 25
            advance(5)
    assert capsys.readouterr().err.splitlines() == ["55 of 100 texts, 0.2 texts/s, 3:45 left"]
    with track_pace(100, 0, show=False) as advance:
        now[0] += 1000
        advance(50)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_with_the_rate():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with Progress(Rate(), console=console) as bar:
        task = bar.add_task("", total=10)
        assert Rate().render(bar.tasks[0]).plain == ""
        bar.advance(task, 2)
        bar.advance(task, 2)
        assert Rate().render(bar.tasks[0]).plain.endswith(" texts/s")
