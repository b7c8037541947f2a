"""TensorBoard and MLflow have what was written, also of a run that was resumed."""

import os
import sys
from io import StringIO

import pytest
from rich.console import Console

from adversaries.errors import InputError
from fedsim.commands.main import main
from fedsim.configuration import Config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.reports.tracking import trackers
from fedsim.reports.tracking.progress import following
from fedsim.reports.tracking.trackers import TRACKERS, Tracking, opened

RUN = "digits", "0123456789abcdef", {"training.rounds": 3, "model.name": "mlp"}


def _write(tracker, first, last, finished=True):
    there = tracker.begin(*RUN)
    for step in range(first, last + 1):
        tracker.log({"round/accuracy": step / 10}, step, 1.7e9 + step)
    tracker.end(finished)
    return there


@pytest.mark.filterwarnings("default")  # of other projects' generated code
def test_tensorboard_shows_a_resumed_run_once(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
        EventAccumulator,
    )

    place = f"tensorboard:{tmp_path / 'board'}"
    assert _write(opened(place), 0, 2)
    assert _write(opened(place), 0, 3)  # written anew
    (folder,) = (tmp_path / "board").iterdir()
    assert (tmp_path / "board").stat().st_mode & 0o777 == 0o700
    found = EventAccumulator(str(folder))
    found.Reload()
    scalars = {one.step: one.value for one in found.Scalars("round/accuracy")}
    assert scalars == pytest.approx({0: 0.0, 1: 0.1, 2: 0.2, 3: 0.3})
    assert len(found.Scalars("round/accuracy")) == 4


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_mlflow_goes_on_with_a_resumed_run_and_sends_nobody_else_anything(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    place = f"mlflow:{tmp_path / 'flow'}"
    assert _write(opened(place), 0, 2, finished=False)
    assert _write(opened(place), 3, 3)
    assert not opened(place).begin(*RUN)
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'flow' / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("fedsim").experiment_id])
    assert (run.info.run_name, run.info.status) == ("digits", "FINISHED")
    assert run.data.params == {"training.rounds": "3", "model.name": "mlp"}
    history = client.get_metric_history(run.info.run_id, "round/accuracy")
    assert [one.step for one in history] == [0, 1, 2, 3]


@pytest.mark.parametrize("target", ["mlflow", "mlflow:", "wandb:runs", ""])
def test_what_is_no_place_is_said_in_one_line(target):
    with pytest.raises(InputError, match="give NAME:PLACE"):
        opened(target)


def test_the_password_of_a_server_is_said_by_nobody(tmp_path, monkeypatch, capsys):
    place, said = "https://me:se@cret@tracking.example:5000/x", StringIO()

    class Refusing:
        def __init__(self, uri):
            self.uri = uri

        def begin(self, *run):
            raise OSError(f"no route to {self.uri}/api")

    monkeypatch.setitem(trackers.TRACKERS, "mlflow", Refusing)
    run = RunDirectory.create(tmp_path / "run", Config())
    tracking = Tracking(run, opened(f"mlflow:{place}"), place)
    with run.lock(), following(run, [tracking], Console(file=said, width=200)):
        run.log_event(round=1, trials=[0, 2], accuracy=0.5)
    clean = "https://tracking.example:5000/x"
    assert said.getvalue() == f"{clean} is no longer written: no route to {clean}/api\n"
    for to in (f"mlflow:{place}", f"wandb:{place}"):
        with pytest.raises(SystemExit):
            main(["report", str(run.path), "--track", to])
        out, err = capsys.readouterr()
        assert "tracking.example" in err
        assert not [word for word in ("cret", "me:") if word in out + err]


@pytest.mark.parametrize("name", TRACKERS)
def test_a_package_that_is_missing_is_named_with_what_installs_it(name, monkeypatch):
    for module in (name, "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    command = rf'pip install "fedsim-identifiability\[{name}\]"'
    with pytest.raises(InputError, match=f"{name} is not installed; {command}"):
        opened(f"{name}:somewhere")
