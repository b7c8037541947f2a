"""Who follows a run: shown every event once, and no danger to the run."""

from io import StringIO

import pytest
from rich.console import Console

from fedsim.configuration import Config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.reports.tracking.progress import following


class Noting:
    name = "noting"

    def __init__(self, failing=False):
        self.failing, self.finished = failing, False
        self.rounds: list[tuple[int | None, bool]] = []

    def see(self, event, new):
        if self.failing:
            raise OSError("the disk is full")
        self.rounds.append((event.get("round"), new))

    def leave(self, finished):
        self.finished = finished


@pytest.fixture
def directory(tmp_path):
    made = RunDirectory.create(tmp_path / "run", Config())
    made.log_event(round=1, trials=[0, 2], accuracy=0.5, majority=0.2)
    return made


def test_of_a_resumed_run_all_is_seen_and_it_is_said_what_is_new(directory):
    directory.log_event(phase="training", rounds=2)
    watcher = Noting()
    with following(directory, [watcher], Console(file=StringIO())):
        directory.log_event(round=2, trials=[0, 2])
    assert watcher.rounds == [(1, False), (None, False), (2, True)]
    assert watcher.finished


def test_a_watcher_that_fails_is_named_and_the_others_and_the_run_go_on(directory):
    said, other = StringIO(), Noting()
    with following(directory, [Noting(failing=True), other], Console(file=said)):
        directory.log_event(round=2, trials=[0, 2])
    assert said.getvalue() == "noting is no longer written: the disk is full\n"
    assert other.rounds[-1] == (2, True)


def test_a_run_that_fails_has_not_finished(directory):
    watcher = Noting()
    with (
        pytest.raises(KeyboardInterrupt),
        following(directory, [watcher], Console(file=StringIO())),
    ):
        directory.log_event(round=2, trials=[0, 2])
        raise KeyboardInterrupt
    assert (watcher.rounds[-1], watcher.finished) == ((2, True), False)
