"""How often the interval of the advantage covers when trials stop by what they show; and what
common random numbers save, as predicted and on scikit-learn's digits.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from tables import Table

from adversaries.bounds import sample_size
from adversaries.statistics import estimators, gaussian, stopping
from adversaries.statistics.design import Design
from fedsim import client_app, server_app
from fedsim.audits.run.audited_run import variance_ratio
from fedsim.config import from_run_config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight

CONFIDENCE, SEED = 0.95, 7

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Game:
    """A pair of trials, and how they are stopped.

    probabilities: that both are won, one of them, none; halfwidth: that is wanted; batch: how many
    trials are run between two interim analyses at least.
    """

    name: str
    common: bool
    probabilities: tuple[float, float, float]
    halfwidth: float = 0.1
    batch: int = 50

    @property
    def advantage(self) -> float:
        """The probability of winning both less that of winning none."""
        return self.probabilities[0] - self.probabilities[2]


def independent(first: float, second: float) -> Game:
    """Return a pair of independent trials that are won with these probabilities."""
    both, none = first * second, (1 - first) * (1 - second)
    name = f"independent, p = {first:g}" + (f" and {second:g}" if first != second else "")
    return Game(name, False, (both, 1 - both - none, none))


def coupled(advantage: float) -> Game:
    """Return a pair that shares its normal noise: both won, or one."""
    return Game(f"common, Adv = {advantage:g}", True, (advantage, 1 - advantage, 0.0))


def half_coupled(advantage: float) -> Game:
    """Return a pair that is as `coupled` half of the time, and independent otherwise."""
    alone, together = independent((1 + advantage) / 2, (1 + advantage) / 2), coupled(advantage)
    mixed = [(a + b) / 2 for a, b in zip(alone.probabilities, together.probabilities, strict=True)]
    return Game(f"half common, Adv = {advantage:g}", True, (mixed[0], mixed[1], mixed[2]))


GAMES = (
    independent(0.5, 0.5),
    independent(0.6, 0.6),
    independent(0.9, 0.3),
    independent(0.95, 0.95),
    coupled(0.0),
    coupled(0.2),
    half_coupled(0.2),
    coupled(0.9),
    replace(independent(0.8, 0.8), halfwidth=0.2, batch=2),
)


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield the coverage under stopping, and the variance with common random numbers."""
    yield coverage(GAMES[:5:4] if smoke else GAMES, 100 if smoke else 20_000)
    yield prices((0.1,) if smoke else (0.1, 0.05, 0.02))
    if smoke:
        yield variances((0.9,), 20, 1)
    else:
        yield variances((0.6, 0.75, 0.9, 0.99), 2000, 15)


def coverage(games: Sequence[Game], repeats: int) -> Table:
    """Stop campaigns by the planned analyses, and by the plain interval at any time."""
    random = np.random.default_rng(SEED)
    rows = []
    for game in games:
        shares = stopping.interim_analyses(
            game.halfwidth, CONFIDENCE, 10**6, game.batch, game.common
        )
        batches = max(shares) // game.batch
        drawn = random.multinomial(game.batch // 2, game.probabilities, (repeats, batches)).cumsum(
            1
        )
        planned = stopped(drawn, game, shares)
        naive = stopped(
            drawn, game, dict.fromkeys(range(game.batch, max(shares) + 1, game.batch), 1.0)
        )
        expected = sample_size.expected_stop(
            game.advantage, game.halfwidth, CONFIDENCE, game.batch, game.common
        )
        rows.append(
            (
                game.name,
                f"± {game.halfwidth:g}, {game.batch}",
                f"{planned[0].mean():.4f}",
                f"{naive[0].mean():.4f}",
                float(planned[1].mean()),
                float(naive[1].mean()),
                None if game.name.startswith("half") else expected,
                max(shares),
            )
        )
    return Table(
        f"Coverage of the advantage under --until-halfwidth, at {CONFIDENCE:.0%}",
        (
            "trials",
            "until, batch of trials",
            "covered",
            "covered, naive",
            "trials at the stop",
            "naive",
            "expected by fedsim trials",
            "at most",
        ),
        rows,
        f"{repeats} campaigns each. Naive: the interval of a number of "
        "trials fixed in advance, computed after every batch of trials.",
    )


def prices(halfwidths: Sequence[float]) -> Table:
    """Compare expected trials: planned knowingly, with stopping, and with common pairs."""
    rows = []
    for halfwidth in halfwidths:
        for advantage in (0.0, 0.2, 0.5, 0.8):
            row: list[str | float] = [f"± {halfwidth:g}", f"{advantage:g}"]
            for common in (False, True):
                planned = sample_size.trials_needed(
                    advantage, halfwidth, CONFIDENCE, Design(common)
                )
                stop = sample_size.expected_stop(advantage, halfwidth, CONFIDENCE, 2, common)
                row += [planned, f"{stop / planned:.2f}"]
            rows.append(tuple(row))
    return Table(
        "Expected trials, and the factor where the results decide when they stop",
        (
            "precision",
            "advantage",
            "independent",
            "stopping",
            "common random numbers",
            "stopping, common",
        ),
        rows,
        "Interim analyses after any even number of trials (batches of 2); planned numbers "
        "assume the true advantage.",
    )


def stopped(
    drawn: Counts, game: Game, shares: dict[int, float]
) -> tuple[npt.NDArray[np.bool_], Counts]:
    """Return for every campaign whether its interval covers at the stop, and its trials there.

    drawn [R, batches of trials, 3]: how many pairs were won twice, once, never, after each batch of
    trials.
    """
    covered = np.zeros(len(drawn), dtype=np.bool_)
    ended = np.zeros(len(drawn), dtype=np.int64)
    for analysis, share in shares.items():
        counts = drawn[:, analysis // game.batch - 1]
        found, inverse = np.unique(counts, axis=0, return_inverse=True)
        ends = np.array([interval(each, game.common, share) for each in found])[inverse.ravel()]
        short = (ends[:, 1] - ends[:, 0]) / 2 <= game.halfwidth
        now = (ended == 0) & (short | (analysis == max(shares)))
        covered[now] = ((ends[:, 0] <= game.advantage) & (game.advantage <= ends[:, 1]))[now]
        ended[now] = analysis
    return covered, ended


def interval(counts: Counts, common: bool, share: float) -> tuple[float, float]:
    """Return the ends of the interval that a report prints, where so many pairs were won.

    counts: of pairs whose two trials were won, one of them, or none; the first trial is on D.
    """
    decisions = np.repeat([[1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], counts, axis=0).ravel()
    worlds = np.arange(len(decisions)) % 2 == 0
    found = estimators.advantage(worlds, decisions, CONFIDENCE, Design(common, share)).interval
    return found.low, found.high


def variances(beliefs: Sequence[float], trials: int, rounds: int) -> Table:
    """Compare the variance ratio of normal games and of a federation with the prediction."""
    random = np.random.default_rng(SEED)
    rows: list[tuple[str | float | None, ...]] = []
    for rho_beta in beliefs:
        report, found = run(rho_beta, trials, rounds)
        advantage = report["prediction"]["advantage"]
        mu = gaussian.mu_of_advantage(advantage)
        noise = random.standard_normal(100 * trials)
        both = (mu / 2 + noise > 0).astype(int) + (mu / 2 - noise > 0)
        alone = ndtr(mu / 2) * ndtr(-mu / 2) / 2
        fixed = [
            sample_size.trials_needed(advantage, 0.05, CONFIDENCE, Design(common))
            for common in (False, True)
        ]
        rows.append(
            (
                f"{rho_beta:g}",
                f"{advantage:.3f}",
                f"{report['empirical']['advantage']:.3f}",
                f"{variance_ratio(advantage):.3f}",
                f"{float((both / 2).var() / alone):.3f}",
                f"{found:.3f}",
                *fixed,
            )
        )
    return Table(
        "Variance of the advantage with common random numbers over that without",
        (
            "ρβ",
            "Adv predicted",
            "Adv measured",
            "ratio (2p − 1)/p",
            "normal game",
            "digits",
            "trials for ± 0.05, independent",
            "common",
        ),
        rows,
        f"digits: {trials} trials of {rounds} rounds with 60 records, local sensitivity, mlp, "
        f"participant; normal game: {100 * trials} pairs of one shared normal each.",
    )


def run(rho_beta: float, trials: int, rounds: int) -> tuple[dict[str, Any], float]:
    """Run a federation on the digits in pairs; return its report and variance ratio."""
    config = from_run_config(
        {
            "data.records": 60,
            "data.held-out": 20,
            "model.name": "mlp",
            "model.hidden": 16,
            "training.rounds": rounds,
            "privacy.rho-beta": rho_beta,
            "privacy.delta": 0.005,
            "privacy.sensitivity": "local",
            "trials.count": trials,
            "trials.batch": 500,
            "trials.pairing": "common",
            "audit.evaluated-trials": 2,
            "run.device": "cpu",
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", config)
        grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
        server_app.carry_out(grid, preflight(config), directory)
        report = directory.read_json("report.json")
    ratio = report["campaign"]["variance"]["measured"]
    return report, float("nan") if ratio is None else ratio
