"""Experiment trackers: TensorBoard and MLflow. Another one is a class and a line of TRACKERS."""

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from adversaries.errors import InputError
from fedsim.common import installation, private_files
from fedsim.common.secrets_in_text import without_password
from fedsim.configuration import Scalar, to_run_config
from fedsim.federation.runs.run_directory import LAST_FILE, RunDirectory

EXPERIMENT, IDENTITY = "fedsim", "fedsim.identity"
"""MLflow's experiment, and the tag by which a resumed run finds its record."""

WHY = 200
Event = dict[str, Any]
Numbers = dict[str, float | None]


class Tracker(Protocol):
    def begin(self, name: str, identity: str, parameters: Mapping[str, Scalar]) -> bool:
        """Begin a run, or write it anew; return False for one that it has, finished."""

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
        why = f"cannot write to the folder '{place}': {error.strerror}; name another one"
        raise InputError(why) from None
    return path


class MlflowTracker:
    def __init__(self, place: str) -> None:
        # Nothing is sent to any machine except the named server: no usage statistics.
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a run waits for its end
        from mlflow import MlflowClient  # noqa: PLC0415

        for name in ("mlflow", "alembic"):  # which tell of every table that they make
            logging.getLogger(name).setLevel(logging.WARNING)
        self._artifacts, self._run, uri = None, "", place
        if "://" not in place:
            own = folder(place)
            self._artifacts, uri = (own / "artifacts").as_uri(), f"sqlite:///{own}/mlflow.db"
        self._client = MlflowClient(tracking_uri=uri)
        try:
            self._client.search_experiments(max_results=1)
        except Exception as error:  # of a database, of HTTP, of MLflow
            why = " ".join(without_password(str(error)).split())[:WHY]
            raise InputError(f"cannot write to mlflow:{without_password(place)}: {why}") from None

    def begin(self, name: str, identity: str, parameters: Mapping[str, Scalar]) -> bool:
        client, found = self._client, self._client.get_experiment_by_name(EXPERIMENT)
        if found is None:
            number = client.create_experiment(EXPERIMENT, artifact_location=self._artifacts)
        else:
            number = found.experiment_id
        if runs := client.search_runs([number], f"tags.`{IDENTITY}` = '{identity}'"):
            self._run = runs[0].info.run_id
            if runs[0].info.status == "FINISHED":
                return False
            client.update_run(self._run, status="RUNNING")
            return True
        self._run = client.create_run(number, run_name=name, tags={IDENTITY: identity}).info.run_id
        for key, value in parameters.items():
            client.log_param(self._run, key, value)
        return True

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415

        metrics = [Metric(name, value, int(time * 1000), step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, finished: bool) -> None:
        self._client.set_terminated(self._run, status="FINISHED" if finished else "KILLED")


class TensorBoardTracker:
    def __init__(self, place: str) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

        self._writers, self._folder = SummaryWriter, folder(place)
        self._writer: Any = None

    def begin(self, name: str, identity: str, parameters: Mapping[str, Scalar]) -> bool:
        """Begin a new event file, which replaces the one of an earlier process."""
        own = self._folder / f"{name}-{identity[:8]}"
        self._writer = self._writers(str(own), purge_step=0)
        return True

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


def every(targets: Sequence[str] | None) -> dict[str, Tracker]:
    """Return the trackers of --track, by their places."""
    return {target: opened(target) for target in targets or ()}


def opened(target: str) -> Tracker:
    """Return the tracker of one --track, such as "tensorboard:DIR".

    Raises InputError if there is no such tracker, it lacks a place, or its package is not
    installed.
    """
    name, _, place = target.partition(":")
    if name not in TRACKERS or not place:
        raise InputError(
            f"--track '{without_password(target)}' does not name a tracker; give NAME:PLACE, such "
            f"as tensorboard:fedsim-tensorboard (trackers: {', '.join(TRACKERS)})"
        )
    try:
        return TRACKERS[name](place)
    except ImportError:
        raise InputError(f"{name} is not installed; {installation.command(name)}") from None


PLACES = {"run.out", "data.root", "data.public-root", "data.public-schema", "model.weights"}
"""Keys whose values may be paths of this machine."""


def parameters(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the settings for trackers, without paths.

    The seed is included only if the noise also comes from it. Otherwise, the seed would reveal
    which trials used the record.
    """
    secret = PLACES if values["privacy.noise-source"] == "seed" else PLACES | {"run.seed"}
    return {key: value for key, value in values.items() if key not in secret}


class Tracking:
    """Writes the events of a run, and at its end its headline, to a tracker."""

    def __init__(self, directory: RunDirectory, tracker: Tracker, name: str) -> None:
        self.name = without_password(name)
        self._directory, self._tracker = directory, tracker
        self._writes: bool | None = None

    def see(self, event: Event, new: bool) -> None:
        self._log(*logged(event), event["time"])

    def leave(self, finished: bool) -> None:
        if finished:
            last = (self._directory.path / LAST_FILE).stat().st_mtime
            self._log(*headline(self._directory), last)
        if self._begun():
            self._tracker.end(finished)

    def _log(self, values: Numbers, step: int, time: float) -> None:
        numbers = ((name, value) for name, value in values.items() if value is not None)
        known = {name: float(value) for name, value in numbers if math.isfinite(value)}
        if known and self._begun():
            self._tracker.log(known, step, time)

    def _begun(self) -> bool:
        """Return whether the tracker writes this run; the first call begins."""
        if self._writes is None:
            path, values = self._directory.path, to_run_config(self._directory.config)
            identity = self._directory.identity
            self._writes = self._tracker.begin(path.name, identity, parameters(values))
        return self._writes


OF_A_ROUND = "accuracy", "balanced_accuracy", "area_under_curve", "loss", "epsilon"
"""All follow from released sums and public records, for a training too."""


def logged(event: Event) -> tuple[Numbers, int]:
    """Return the numbers that an event adds to the series, with their step.

    `round/...` has the first batch of trials, by round. `trials/...` has all finished trials, by
    their number.
    """
    if "round" in event and event.get("trials", [1])[0] == 0:
        return {f"round/{name}": event.get(name) for name in OF_A_ROUND}, event["round"]
    if event.get("phase") != "batch" or event.get("advantage") is None:
        return {}, 0
    numbers = _advantage(event["advantage"], event.get("advantage_interval"))
    numbers |= {"worst_belief": event.get("belief"), "accuracy": event.get("accuracy")}
    return {f"trials/{name}": value for name, value in numbers.items()}, event["trials"][1]


def _advantage(value: float | None, interval: Sequence[float] | None) -> Numbers:
    low, high = interval or (None, None)
    return {"advantage": value, "advantage_low": low, "advantage_high": high}


def headline(directory: RunDirectory) -> tuple[Numbers, int]:
    """Return the final numbers of a finished run, from its report or its public card."""
    if directory.config.run.job == "training":
        return _of_card(directory)
    from fedsim.audits.run import report as results  # noqa: PLC0415  (slow to import)

    report = results.read(directory)
    accounted = results.accounted(report)
    measured, quality = report.attack, report.details.utility.measured
    numbers = _advantage(measured.advantage, measured.interval) | {
        "advantage_predicted": report.details.prediction.advantage,
        "rho_alpha": report.row.allowed.rho_alpha,
        "rho_beta": accounted.rho_beta,
        "epsilon": accounted.epsilon,
        "epsilon_at_least": measured.epsilon_at_least,
        "balanced_accuracy": quality.balanced_accuracy,
        "area_under_curve": quality.area_under_curve,
    }
    return {f"report/{name}": value for name, value in numbers.items()}, report.details.trials


def _of_card(directory: RunDirectory) -> tuple[Numbers, int]:
    from fedsim.reports import model_card  # noqa: PLC0415  (torch is slow to import)

    card, by = model_card.read_card(directory), directory.config.privacy.accountant
    numbers: Numbers = {
        f"epsilon_{row.vantage.replace('-', '_')}": row.epsilon.get(by)
        for row in card.privacy.towards
    }
    if (quality := card.utility) is not None:
        numbers |= {name: getattr(quality, name) for name in OF_A_CARD}
        numbers |= {name: values[0] for name, values in quality.errors.items()}
    return {f"model/{name}": value for name, value in numbers.items()}, card.rounds


OF_A_CARD = "accuracy", "majority", "balanced_accuracy", "area_under_curve", "loss"
