"""Full audits of DP-SGD on real data: how much of the claimed epsilon the lower bounds prove."""

import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tables import Table, Value

from fedsim import client_app, server_app
from fedsim.configuration import Config, Scalar, from_run_config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.reports import page

EPSILONS, DELTA = (1.0, 2.0, 4.0, 8.0), 1e-5

AUDITED: dict[str, Scalar] = {
    "data.records": 200,
    "data.held-out": 200,
    "federation.clients": 2,
    "model.name": "linear",
    "training.rounds": 30,
    "training.learning-rate": 1.0,
    "privacy.rho-beta": 0.0,
    "privacy.delta": DELTA,
    # The strongest challenge: all of the clipping norm, in a direction of its own.
    "challenge.kind": "gradient",
    "challenge.record": 0,
    "audit.mode": "oracle",
    "trials.count": 2000,
    "trials.batch": 250,
    "run.device": "cpu",
}

BATCHES: dict[str, dict[str, Scalar]] = {
    "full batch": {},
    "Poisson q = 0.1": {"training.sampling-rate": 0.1, "training.rounds": 100},
}


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a table for each way to take batches, of digits; and of MNIST, where its folder is."""
    few: dict[str, Scalar] = {"training.rounds": 2, "trials.count": 8, "data.records": 20}
    data = [few if smoke else {}]
    if data_root is not None:
        data.append(data[0] | {"data.name": "mnist", "data.root": str(data_root / "mnist")})
    for records, (batches, taken) in itertools.product(data, BATCHES.items()):
        epsilons = EPSILONS[-1:] if smoke else EPSILONS
        configs = [
            # Seeds of their own, so that one unlucky draw is not in all of them.
            from_run_config(
                AUDITED | taken | {"privacy.epsilon": epsilon, "run.seed": seed} | records
            )
            for seed, epsilon in enumerate(epsilons)
        ]
        yield _table(batches, configs, [_report(config) for config in configs])


def _report(config: Config) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(page, "write_figures"),
        patch.object(page, "render_html", return_value=""),
    ):
        path = Path(folder) / "run"
        grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
        server_app.carry_out(grid, preflight(config), RunDirectory.create(path, config))
        report: dict[str, Any] = json.loads((path / "report.json").read_text(encoding="utf-8"))
    return report


def _table(batches: str, configs: list[Config], reports: list[dict[str, Any]]) -> Table:
    config, first = configs[0], reports[0]
    allowed = [report["rows"][report["vantage"]]["limit"]["epsilon"] for report in reports]
    rows: list[tuple[Value, ...]] = [
        (
            "noise multiplier",
            *(_short(r["details"]["mechanism"]["noise_multiplier"]) for r in reports),
        ),
        ("advantage", *(_short(r["rows"][r["vantage"]]["attack"]["advantage"]) for r in reports)),
        (
            "advantage, bound",
            *(_short(r["rows"][r["vantage"]]["limit"]["rho_alpha"]) for r in reports),
        ),
    ]
    for name in first["details"]["empirical"]["lower_bounds"]:
        found = [report["details"]["empirical"]["lower_bounds"][name] for report in reports]
        rows.append((name, *map(_proven, found, allowed)))
    alarms = sum(bool(report["alarms"]) for report in reports)
    return Table(
        f"{config.data.name}, {batches}: {config.data.records} records, {config.training.rounds} "
        f"rounds, {config.trials.count} trials, delta {DELTA:g}",
        ("lower bound on epsilon", *(f"epsilon {config.privacy.epsilon:g}" for config in configs)),
        rows,
        f"Each bound at {100 * config.audit.confidence:g} % confidence, and the share that it is "
        f"of epsilon; {alarms} of {len(reports)} reports have an alarm.",
    )


def _proven(bound: dict[str, Any], allowed: float) -> str:
    if bound["reason"]:
        return "none"
    return f"{bound['epsilon']:.2f} ({bound['epsilon'] / allowed:.2f})"


def _short(value: float) -> str:
    return f"{value:.3f}"
