"""What is known of a run so far: its events, one after the other, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from fedsim.report.document.wording import percent
from fedsim.report.document.worth import WORDS, Worth

Event = dict[str, Any]
"""A line of events.jsonl, as `fedsim.federation.runs.run_files.Event` checks it."""


@dataclass(frozen=True)
class Look:
    """All trials that were finished after some batch of them.

    Attributes:
        interval: around it, which holds at every look together (`federation.runs.precision`).
        belief: the largest in the record, of the trials that used it.
    """

    trials: int
    advantage: float | None = None
    interval: tuple[float, float] | None = None
    belief: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True)
class Course:
    """A run so far.

    Attributes:
        rounds: of each trial; 0 before anybody knows.
        trials: those that are trained now, the first and the one behind the last.
        majority: share that a model gets right which has learnt nothing.
        task, loss, baseline_loss: as of `Worth`.
        recalls, precisions: of each class after the last round that has them, the mean over the
            trials of its batch; None for a class without records or answers.
        epsilon: of one training up to that round; None where nobody says.
        accuracies: of the first batch of trials, by round.
        looks: one for each finished batch, in their order.
        busy: the clients that a message was sent to long ago, without an answer; none where the
            server waits for nobody.
        busy_since: when it was sent, in seconds since the epoch.
        waits: how often it was noted for whom the server waits, or that it no longer does.
        time: of the last event, in seconds since the epoch.
    """

    phase: str = "starting"
    rounds: int = 0
    trials: tuple[int, int] = (0, 0)
    round: int = 0
    accuracy: float | None = None
    majority: float | None = None
    task: str = "classification"
    loss: float | None = None
    baseline_loss: float | None = None
    recalls: tuple[float | None, ...] = ()
    precisions: tuple[float | None, ...] = ()
    epsilon: float | None = None
    accuracies: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    looks: tuple[Look, ...] = ()
    rho_alpha: float | None = None
    rho_beta: float | None = None
    busy: tuple[int, ...] = ()
    busy_since: float = 0.0
    waits: int = 0
    time: float = 0.0

    @property
    def busy_text(self) -> str:
        """Which clients have not answered, and for how long; "" where the server waits for none."""
        if not self.busy:
            return ""
        clients = f"client{'s' * (len(self.busy) > 1)} {', '.join(map(str, self.busy))}"
        return f"{clients}, for {self.time - self.busy_since:.0f} s"

    @property
    def look(self) -> Look:
        """The last look, or one at nothing."""
        return self.looks[-1] if self.looks else Look(0)

    @property
    def steady_accuracy(self) -> float | None:
        """The mean over finished trials, so that it does not jump when others begin.

        That of the trials that are being trained where none are finished.
        """
        return self.accuracy if self.look.accuracy is None else self.look.accuracy

    @property
    def accuracy_text(self) -> str:
        """What leads of the model's worth beside its baseline; "" where nothing is evaluated."""
        if (accuracy := self.steady_accuracy) is None:
            return ""
        if self.majority is None:
            return percent(accuracy)
        words = WORDS[self.task]
        found = Worth(accuracy, self.loss, self.majority, baseline_loss=self.baseline_loss)
        return f"{words.value(accuracy, self.loss)} ({words.baseline(found)})"


def after(course: Course, event: Event) -> Course:
    """Return what is known after one more event; one of an auditor changes nothing
    but the time.

    A resumed run names its finished batches again, so that its looks begin anew with its training.
    """
    course = replace(course, time=event["time"])
    if "busy" in event:
        since = event["time"] - event.get("seconds", 0.0)
        waits = course.waits + 1
        return replace(course, busy=tuple(event["busy"]), busy_since=since, waits=waits)
    if event.get("phase") == "batch":
        return _batch(course, event)
    if "phase" in event:
        course = replace(course, busy=())  # of an attempt that was interrupted
        course = replace(course, phase=event["phase"])
        if event["phase"] == "training":
            course = replace(
                course,
                rounds=event.get("rounds", 0),
                looks=(),
                rho_alpha=event.get("rho_alpha"),
                rho_beta=event.get("rho_beta"),
            )
        return course
    if "round" in event and "trials" in event:
        return _round(course, event)
    return course


def _round(course: Course, event: Event) -> Course:
    (first, last), accuracy = event["trials"], event.get("accuracy")
    accuracies = course.accuracies
    if first == 0 and accuracy is not None:
        accuracies = MappingProxyType({**accuracies, event["round"]: accuracy})
    return replace(
        course,
        trials=(first, last),
        round=event["round"],
        accuracy=accuracy,
        majority=event.get("majority"),
        task=event.get("task", "classification"),
        loss=event.get("loss"),
        baseline_loss=event.get("baseline_loss"),
        recalls=tuple(event.get("recalls", course.recalls)),
        precisions=tuple(event.get("precisions", course.precisions)),
        epsilon=event.get("epsilon"),
        accuracies=accuracies,
    )


def _batch(course: Course, event: Event) -> Course:
    first, last = event["trials"]
    ends = event.get("advantage_interval")
    look = Look(
        last,
        event.get("advantage"),
        (ends[0], ends[1]) if ends else None,
        event.get("belief"),
        event.get("accuracy"),
    )
    return replace(course, trials=(first, last), round=course.rounds, looks=(*course.looks, look))
