"""What a guarantee may state of a run: epsilon of everything that it released, or why it has none.

`fedsim.game.mechanisms.composition` says why this is another number than the one that an audit
compares with.
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
    "The server played the game with a copy of the records of its own; the guarantee is of what "
    "the clients sent."
)
DISCLOSED = (
    "An adversary that knows the records handed its findings to the server without noise; the "
    "guarantee is of what the clients sent in the rounds."
)
"""Who knew the target records, beside their client, and what of that is not guaranteed."""


@dataclass(frozen=True)
class Guarantee:
    """Whether a run guarantees anything, and what.

    Attributes:
        given: whether everything that was released has a finite epsilon by noise that nobody can
            take away.
        note: what was released, or why there is no guarantee.
        released: of all trainings together; None where the noise is the seed's.
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
        everything: what all of them did (`spending.describe_everything`); None for noise from the
            seed.
        vantage: towards whom; None for the configured one.
        disclosed: whether an adversary's node disclosed its findings; None for what clients allow
            who protect their records.
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
        found = {vantage.value: epsilon(everything, vantage) for vantage in Vantage}
        released = Released(
            trainings=trainings,
            rounds=everything.count,
            delta=delta,
            vantage=where.value,
            epsilon=found[where.value],
            rho_beta=identifiability.rho_beta_of_epsilon(found[where.value]),
            epsilon_of_one_training=epsilon(training, where),
            vantages=found,
            game=DISCLOSED if disclosed else PLAYED,
        )
    if failings or released is None:
        return Guarantee(False, " ".join(failings), released)
    if math.isinf(released.epsilon):
        return Guarantee(False, "Epsilon is infinite towards this vantage.", released)
    return Guarantee(True, f"{cautions.SYSTEM_NOISE} {stated(released)}", released)


def stated(released: Released) -> str:
    """Return what all trainings released, which number is not it, and who played, in words."""
    count = released.trainings
    where = f"at delta {released.delta:g} towards the {released.vantage}"
    if count == 1:
        return (
            f"Everything released, by one training: epsilon {released.epsilon:.4g} {where}. "
            f"{released.game}"
        )
    return (
        f"Everything released, by {count} trainings together: epsilon {released.epsilon:.4g} "
        f"{where}. Epsilon of one of them, {released.epsilon_of_one_training:.4g}, is what an "
        f"audit compares with, and guarantees nobody anything. {released.game}"
    )
