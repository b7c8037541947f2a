"""Experiment trackers: a new tracker is a class and a line of TRACKERS, or a plug-in."""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from adversaries import plugins, registry
from adversaries.errors import InputError
from fedsim.common import installation, private_files
from fedsim.common.foreign_text import without_password
from fedsim.config import Scalar


@dataclass(frozen=True)
class Subject:
    """The run that is tracked.

    Attributes:
        name: name of its directory.
        identity: unique identifier of the run.
        parameters: resolved configuration by dotted key.
    """

    name: str
    identity: str
    parameters: Mapping[str, Scalar]


class Tracker(Protocol):
    """Writes the numbers of one run to an experiment tracker."""

    def begin(self, subject: Subject) -> Mapping[str, int]:
        """Begin, or go on with, a run.

        Returns:
            The last step of every series that exists already, for a resumed run.
        """

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        """Write numbers.

        Args:
            step: the number of the round or of the finished trials, or 0.
            time: in seconds since the epoch.
        """

    def end(self, finished: bool) -> None:
        """End the tracking of a finished or interrupted run.

        Args:
            finished: whether the run has finished.
        """


def folder(place: str) -> Path:
    """Return the folder for the numbers of runs; a new one is private to its user."""
    path = private_files.as_named(Path(place).expanduser().absolute())
    try:
        private_files.make_directory(path)
        private_files.check_writable(path)
    except OSError as error:
        raise InputError(
            f"cannot write to the folder '{place}': {error.strerror}; name another"
        ) from None
    return path


EXPERIMENT = "fedsim"
IDENTITY = "fedsim.identity"
"""The tag by which a resumed run finds its record."""


WHY = 200
"""Characters of an error that are shown."""


class MlflowTracker:
    """Writes a run of the experiment "fedsim".

    Args:
        place: a folder, which gets mlflow.db, or the URI of a tracking store, with its "://".

    Raises:
        InputError: MLflow is not installed, or cannot write there.
    """

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

    def begin(self, subject: Subject) -> Mapping[str, int]:
        """Find the run by its identity, or make it."""
        client = self._client
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            number = client.create_experiment(EXPERIMENT, artifact_location=self._artifacts)
        else:
            number = experiment.experiment_id
        found = client.search_runs([number], f"tags.`{IDENTITY}` = '{subject.identity}'")
        if found:
            self._run = found[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return {name: self._last_step(name) for name in found[0].data.metrics}
        tags = {IDENTITY: subject.identity}
        self._run = client.create_run(number, run_name=subject.name, tags=tags).info.run_id
        for name, value in subject.parameters.items():
            client.log_param(self._run, name, value)
        return {}

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        """Write numbers.

        Args:
            time: in seconds since the epoch.
        """
        from mlflow.entities import Metric  # noqa: PLC0415

        metrics = [Metric(name, value, int(time * 1000), step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, finished: bool) -> None:
        """End the run."""
        self._client.set_terminated(self._run, status="FINISHED" if finished else "KILLED")

    def _last_step(self, name: str) -> int:
        history = self._client.get_metric_history(self._run, name)
        return max(int(metric.step) for metric in history)


USUAL = threading.excepthook


def _unless_told_anyway(what: threading.ExceptHookArgs) -> None:
    """Show an error of a thread, except TensorBoard's, which the next write raises again."""
    if not issubclass(what.exc_type, OSError) or "tensorboard" not in type(what.thread).__module__:
        USUAL(what)


class TensorBoardTracker:
    """Writes event files for `tensorboard --logdir`."""

    def __init__(self, place: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
        except ImportError:
            why = f"tensorboard is not installed; {installation.command('tensorboard')}"
            raise InputError(why) from None
        threading.excepthook = _unless_told_anyway
        self._writers = SummaryWriter
        self._folder = folder(place)
        self._writer: Any = None

    def begin(self, subject: Subject) -> Mapping[str, int]:
        """Begin a new event file, which replaces the one of an earlier process."""
        from torch.utils.tensorboard.summary import hparams  # noqa: PLC0415

        own = self._folder / f"{subject.name}-{subject.identity[:8]}"
        self._writer = self._writers(str(own), purge_step=0)
        shown = {"report/advantage": 0.0, "report/epsilon": 0.0}  # the columns; values are ignored
        for summary in hparams(dict(subject.parameters), shown):
            self._writer._get_file_writer().add_summary(summary)
        return {}

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        """Write numbers."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, walltime=time)
        self._writer.flush()

    def end(self, finished: bool) -> None:
        """Close the file."""
        self._writer.close()


TRACKERS: Mapping[str, Callable[[str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
}
"""Trackers by their names in --track; each is made from the text after the colon."""


def opened(target: str) -> Tracker:
    """Return the tracker of one --track.

    Args:
        target: such as "tensorboard:DIR".

    Raises:
        InputError: there is no such tracker, it lacks a place, its package is not installed, or it
            is a plug-in that this machine does not allow.
    """
    plugin = plugins.PREFIX if target.startswith(plugins.PREFIX) else ""
    name, _, place = target.removeprefix(plugin).partition(":")
    if plugin and place:
        made: Callable[[str], Tracker] = registry.lookup(TRACKERS, plugin + name, "--track")
        return made(place)
    if name not in TRACKERS or not place:
        known = ", ".join(TRACKERS)
        raise InputError(
            f"--track '{without_password(target)}' does not name a tracker; give NAME:PLACE, such "
            f"as tensorboard:fedsim-tensorboard (trackers: {known})"
        )
    return TRACKERS[name](place)
