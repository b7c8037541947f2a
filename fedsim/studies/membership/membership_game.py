"""The membership inference game: N models, each trained on a random half of D.

A fair coin puts each record of D into each model's training data, so that every pair of a model and
a record is one question. Every second model is a shadow model, whose training data the attacker
knows. The others are attacked; given the shadow models, they are independent games. The training
is that of `studies.rounds`, with all noise of the federation. The attacker sees the global models
and some losses, but no gradients.
"""

from dataclasses import dataclass

import numpy as np
import torch

from adversaries.arrays import Bools, Floats
from adversaries.attacks import roc
from adversaries.attacks.membership_attacks import Attack
from adversaries.attacks.shadow_models import FEWEST, Observations
from adversaries.errors import InputError
from fedsim.common.memory import readable, spare
from fedsim.common.randomness import StreamRole, generator
from fedsim.configuration import Config
from fedsim.configuration.federation import DataConfig
from fedsim.federation.server import plan
from fedsim.game import federation
from fedsim.game.mechanisms import privacy
from fedsim.privacy.mechanism import (
    Mechanism,
    Neighbouring,
    aggregate_noise_multiplier,
    sensitivity,
)
from fedsim.studies import rounds
from fedsim.studies.rounds import Progress, Round

POPULATION = 1000
"""Most held-out records that stand for the population."""

COPIES = 8
"""Most copies of all losses that an attack holds in memory, with the losses themselves."""


@dataclass(frozen=True, eq=False)
class MembershipGame:
    """The losses of N models on the n records of D and on held-out records.

    Attributes:
        observations: the losses, and the records that each model was trained on.
        noise_multiplier: nominal.
        mechanism: that protects one record in all global models; None without clipping.
        accuracy: float64 [N], of the final models on the held-out records.
    """

    observations: Observations
    noise_multiplier: float
    mechanism: Mechanism | None
    accuracy: Floats


def play(config: Config, count: int, progress: Progress | None = None) -> MembershipGame:
    """Train models on random halves of D and record their losses.

    A model's numbers depend only on the seed and its index, up to rounding. The learning rate is
    for the mean over the n/2 expected records.

    Args:
        count: N, number of models.
        progress: receives the share of the work that is done.

    Raises:
        InputError: the configuration does not fit the game, or a model diverged.
    """
    size = config.data.records
    rounds.refuse_unplayed(config, rounds.MEMBERSHIP)
    _check_memory(config.run.memory_limit, config.data, count)
    inside = inclusion(config.run.seed, count, size)
    _check_coins(inside, count)
    loaded, nominal = federation.load(config), privacy.noise_multiplier(config)
    records = loaded.members(np.arange(size))
    others = tuple(tensor[:POPULATION] for tensor in loaded.held_out())

    def release(round: Round) -> torch.Tensor:
        return round.clean_sum(included=inside[round.rows]) + round.noise(nominal)

    parts, batch = [], plan.fit_batch(config).trials.batch
    # A coin includes each record, so that half of the records are expected in each sum.
    for theta in rounds.trained(config, loaded, count, batch, release, 1 / 2, progress):
        strangers, correct = loaded.evaluate(theta, *others)
        parts.append((loaded.evaluate(theta, *records)[0], strangers, correct.double().mean(1)))
    losses, population, accuracy = (
        np.concatenate([each.cpu().numpy() for each in column])
        for column in zip(*parts, strict=True)
    )
    observations = Observations(losses, inside, population)
    return MembershipGame(observations, nominal, mechanism(config, nominal), accuracy)


def inclusion(seed: int, count: int, records: int) -> Bools:
    """Return the records of D that each model is trained on, by fair coins: bool [N, n]."""
    rows = [
        generator(seed, StreamRole.INCLUSION, trial=model).random(records) < 0.5
        for model in range(count)
    ]
    return np.stack(rows) if rows else np.empty((0, records), np.bool_)


def of_shadows(count: int) -> Bools:
    """Return which models are shadow models: every second one, from the first on, bool [N]."""
    return np.arange(count) % 2 == 0


def attacked(attack: Attack, observations: Observations) -> tuple[Floats, float]:
    """Return an attack's scores of the attacked models, and its threshold.

    A threshold that is not fixed in advance is chosen on the shadow models, where it maximises
    TPR - FPR. Each shadow model is then left out of its own shadows.

    Returns:
        float64 [G, n], and the threshold.
    """
    is_shadow = of_shadows(len(observations.losses))
    shadows, games = observations.of(is_shadow), observations.of(~is_shadow)
    threshold = attack.threshold
    if threshold is None:
        threshold = roc.curve(attack.scores(shadows, None), shadows.inclusion).best_threshold
    return attack.scores(games, shadows), threshold


def mechanism(config: Config, nominal: float) -> Mechanism | None:
    """Return the mechanism that protects one record in all global models; None without clipping.

    The game adds or removes a record, for either neighbouring relation. The attacker is not a
    client, so that the noise of all clients counts.
    """
    training, federation_ = config.training, config.federation
    if not training.clipping:
        return None
    whole = aggregate_noise_multiplier(
        nominal, federation_.trust, federation_.clients, federation_.clients
    )
    norm = training.clipping_norm
    # The noise is scaled to the sensitivity, 2C under replace, but the game moves a sum by C.
    return Mechanism.alike(
        whole * sensitivity(config.privacy.neighbouring, norm) / norm,
        training.rounds,
        training.sampling_rate,
        Neighbouring.ADD_REMOVE,
    )


def _check_memory(memory_limit: int | None, data: DataConfig, count: int) -> None:
    """Raise InputError if the losses, with the copies that attacks make, do not fit into memory."""
    available = spare(torch.device("cpu")) if memory_limit is None else memory_limit
    each = COPIES * 8 * (data.records + min(POPULATION, data.held_out))
    if count * each > available:
        raise InputError(
            f"--models is {count}. Its losses take {readable(count * each)} with the copies that "
            f"attacks make, but {readable(available)} are available (run.max-memory); give at "
            f"most {available // each} models, or fewer data.records"
        )


def _check_coins(inside: Bools, count: int) -> None:
    """Raise InputError if a record lacks shadow models, or if a model has no or all records.

    A record needs FEWEST + 1 shadow models with it and as many without it, since the choice of a
    threshold leaves one of them out.
    """
    shadows = inside[of_shadows(len(inside))]
    members, sizes = shadows.sum(axis=0), inside.sum(axis=1)
    if np.minimum(members, len(shadows) - members).min() <= FEWEST:
        raise InputError(
            f"--models is {count}: every second model is a shadow model. For some record, too few "
            "of them have it in their training data, or too few lack it; give more --models"
        )
    if ((sizes == 0) | (sizes == inside.shape[1])).any():
        raise InputError(
            "a model would be trained on no record, or on every record; give more data.records, "
            "or another run.seed"
        )
