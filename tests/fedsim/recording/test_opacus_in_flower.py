"""A client that trains with Opacus in a running Flower app, recorded: one transcript of all rounds.

The app has the shape of Flower's own example, an engine that is built anew in every round, whose
epsilon is that of the round; and a mended twin, which keeps the accountant's history in its node.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fedsim.transcript_audit.audit import audit
from fedsim.transcripts.reader import read

pytestmark = [pytest.mark.flower, pytest.mark.slow]

APP = Path(__file__).parents[2] / "apps" / "opacus_app"
CLIENTS, ROUNDS, STEPS, DELTA = 2, 3, 15, 1e-5


def _audited(folder: Path, keep: bool) -> Iterator[dict[str, Any]]:
    """Run the app with `flwr run`, as a Flower user would; audit each client at its last word."""
    config = {
        "num-server-rounds": ROUNDS,
        "clients": CLIENTS,
        "client-transcript": f"'{folder}/client-{{node}}.fedt'",
        "keep-accountant": str(keep).lower(),
    }
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(folder / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": "39395",
        "FLWR_LOCAL_CONTROL_API_PORT": "39397",
    }
    command = ["flwr", "run", str(APP), "--stream"]
    command += ["--run-config", " ".join(f"{name}={value}" for name, value in config.items())]
    command += ["--federation-config", f"num-supernodes={CLIENTS} client-resources-num-cpus=1"]
    (folder / "empty").mkdir()
    try:
        done = subprocess.run(
            command,
            cwd=folder / "empty",
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        paths = [folder / f"client-{client}.fedt" for client in range(CLIENTS)]
        assert all(path.exists() for path in paths), done.stdout[-3000:] + done.stderr[-3000:]
    finally:
        for process in psutil.process_iter():
            if _home(process) == environment["FLWR_HOME"]:
                process.kill()
                process.wait(10)
    for path in paths:
        transcript = read(path)
        steps = Counter(str(step.mechanism["engine"]) for step in transcript.rounds)
        assert [*steps.values()] == [STEPS] * ROUNDS
        told = audit(transcript, DELTA)["release"]["accountants"]
        # Opacus's own bound is looser than the loss distribution, by a hundredth.
        yield audit(transcript, DELTA, claimed_epsilon=1.01 * told["last_word"])


def _home(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("FLWR_HOME")
    except psutil.Error:
        return None  # it has ended, or is somebody else's


def test_an_engine_in_every_round_is_convicted_by_the_total_of_all_rounds(tmp_path: Path) -> None:
    for report in _audited(tmp_path, keep=False):
        told = report["release"]["accountants"]
        assert report["claim"]["verdict"] == "convicted", report["findings"]
        assert (told["engines"], told["steps_of_last"]) == (ROUNDS, STEPS)
        assert report["release"]["steps"] == ROUNDS * STEPS
        assert told["last_word"] < 0.7 * told["all_steps"]
        assert report["release"]["proven"]["epsilon"] > 0.94 * told["all_steps"]


def test_the_twin_that_keeps_its_accountant_is_supported(tmp_path: Path) -> None:
    for report in _audited(tmp_path, keep=True):
        told = report["release"]["accountants"]
        assert report["claim"]["verdict"] == "supported", report["findings"]
        assert (told["engines"], told["steps_of_last"]) == (ROUNDS, ROUNDS * STEPS)
        assert told["last_word"] == pytest.approx(told["all_steps"])
