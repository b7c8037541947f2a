"""The guarantee of a run: epsilon of everything that it released, or why there is none.

`fedsim.game.mechanisms.composition` says why the audit compares with another epsilon.
"""

import math
from dataclasses import dataclass

from fedsim.audits.results.theory import Released
from fedsim.audits.run import cautions
from fedsim.config import Config
from fedsim.game.mechanisms import vantages
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import accountant
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust.model import Vantage

PLAYED = (
    "The server played the game with its own copy of the records. The guarantee covers what the "
    "clients sent."
)
DISCLOSED = (
    "An adversary that knows the records sent its results to the server without noise. The "
    "guarantee covers what the clients sent in the rounds."
)
"""Parties beside the target's client that knew the target, and what is not guaranteed of it."""


@dataclass(frozen=True)
class Guarantee:
    """Whether a run has a guarantee, and which.

    Attributes:
        given: whether everything released has a finite epsilon by noise that no observer can
            remove.
        note: what was released, or why there is no guarantee.
        released: releases of all trainings together; None where the noise comes from the seed.
    """

    given: bool
    note: str
    released: Released | None


def of(
    config: Config,
    training: Releases,
    everything: Releases | None,
    trainings: int,
    delta: float,
    vantage: Vantage | None = None,
    disclosed: bool | None = None,
) -> Guarantee:
    """Return what a run guarantees by privacy.accountant at delta towards a vantage.

    Args:
        everything: releases of all trainings (`spending.describe_everything`); None for noise from
            the seed.
        vantage: None: the configured one.
        disclosed: whether an adversary's node disclosed its results. None: what clients allow that
            protect their records.
    """
    where = config.federation.vantage if vantage is None else vantage
    chosen_accountant = accountant(config.privacy.accountant)

    def epsilon(described: Releases, vantage: Vantage) -> float:
        return chosen_accountant.epsilon(described.towards(vantage), delta)

    if disclosed is None:
        disclosed = any(
            vantage is not Vantage.SERVER
            for vantage in vantages.measured(config.federation.vantage, config.audit.vantages)
        )
    failings = cautions.dp_failings(config)
    released: Released | None = None
    if everything is not None:
        epsilons = {vantage.value: epsilon(everything, vantage) for vantage in Vantage}
        released = Released(
            trainings=trainings,
            rounds=everything.count,
            delta=delta,
            vantage=where.value,
            epsilon=epsilons[where.value],
            rho_beta=identifiability.rho_beta_of_epsilon(epsilons[where.value]),
            epsilon_of_one_training=epsilon(training, where),
            vantages=epsilons,
            game=DISCLOSED if disclosed else PLAYED,
        )
    if failings or released is None:
        return Guarantee(False, " ".join(failings), released)
    if math.isinf(released.epsilon):
        return Guarantee(False, "Epsilon is infinite towards this vantage.", released)
    return Guarantee(True, f"{cautions.SYSTEM_NOISE} {stated(released)}", released)


def stated(released: Released) -> str:
    """Return in words what all trainings released, and which parties knew the target."""
    count = released.trainings
    where = f"at delta {released.delta:g} towards the {released.vantage}"
    if count == 1:
        return (
            f"One training released everything: epsilon {released.epsilon:.4g} {where}. "
            f"{released.game}"
        )
    return (
        f"{count} trainings together released everything: epsilon {released.epsilon:.4g} {where}. "
        f"One of them has epsilon {released.epsilon_of_one_training:.4g}, which an audit compares "
        f"with; it is not a guarantee. {released.game}"
    )
