"""Differential identifiability against membership inference (Bernau et al., Figures 7(d) and 9(d)).

The paper's experiments at its four values of rho_beta, with noise scaled to local sensitivity and a
replaced record (bounded differential privacy). Every trial is one game of both adversaries: the one
that knows all but a bit and sees every aggregate, and attacks that see losses.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tables import Table

from adversaries.attacks.membership_attacks import ATTACKS
from fedsim import client_app, config
from fedsim.campaign.run_directory import RunDirectory
from fedsim.config import Config, Scalar, to_run_config
from fedsim.runtimes.inprocess import InProcessGrid
from fedsim.server import server_app
from fedsim.server.plan import preflight

CONFIGS = Path(__file__).parents[2] / "configs"
SETTINGS = {"mnist": (0.52, 0.75, 0.9, 0.99), "adult": (0.53, 0.75, 0.9, 0.99)}
"""The values of rho_beta of each experiment."""

TRIALS = 1000
"""At each value, so that an advantage is known to .06."""

TITLES = {"yeom": "Yeom, members and others", "yeom-challenge": "Yeom, the challenge"}
SMOKE: dict[str, Scalar] = {
    "data.name": "digits",
    "data.records": 30,
    "data.held-out": 20,
    "data.pool": 20,
    "model.name": "linear",
    "training.rounds": 2,
    "challenge.dissimilarity": "euclidean",
}


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Play all experiments whose data are there; yield a table for each."""
    for name, beliefs in SETTINGS.items():
        if not smoke and (data_root is None or not (data_root / name).is_dir()):
            raise SystemExit(f"--data-root: give the folder with {name}/ in it")
        chosen = beliefs[1:2] if smoke else beliefs
        columns: list[dict[str, str]] = []
        pair: dict[str, Scalar] = {}
        for belief in chosen:
            cells, pair = _cells(name, belief, smoke, data_root, pair)
            columns.append(cells)
        rows = [(label, *(column[label] for column in columns)) for label in columns[0]]
        yield Table(
            f"{name}, {20 if smoke else TRIALS} trials at each ρβ",
            ("advantage of", *(f"ρβ = {belief:g}" for belief in chosen)),
            [tuple(row) for row in rows],
            "Intervals of 95 % each. <: below the advantage predicted of identification (exact, as "
            "noise is scaled to the pair's sensitivity), where identification as measured is told "
            "from nothing; >: above it, predicted and measured; ≈: cannot be told apart. The "
            "interval of Yeom's members and others is over fresh ones too.",
        )
        if smoke:
            return


def _cells(
    name: str, belief: float, smoke: bool, data_root: Path | None, pair: dict[str, Scalar]
) -> tuple[dict[str, str], dict[str, Scalar]]:
    """Return the advantage of every adversary at one rho_beta, worded, and the target pair.

    pair: as keys of a configuration, empty where it is still to be found.
    """
    changes: dict[str, Scalar] = {
        "trials.count": 20 if smoke else TRIALS,
        "privacy.rho-beta": belief,
        # Every experiment has coins of its own.
        "run.seed": round(1000 * belief),
    }
    changes |= SMOKE if smoke else {"data.root": str(data_root / name)}  # type: ignore[operator]
    report = _run(config.load(CONFIGS / f"{name}.toml", changes | pair))
    found, prediction = report["challenge"], report["prediction"]["advantage"]
    cells = {
        "the bound ρα": f"{report['bounds']['rho_alpha']:.3f}",
        "predicted of identification": f"{prediction:.3f}",
        "measured of identification (DI)": _worded(report["empirical"]),
    }
    for key, row in report["membership_inference"].items():
        title = TITLES.get(key) or ATTACKS[key.replace("_", "-")].title
        cells[title] = f"{_worded(row)} {_mark(row, report['empirical'], prediction)}"
    return cells, {f"challenge.{key}": found[key] for key in ("record", "replacement")}


def _run(chosen: Config) -> dict[str, Any]:
    """Run a federation in this process; return its report."""
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", chosen)
        grid = InProcessGrid(client_app.app, chosen.federation.clients, to_run_config(chosen))
        server_app.carry_out(grid, preflight(chosen), directory)
        return directory.read_json("report.json")


def _worded(row: Mapping[str, Any]) -> str:
    low, high = row["advantage_interval"]
    return f"{row['advantage']:.3f} ({low:.3f} to {high:.3f})"


def _mark(row: Mapping[str, Any], measured: Mapping[str, Any], prediction: float) -> str:
    """Say where an attack is below identification, above it, or neither for all that is known."""
    low, high = row["advantage_interval"]
    least, most = measured["advantage_interval"]
    if high < prediction and least > 0:
        return "<"
    return ">" if low > max(most, prediction) else "≈"
