"""Differential identifiability against membership inference (Bernau et al., Figures 7(d) and 9(d)).

The paper's experiments at its four values of rho_beta, with noise scaled to local sensitivity and a
replaced record (bounded differential privacy). Every trial is one game of both adversaries: the one
that knows all but a bit and sees every aggregate, and attacks that see losses.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit
from tables import Table

from adversaries.membership_attacks import ATTACKS
from adversaries.trials import Bools, Floats
from fedsim import client_app, config, membership_audit, server_app
from fedsim.config import Config, Scalar, to_run_config
from fedsim.run_directory import RunDirectory
from fedsim.runtimes.inprocess import InProcessGrid

CONFIGS = Path(__file__).parents[2] / "configs"
SETTINGS = {"mnist": (0.52, 0.75, 0.9, 0.99), "adult": (0.53, 0.75, 0.9, 0.99)}
"""The values of rho_beta of each experiment."""

TRIALS = {"mnist": 250, "adult": 1000}
"""As many as ten minutes have time for."""

CONFIDENCE = 0.95
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
            f"{name}, {20 if smoke else TRIALS[name]} trials at each ρβ",
            ("advantage of", *(f"ρβ = {belief:g}" for belief in chosen)),
            [tuple(row) for row in rows],
            "† not told apart from the identification adversary's: the 95 % interval of the "
            "difference, in the same trials, has 0 in it. ‡ above it, by that interval.",
        )
        if smoke:
            return


def _cells(
    name: str, belief: float, smoke: bool, data_root: Path | None, pair: dict[str, Scalar]
) -> tuple[dict[str, str], dict[str, Scalar]]:
    """Return the advantage of every adversary at one rho_beta, worded, and the pair in question.

    pair: as keys of a configuration, empty where it is still to be found.
    """
    changes: dict[str, Scalar] = {
        "trials.count": 20 if smoke else TRIALS[name],
        "privacy.rho-beta": belief,
        # Every experiment has coins of its own.
        "run.seed": round(1000 * belief),
    }
    changes |= SMOKE if smoke else {"data.root": str(data_root / name)}  # type: ignore[operator]
    report, transcript = _run(config.load(CONFIGS / f"{name}.toml", changes | pair))
    found = report["challenge"]
    pair = {f"challenge.{key}": found[key] for key in ("record", "replacement")}
    worlds, odds = transcript["worlds"], transcript["log_odds"][:, -1]
    won = np.where(worlds, 1, -1) * np.sign(odds)
    empirical = report["empirical"]
    cells = {
        "the bound ρα": f"{report['bounds']['rho_alpha']:.3f}",
        "predicted of identification": f"{report['prediction']['advantage']:.3f}",
        "identification (DI)": _worded(empirical["advantage"], empirical["advantage_interval"]),
    }
    rates = transcript["true_positive_rate"] - transcript["false_positive_rate"]
    challenge = np.where(transcript["challenge_is_member"] == worlds, 1.0, -1.0)
    everything = np.ones(len(worlds), dtype=np.bool_)
    seen = membership_audit.observations(transcript)
    games: dict[str, tuple[Floats, Bools]] = {
        "yeom": (rates, everything),
        "yeom_challenge": (challenge, everything),
    }
    titles = {"yeom": "Yeom, members and others", "yeom_challenge": "Yeom, the challenge"}
    if seen is not None:
        shadows = membership_audit.of_shadows(worlds)
        for attack_name, attack in ATTACKS.items():
            if "members" in attack.needs:
                continue
            _, called = membership_audit.decisions(attack, seen, shadows)
            key = membership_audit.key(attack_name)
            games[key] = np.where(called == worlds[~shadows], 1.0, -1.0), ~shadows
            titles[key] = attack.title
    for key, (scores, played) in games.items():
        row = report["membership_inference"].get(key)
        if row is not None:
            lead = won[played] - scores
            cells[titles[key]] = _worded(row["advantage"], row["advantage_interval"]) + _mark(lead)
    return cells, pair


def _run(chosen: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a federation in this process; return report and transcript."""
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", chosen)
        grid = InProcessGrid(client_app.app, chosen.federation.owners, to_run_config(chosen))
        server_app.run(grid, chosen, directory)
        return directory.read_json("report.json"), directory.read_arrays("transcript.npz")


def _worded(point: float, interval: list[float] | None) -> str:
    if interval is None:
        return f"{point:.3f}"
    return f"{point:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


def _mark(lead: Floats) -> str:
    """Say whether the mean lead of the identification adversary is told from 0."""
    error = lead.std(ddof=1) / np.sqrt(len(lead))
    reach = stdtrit(len(lead) - 1, (1 + CONFIDENCE) / 2) * error
    if lead.mean() - reach > 0:
        return ""
    return " †" if lead.mean() + reach >= 0 else " ‡"
