"""The core paper's experiments: one run for each cell of its tables, shared by all items."""

from collections.abc import Mapping
from dataclasses import dataclass

import fedsim
from fedsim.commands.run import Run
from fedsim.common import configurations
from fedsim.configuration import Config, Scalar
from fedsim.configuration import files as configuration_files
from papers.findings import Means

BELIEFS = {
    "mnist": (0.52, 0.75, 0.9, 0.99),
    "adult": (0.53, 0.75, 0.9, 0.99),
    "purchase-100": (0.53, 0.75, 0.9, 0.99),
}
"""The values of rho_beta of each data set (Table 2b)."""

DELTAS = {"mnist": 0.01, "adult": 0.001, "purchase-100": 0.001}
"""The delta of each data set (Table 2b)."""

TITLES = {"mnist": "MNIST", "adult": "Adult", "purchase-100": "Purchase-100"}

VARIANTS = {
    "LS bounded": ("local", "replace"),
    "LS unbounded": ("local", "add-remove"),
    "GS bounded": ("global", "replace"),
    "GS unbounded": ("global", "add-remove"),
}
"""Sensitivity that scales the noise, and neighbouring relation, in the order of Table 2a."""

TRIALS = {"smoke": 20, "full": 1000}
"""Trials of every cell; the paper has 1000."""

SMOKE: dict[str, Scalar] = {
    "data.name": "digits",
    "data.root": "",
    "data.records": 30,
    "data.held-out": 20,
    "data.pool": 20,
    "model.name": "linear",
    "training.rounds": 2,
    "challenge.dissimilarity": "euclidean",
}
"""Changes of a smoke run, whose numbers cannot be compared with the paper's."""


@dataclass(frozen=True)
class BernauCell:
    """One experiment: a key of `BELIEFS`, the noise's sensitivity and the neighbouring relation."""

    data: str
    sensitivity: str = "local"
    neighbouring: str = "replace"
    rho_beta: float = 0.9

    @property
    def name(self) -> str:
        return f"{self.data}-{self.sensitivity}-{self.neighbouring}-{self.rho_beta:g}"


def configured(means: Means, data: str, changes: dict[str, Scalar]) -> Config:
    """Return a paper's configuration with changes."""
    where = dict(SMOKE)
    if not means.smoke:
        where = {"data.root": str(means.data(data)), "data.download": means.download}
    return configuration_files.load(configurations.path(data), where | changes)


def play(means: Means, cell: BernauCell) -> Run:
    """Return the run of a cell; an earlier run is continued."""
    changes: dict[str, Scalar] = {"trials.count": TRIALS[means.scale]}
    if (cell.sensitivity, cell.neighbouring) != ("local", "replace"):
        changes["audit.attacks"] = "none"  # Figures 7 to 9 have those of the others
    return play_with(means, cell, changes, cell.name)


def play_with(means: Means, cell: BernauCell, changes: Mapping[str, Scalar], name: str) -> Run:
    """Return the run of a cell with changes; an earlier run is continued."""
    kinds = (
        ("local", "global").index(cell.sensitivity),
        ("replace", "add-remove").index(cell.neighbouring),
    )
    data = list(BELIEFS).index(cell.data)
    own: dict[str, Scalar] = {
        "privacy.sensitivity": cell.sensitivity,
        "privacy.neighbouring": cell.neighbouring,
        "privacy.rho-beta": cell.rho_beta,
        # Every experiment has coins of its own: no two share an unlucky draw.
        "run.seed": round(1000 * cell.rho_beta) + 1000 * kinds[0] + 2000 * kinds[1] + 4000 * data,
        "run.out": str(means.folder / "runs" / f"{means.scale.value}-{name}"),
    }
    config = configured(means, cell.data, own | dict(changes))
    means.say(f"{config.trials.count} trainings of {name}")
    return fedsim.run(config, progress=False)
