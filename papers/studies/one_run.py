"""One-run audits: how often they claim too much, and how much of the truth they reach.

First on Gaussian mechanisms of known epsilon, m canaries in one release; then in a federation on
the digits, `configs/one-run.toml`, where data and canaries hide one another.
"""

import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tables import Table, Value

from adversaries.bounds import one_run
from adversaries.statistics.gaussian import mu_of_epsilon
from fedsim import client_app, configuration, server_app
from fedsim.configuration import files as configuration_files
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight

Floats = npt.NDArray[np.float64]

SEED, DELTA, CONFIDENCE = 7, 1e-5, 0.95
CANARIES, REPEATS, DIMENSIONS = 1000, 4000, 10_000
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
TRIALS = 40
PLANTED = (
    ("gradient", 1000, False),
    ("mislabelled", 500, False),
    ("gradient", 1000, True),
    ("gradient", 200, True),
    ("mislabelled", 500, True),
)
SMALL = (("gradient", 20, True),)
CONFIG = Path(__file__).parents[2] / "configs" / "one-run.toml"

BOUNDS = ("binomial", "f_dp")
ORTHOGONAL = "orthogonal"
ESTIMATE = "estimate (no confidence)"


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield coverage and tightness on Gaussian games, then the audits of a federation."""
    del data_root  # the digits come with scikit-learn
    canaries, repeats, dimensions = (40, 100, 100) if smoke else (CANARIES, REPEATS, DIMENSIONS)
    designs = {
        ORTHOGONAL: np.eye(canaries),
        f"random in {dimensions:,} dimensions": _overlaps(canaries, dimensions),
    }
    above, reached = [], []
    for design, overlaps in designs.items():
        found = {
            epsilon: _audits(overlaps, epsilon, repeats, place)
            for place, epsilon in enumerate(EPSILONS)
        }
        for name in (*BOUNDS, ESTIMATE):
            by_truth = {epsilon: each[name] for epsilon, each in found.items()}
            above.append((design, name, *(float((e > t).mean()) for t, e in by_truth.items())))
            reached.append((design, name, *(float(np.median(e)) for e in by_truth.values())))
    heading = ("directions", "one run", *(f"ε = {epsilon:g}" for epsilon in EPSILONS))
    setting = f"m = {canaries} canaries, δ = {DELTA:g}, {CONFIDENCE:.0%} confidence, {repeats} runs"
    yield Table(
        "Share of runs whose number is above the truth",
        heading,
        above,
        f"{setting}. A bound may be above in {1 - CONFIDENCE:.0%} of them; ε = 0 are scores that "
        "know nothing of the coins.",
    )
    yield Table("Median of the number", heading, reached, f"{setting}.")
    yield _federation(smoke)


def _overlaps(canaries: int, dimensions: int) -> Floats:
    """Return the inner products [m, m] of random unit directions."""
    drawn = np.random.default_rng(SEED).standard_normal((canaries, dimensions))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn @ drawn.T


def _audits(overlaps: Floats, epsilon: float, repeats: int, place: int) -> dict[str, Floats]:
    """Return every audit's epsilon [N] of one release each, a sum of canaries in Gaussian noise.

    The scores are G c mu + noise of covariance G, G the inner products of the directions.
    """
    rng = np.random.default_rng([SEED, place])
    mu = mu_of_epsilon(epsilon, DELTA) if epsilon else 0.0
    coins = rng.random((repeats, len(overlaps))) < 0.5
    noise = rng.standard_normal(coins.shape) @ np.linalg.cholesky(overlaps).T
    scores = mu * coins @ overlaps + noise
    return _numbers(coins, scores, DELTA, CONFIDENCE)


def _numbers(
    coins: npt.NDArray[np.bool_], scores: Floats, delta: float, confidence: float
) -> dict[str, Floats]:
    """Return both bounds and the estimate of every run's canaries [N, m], each [N]."""
    found: dict[str, list[float]] = {name: [] for name in (*BOUNDS, ESTIMATE)}
    for run in zip(coins, scores, strict=True):
        for name, bound in one_run.bounds(*run, delta, confidence).items():
            found[name].append(bound.epsilon)
        estimate = one_run.client_canary_estimate(*run, delta, confidence)
        found[ESTIMATE].append(math.nan if estimate.reason else estimate.epsilon)
    return {name: np.array(values) for name, values in found.items()}


def _of(values: npt.NDArray[Any], number: Callable[[Any], Any]) -> Value:
    return float(number(values)) if values.size else "–"


def _federation(smoke: bool) -> Table:
    trials, rounds, planted = (2, 1, SMALL) if smoke else (TRIALS, 30, PLANTED)
    rows: list[tuple[Value, ...]] = []
    for kind, count, known in planted:
        changes = {
            "canaries.kind": kind,
            "canaries.count": count,
            "canaries.known-data": known,
            "trials.count": trials,
            "trials.batch": trials,
            "training.rounds": rounds,
            "run.threads": 1,
        }
        given = configuration_files.load(CONFIG, changes)
        with tempfile.TemporaryDirectory() as folder:
            directory = RunDirectory.create(Path(folder) / "run", given)
            grid = InProcessGrid(
                client_app.app, given.federation.clients, configuration.to_run_config(given)
            )
            server_app.carry_out(grid, preflight(given), directory)
            found = directory.read_json("report.json")
            transcript = directory.read_arrays("transcript.npz")
        audited = found["details"]["one_run"]
        canaries = transcript["canaries_included"], transcript["canary_scores"]
        asked = given.privacy.delta, given.audit.confidence
        everybody = _numbers(*canaries, *asked)
        stated = {name: each[~np.isnan(each)] for name, each in everybody.items()}
        medians = [_of(stated[name], np.median) for name in (*BOUNDS, ESTIMATE)]
        above = [_of(stated[name] > audited["canary_epsilon"], np.mean) for name in BOUNDS]
        accuracy = found["details"]["utility"]["accuracy"]["mean"][-1]
        rows.append(
            (
                kind,
                count,
                "yes" if known else "no",
                audited["canary_epsilon"],
                *medians,
                *above,
                accuracy,
            )
        )
    return Table(
        "configs/one-run.toml",
        (
            "canaries",
            "m",
            "data known",
            "ε claimed",
            "binomial",
            "f-DP",
            "estimate",
            "binomial above",
            "f-DP above",
            "accuracy",
        ),
        rows,
        f"Medians over {trials} trials, each a separate audit, and the share of them above the "
        "claim; guesses about one canary in 8.",
    )
