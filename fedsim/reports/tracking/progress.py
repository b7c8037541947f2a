"""The progress of a run on the terminal, and those who follow its events."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
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
from fedsim.reports.tracking.trackers import Event, Tracker, Tracking

PAUSE, MINUTE = 0.2, 60.0


class Watcher(Protocol):
    name: str

    def see(self, event: Event, new: bool) -> None:
        """Take note of an event; new: False for one from before a run was resumed."""

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
        position = 0
        try:
            while True:
                ending = stop.is_set()
                for event, behind in directory.events(position):
                    position = behind
                    watcher.see(event, behind > before)
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
    for event, _ in directory.events():
        watcher.see(event, True)
    watcher.leave(directory.finished)


class ProgressSteps(Progress):
    """A bar on a terminal; elsewhere a line a minute."""

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
def measuring(console: Console, what: str, before: str = "") -> Iterator[Callable[[float], None]]:
    """Yield a function that shows the share of a work that is done; before: shown until then."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with ProgressSteps(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task(before or what, total=None if before else 1.0)
        yield lambda share: bar.update(task, description=what, total=1.0, completed=share)


@contextmanager
def progress(
    directory: RunDirectory, console: Console, named: Mapping[str, Tracker] = MappingProxyType({})
) -> Iterator[None]:
    """Show the progress of a run, and write it to trackers, by their places."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),  # of a file
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    config = directory.config
    tracking = [Tracking(directory, tracker, place) for place, tracker in named.items()]
    with ProgressSteps(*columns, console=console) as bar:
        shown = ProgressBar(bar, config.trials, config.training.rounds, config.run.job)
        with following(directory, [shown, *tracking], console):
            yield


class ProgressBar:
    """The bar of a run: a step for each round of every batch of trials, and one for its end."""

    name = "the progress bar"

    def __init__(self, bar: Progress, trials: TrialsConfig, rounds: int, job: str) -> None:
        self._bar, self._trials, self._training = bar, trials, job == "training"
        self._said: set[str] = set()
        self._round: Event = {}
        self._batch: Event = {}
        self._task = bar.add_task("starting")
        self._plan(rounds)

    def _plan(self, rounds: int) -> None:
        self._per_batch = rounds + 1
        batches = -(-self._trials.count // self._trials.batch)
        self._bar.update(self._task, total=batches * self._per_batch)

    def see(self, event: Event, new: bool = True) -> None:
        if "rounds" in event:
            self._plan(event["rounds"])
            self._batch = {}  # a resumed run repeats the events of its finished batches
        if event.get("phase") == "batch":
            self._batch, self._round = event, self._round | {"round": self._per_batch - 1}
        elif "round" in event and "trials" in event:
            self._round = self._round | event | {"epsilon": event.get("epsilon")}
        if new:
            self._show(event)

    def _show(self, event: Event) -> None:
        console = self._bar.console
        if "waiting" in event:
            # Shown without a bar too: an operator has to look at a machine.
            why = "".join(f"; {reason}" for reason in event.get("reasons", ()))
            warn(console, f"still waiting for {event['waiting']}{why}")
        elif busy := event.get("busy"):
            if self._first(str(busy)) or not console.quiet:
                seconds = event.get("seconds", 0)
                warn(console, f"no answer yet from {_clients(busy)}, for {seconds:.0f} s")
        elif event.get("dropped") is not None:
            reason = event["reason"].rstrip(".")
            if self._first(reason):
                console.print(f"{reason}; {event['of']} goes on without it", markup=False)
        elif "uncompared" in event:
            console.print(
                f"the data of {_clients(event['uncompared'])} were compared by place and shape "
                "only, not by content",
                markup=False,
            )
        elif "trials" in event:
            begun = event["trials"][0] // self._trials.batch * self._per_batch
            done = begun + event.get("round", self._per_batch - 1) + ("phase" in event)
            self._bar.update(self._task, completed=done, description=self._words(event["trials"]))
        elif "phase" in event:  # other events are a client's or an auditor's
            self._bar.update(self._task, description=event["phase"])

    def _first(self, text: str) -> bool:
        first = text not in self._said
        self._said.add(text)
        return first

    def _words(self, trials: Sequence[int]) -> str:
        now, batch = self._round, self._batch
        words = [f"round {now.get('round')}"]
        if not self._training:
            words = [f"trials {trials[0]}-{trials[1] - 1}"]
        if batch.get("advantage") is not None:
            between = span(batch.get("advantage_interval"), "{:.2f}".format)
            words.append(f"advantage {batch['advantage']:.2f}{f' ({between})' * bool(between)}")
        if batch.get("belief") is not None:
            words.append(f"worst belief {percent(batch['belief'])}")
        for name in ("balanced_accuracy", "accuracy"):
            if now.get(name) is not None:
                words.append(f"{name.replace('_', ' ')} {percent(now[name])}")
                break
        if self._training and now.get("epsilon") is not None:
            words.append(f"ε {now['epsilon']:.3g}")
        return ", ".join(words)

    def leave(self, finished: bool) -> None:
        """Do nothing: the bar ends with its `with` block."""


def _clients(numbers: Sequence[int]) -> str:
    return f"client{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def warn(console: Console, text: str) -> None:
    """Print what a person has to act on, even to a quiet console."""
    quiet, console.quiet = console.quiet, False
    try:
        console.print(text, markup=False, highlight=False)
    finally:
        console.quiet = quiet
