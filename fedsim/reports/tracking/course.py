"""The state of a run so far, computed from its events."""

from dataclasses import dataclass, replace
from typing import Any

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
        accuracy: mean of the trials in training, balanced where an event has it; None if unknown.
        epsilon: of one training up to that round; None if unknown.
        look: results of the finished trials.
        busy: clients that have not answered for long; empty while the server waits for none.
        busy_since: time of the unanswered message, in seconds since the epoch.
    """

    rounds: int = 0
    trials: tuple[int, int] = (0, 0)
    round: int = 0
    accuracy: tuple[str, float] | None = None
    epsilon: float | None = None
    look: Look = Look(0)
    busy: tuple[int, ...] = ()
    busy_since: float = 0.0
    time: float = 0.0

    @property
    def busy_text(self) -> str:
        if not self.busy:
            return ""
        clients = f"client{'s' * (len(self.busy) > 1)} {', '.join(map(str, self.busy))}"
        return f"{clients}, for {self.time - self.busy_since:.0f} s"


def after(course: Course, event: Event) -> Course:
    """Return the state of the run after one more event.

    An auditor's event changes the time only. A resumed run repeats the events of its finished
    batches.
    """
    course = replace(course, time=event["time"])
    if "busy" in event:
        since = event["time"] - event.get("seconds", 0.0)
        return replace(course, busy=tuple(event["busy"]), busy_since=since)
    if event.get("phase") == "batch":
        first, last = event["trials"]
        ends = event.get("advantage_interval")
        interval = (ends[0], ends[1]) if ends else None
        belief, accuracy = event.get("belief"), event.get("accuracy")
        look = Look(last, event.get("advantage"), interval, belief, accuracy)
        return replace(course, trials=(first, last), round=course.rounds, look=look)
    if "phase" in event:
        course = replace(course, busy=())  # of an interrupted attempt
        if event["phase"] != "training":
            return course
        return replace(course, rounds=event.get("rounds", 0), look=Look(0))
    if "round" not in event or "trials" not in event:
        return course
    first, last = event["trials"]
    measures = (name for name in ("balanced_accuracy", "accuracy") if event.get(name) is not None)
    accuracy = next(((name.replace("_", " "), event[name]) for name in measures), None)
    epsilon = event.get("epsilon")
    now = replace(course, trials=(first, last), round=event["round"], epsilon=epsilon)
    return now if accuracy is None else replace(now, accuracy=accuracy)
