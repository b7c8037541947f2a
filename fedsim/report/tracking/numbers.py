"""The numbers and settings of a run that trackers receive.

Trackers receive no more than the run's own files hold. For a kept training, this is the content of
`public/`, numbers that follow from it, and how many clients the server waits for. The noise of a
message and the names of late or missing clients stay here. So do paths of this machine, and a seed
that keeps a secret.
"""

import math
import re
from collections.abc import Mapping, Sequence

from fedsim import config as configuration
from fedsim.audits.results import report as results
from fedsim.audits.results.quality import OfClass
from fedsim.common.foreign_text import without_password
from fedsim.config import Scalar
from fedsim.federation.runs.run_directory import LAST_FILE, RunDirectory
from fedsim.report.tracking.course import Course, Event
from fedsim.report.tracking.trackers import Subject, Tracker

PLACES = {
    *("run.out", "data.root", "data.public-root", "data.public-schema", "model.weights"),
    "federation.partition-options",
}
"""Keys whose values may be paths of this machine."""


def parameters(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the settings for trackers, without paths.

    The seed is included only if the noise also comes from it. Otherwise, the seed would reveal
    which trials used the record.

    Args:
        values: the run's configuration, by dotted key.
    """
    secret = PLACES if values["privacy.noise-source"] == "seed" else PLACES | {"run.seed"}
    return {key: value for key, value in values.items() if key not in secret}


class Tracking:
    """Follows a run and passes its numbers to a tracker.

    Args:
        name: its name in messages; passwords of URLs are removed.
    """

    from_the_beginning = True

    def __init__(self, directory: RunDirectory, tracker: Tracker, name: str) -> None:
        self.name = without_password(name)
        self._directory, self._tracker = directory, tracker
        self._last: dict[str, int] | None = None

    def see(self, event: Event, course: Course) -> None:
        """Write the numbers of an event."""
        if (found := logged(event, course)) is not None:
            self._log(*found, event["time"])

    def leave(self, finished: bool) -> None:
        """Write the report's numbers, if there is a report, and end."""
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
            values = configuration.to_run_config(config)
            subject = Subject(path.name, self._directory.identity, parameters(values))
            self._last = dict(self._tracker.begin(subject))
        return self._last

    def _written_at(self) -> float:
        return (self._directory.path / LAST_FILE).stat().st_mtime


def logged(event: Event, course: Course) -> tuple[dict[str, float | None], int] | None:
    """Return the numbers that an event adds to the series, with their step; None for no numbers.

    `round/...` has the first batch of trials, by round. `trials/...` has all finished trials, by
    their number. `waiting/...` has the clients that have not answered for long, by the count of
    such events; 0 clients at the end of a wait.
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
"""All follow from released sums and public records, for a training too."""


def headline(directory: RunDirectory) -> tuple[dict[str, float | None], int]:
    """Return the final numbers of a finished run, from its report or its public card.

    Returns:
        The numbers, and their step: trials of an experiment, rounds of a training.
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
"""Characters that a tracker may refuse in the name of a series."""


def _of_classes(prefix: str, classes: Sequence[OfClass]) -> dict[str, float | None]:
    """Return recall and precision of each class, by names that every tracker accepts."""
    names = [UNNAMEABLE.sub("_", each.name) for each in classes]
    if len(set(names)) < len(names):
        names = [str(label) for label in range(len(names))]
    return {
        f"{prefix}/{measure}/{name}": None if share is None else share.value
        for name, each in zip(names, classes, strict=True)
        for measure, share in (("recall", each.recall), ("precision", each.precision))
    }


def _of_card(directory: RunDirectory) -> tuple[dict[str, float | None], int]:
    from fedsim.report import model_card, model_quality  # noqa: PLC0415  (torch is slow to import)

    card, by = model_card.read(directory), directory.config.privacy.accountant
    found: dict[str, float | None] = {
        f"model/epsilon_{row.vantage.replace('-', '_')}": row.epsilon.get(by)
        for row in card.privacy.towards
    }
    if (quality := card.utility) is not None:
        counted = model_quality.quality_in(quality)
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
