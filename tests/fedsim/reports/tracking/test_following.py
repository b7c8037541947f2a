"""Who follows a run: shown every event once, and no danger to the run."""

from io import StringIO

import pytest
from rich.console import Console

from fedsim.configuration import Config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.reports.tracking.course import Course
from fedsim.reports.tracking.progress import following


class Noting:
    name = "noting"

    def __init__(self, from_the_beginning=False, failing=False):
        self.from_the_beginning, self.failing = from_the_beginning, failing
        self.rounds: list[int | None] = []
        self.last, self.finished = Course(), False

    def see(self, event, course):
        if self.failing:
            raise OSError("the disk is full")
        self.rounds.append(event.get("round"))
        self.last = course

    def leave(self, finished):
        self.finished = finished


@pytest.fixture
def directory(tmp_path):
    made = RunDirectory.create(tmp_path / "run", Config())
    made.log_event(round=1, trials=[0, 2], accuracy=0.5, majority=0.2)
    return made


def test_a_resumed_run_is_shown_from_where_it_goes_on_or_from_the_beginning(directory):
    directory.log_event(phase="training", rounds=2)
    new, all_of_it = Noting(), Noting(from_the_beginning=True)
    with following(directory, [new, all_of_it], Console(file=StringIO())):
        directory.log_event(round=2, trials=[0, 2])
    assert (new.rounds, all_of_it.rounds) == ([2], [1, None, 2])
    assert new.last.rounds == 2  # known, if not shown
    assert new.finished
    assert all_of_it.finished


def test_a_watcher_that_fails_is_named_and_the_others_and_the_run_go_on(directory):
    said, other = StringIO(), Noting()
    with following(directory, [Noting(failing=True), other], Console(file=said)):
        directory.log_event(round=2, trials=[0, 2])
    assert said.getvalue() == "noting is no longer written: the disk is full\n"
    assert other.rounds == [2]


def test_a_run_that_fails_has_not_finished(directory):
    watcher = Noting()
    with (
        pytest.raises(KeyboardInterrupt),
        following(directory, [watcher], Console(file=StringIO())),
    ):
        directory.log_event(round=2, trials=[0, 2])
        raise KeyboardInterrupt
    assert (watcher.rounds, watcher.finished) == ([2], False)
