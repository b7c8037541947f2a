"""Which numbers of a run are tracked, and which settings.

What leaves is no more than what the run's own files hold. Of a training that is kept it is what
`public/` says or what follows from it, and how many clients keep the server waiting: not the noise
of a message, nor which client is late or missing. Neither the paths of this machine leave, nor a
seed that keeps a secret.
"""

import math
import re
from collections.abc import Mapping, Sequence

from fedsim import config as configuration
from fedsim.audits.results import report as results
from fedsim.audits.results.quality import OfClass
from fedsim.common.foreign_text import without_password
from fedsim.config import Config, Scalar
from fedsim.federation.runs.run_directory import LAST_FILE, RunDirectory
from fedsim.report.tracking.course import Course, Event
from fedsim.report.tracking.trackers import Subject, Tracker

PLACES = {
    *("run.out", "data.root", "data.public-root", "data.public-schema", "model.weights"),
    "federation.partition-options",
}
"""Keys whose values may be paths of this machine."""


def parameters(config: Config) -> dict[str, Scalar]:
    """Return the settings that are handed on.

    Without paths; and the seed only where the noise follows from it as well, so that it keeps no
    secret: elsewhere it is what tells which trials used the record.
    """
    found = configuration.to_run_config(config)
    secret = PLACES if config.privacy.noise_source == "seed" else PLACES | {"run.seed"}
    return {key: value for key, value in found.items() if key not in secret}


class Tracking:
    """Follows a run and has its numbers written.

    Args:
        name: by which a message names it, without the password of a URL.
    """

    from_the_beginning = True

    def __init__(self, directory: RunDirectory, tracker: Tracker, name: str) -> None:
        self.name = without_password(name)
        self._directory, self._tracker = directory, tracker
        self._last: dict[str, int] | None = None

    def see(self, event: Event, course: Course) -> None:
        """Have written what an event says."""
        if (found := logged(event, course)) is not None:
            self._log(*found, event["time"])

    def leave(self, finished: bool) -> None:
        """Have the report's numbers written, where there are any, and end."""
        if finished:
            self._log(*headline(self._directory), self._written_at())
        self._begun()
        self._tracker.end(finished)

    def _log(self, values: Mapping[str, float | None], step: int, time: float) -> None:
        last = self._begun()
        new = {
            name: float(value)
            for name, value in values.items()
            if value is not None and math.isfinite(value) and step > last.get(name, -1)
        }
        if new:
            self._tracker.log(new, step, time)
            last.update(dict.fromkeys(new, step))

    def _begun(self) -> dict[str, int]:
        """Return the last step of every series; the first call begins."""
        if self._last is None:
            path, config = self._directory.path, self._directory.config
            subject = Subject(path.name, self._directory.identity, parameters(config))
            self._last = dict(self._tracker.begin(subject))
        return self._last

    def _written_at(self) -> float:
        return (self._directory.path / LAST_FILE).stat().st_mtime


def logged(event: Event, course: Course) -> tuple[dict[str, float | None], int] | None:
    """Return what an event adds to the series, and at which step; None for nothing.

    `round/...` are of the first batch of trials, by round: one course of a training. `trials/...`
    are of all finished trials, by how many they are. `waiting/...` are of the clients that have not
    answered for long, by how often that was noted; 0 clients where the wait is over.
    """
    if "busy" in event:
        waiting = {"clients": len(event["busy"]), "seconds": event.get("seconds")}
        return {f"waiting/{name}": value for name, value in waiting.items()}, course.waits
    if "round" in event and event.get("trials", [1])[0] == 0:
        return {f"round/{name}": event.get(name) for name in OF_A_ROUND}, event["round"]
    if event.get("phase") == "batch" and course.look.advantage is not None:
        look = course.look
        low, high = look.interval or (None, None)
        return {
            "trials/advantage": look.advantage,
            "trials/advantage_low": low,
            "trials/advantage_high": high,
            "trials/worst_belief": look.belief,
            "trials/accuracy": look.accuracy,
        }, look.trials
    return None


OF_A_ROUND = "accuracy", "balanced_accuracy", "area_under_curve", "loss", "epsilon"
"""All follow from what the rounds released and from public records, also of a training."""


def headline(directory: RunDirectory) -> tuple[dict[str, float | None], int]:
    """Return the numbers that a finished run is compared by: its report's, or its public card's.

    Returns:
        They, and the step at which they stand: trials of an experiment, rounds of a training.
    """
    if directory.config.run.job == "training":
        return _of_card(directory)
    report = results.read(directory)
    measured = report.empirical
    low, high = measured.advantage_interval or (None, None)
    quality = report.utility.quality
    return {
        "report/advantage": measured.advantage,
        "report/advantage_low": low,
        "report/advantage_high": high,
        "report/advantage_predicted": report.prediction.advantage,
        "report/rho_alpha": report.bounds.rho_alpha,
        "report/rho_beta": report.bounds.rho_beta,
        "report/epsilon": report.bounds.epsilon,
        "report/epsilon_at_least": measured.headline.epsilon,
        "report/balanced_accuracy": report.utility.balanced_accuracy,
        "report/area_under_curve": report.utility.area_under_curve,
        **_of_classes("report", [] if quality is None else quality.classes),
    }, report.trials


UNNAMEABLE = re.compile(r"[^\w.-]")
"""What a tracker may refuse in the name of a series."""


def _of_classes(prefix: str, classes: Sequence[OfClass]) -> dict[str, float | None]:
    """Return recall and precision of each class, by names that every tracker takes."""
    names = [UNNAMEABLE.sub("_", each.name) for each in classes]
    if len(set(names)) < len(names):
        names = [str(label) for label in range(len(names))]
    return {
        f"{prefix}/{measure}/{name}": None if share is None else share.value
        for name, each in zip(names, classes, strict=True)
        for measure, share in (("recall", each.recall), ("precision", each.precision))
    }


def _of_card(directory: RunDirectory) -> tuple[dict[str, float | None], int]:
    from fedsim.report import model_card  # noqa: PLC0415  (torch is slow to import)

    card, by = model_card.read(directory), directory.config.privacy.accountant
    found: dict[str, float | None] = {
        f"model/epsilon_{row.vantage.replace('-', '_')}": row.epsilon.get(by)
        for row in card.privacy.towards
    }
    if (quality := card.utility) is not None:
        counted = model_card.quality_in(quality)
        found |= {
            "model/accuracy": quality.accuracy,
            "model/majority": quality.majority,
            "model/balanced_accuracy": quality.balanced_accuracy,
            "model/area_under_curve": quality.area_under_curve,
            "model/loss": quality.loss,
            **{f"model/{name}": values[0] for name, values in quality.errors.items()},
            **_of_classes("model", [] if counted is None else counted.classes),
        }
    if card.privacy.measures_epsilon:
        found["model/epsilon_measures"] = card.privacy.measures_epsilon
    for one in card.client_measures:
        found |= _of_classes(f"model/client-{one.client}", one.classes)
    return found, card.rounds
