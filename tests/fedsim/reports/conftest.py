"""Reports of small real runs, one of each kind, as today's code writes them."""

import os
from contextlib import suppress
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from fedsim import client_app, server_app
from fedsim.audits.run import report as results
from fedsim.audits.run.report import RunReport
from fedsim.configuration import from_run_config, to_run_config
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.reports import page

SIZE = {
    "run.name": "digits, ρβ = 0.9",
    "run.seed": 4711,
    "run.threads": 1,
    "run.device": "cpu",
    "data.records": 24,
    "data.held-out": 20,
    "data.pool": 30,
    "federation.clients": 3,
    "model.name": "linear",
    "training.rounds": 3,
    "training.learning-rate": 0.5,
    "trials.count": 32,
    "privacy.delta": 0.005,
    "trials.batch": 32,
    "audit.evaluated-trials": 4,
    "audit.attacks": "none",
}
LOCAL = {"federation.trust": "local"}
KINDS = {
    "central": {},
    "local": LOCAL | {"audit.vantages": "all", "privacy.noise-source": "system"},
    "distributed": {"federation.trust": "distributed", "audit.vantages": "all"},
    "server": {"federation.vantage": "server", "privacy.rho-beta": 0.0}
    | {"privacy.noise-multiplier": 4.0},
    "few trials": {"trials.count": 2, "trials.batch": 2},
    "released model": {"federation.vantage": "released-model"},
    "replace": {"privacy.neighbouring": "replace"},
    "sampled": {"training.sampling-rate": 0.5},
    "sampled, replace": {"training.sampling-rate": 0.5, "privacy.neighbouring": "replace"},
    "local steps": LOCAL | {"training.local-steps": 2},
    "local DP-SGD": LOCAL
    | {"training.local-steps": 3, "training.sampling-rate": 0.2}
    | {"privacy.neighbouring": "add-remove"},
    "client": {"privacy.unit": "client"},
    "one run": {"canaries.count": 40},
    "crafted": {"challenge.kind": "clipbkd"},
    "gradient": {"challenge.kind": "gradient"},
    "oracle": {"audit.mode": "oracle"},
    "local sensitivity": {"privacy.sensitivity": "local"},
    "unclipped": {"training.clipping": False, "privacy.rho-beta": 0.0}
    | {"privacy.noise-multiplier": 1.0},
    "rehearsed without clipping": {"training.clipping": False, "privacy.rho-beta": 0.0}
    | {"privacy.noise-multiplier": 1.0, "run.job": "rehearsal"},
    "sampled server": {"training.sampling-rate": 0.02, "audit.vantages": "all"}
    | {"privacy.neighbouring": "add-remove"},
    "budget": {"privacy.stop-at": 1.5},
    "one training": {"trials.count": 1, "trials.batch": 1},
}


@dataclass(frozen=True)
class Written:
    """What a run wrote: report.json, transcript.npz."""

    report: RunReport
    transcript: Arrays


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Return a function that plays a run of a kind once and returns what it wrote.

    Processes that test beside each other read what another has played.
    """
    played = {}
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def play(kind):
        if kind not in played:
            place = shared / f"played-{kind.replace(' ', '-')}"
            if not place.exists():
                config = from_run_config(SIZE | KINDS[kind])
                directory = RunDirectory.create(tmp_path_factory.mktemp("runs") / "run", config)
                options = to_run_config(config)
                grid = InProcessGrid(client_app.app, config.federation.clients, options)
                with patch.object(page.Pictures, "drawn", {}):
                    server_app.carry_out(grid, preflight(config), directory)
                with suppress(OSError):  # another process has played it meanwhile
                    directory.path.rename(place)
            directory = RunDirectory.open(place)
            report, arrays = results.read(directory), directory.read_arrays("transcript.npz")
            played[kind] = Written(report, arrays)
        return played[kind]

    return play
