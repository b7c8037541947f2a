"""The guarantee of a run: epsilon of everything that it released, or why there is none.

`fedsim.game.mechanisms.privacy` says why the audit compares with another epsilon.
"""

import math
from dataclasses import dataclass

from fedsim.audits.results.measured import Budget, ReleasedTogether
from fedsim.configuration import Config
from fedsim.configuration.needs import UNBOUNDED
from fedsim.privacy import delta, identifiability
from fedsim.privacy.accounting import accountant
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import FEW_MASKS, Vantage

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

# Why a run has no guarantee

LOCAL_SENSITIVITY = (
    "Noise was scaled to the local sensitivity of the challenge, which depends on the data. This "
    "measures tightness; it is not a DP guarantee."
)
FITTED = (
    "The first model was fitted to the records of D without noise. This is a worst case for the "
    'challenge, not a DP guarantee. To protect people, set model.initialisation = "random".'
)
SEEDED = (
    "The noise came from the run's seed, so that the experiment can be repeated. Anyone who knows "
    "the seed can remove the noise. To protect people, train with secret noise: fedsim train."
)
IN_THE_CLEAR = (
    "Secure aggregation was simulated: the server saw every message, with only a share of the "
    "noise. The numbers towards the server assume secure aggregation. To protect people, set "
    'federation.secure-aggregation = "secagg+".'
)
COLLUDED = (
    "{} sent their noise to the adversary through the server, in the clear, so that their own "
    "records had no protection. To protect people, set federation.colluding = 0."
)
ORACLE = (
    "This was an oracle audit: clients gave their noise and {} to the auditor. This is a "
    'measurement, not a DP guarantee. To protect people, set audit.mode = "participant".'
)

# Cautions

A_SCORE = (
    "Its log-odds are {}, not an exact posterior. Belief, delta'{} and the prediction describe "
    "that score and raise no alarm. The advantage and the Clopper-Pearson bound count decisions "
    "and stay valid."
)
LOCAL_STEPS = (
    "Clients took local steps, whose noisy models the adversary does not see. "
    + A_SCORE.format(
        "the score of a linearised attack", ", epsilon from belief or from sensitivities,"
    )
)
RELEASED = "The adversary saw only the released model. " + A_SCORE.format(
    "the score of an attack along a replay of the training", ""
)
LOW_PRECISION = (
    "Forward and backward passes ran in {}. The beliefs use the challenge's gradients in full "
    "precision, but the sums contain them rounded."
)
STOPPED = (
    "The training was stopped after {} of {} rounds, at epsilon {:.4g} at delta {:g}. One more "
    "round would have exceeded privacy.stop-at = {:g}{}."
)
INTERRUPTED = (
    "Interrupted attempts released {} of the same trials, with separate noise. The bounds include "
    "this (epsilon {:.4g} at delta {:g}), but the adversary of this transcript did not see it."
)


def dp_failings(config: Config) -> list[str]:
    """Return why a run has no guarantee, in sentences."""
    from fedsim.game.observers import at_server  # noqa: PLC0415  (torch is slow to import)

    of_records = config.privacy.unit == "record"
    colluding = config.federation.colluding
    who = "1 client" if colluding == 1 else f"{colluding} clients"
    given = "the challenge record's gradient" if of_records else "the target client's update"
    failings = {
        f"{UNCLIPPED.capitalize()}, so that no noise is a DP guarantee.": (
            not config.training.clipping
        ),
        LOCAL_SENSITIVITY: config.privacy.sensitivity == "local",
        FITTED: config.model.initialisation == "worst-case",
        SEEDED: config.privacy.noise_source == "seed",
        IN_THE_CLEAR: config.federation.summed_in_the_clear,
        COLLUDED.format(who): colluding and not config.federation.trust.model.server_draws,
        ORACLE.format(given): at_server.seat(config.audit.mode).reads_noise,
    }
    return [text for text, applies in failings.items() if applies]


def cautions(config: Config) -> list[str]:
    """Return what a reader of a run's numbers should know, in sentences."""
    unit, units = config.privacy.unit, config.participation.units
    precision = config.run.precision
    large = delta.too_large(config.privacy.delta, units, unit)
    of_trust = config.federation.trust.model.caution
    texts = {
        large: large,
        FEW_MASKS: config.federation.few_masks,
        of_trust: of_trust,
        LOCAL_STEPS: config.training.local_steps > 1,
        RELEASED: config.federation.vantage is Vantage.RELEASED_MODEL,
        LOW_PRECISION.format(precision): precision != "float32" and unit == "record",
    }
    return [text for text, applies in texts.items() if applies]


def budget_cautions(budget: Budget, of_all: float) -> list[str]:
    texts, rounds = [], budget.earlier_attempts
    if budget.stopped and budget.stop_at:
        elsewhere = f" (at delta {budget.stop_at_delta:g})"
        elsewhere *= budget.delta != budget.stop_at_delta
        run = budget.rounds_run, budget.rounds_planned, of_all, budget.delta
        texts.append(STOPPED.format(*run, budget.stop_at, elsewhere))
    if rounds:
        count = "1 round" if rounds == 1 else f"{rounds} rounds"
        spent = budget.epsilon[budget.vantage]
        texts.append(INTERRUPTED.format(count, spent, budget.delta))
    return texts


PLAYED = (
    "The server, or an adversary, played the game with its own copy of the records. The guarantee "
    "covers what the clients sent in the rounds."
)
"""Parties beside the target's client that knew the target."""


@dataclass(frozen=True)
class Guarantee:
    """Whether a run has a guarantee, and which.

    Attributes:
        failings: why there is none, in sentences; () where everything released has a finite
            epsilon by noise that no observer can remove.
        released: releases of all trainings together; None where the noise comes from the seed.
    """

    failings: tuple[str, ...]
    released: ReleasedTogether | None

    @property
    def given(self) -> bool:
        return not self.failings

    @property
    def note(self) -> str:
        """What was released, or why there is no guarantee."""
        if self.failings or self.released is None:
            return " ".join(self.failings)
        return f"{SYSTEM_NOISE} {stated(self.released)}"


def of(
    config: Config,
    training: Releases,
    everything: Releases | None,
    trainings: int,
    delta: float,
    vantage: Vantage | None = None,
) -> Guarantee:
    """Return what a run guarantees by privacy.accountant at delta towards a vantage."""
    where = config.federation.vantage if vantage is None else vantage
    chosen_accountant = accountant(config.privacy.accountant)

    def epsilon(described: Releases, vantage: Vantage) -> float:
        return chosen_accountant.epsilon(described.towards(vantage), delta)

    failings = dp_failings(config)
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
        )
    if not failings and released is not None and math.isinf(released.epsilon):
        failings = ["Epsilon is infinite towards this vantage."]
    return Guarantee(tuple(failings), released)


def stated(released: ReleasedTogether) -> str:
    count = released.trainings
    where = f"at delta {released.delta:g} towards the {released.vantage}"
    if count == 1:
        return f"One training released everything: epsilon {released.epsilon:.4g} {where}. {PLAYED}"
    return (
        f"{count} trainings together released everything: epsilon {released.epsilon:.4g} {where}. "
        f"One of them has epsilon {released.epsilon_of_one_training:.4g}, which an audit compares "
        f"with; it is not a guarantee. {PLAYED}"
    )
