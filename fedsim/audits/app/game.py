"""The client-level game against an app.

A coin decides in every trial whether the target client sends its update. That update is the worst
that the configuration allows: a thousand times the clipping norm, along a random direction that the
adversary knows. Where weights are the clients' own, its weight exceeds all others. The other
clients send almost nothing, which the adversary also knows: in differential privacy the data of
others are not secret. The score comes from the released model of every round, or from the target's
message where clients add the noise. It is the log-likelihood ratio under the noise that theory
expects. No verdict relies on it: the bounds on epsilon hold for any score.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from adversaries.arrays import Bools, Floats
from fedsim.audits.app.configuration import (
    UNBOUNDED_WEIGHT,
    App,
    ClientRun,
    Configuration,
    Script,
)
from fedsim.audits.app.theory import AppGuarantee
from fedsim.common.randomness import StreamRole, generator
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Vantage

HUGE, IDLE = 1e3, 1e-3
"""Norms of the target's and of the other clients' updates, in clipping norms."""

SECOND = 2**32
"""Number of the second honest run, which no trial has."""

PILOTS = 24
"""Trials that place the threshold, where theory does not."""


def observe(audited: App, seed: int) -> tuple[Configuration, list[dict[int, ClientRun]]]:
    """Return an app's configuration as observed, and the clients' trainings in honest runs.

    A run with a huge update adds to the first honest run. Where clients take steps of Opacus, a
    second honest run shows whether the noise follows a seed.
    """
    honest = audited.honest(_app_seed(seed, 0))
    trainings = [honest.clients]
    if any(client.run.steps for client in honest.clients.values()):
        trainings.append(audited.honest(_app_seed(seed, SECOND)).clients)
    configuration = honest.configuration
    script = script_of(configuration, seed)
    norms = [each.message_norm for each in audited.scripted(_app_seed(seed, 1), script)]
    # Rounding in float32 changes a huge update far less than clipping it does. nan is not above.
    kept = any(norm > 0.5 * script.length for norm in norms) or configuration.client_norm_kept
    return replace(configuration, client_norm_kept=kept), trainings


def play(
    audited: App,
    configuration: Configuration,
    expected: AppGuarantee | None,
    neighbouring: Neighbouring,
    vantage: Vantage,
    trials: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Bools, Floats]:
    """Play the game, half in each world, and return worlds and scores, each [trials].

    A trial depends only on the seed and its number.

    Args:
        configuration: from `observe`.
        expected: theory for that configuration, which scores the rounds. Where it is None or
            infinite, or the noise is seeded, `PILOTS` more trials place a threshold.
        neighbouring: the target's message in the world without its update. Add-remove: an idle
            update, like all other clients. Replace: the opposite update.
        vantage: the server scores the target's message, any other vantage the released model.
        trials: at least 1; an odd number has one more trial with the update.
        seed: of the worlds, the direction and the app's own randomness.
        progress: called with the number of finished trials after each, pilots not counted.
    """
    script = script_of(configuration, seed)
    # Far below every clipping norm: clipped idle updates would be as long as the target's.
    replaced = neighbouring is Neighbouring.REPLACE
    other = replace(script, length=-script.length if replaced else script.idle)
    shown = "message_shift" if vantage is Vantage.SERVER else "model_shift"

    def shifts(number: int, world: bool) -> Floats:
        rounds = audited.scripted(_app_seed(seed, number), script if world else other)
        return np.nan_to_num(np.array([getattr(each, shown) for each in rounds]))

    modelled = expected is not None and expected.finite and not configuration.seeded
    known = expected if modelled else None
    threshold = np.zeros(configuration.rounds)
    if known is None:
        # The pilots use the first numbers, and decide only the threshold.
        coins = np.arange(PILOTS) % 2 == 0
        seen = np.array([shifts(2 + number, bool(coin)) for number, coin in enumerate(coins)])
        threshold = (seen[coins].mean(axis=0) + seen[~coins].mean(axis=0)) / 2
    worlds = generator(seed, StreamRole.WORLD).permutation(np.arange(trials) % 2 == 0)
    scores = np.empty(trials)
    for trial, world in enumerate(worlds):
        moved = shifts(2 + PILOTS + trial, bool(world))
        scores[trial] = (moved - threshold if known is None else _ratios(moved, known)).sum()
        progress(trial + 1)
    return worlds, scores


def script_of(configuration: Configuration, seed: int) -> Script:
    """Return the script of the world with the update."""
    central, local = configuration.central, configuration.local
    norms = [*(central.clipping_norms if central else ()), local.clipping_norm if local else 0]
    free = central is None or not central.equal_weights_enforced
    return Script(
        target=0,
        length=HUGE * (max(norms) or 1.0),
        weight=UNBOUNDED_WEIGHT if free and not configuration.constant_weights else None,
        weighted_by=central.weighted_by if central else "num-examples",
        idle=IDLE * min([norm for norm in norms if norm] or [1.0]),
        seed=seed,
    )


def _ratios(shifts: Floats, expected: AppGuarantee) -> Floats:
    """Return the log-likelihood ratio of every round, [k], by theory's influence and noise.

    Without noise the ratio is that of unit noise, of which only the sign matters. A round without
    noise reveals the world, so that other rounds count for nothing beside it.
    """
    influences, stds = np.array(expected.influences), np.array(expected.noise_stds)
    # Opposite updates put the two worlds on either side of 0.
    middle = 0.0 if expected.neighbouring is Neighbouring.REPLACE else influences / 2
    silent = stds == 0
    variances = np.where(silent, 1.0, np.inf if silent.any() else stds**2)
    return influences * (shifts - middle) / variances


def _app_seed(seed: int, number: int) -> int:
    return int(generator(seed, StreamRole.NOISE, trial=number).integers(2**32))
