"""The guarantee of a run: epsilon of everything that it released, or why there is none.

`fedsim.game.mechanisms.privacy` says why the audit compares with another epsilon.
"""

import math
from dataclasses import dataclass

from fedsim.audits.results.theory import Budget, ReleasedTogether
from fedsim.configuration.campaign import AuditConfig
from fedsim.configuration.needs import UNBOUNDED
from fedsim.configuration.objects import GameRules
from fedsim.game.mechanisms import vantages
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import accountant
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust.model import Vantage

UNCLIPPED = f"gradients are not clipped: {UNBOUNDED}"
"""Why no vantage has a guarantee without clipping."""


SYSTEM_NOISE = (
    "The operating system's entropy keyed the noise (a Philox stream for each trial, round and "
    "client), which was scaled to the global sensitivity."
)


ONE_TRAINING = (
    "One training has no statistics. It cannot tell how often an adversary is right, or whether "
    "the noise is as claimed. Measure that beforehand, with many trials on data that need no "
    "protection."
)


def dp_failings(rules: GameRules, audit: AuditConfig) -> list[str]:
    from fedsim.game.observers import at_server  # noqa: PLC0415  (torch is slow to import)

    failings, scheme = [], rules.scheme
    if not scheme.training.clipping:
        failings.append(f"{UNCLIPPED.capitalize()}, so that no noise is a DP guarantee.")
    if scheme.privacy.sensitivity == "local":
        failings.append(
            "Noise was scaled to the local sensitivity of the challenge, which depends on the "
            "data. This measures tightness; it is not a DP guarantee."
        )
    if rules.model.initialisation == "worst-case":
        failings.append(
            "The first model was fitted to the records of D without noise. This is a worst case "
            "for the challenge, not a DP guarantee. To protect people, set model.initialisation = "
            '"random".'
        )
    if scheme.privacy.noise_source == "seed":
        failings.append(
            "The noise came from the run's seed, so that the experiment can be repeated. Anyone "
            "who knows the seed can remove the noise. To protect people, set "
            'privacy.noise-source = "system".'
        )
    if scheme.federation.summed_in_the_clear:
        failings.append(
            "Secure aggregation was simulated: the server saw every message, with only a share of "
            "the noise. The numbers towards the server assume secure aggregation. To protect "
            'people, set federation.secure-aggregation = "secagg+".'
        )
    colluding = scheme.federation.colluding
    if colluding and not scheme.federation.trust.model.server_draws:
        who = "1 client" if colluding == 1 else f"{colluding} clients"
        failings.append(
            f"{who} sent their noise to the adversary through the server, in the clear, so that "
            "their own records had no protection. To protect people, set federation.colluding = 0."
        )
    if at_server.seat(audit.mode).reads_noise:
        disclosed = (
            "the challenge record's gradient"
            if scheme.privacy.unit == "record"
            else "the target client's update"
        )
        failings.append(
            f"This was an oracle audit: clients gave their noise and {disclosed} to the auditor. "
            "This is a measurement, not a DP guarantee. To protect people, set "
            'audit.mode = "participant".'
        )
    if audit.bayesian_pairs:
        failings.append(
            "Clients released norms or distances of their records' gradients, without protection, "
            "for the Bayesian accountant. To protect people, set audit.bayesian-pairs = 0."
        )
    return failings


def cautions(rules: GameRules, audit: AuditConfig, precision: str) -> list[str]:
    texts, scheme = [], rules.scheme
    units = scheme.participation.setting.units
    if scheme.privacy.delta > 1 / units:
        texts.append(
            f"Delta is {scheme.privacy.delta:g}, above 1/{units}. A mechanism that publishes one "
            f"of {units} {scheme.privacy.unit}s at random would keep such a guarantee. For people, "
            "choose a smaller privacy.delta."
        )
    if caution := scheme.federation.trust.model.caution:
        texts.append(caution)
    if scheme.training.local_steps > 1:
        texts.append(
            "Clients took local steps, whose noisy models the adversary does not see. Its log-odds "
            "are the score of a linearised attack, not an exact posterior. Belief, delta', epsilon "
            "from belief or from sensitivities, and the prediction describe that score and raise "
            "no alarm. The advantage and the Clopper-Pearson bound count decisions and stay valid."
        )
    if scheme.federation.vantage is Vantage.RELEASED_MODEL:
        texts.append(
            "The adversary saw only the released model. Its log-odds are the score of an attack "
            "along a replay of the training, not an exact posterior. Belief, delta' and the "
            "prediction describe that score and raise no alarm. The advantage and the "
            "Clopper-Pearson bound count decisions and stay valid."
        )
    if precision != "float32" and scheme.privacy.unit == "record":
        texts.append(
            f"Forward and backward passes ran in {precision}. The beliefs use the challenge's "
            "gradients in full precision, but the sums contain them rounded."
        )
    return texts


def budget_cautions(budget: Budget, of_all: float) -> list[str]:
    texts = []
    epsilon, spent = (
        f"epsilon {value:.4g} at delta {budget.delta:g}"
        for value in (budget.epsilon[budget.vantage], of_all)
    )
    if budget.stopped and budget.stop_at:
        elsewhere = f" (at delta {budget.stop_at_delta:g})"
        texts.append(
            f"The training was stopped after {budget.rounds_run} of {budget.rounds_planned} "
            f"rounds, at {spent}. One more round would have exceeded privacy.stop-at = "
            f"{budget.stop_at:g}{elsewhere * (budget.delta != budget.stop_at_delta)}."
        )
    if budget.earlier_attempts:
        rounds = "1 round" if budget.earlier_attempts == 1 else f"{budget.earlier_attempts} rounds"
        texts.append(
            f"Interrupted attempts released {rounds} of the same trials, with separate noise. The "
            f"bounds include this ({epsilon}), but the adversary of this transcript did not see it."
        )
    return texts


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
    released: ReleasedTogether | None


def of(
    rules: GameRules,
    audit: AuditConfig,
    training: Releases,
    everything: Releases | None,
    trainings: int,
    delta: float,
    vantage: Vantage | None = None,
    disclosed: bool | None = None,
) -> Guarantee:
    """Return what a run guarantees by privacy.accountant at delta towards a vantage."""
    scheme = rules.scheme
    where = scheme.federation.vantage if vantage is None else vantage
    chosen_accountant = accountant(scheme.privacy.accountant)

    def epsilon(described: Releases, vantage: Vantage) -> float:
        return chosen_accountant.epsilon(described.towards(vantage), delta)

    if disclosed is None:
        disclosed = any(
            vantage is not Vantage.SERVER
            for vantage in vantages.measured(scheme.federation.vantage, audit.vantages)
        )
    failings = dp_failings(rules, audit)
    released: ReleasedTogether | None = None
    if everything is not None:
        epsilons = {vantage.value: epsilon(everything, vantage) for vantage in Vantage}
        released = ReleasedTogether(
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
    return Guarantee(True, f"{SYSTEM_NOISE} {stated(released)}", released)


def stated(released: ReleasedTogether) -> str:
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
