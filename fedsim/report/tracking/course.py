"""The state of a run so far, computed from its events."""

from dataclasses import dataclass, replace
from typing import Any

from fedsim.learning.training.criterion import Judged, Measured, criterion, judge
from fedsim.report.document import worth

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


@dataclass(frozen=True)
class Course:
    """A run so far.

    Attributes:
        rounds: rounds of each trial; 0 while unknown.
        trials: trials in training, as first and one past the last.
        majority, baseline_loss: accuracy and mean loss of a model that has learnt nothing.
        of_class: held-out records of each class.
        balanced_accuracy, area_under_curve: means after the last round that measured them.
        recalls: of each class after the last round that measured them, means over the trials of a
            batch; None for a class without records.
        epsilon: of one training up to that round; None if unknown.
        busy: clients that have not answered for long; empty while the server waits for none.
        busy_since: time of the unanswered message, in seconds since the epoch.
        waits: number of events about waiting, its beginnings and ends.
    """

    rounds: int = 0
    trials: tuple[int, int] = (0, 0)
    round: int = 0
    accuracy: float | None = None
    majority: float | None = None
    task: str = "classification"
    loss: float | None = None
    baseline_loss: float | None = None
    of_class: tuple[int, ...] = ()
    balanced_accuracy: float | None = None
    area_under_curve: float | None = None
    recalls: tuple[float | None, ...] = ()
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
        return self.accuracy if self.look.accuracy is None else self.look.accuracy

    @property
    def judged(self) -> Judged | None:
        """The model by the criterion of its task; None before it is measured."""
        if (accuracy := self.steady_accuracy) is None or self.majority is None:
            return None
        so_far = Measured(
            *(self.task, 0, accuracy, self.majority, self.loss, self.of_class, self.recalls),
            balanced_accuracy=self.balanced_accuracy,
            area_under_curve=self.area_under_curve,
            baseline_loss=self.baseline_loss,
        )
        judged = judge(so_far)
        classified = self.task == "classification"
        return None if classified and judged.name != criterion(self.of_class) else judged

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
        since = event["time"] - event.get("seconds", 0.0)
        waits = course.waits + 1
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
    return replace(
        course,
        trials=(first, last),
        round=event["round"],
        accuracy=event.get("accuracy"),
        majority=event.get("majority"),
        task=event.get("task", "classification"),
        loss=event.get("loss"),
        baseline_loss=event.get("baseline_loss"),
        of_class=tuple(event.get("of_class", ())),
        balanced_accuracy=event.get("balanced_accuracy", course.balanced_accuracy),
        area_under_curve=event.get("area_under_curve", course.area_under_curve),
        recalls=tuple(event.get("recalls", course.recalls)),
        epsilon=event.get("epsilon"),
    )
