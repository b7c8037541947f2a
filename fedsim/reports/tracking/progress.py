"""The progress of a run on the terminal, and its summary at the end."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedsim.common.secrets_in_text import without_password
from fedsim.configuration.campaign import TrialsConfig
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.reports.document.wording import percent, span
from fedsim.reports.tracking import trackers
from fedsim.reports.tracking.course import Course, Event, after
from fedsim.reports.tracking.trackers import Tracker, Tracking

PAUSE = 0.2


class Watcher(Protocol):
    name: str
    from_the_beginning: bool
    """Whether it also receives the earlier events of a resumed run."""

    def see(self, event: Event, course: Course) -> None:
        """Take note of an event."""

    def leave(self, finished: bool) -> None:
        """Take note of the end, also after an error or Ctrl-C."""


@contextmanager
def following(
    directory: RunDirectory, watchers: Sequence[Watcher], console: Console
) -> Iterator[None]:
    """Pass the events of a run to its watchers while any process writes them.

    Each watcher has its own thread, so a slow watcher delays only the end. A watcher that fails is
    named and dropped, and the run goes on.
    """
    stop, finished, before = threading.Event(), False, directory.events_size()

    def follow(watcher: Watcher) -> None:
        course, position = Course(), 0
        try:
            while True:
                ending = stop.is_set()
                for event, behind in directory.events(position):
                    course, position = after(course, event), behind
                    if behind > before or watcher.from_the_beginning:
                        watcher.see(event, course)
                if ending:
                    break
                stop.wait(PAUSE)
            watcher.leave(finished)
        except Exception as error:  # of a server elsewhere, a full disk: not the run's business
            why = " ".join(without_password(str(error)).split()) or type(error).__name__
            console.print(
                f"{watcher.name} is no longer written: {why}", highlight=False, markup=False
            )

    threads = [threading.Thread(target=follow, args=[one], daemon=True) for one in watchers]
    for thread in threads:
        thread.start()
    try:
        yield
        finished = True
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def replay(directory: RunDirectory, watcher: Watcher) -> None:
    course = Course()
    for event, _ in directory.events():
        course = after(course, event)
        watcher.see(event, course)
    watcher.leave(directory.finished)


def opened(places: Sequence[str] | None) -> dict[str, Tracker]:
    """Return the trackers of --track, by their places."""
    return {place: trackers.opened(place) for place in places or ()}


def tracking(directory: RunDirectory, named: Mapping[str, Tracker]) -> list[Watcher]:
    return [Tracking(directory, tracker, place) for place, tracker in named.items()]


MINUTE = 60.0


class ProgressSteps(Progress):
    def __init__(self, *columns: ProgressColumn, console: Console) -> None:
        hidden = not (console.is_terminal or console.is_jupyter)
        super().__init__(*columns, console=console, transient=True, disable=console.quiet or hidden)
        self._said = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        if self.disable and time.monotonic() - self._said >= MINUTE:
            self._said, task = time.monotonic(), self.tasks[task_id]
            done = "" if task.total is None else f", {task.percentage:.0f}% done"
            self.console.print(f"{task.description}{done}", markup=False)


@contextmanager
def progress(
    directory: RunDirectory, console: Console, watchers: Sequence[Watcher] = ()
) -> Iterator[None]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),  # of a file
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    config = directory.config
    training, rounds = config.run.job == "training", config.training.rounds
    with ProgressSteps(*columns, console=console) as bar:
        task = bar.add_task("starting", total=planned_steps(config.trials, rounds), rounds=rounds)
        with following(
            directory, [ProgressBar(bar, task, config.trials, training), *watchers], console
        ):
            yield


@contextmanager
def preparing(console: Console) -> Iterator[Callable[[float], None]]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with ProgressSteps(*columns, console=console) as bar:
        task = bar.add_task("preparing", total=None)
        yield lambda fraction: bar.update(
            task, description="choosing the challenge", total=1, completed=fraction
        )


@contextmanager
def measuring(console: Console, what: str) -> Iterator[Callable[[float], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with ProgressSteps(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda fraction: bar.update(task, completed=fraction)


def planned_steps(trials: TrialsConfig, rounds: int) -> int:
    """Return the length of the progress bar: the rounds of every batch, and its conclusion."""
    return -(-trials.count // trials.batch) * (rounds + 1)


@dataclass(frozen=True)
class ProgressBar:
    bar: Progress
    task: TaskID
    trials: TrialsConfig
    training: bool
    name = "the progress bar"
    from_the_beginning = False
    absent: set[str] = field(default_factory=set)

    def see(self, event: Event, course: Course) -> None:
        if "rounds" in event:
            rounds = event["rounds"]
            total = planned_steps(self.trials, rounds)
            self.bar.update(self.task, total=total, rounds=rounds)
        if "waiting" in event:
            # Shown without a bar too: an operator has to look at a machine.
            why = "".join(f"; {reason}" for reason in event.get("reasons", ()))
            warn(self.bar.console, f"still waiting for {event['waiting']}{why}")
        elif event.get("busy"):
            named = str(event["busy"])
            if not (self.bar.console.quiet and named in self.absent):
                self.absent.add(named)
                warn(self.bar.console, f"no answer yet from {course.busy_text}")
        elif event.get("dropped") is not None:
            reason = event["reason"].rstrip(".")
            if reason not in self.absent:
                self.absent.add(reason)
                self.bar.console.print(f"{reason}; {event['of']} goes on without it", markup=False)
        elif "uncompared" in event:
            several = "s" * (len(event["uncompared"]) > 1)
            clients = ", ".join(map(str, event["uncompared"]))
            self.bar.console.print(
                f"the data of client{several} {clients} were compared by place and shape only, "
                "not by content",
                markup=False,
            )
        elif "trials" in event:
            first = event["trials"][0]
            per_batch = self.bar.tasks[self.task].fields["rounds"] + 1
            begun = first // self.trials.batch * per_batch
            done = begun + event.get("round", per_batch - 1) + (1 if "phase" in event else 0)
            self.bar.update(self.task, completed=done, description=worded(course, self.training))
        elif "phase" in event:  # other events are a client's or an auditor's
            self.bar.update(self.task, description=event["phase"])

    def leave(self, finished: bool) -> None:
        """Do nothing: the bar ends with its `with` block."""


def warn(console: Console, text: str) -> None:
    """Print what a person has to act on, even to a quiet console."""
    quiet, console.quiet = console.quiet, False
    try:
        console.print(text, markup=False, highlight=False)
    finally:
        console.quiet = quiet


def worded(course: Course, training: bool) -> str:
    first, last = course.trials
    words = [f"round {course.round}" if training else f"trials {first}-{last - 1}"]
    if (advantage := course.look.advantage) is not None:
        between = span(course.look.interval, "{:.2f}".format)
        words.append(f"advantage {advantage:.2f}{f' ({between})' * bool(between)}")
    if (belief := course.look.belief) is not None:
        words.append(f"worst belief {percent(belief)}")
    if course.accuracy is not None:
        name, share = course.accuracy
        words.append(f"{name} {percent(share)}")
    if training and course.epsilon is not None:
        words.append(f"ε {course.epsilon:.3g}")
    return ", ".join(words)
