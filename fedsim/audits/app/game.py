"""The client-level game against an app.

A coin decides in every trial whether the target client sends its update. That update is the worst
that the configuration allows: a thousand times the clipping norm, along a random direction that the
adversary knows. Where weights are the clients' own, its weight exceeds all others. The other
clients send almost nothing, which the adversary also knows: in differential privacy the data of
others are not secret. The score is how far the released models moved along the direction. No
verdict relies on it: the bounds on epsilon hold for any score.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from adversaries.arrays import Bools, Floats
from fedsim.audits.app.execution import UNBOUNDED_WEIGHT, AppFacts, AuditedApp, Script
from fedsim.audits.app.records import ClientRun
from fedsim.audits.judgement.claim import Claim, Finding
from fedsim.audits.steps.rules import Rule, objections
from fedsim.common.randomness import StreamRole, generator
from fedsim.privacy.mechanism import Neighbouring

HUGE, IDLE = 1e3, 1e-3
"""Norms of the target's and of the other clients' updates, in clipping norms."""

SECOND = 2**32
"""Number of the second honest run, which no trial has."""

PILOTS = 40
"""Trials that place the threshold."""

SILENT = 1e-3
"""Share of the largest spread of a round's shifts below which another round has no noise."""

ADDED = 1e-3
"""Share of a message across the script's update from which a client's own code changed it."""


@dataclass(frozen=True)
class Observed:
    """What the runs before the trials show.

    Attributes:
        trainings: the clients' trainings in honest runs, by partition.
        unclipped: whether an update far above the clipping norm left its client unclipped.
        added: whether the client's mods add something of their own to an update, such as noise.
    """

    facts: AppFacts
    trainings: list[dict[int, ClientRun]]
    unclipped: bool
    added: bool

    @property
    def unprotected(self) -> bool:
        """Whether only training itself can add noise."""
        return self.facts.bare and not self.added


def observe(audited: AuditedApp, seed: int) -> Observed:
    """Return what an honest run and one with a huge update show.

    Where clients take steps of Opacus, a second honest run shows whether the noise follows a seed.
    """
    honest = audited.honest(_app_seed(seed, 0))
    trainings = [honest.clients]
    if any(client.run.steps for client in honest.clients.values()):
        trainings.append(audited.honest(_app_seed(seed, SECOND)).clients)
    script = script_of(honest.facts, seed)
    rounds = audited.scripted(_app_seed(seed, 1), script)
    # Rounding in float32 changes a huge update far less than clipping it does. nan is not above.
    unclipped = any(each.message_norm > 0.5 * script.length for each in rounds)
    across = [each.message_norm**2 - each.message_shift**2 for each in rounds]
    added = any(
        square > (ADDED * each.message_norm) ** 2
        for square, each in zip(across, rounds, strict=True)
    )
    return Observed(honest.facts, trainings, unclipped, added)


def play(
    audited: AuditedApp,
    facts: AppFacts,
    neighbouring: Neighbouring,
    trials: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Bools, Floats]:
    """Play the game, half in each world, and return worlds and scores, each [trials].

    A trial depends only on the seed and its number.

    Args:
        facts: from `observe`.
        neighbouring: the target's message in the world without its update. Add-remove: an idle
            update, like all other clients. Replace: the opposite update.
        trials: at least 1; an odd number has one more trial with the update.
        seed: of the worlds, the direction and the app's own randomness.
        progress: called with the number of finished trials after each, pilots not counted.
    """
    script = script_of(facts, seed)
    # Far below every clipping norm: clipped idle updates would be as long as the target's.
    replaced = neighbouring is Neighbouring.REPLACE
    other = replace(script, length=-script.length if replaced else script.idle)

    def shifts(number: int, world: bool) -> Floats:
        rounds = audited.scripted(_app_seed(seed, number), script if world else other)
        return np.nan_to_num(np.array([each.model_shift for each in rounds]))

    # The pilots use the first numbers, and decide only threshold and rounds.
    coins = np.arange(PILOTS) % 2 == 0
    seen = np.array([shifts(2 + number, bool(coin)) for number, coin in enumerate(coins)])
    means = seen[coins].mean(axis=0), seen[~coins].mean(axis=0)
    spread = np.sqrt(seen[coins].var(axis=0) + seen[~coins].var(axis=0))
    # A round without noise reveals the world, so that other rounds count for nothing beside it.
    silent = (spread <= SILENT * spread.max()) & (means[0] != means[1])
    counted = silent if silent.any() else np.ones_like(silent)
    threshold = (means[0] + means[1]) / 2
    worlds = generator(seed, StreamRole.WORLD).permutation(np.arange(trials) % 2 == 0)
    scores = np.empty(trials)
    for trial, world in enumerate(worlds):
        moved = shifts(2 + PILOTS + trial, bool(world))
        scores[trial] = (moved - threshold)[counted].sum()
        progress(trial + 1)
    return worlds, scores


def script_of(facts: AppFacts, seed: int) -> Script:
    """Return the script of the world with the update."""
    norm = facts.clipping_norm or 1.0
    return Script(
        target=0,
        length=HUGE * norm,
        weight=UNBOUNDED_WEIGHT if facts.weighted_by else None,
        weighted_by=facts.weighted_by,
        idle=IDLE * norm,
        seed=seed,
    )


def _app_seed(seed: int, number: int) -> int:
    return int(generator(seed, StreamRole.NOISE, trial=number).integers(2**32))


COUNTED = ("weighted-average", "sampled-clients")
"""Rules whose mistake is in theory's epsilon, so that a claim may be supported beside them."""


OF_CLIENTS, OF_RECORDS = "no-noise", "no-noise-after-training"
"""Rules about updates without noise: for a claim about clients, and for every other claim."""


def _lost(seen: Observed) -> tuple[int, int] | None:
    facts = seen.facts
    counted = facts.rounds if facts.statement is None else facts.statement.steps
    return (counted, facts.rounds) if counted < facts.rounds else None


RULES = (
    Rule(
        "weighted-average",
        lambda seen: bool(seen.facts.multipliers) and seen.facts.weighted_by,
        "the noise is for clients that all count alike, but the average is weighted by '{0}', "
        "which each client states itself and nothing bounds: one client can make up any part of "
        "the average",
        "weight all clients alike: send a constant 1 under the key of weighted_by_key, or pass "
        "accountant=RdpAccountant(...), which refuses unequal weights",
    ),
    Rule(
        "rebuilt-accountant",
        _lost,
        "the accountant's last answer counts {0} of {1} releases: it was rebuilt during the run, "
        "and lost the rest; this audit composes all of them",
        "build one accountant before the first round and keep it, or restore it with "
        "state_dict() and load_state_dict()",
        "caution",
    ),
    Rule(
        "client-clipping",
        lambda seen: seen.facts.client_clips and seen.unclipped,
        "clipping is left to the clients, but a client's update far above the clipping norm "
        "arrived unclipped: one client can change the average without limit",
        "register fixedclipping_mod on the train function: @app.train(mods=[fixedclipping_mod])",
    ),
    Rule(
        "seeded-noise",
        lambda seen: seen.facts.seeded and seen.facts.clipping_norm,
        "the server sets the seed or the state of NumPy's global generator (numpy.random.seed, "
        "set_state), and Flower draws its noise from it. Anyone who knows the code, or the noise "
        "of another round, may know the noise",
        "do not set NumPy's global generator in a run that protects people",
    ),
    Rule(
        OF_CLIENTS,
        lambda seen: seen.unprotected,
        "nothing adds noise: every participant receives the average of the unchanged updates",
        "wrap the strategy in DifferentialPrivacyServerSideFixedClipping with an accountant",
    ),
    Rule(
        OF_RECORDS,
        lambda seen: seen.unprotected,
        "nothing adds noise after training: every participant receives the average of the updates "
        "as training returns them, with whatever noise training adds",
        "change nothing if training is private by itself (for example with Opacus) and the claim "
        "is about records; otherwise wrap the strategy in "
        "DifferentialPrivacyServerSideFixedClipping",
        "note",
    ),
)


def findings(seen: Observed, claim: Claim | None) -> tuple[Finding, ...]:
    """Return what the rules find, and the findings of the recorded rounds that no rule repeats."""
    of_a_client = claim is not None and claim.unit == "client"
    other = OF_RECORDS if of_a_client else OF_CLIENTS
    found = [each for each in objections(RULES, seen) if each.rule != other]
    named = {each.rule for each in found}
    return (*found, *(each for each in seen.facts.findings if each.rule not in named))
