"""A run in MLflow: in a folder's database, or at a server that the user names."""

import logging
import os
from collections.abc import Mapping

from adversaries.errors import InputError
from fedsim.common.foreign_text import without_password
from fedsim.report.tracking.tracker import Subject, folder

EXPERIMENT = "fedsim"
IDENTITY = "fedsim.identity"
"""The tag by which a resumed run finds itself."""


WHY = 200
"""Characters of an error that is shown."""


class MlflowTracker:
    """Writes a run of the experiment "fedsim".

    Args:
        place: a folder, which gets mlflow.db, or the URI of a tracking store, with its "://".

    Raises:
        InputError: MLflow is not installed, or cannot write there.
    """

    def __init__(self, place: str) -> None:
        # Nothing leaves this machine but to the server that was named: no usage statistics either.
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a run waits for its end
        try:
            from mlflow import MlflowClient  # noqa: PLC0415
        except ImportError:
            raise InputError('mlflow is not installed; pip install -e ".[mlflow]"') from None
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
