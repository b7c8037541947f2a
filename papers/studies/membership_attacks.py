"""Attacks by membership inference against each other, in the population's game on digits.

At two budgets and without privacy: what they gain, and how far that is from what is allowed. Half
of the models are shadows, and the others are attacked.
"""

from collections.abc import Iterator
from pathlib import Path

from tables import Table

from adversaries.attacks.membership_attacks import ATTACKS
from fedsim.configuration import Scalar
from fedsim.configuration import files as configuration_files
from fedsim.studies.membership import membership_game, membership_report

CONFIG = Path(__file__).parents[2] / "configs" / "digits.toml"
COMMON: dict[str, Scalar] = {
    "data.records": 200,
    "training.rounds": 60,
    "training.learning-rate": 1.0,
    "privacy.rho-beta": 0.0,
}
SETTINGS: dict[str, dict[str, Scalar]] = {
    "ε = 2": {"privacy.epsilon": 2.0},
    "ε = 8": {"privacy.epsilon": 8.0},
    "not private": {"privacy.noise-multiplier": 0.001, "training.clipping": False},
}
MODELS = 256


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a table for each setting; the data come with scikit-learn."""
    tiny: dict[str, Scalar] = {"data.records": 30, "training.rounds": 2} if smoke else {}
    for setting, changes in SETTINGS.items():
        chosen = configuration_files.load(CONFIG, COMMON | changes | tiny)
        game = membership_game.play(chosen, 48 if smoke else MODELS)
        report = membership_report.assemble(chosen, chosen.audit.confidence, game, ATTACKS, 0.0)
        yield Table(
            f"{setting}: accuracy {100 * game.accuracy.mean():.0f} % on held-out records",
            tuple(membership_report.headings(report)),
            [tuple(map(_in_a_line, row)) for row in membership_report.rows(report)],
            "Intervals of 95 %, over attacked models. Allowed: at most, for one record."
            if report.limits.advantage < 1
            else "Intervals of 95 %, over attacked models.",
        )


def _in_a_line(cell: str) -> str:
    """Return a cell with its second line, the interval, in brackets."""
    value, *between = cell.split("\n")
    return f"{value} ({between[0]})" if between else value
