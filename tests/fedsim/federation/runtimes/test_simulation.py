"""Flower's simulation runtime gives the bits of the in-process one, and tells the truth."""

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
import torch

import fedsim
from fedsim.configuration import JOBS, from_run_config, to_run_config
from fedsim.configuration.files import dump
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes import simulation
from fedsim.federation.runtimes.flower_command import write_app

# Flower's processes wait for each other more than they compute: a few files beside each other.
pytestmark = pytest.mark.flower

ROOT = Path(__file__).parents[4]


def _fedsim(*arguments):
    command = [str(Path(sys.executable).parent / "fedsim"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


MARK = "FEDSIM_TEST_SIMULATION"
"""The variable by which the processes of these tests are told from others of Flower's."""


@pytest.fixture(autouse=True)
def _marked(monkeypatch, tmp_path):
    monkeypatch.setenv(MARK, str(tmp_path))


def _is_marked(process):
    try:
        return process.environ().get(MARK) == os.environ[MARK]
    except psutil.Error:
        return False  # it has ended, or is somebody else's


def _flower_processes():
    """Return the processes of this test that are Flower's or Ray's."""
    names = (
        "flower-superlink",
        "flower-superexec",
        "flwr-simulation",
        "experiment.simulate",
        "ray::",
        "raylet",
        "gcs_server",
    )
    found = set()
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        if any(name in command for name in names) and _is_marked(process):
            found.add(process.info["pid"])
    return found


@pytest.mark.parametrize(("device", "share"), [("cpu", 0.0), ("cuda", 0.25)])
def test_each_client_gets_a_core_and_an_equal_share_of_a_gpu(device, share, monkeypatch):
    monkeypatch.setattr(simulation, "resolve", lambda name: torch.device(device))
    config = from_run_config({"federation.clients": 4})
    found = simulation.resources(config.run, config.federation.clients)
    assert found["client_resources"] == {"num_cpus": 1, "num_gpus": share}


STARTED = """
import subprocess, sys, time
inner = '''
import sys, time
from fedsim import experiment
from fedsim.federation.runtimes import simulation
simulation.play = lambda *_: time.sleep(600)
print("begun", flush=True)
experiment.simulate(sys.argv[1], sys.argv[2])
'''
subprocess.Popen([sys.executable, "-c", inner, *sys.argv[1:]], start_new_session=True)
time.sleep(600)
"""


def test_a_simulation_ends_with_a_command_that_was_killed(tmp_path):
    config = from_run_config({"run.out": str(tmp_path / "run")})
    RunDirectory.create(tmp_path / "run", config)
    arguments = [str(tmp_path / "run"), str(tmp_path / "failure")]
    command = [sys.executable, "-c", STARTED, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        (inner,) = psutil.Process(process.pid).children()
        time.sleep(1)  # it asks Linux at its beginning
        process.kill()
        psutil.wait_procs([inner], timeout=20)
        assert not inner.is_running()


@pytest.mark.source
def test_the_app_that_is_written_is_the_repositorys(tmp_path):
    write_app(tmp_path)
    written = tomllib.loads((tmp_path / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    del own["flwr-version-target"]  # for a published bundle; a run takes the installed Flower
    assert written == own
    for package in ("fedsim", "adversaries"):
        sources = {path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}
        assert sources == {
            path.relative_to(tmp_path) for path in (tmp_path / package).rglob("*.py")
        }


SAMPLED_RECORDS = {
    "federation.trust": "central",
    "privacy.sensitivity": "local",
    "training.sampling-rate": 0.5,
    "training.optimizer": "adam",
    "audit.mode": "oracle",
}
SAMPLED_CLIENTS = {
    "federation.trust": "central",
    "privacy.unit": "client",
    "privacy.neighbouring": "add-remove",
    "federation.clients": 6,
    "federation.sampling-rate": 0.4,
    "training.local-learning-rate": 0.3,
    "training.batch-size": 2,
}
SAMPLED_SHARES = SAMPLED_CLIENTS | {
    "federation.trust": "distributed",
    "federation.tolerated-dropouts": 1,
    "federation.dropout-rate": 0.1,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    # Clean sums are those of records, and sampled clients those of shares.
    [SAMPLED_RECORDS, SAMPLED_SHARES, pytest.param(SAMPLED_CLIENTS, marks=pytest.mark.long)],
    ids=["records", "shares", "clients"],
)
def test_both_runtimes_give_the_same_bits(mode, small, run, tmp_path):
    config = small(mode)
    expected = run(config)
    before = _flower_processes()
    out = _simulated("run", config, tmp_path)
    simulated = out.read_arrays("transcript.npz")
    for name in ("worlds", "log_odds", "sensitivities", "final_models", "epsilon_spent"):
        np.testing.assert_array_equal(simulated[name], expected[name], err_msg=name)
    assert out.read_json("report.json")["details"]["runtime"] == "Flower simulation"
    assert _flower_processes() <= before


@pytest.mark.slow
def test_both_runtimes_train_the_same_model(small, tmp_path):
    mode = {"training.local-steps": 2, "federation.trust": "local", "privacy.stop-at": 1.9}
    kept = {"privacy.noise-source": "seed", "run.out": str(tmp_path / "in-process")}
    config = from_run_config(JOBS["training"](to_run_config(small(mode)) | kept))
    model = "public/model.safetensors"
    expected = (fedsim.train(config).path / model).read_bytes()
    assert (_simulated("train", config, tmp_path).path / model).read_bytes() == expected


def _simulated(command, config, place):
    """Return the directory of what a command did on Flower's simulation runtime."""
    (place / "small.toml").write_text(dump(config))
    out = place / "simulated"
    result = _fedsim(command, str(place / "small.toml"), "--simulation", "--out", str(out))
    assert result.returncode == 0, result.stderr
    return RunDirectory.open(out)


@pytest.mark.slow
def test_a_failing_client_fails_the_command(small, tmp_path):
    # A learning rate at which the models diverge, which a client notices in the second round.
    config = small({"training.learning-rate": 1e38, "training.clipping-norm": 1e30})
    (tmp_path / "small.toml").write_text(dump(config))
    result = _fedsim(
        "run",
        str(tmp_path / "small.toml"),
        "--simulation",
        "--quiet",
        "--out",
        str(tmp_path / "failed"),
    )
    assert result.returncode == 1
    assert "the model diverged" in result.stderr
    # A slow machine says that it still waits before the one line that says what failed.
    lines = result.stderr.strip().splitlines()
    assert len([line for line in lines if not line.startswith("still waiting for")]) == 1
    assert not (tmp_path / "failed" / "report.json").exists()


@pytest.fixture
def running(small, tmp_path):
    """Give a simulation that has much to do yet, and has done something."""
    (tmp_path / "small.toml").write_text(dump(small({"trials.count": 40_000})))
    command = [str(Path(sys.executable).parent / "fedsim"), "run", str(tmp_path / "small.toml")]
    out = tmp_path / "run"
    with subprocess.Popen(
        [*command, "--simulation", "--out", str(out)], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            deadline = time.monotonic() + 300
            while not list(out.glob("batches/*.npz")):
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.5)
            yield process
        finally:
            process.terminate()


def _doors(process):
    """Return what a process and its descendants listen on: whose name, which address and port."""
    return {
        (one.name(), str(door.laddr.ip).removeprefix("::ffff:"), door.laddr.port)
        for one in [process, *process.children(recursive=True)]
        for door in one.net_connections("inet")
        if door.status == psutil.CONN_LISTEN
    }


@pytest.mark.slow
def test_a_simulation_opens_to_nobody_else_and_leaves_no_process_behind(running):
    """This process, which is none of the run's, tries every door: all of them run code."""
    doors = _doors(psutil.Process(running.pid))
    assert {address for _, address, _ in doors} == {"127.0.0.1"}
    (ray,) = (port for name, _, port in doors if name == "gcs_server")
    with grpc.insecure_channel(f"127.0.0.1:{ray}") as channel:
        ask = channel.unary_unary("/ray.rpc.InternalKVGcsService/InternalKVKeys")
        with pytest.raises(grpc.RpcError) as refused:
            ask(b"", timeout=30)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED

    of_the_run = {process.pid for process in psutil.Process(running.pid).children(recursive=True)}
    assert of_the_run & _flower_processes()
    running.terminate()
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "fedsim run" in err
    assert not of_the_run & _flower_processes()


def test_a_process_that_does_not_end_when_asked_is_killed_with_what_it_started(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(simulation, "STOP_TIMEOUT", 0.2)
    stubborn = "import signal, subprocess, sys; signal.signal(15, signal.SIG_IGN); print(1)\n"
    stubborn += "sys.stdout.flush(); subprocess.Popen(['sleep', '600']).wait()"
    own = os.environ | {"FLWR_HOME": str(tmp_path)}
    command = [sys.executable, "-c", stubborn]
    with subprocess.Popen(command, env=own, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        simulation.stop(process, tmp_path)
        simulation.stop(process, tmp_path)  # what has ended is no error
    assert list(simulation._of(tmp_path)) == []


@pytest.mark.slow
def test_flwr_run_works_on_the_repository(small, run, tmp_path):
    """`flwr run . --run-config FILE` with Flower's own local SuperLink, as a Flower user would."""
    config = small({"federation.clients": 2, "run.out": str(tmp_path / "run")})
    (tmp_path / "small.toml").write_text(dump(config))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(tmp_path / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": "39391",
        "FLWR_LOCAL_CONTROL_API_PORT": "39393",
    }
    command = ["flwr", "run", str(ROOT), "--stream", "--run-config", str(tmp_path / "small.toml")]
    before = _flower_processes()
    (tmp_path / "empty").mkdir()
    try:
        result = subprocess.run(
            command,
            cwd=tmp_path / "empty",
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        directory = RunDirectory.open(tmp_path / "run")
        assert directory.has("report.json"), result.stdout + result.stderr
        assert directory.config == config
        simulated = directory.read_arrays("transcript.npz")
        expected = run(config.placed_at(""))
        for name in ("worlds", "log_odds", "final_models"):
            np.testing.assert_array_equal(simulated[name], expected[name], err_msg=name)
    finally:
        for pid in _flower_processes() - before:
            psutil.Process(pid).kill()
