"""Whether client-level log-odds follow the law that theory gives them, to a fraction of a percent.

With noise scaled to what the client changes, a round's score, z (lambda -+ 1/(2 z^2)), is N(0, 1)
and independent of all rounds before. Small federations, many trials, seeds fixed beforehand.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import stats
from tables import Table

from fedsim import client_app, server_app
from fedsim.configuration import from_run_config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight

MULTIPLIER = 2.0
NOTE = (
    "Scores z(lambda -+ 1/(2z^2)), towards the true world. mean, variance: of a trial's scores "
    "together, in standard errors from 0 and 1; pairs: correlations of all pairs of rounds "
    "together, in standard errors from 0; KS p: of the normal law. Rows of one trust and seed "
    "share their noise."
)


@dataclass(frozen=True)
class Campaign:
    """Small federations of three clients that differ in their seeds alone."""

    seeds: range
    trials: int
    rounds: int
    records: int = 9
    held_out: int = 4
    pool: int = 12
    epochs: int = 1
    batch: int = 2
    trust: str = "central"
    neighbouring: str = "add-remove"

    def config(self, seed):
        """Return the experiment with a seed."""
        return from_run_config(
            {
                "data.records": self.records,
                "data.held-out": self.held_out,
                "data.pool": self.pool,
                "federation.clients": 3,
                "federation.trust": self.trust,
                "model.name": "linear",
                "training.rounds": self.rounds,
                "training.learning-rate": 1.0,
                "training.local-learning-rate": 0.3,
                "training.local-epochs": self.epochs,
                "training.batch-size": self.batch,
                "privacy.unit": "client",
                "privacy.neighbouring": self.neighbouring,
                "privacy.sensitivity": "local",
                "privacy.rho-beta": 0.0,
                "privacy.delta": 0.005,
                "privacy.noise-multiplier": MULTIPLIER,
                "trials.count": self.trials,
                "trials.batch": self.trials,
                "audit.mode": "oracle",
                "audit.evaluated-trials": 2,
                "run.seed": seed,
                "run.device": "cpu",
                "run.threads": 1,
            }
        )


FIRST = Campaign(range(101, 109), 2500, 4, 27, 20, 30, 2, 3)
CAMPAIGNS = (
    *(
        replace(FIRST, trust=trust, neighbouring=neighbouring)
        for trust in ("central", "local")
        for neighbouring in ("add-remove", "replace")
    ),
    Campaign(range(1001, 1017), 5000, 4),
    Campaign(range(5001, 5009), 2500, 12),
)
SMOKE = (Campaign(range(1001, 1002), 100, 2),)


def measure(campaigns):
    """Yield a row for each campaign."""
    columns = ("seeds", "trust", "neighbours", "rounds", "trials", "advantage", "theory")
    rows = []
    for each in campaigns:
        scores, multiplier = _scores(each)
        count, rounds = scores.shape
        total = scores.sum(axis=1) / np.sqrt(rounds)
        mu = np.sqrt(rounds) / multiplier
        pairs = np.corrcoef(scores.T)[np.triu_indices(rounds, 1)]
        rows.append(
            (
                f"{each.seeds[0]} to {each.seeds[-1]}",
                each.trust,
                each.neighbouring,
                rounds,
                count,
                f"{2 * (total > -mu / 2).mean() - 1:.4f}",
                f"{2 * stats.norm.cdf(mu / 2) - 1:.4f}",
                f"{total.mean() * np.sqrt(count):+.2f}",
                f"{(total.var() - 1) * np.sqrt(count / 2):+.2f}",
                f"{pairs.sum() * np.sqrt(count / len(pairs)):+.2f}",
                f"{stats.kstest(total, 'norm').pvalue:.3f}",
            )
        )
    columns += ("mean", "variance", "pairs", "KS p")
    yield Table("Client level: measured scores against N(0, 1)", columns, rows, NOTE)


def _scores(campaign):
    """Return every round's score [T, k] over all seeds, and the effective noise multiplier."""
    # Three clients: an adversary under local trust faces the noise of two.
    multiplier = MULTIPLIER * (np.sqrt(2) if campaign.trust == "local" else 1.0)
    found = []
    for seed in campaign.seeds:
        config = campaign.config(seed)
        with tempfile.TemporaryDirectory() as folder:
            directory = RunDirectory.create(Path(folder) / "run", config)
            grid = InProcessGrid(client_app.app, 3, to_run_config(config))
            server_app.carry_out(grid, preflight(config), directory)
            transcript = directory.read_arrays("transcript.npz")
        ratios = np.diff(transcript["log_odds"], axis=1, prepend=0.0)
        towards = np.where(transcript["worlds"], 1, -1)[:, None]
        found.append((towards * ratios - 0.5 / multiplier**2) * multiplier)
    return np.concatenate(found), multiplier
