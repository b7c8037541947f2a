"""What a guarantee may state of a run: epsilon of everything that it released, or why it has none.

`fedsim.composition` says why this is another number than the one that an audit compares with.
"""

import math
from dataclasses import dataclass
from typing import Any

from fedsim import cautions, identifiability
from fedsim.accounting import accountant
from fedsim.config import Config
from fedsim.description import Description
from fedsim.mechanism import Vantage


@dataclass(frozen=True)
class Guarantee:
    """Whether a run guarantees anything, and what.

    given: whether everything that was released has a finite epsilon by noise that nobody can take
    away; note: what was released, or why there is no guarantee; released: of all trainings
    together, None where the noise is the seed's.
    """

    given: bool
    note: str
    released: dict[str, Any] | None


def of(
    config: Config,
    training: Description,
    everything: Description | None,
    trainings: int,
    delta: float,
    vantage: Vantage | None = None,
) -> Guarantee:
    """Return what a run guarantees by privacy.accountant at delta towards a vantage.

    training: what one training released; everything: what all of them did (`ledger.describe`,
    `ledger.describe_everything`); trainings: how many they were; vantage: None for the configured.
    """
    where = config.federation.vantage if vantage is None else vantage
    judge = accountant(config.privacy.accountant)

    def epsilon(described: Description, vantage: Vantage) -> float:
        return judge.epsilon(described.towards(vantage), delta)

    failings = cautions.dp_failings(config)
    released: dict[str, Any] | None = None
    if everything is not None:
        found = {vantage.value: epsilon(everything, vantage) for vantage in Vantage}
        released = {
            "trainings": trainings,
            "rounds": everything.count,
            "delta": delta,
            "vantage": where.value,
            "epsilon": found[where.value],
            "rho_beta": identifiability.rho_beta_of_epsilon(found[where.value]),
            "epsilon_of_one_training": epsilon(training, where),
            "vantages": found,
        }
    if failings or released is None:
        return Guarantee(False, " ".join(failings), released)
    if math.isinf(released["epsilon"]):
        return Guarantee(False, "Epsilon is infinite towards this vantage.", released)
    return Guarantee(True, f"{cautions.SYSTEM_NOISE} {stated(released)}", released)


def stated(released: dict[str, Any]) -> str:
    """Say what all trainings together released, and which number is not to be taken for it."""
    count = released["trainings"]
    where = f"at delta {released['delta']:g} towards the {released['vantage']}"
    if count == 1:
        return f"Everything released, by one training: epsilon {released['epsilon']:.4g} {where}."
    return (
        f"Everything released, by {count} trainings together: epsilon {released['epsilon']:.4g} "
        f"{where}. Epsilon of one of them, {released['epsilon_of_one_training']:.4g}, is what an "
        "audit compares with, and guarantees nobody anything."
    )
