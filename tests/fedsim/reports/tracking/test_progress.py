"""Progress on a terminal is a bar; elsewhere it is a line a minute, and never a blank one."""

import io

from rich.console import Console
from rich.progress import BarColumn, TextColumn

from fedsim.configuration.campaign import TrialsConfig
from fedsim.reports.tracking import progress


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
        seen = progress.ProgressBar(bar, TrialsConfig(), 3, "training")
        seen.see({"busy": [0, 2], "seconds": 99.0}, new=False)  # before the run was resumed
        for seconds in (20.0, 40.0):
            seen.see({"busy": [1], "seconds": seconds})
        seen.see({"busy": [0, 2], "seconds": 61.0})
        seen.see({"dropped": 1, "of": "round 2", "reason": "left"})
    assert written.getvalue() == (
        "no answer yet from client 1, for 20 s\nno answer yet from clients 0, 2, for 61 s\n"
    )


def test_of_a_training_the_bar_tells_the_round_and_of_one_that_is_resumed_what_went_before():
    with progress.ProgressSteps(console=Console(file=io.StringIO())) as bar:
        seen = progress.ProgressBar(bar, TrialsConfig(count=1, batch=1), 9, "training")
        seen.see({"phase": "training", "rounds": 4}, new=False)
        before = {"round": 1, "trials": [0, 1], "accuracy": 0.9, "balanced_accuracy": 0.6}
        seen.see({**before, "epsilon": 0.5}, new=False)
        assert (bar.tasks[0].completed, bar.tasks[0].description) == (0, "starting")
        seen.see({"auditor": 7, "joined": True})
        seen.see({"round": 2, "trials": [0, 1], "epsilon": 0.75})
        (task,) = bar.tasks
    assert (task.completed, task.total) == (2, 5)
    assert task.description == "round 2, balanced accuracy 60.0%, ε 0.75"
