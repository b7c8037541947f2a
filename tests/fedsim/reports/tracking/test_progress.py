"""Progress on a terminal is a bar; elsewhere it is a line a minute, and never a blank one."""

import io

from rich.console import Console
from rich.progress import BarColumn, TextColumn

from fedsim.configuration.campaign import TrialsConfig
from fedsim.reports.tracking import progress
from fedsim.reports.tracking.course import Course, after


def test_there_is_a_line_a_minute_where_there_is_no_terminal(monkeypatch):
    seconds = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds)
    written = io.StringIO()
    columns = TextColumn("{task.description}"), BarColumn()
    with progress.ProgressSteps(*columns, console=Console(file=written)) as bar:
        task = bar.add_task("starting", total=180)
        for step in range(1, 181):
            seconds = float(step)
            bar.update(task, completed=step, description="attacking")
    assert written.getvalue().splitlines() == [
        "attacking, 33% done",
        "attacking, 67% done",
        "attacking, 100% done",
    ]


def test_nothing_is_said_where_it_is_to_be_quiet(monkeypatch):
    monkeypatch.setattr(progress, "MINUTE", 0.0)
    written = io.StringIO()
    with progress.ProgressSteps(console=Console(file=written, quiet=True)) as bar:
        bar.update(bar.add_task("starting", total=1), completed=1)
    assert not written.getvalue()


def test_a_client_without_an_answer_is_named_once_even_where_it_is_quiet():
    written = io.StringIO()
    with progress.ProgressSteps(console=Console(file=written, quiet=True)) as bar:
        seen = progress.ProgressBar(bar, bar.add_task("starting", total=1), TrialsConfig(), True)
        course = Course()
        for seconds in (20.0, 40.0):
            late = {"time": 60.0 + seconds, "busy": [1], "seconds": seconds}
            course = after(course, late)
            seen.see(late, course)
        seen.see({"time": 99.0, "dropped": 1, "of": "round 2", "reason": "left"}, course)
    assert written.getvalue() == "no answer yet from client 1, for 20 s\n"
