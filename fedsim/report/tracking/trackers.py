"""Experiment trackers: a new tracker is a class and a line of TRACKERS."""

import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.common import installation, private_files
from fedsim.common.foreign_text import without_password
from fedsim.config import Scalar
from fedsim.federation.runs.run_directory import LAST_FILE, RunDirectory
from fedsim.report.tracking.course import Course, Event


@dataclass(frozen=True)
class TrackedSubject:
    name: str
    identity: str
    parameters: Mapping[str, Scalar]


class Tracker(Protocol):
    def begin(self, subject: TrackedSubject) -> Mapping[str, int]:
        """Begin, or go on with, a run; return the last step of every series that exists already."""

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        """Write numbers."""

    def end(self, finished: bool) -> None:
        """End the tracking of a finished or interrupted run."""


def folder(place: str) -> Path:
    """Return the folder for the numbers of runs; a new one is private to its user."""
    path = private_files.as_named(Path(place).expanduser().absolute())
    try:
        private_files.make_directory(path)
        private_files.check_writable(path)
    except OSError as error:
        raise InputError(
            f"cannot write to the folder '{place}': {error.strerror}; name another one"
        ) from None
    return path


EXPERIMENT = "fedsim"
IDENTITY = "fedsim.identity"
"""The tag by which a resumed run finds its record."""


WHY = 200


class MlflowTracker:
    def __init__(self, place: str) -> None:
        # Nothing is sent to any machine except the named server: no usage statistics.
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a run waits for its end
        try:
            from mlflow import MlflowClient  # noqa: PLC0415
        except ImportError:
            why = f"mlflow is not installed; {installation.command('mlflow')}"
            raise InputError(why) from None
        for name in ("mlflow", "alembic"):  # which tell of every table that they make
            logging.getLogger(name).setLevel(logging.WARNING)
        self._artifacts, uri = None, place
        if "://" not in place:
            own = folder(place)
            self._artifacts, uri = (own / "artifacts").as_uri(), f"sqlite:///{own}/mlflow.db"
        self._client = MlflowClient(tracking_uri=uri)
        self._run = ""
        try:
            self._client.search_experiments(max_results=1)
        except Exception as error:  # of a database, of HTTP, of MLflow
            why = " ".join(without_password(str(error)).split())[:WHY]
            raise InputError(f"cannot write to mlflow:{without_password(place)}: {why}") from None

    def begin(self, subject: TrackedSubject) -> Mapping[str, int]:
        client = self._client
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            number = client.create_experiment(EXPERIMENT, artifact_location=self._artifacts)
        else:
            number = experiment.experiment_id
        runs = client.search_runs([number], f"tags.`{IDENTITY}` = '{subject.identity}'")
        if runs:
            self._run = runs[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return {
                name: max(int(each.step) for each in client.get_metric_history(self._run, name))
                for name in runs[0].data.metrics
            }
        tags = {IDENTITY: subject.identity}
        self._run = client.create_run(number, run_name=subject.name, tags=tags).info.run_id
        for name, value in subject.parameters.items():
            client.log_param(self._run, name, value)
        return {}

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415

        metrics = [Metric(name, value, int(time * 1000), step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, finished: bool) -> None:
        self._client.set_terminated(self._run, status="FINISHED" if finished else "KILLED")


class TensorBoardTracker:
    def __init__(self, place: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
        except ImportError:
            why = f"tensorboard is not installed; {installation.command('tensorboard')}"
            raise InputError(why) from None
        self._writers = SummaryWriter
        self._folder = folder(place)
        self._writer: Any = None

    def begin(self, subject: TrackedSubject) -> Mapping[str, int]:
        """Begin a new event file, which replaces the one of an earlier process."""
        own = self._folder / f"{subject.name}-{subject.identity[:8]}"
        self._writer = self._writers(str(own), purge_step=0)
        return {}

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, walltime=time)
        self._writer.flush()

    def end(self, finished: bool) -> None:
        self._writer.close()


TRACKERS: Mapping[str, Callable[[str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
}
"""Trackers by their names in --track; each is made from the text after the colon."""


def opened(target: str) -> Tracker:
    """Return the tracker of one --track, such as "tensorboard:DIR".

    Raises InputError if there is no such tracker, it lacks a place, or its package is not
    installed.
    """
    name, _, place = target.partition(":")
    if name not in TRACKERS or not place:
        names = ", ".join(TRACKERS)
        raise InputError(
            f"--track '{without_password(target)}' does not name a tracker; give NAME:PLACE, such "
            f"as tensorboard:fedsim-tensorboard (trackers: {names})"
        )
    return TRACKERS[name](place)


PLACES = {
    *("run.out", "data.root", "data.public-root", "data.public-schema", "model.weights"),
    "federation.partition-options",
}
"""Keys whose values may be paths of this machine."""


def parameters(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the settings for trackers, without paths.

    The seed is included only if the noise also comes from it. Otherwise, the seed would reveal
    which trials used the record.
    """
    secret = PLACES if values["privacy.noise-source"] == "seed" else PLACES | {"run.seed"}
    return {key: value for key, value in values.items() if key not in secret}


class Tracking:
    from_the_beginning = True

    def __init__(self, directory: RunDirectory, tracker: Tracker, name: str) -> None:
        self.name = without_password(name)
        self._directory, self._tracker = directory, tracker
        self._last: dict[str, int] | None = None

    def see(self, event: Event, course: Course) -> None:
        if (numbers := logged(event, course)) is not None:
            self._log(*numbers, event["time"])

    def leave(self, finished: bool) -> None:
        if finished:
            self._log(
                *headline(self._directory), (self._directory.path / LAST_FILE).stat().st_mtime
            )
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
            subject = TrackedSubject(path.name, self._directory.identity, parameters(values))
            self._last = dict(self._tracker.begin(subject))
        return self._last


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
    """Return the final numbers of a finished run, from its report or its public card."""
    if directory.config.run.job == "training":
        return _of_card(directory)
    from fedsim.audits.results import report as results  # noqa: PLC0415  (slow to import)

    report = results.read(directory)
    measured, limit = report.attack, report.here.limit
    low, high = measured.interval or (None, None)
    return {
        "report/advantage": measured.advantage,
        "report/advantage_low": low,
        "report/advantage_high": high,
        "report/advantage_predicted": report.prediction.advantage,
        "report/rho_alpha": limit.rho_alpha,
        "report/rho_beta": report.accounted.rho_beta,
        "report/epsilon": report.accounted.epsilon,
        "report/epsilon_at_least": measured.epsilon_at_least,
        "report/balanced_accuracy": report.utility.balanced_accuracy,
        "report/area_under_curve": report.utility.area_under_curve,
    }, report.trials


def _of_card(directory: RunDirectory) -> tuple[dict[str, float | None], int]:
    from fedsim.report import model_card  # noqa: PLC0415  (torch is slow to import)

    card, by = model_card.read_card(directory), directory.config.privacy.accountant
    numbers: dict[str, float | None] = {
        f"model/epsilon_{row.vantage.replace('-', '_')}": row.epsilon.get(by)
        for row in card.privacy.towards
    }
    if (quality := card.utility) is not None:
        numbers |= {
            "model/accuracy": quality.accuracy,
            "model/majority": quality.majority,
            "model/balanced_accuracy": quality.balanced_accuracy,
            "model/area_under_curve": quality.area_under_curve,
            "model/loss": quality.loss,
            **{f"model/{name}": values[0] for name, values in quality.errors.items()},
        }
    if card.privacy.measures_epsilon:
        numbers["model/epsilon_measures"] = card.privacy.measures_epsilon
    return numbers, card.rounds
