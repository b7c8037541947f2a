"""The state of a run so far, computed from its events."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedsim.learning.training.criterion import Judged, Measured, criterion, judge
from fedsim.reports.document import worth

Event = dict[str, Any]


@dataclass(frozen=True)
class Look:
    """Results of all trials that were finished after a batch of trials.

    Attributes:
        interval: of the advantage; the intervals of all looks hold together.
        belief: largest belief in the record, over trials that used it.
    """

    trials: int
    advantage: float | None = None
    interval: tuple[float, float] | None = None
    belief: float | None = None
    accuracy: float | None = None


MEASURES = ("balanced_accuracy", "area_under_curve", "recalls")
"""What only some rounds of a batch measure; it holds until the next that does."""


@dataclass(frozen=True)
class Course:
    """A run so far.

    Attributes:
        rounds: rounds of each trial; 0 while unknown.
        trials: trials in training, as first and one past the last.
        model: the measures of the model after the last round, as its event has them.
        epsilon: of one training up to that round; None if unknown.
        busy: clients that have not answered for long; empty while the server waits for none.
        busy_since: time of the unanswered message, in seconds since the epoch.
        waits: number of events about waiting, its beginnings and ends.
    """

    rounds: int = 0
    trials: tuple[int, int] = (0, 0)
    round: int = 0
    model: Mapping[str, Any] = field(default_factory=dict)
    epsilon: float | None = None
    looks: tuple[Look, ...] = ()
    busy: tuple[int, ...] = ()
    busy_since: float = 0.0
    waits: int = 0
    time: float = 0.0

    @property
    def busy_text(self) -> str:
        if not self.busy:
            return ""
        clients = f"client{'s' * (len(self.busy) > 1)} {', '.join(map(str, self.busy))}"
        return f"{clients}, for {self.time - self.busy_since:.0f} s"

    @property
    def look(self) -> Look:
        return self.looks[-1] if self.looks else Look(0)

    @property
    def steady_accuracy(self) -> float | None:
        """Mean accuracy over finished trials, which does not jump when other trials begin.

        Before any trial is finished, it is the mean over the trials in training.
        """
        now: float | None = self.model.get("accuracy")
        return now if self.look.accuracy is None else self.look.accuracy

    @property
    def judged(self) -> Judged | None:
        """The model by the criterion of its task; None before it is measured."""
        model, accuracy = self.model, self.steady_accuracy
        if accuracy is None or model.get("majority") is None:
            return None
        task, of_class = model.get("task", "classification"), tuple(model.get("of_class", ()))
        recalls = tuple(model.get("recalls", ()))
        judged = judge(
            Measured(
                *(task, 0, accuracy, model["majority"], model.get("loss"), of_class, recalls),
                balanced_accuracy=model.get("balanced_accuracy"),
                area_under_curve=model.get("area_under_curve"),
                baseline_loss=model.get("baseline_loss"),
            )
        )
        known = task != "classification" or judged.name == criterion(of_class)
        return judged if known else None

    @property
    def worth(self) -> str:
        """The criterion as text, with what a constant answer reaches; "" before it is measured."""
        if (judged := self.judged) is None:
            return ""
        reached = worth.as_text(judged.name, judged.value)
        return f"{judged.name} {reached} ({worth.baseline(judged)})"


def after(course: Course, event: Event) -> Course:
    """Return the state of the run after one more event.

    An auditor's event changes the time only. A resumed run repeats the events of its finished
    batches, so its looks begin anew with its training.
    """
    course = replace(course, time=event["time"])
    if "busy" in event:
        since, waits = event["time"] - event.get("seconds", 0.0), course.waits + 1
        return replace(course, busy=tuple(event["busy"]), busy_since=since, waits=waits)
    if event.get("phase") == "batch":
        first, last = event["trials"]
        ends = event.get("advantage_interval")
        interval = (ends[0], ends[1]) if ends else None
        belief, accuracy = event.get("belief"), event.get("accuracy")
        looks = *course.looks, Look(last, event.get("advantage"), interval, belief, accuracy)
        return replace(course, trials=(first, last), round=course.rounds, looks=looks)
    if "phase" in event:
        course = replace(course, busy=())  # of an interrupted attempt
        if event["phase"] != "training":
            return course
        return replace(course, rounds=event.get("rounds", 0), looks=())
    if "round" not in event or "trials" not in event:
        return course
    first, last = event["trials"]
    kept = {name: course.model[name] for name in MEASURES if name in course.model}
    epsilon, model = event.get("epsilon"), kept | dict(event)
    return replace(course, trials=(first, last), round=event["round"], model=model, epsilon=epsilon)
