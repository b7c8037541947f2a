"""The population's game of membership inference: N models, each trained on a random half of D.

Every record of D is put into each model's training data by a fair coin of its own, so that every
pair of a model and a record is one question. Every second model is a shadow, whose training data
the attacker knows, and the others are attacked: given the shadows they are independent games. The
federation's training happens in one place, as in `fedsim.studies.sensitivity.sensitivity_course`:
the clients' sums are one sum, and the noise is all of the federation's. An attacker sees the global
models, as everybody outside of the clients may, and some losses; no gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from adversaries.attacks import roc
from adversaries.attacks.membership_attacks import Attack
from adversaries.attacks.shadow_models import FEWEST, Observations
from adversaries.errors import InputError
from fedsim.common.device import single_threaded_kernels
from fedsim.common.memory import readable, spare
from fedsim.common.randomness import Role, generator
from fedsim.config import Config
from fedsim.config.federation import DataConfig
from fedsim.config.objects import GameRules, Scheme
from fedsim.config.training import refuse_unless_classified
from fedsim.federation.server import plan
from fedsim.game import federation
from fedsim.game.client import noise, noise_sources
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import privacy
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import (
    Mechanism,
    Neighbouring,
    aggregate_noise_multiplier,
    sensitivity,
)
from fedsim.privacy.participation.sampling import participation

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Progress = Callable[[float], None]

SEEN = 10
"""At how many global models after the first one losses are taken, evenly over training."""

POPULATION = 1000
"""How many held-out records stand for the population at most."""

COPIES = 7
"""How many times the losses of all models an attack holds at most, those themselves included."""


@dataclass(frozen=True, eq=False)
class Game:
    """What N models say of the n records of D, and of records that nobody trained on.

    Attributes:
        observations: the losses, and which records each model was trained on.
        rounds: [k], after which rounds the trajectory's global models are.
        noise_multiplier: nominal.
        mechanism: what stands between one record and all global models; None where nothing bounds a
            record's part.
        accuracy: float64 [N], of the final models on the held-out records.
    """

    observations: Observations
    rounds: tuple[int, ...]
    noise_multiplier: float
    mechanism: Mechanism | None
    accuracy: Floats


def play(config: Config, count: int, progress: Progress | None = None) -> Game:
    """Train models on random halves of D and record their losses.

    A model's numbers depend on the seed and on its own number alone, and not on trials.batch, but
    for rounding. The learning rate is for the mean over the n/2 records that are expected.

    Raises:
        InputError: what cannot be played, before anything is trained; a model that diverged.
    """
    check(config.game)
    _check_memory(config.run.memory_limit, config.data, config.training.rounds, count)
    inside = inclusion(config.run.seed, count, config.data.records)
    _check_coins(config.data.records, config.run.seed, inside, count)
    known = federation.load(config)
    nominal = privacy.noise_multiplier(config.scheme)
    if known.device.type == "cpu":
        single_threaded_kernels()
    rounds = observed_rounds(config.training.rounds)
    everybody = known.members(np.arange(config.data.records))
    others = tuple(tensor[:POPULATION] for tensor in known.held_out())
    along = np.empty((count, len(rounds), config.data.records))
    population = np.empty((count, len(others[1])))
    accuracy = np.empty(count)
    batch = plan.fit_batch(config).trials.batch
    # Batch by batch: train, and take losses of all records at some of the global models.
    for first in range(0, count, batch):
        part = range(first, min(first + batch, count))
        rows = slice(part.start, part.stop)
        theta = federation.initial_parameters(config.game, known, part).to(known.device)
        optimizer = ServerOptimizer(config.training, config.participation.divisor / 2)
        along[rows, 0] = _losses(known, theta, everybody)
        for round in range(1, config.training.rounds + 1):
            try:
                total = _released(config.scheme, known, theta, inside[rows], part, round, nominal)
            except FloatingPointError as error:  # the model diverged
                raise InputError(str(error)) from None
            # What a run broadcasts, and steps its model with.
            theta = optimizer.step(theta, total.float(), round)
            if round in rounds:
                along[rows, rounds.index(round)] = _losses(known, theta, everybody)
            if progress is not None:
                done = first * config.training.rounds + len(part) * round
                progress(done / (count * config.training.rounds))
        losses, correct = known.evaluate(theta, *others)
        population[rows] = losses.cpu().numpy()
        accuracy[rows] = correct.double().mean(1).cpu().numpy()
    observations = Observations(along[:, -1], inside, along, population)
    return Game(observations, rounds, nominal, mechanism(config.scheme, nominal), accuracy)


def inclusion(seed: int, count: int, records: int) -> Bools:
    """Return which records of D each model is trained on, bool [N, n]: fair coins."""
    rows = [
        generator(seed, Role.INCLUSION, trial=model).random(records) < 0.5 for model in range(count)
    ]
    return np.stack(rows) if rows else np.empty((0, records), np.bool_)


def of_shadows(count: int) -> Bools:
    """Return which models are shadows, bool [N]: every second one, from the first on."""
    return np.arange(count) % 2 == 0


def attacked(attack: Attack, seen: Observations) -> tuple[Floats, float | None]:
    """Return an attack's scores of the models that are no shadows, and its threshold.

    Shadows alone choose a threshold that is not fixed in advance, where TPR - FPR is most on their
    own scores, each left out of its own shadows.

    Returns:
        float64 [G, n], and the threshold; None where the attack answers at random.
    """
    shadows = of_shadows(len(seen.losses))
    given, games = seen.of(shadows), seen.of(~shadows)
    threshold = attack.threshold
    if threshold is None and not attack.randomised:
        threshold = roc.curve(attack.score(given, None), given.inclusion).best_threshold
    return attack.score(games, given), threshold


def check(rules: GameRules) -> None:
    """Raise an error for a training that is not DP-SGD on records, one step in a round.

    What is about one challenge has no place either: here every record is one.
    """
    refuse_unless_classified(rules.model.task, "fedsim membership")
    for key, value, needed in (
        ("privacy.unit", rules.scheme.privacy.unit, "record"),
        ("privacy.noise", rules.scheme.privacy.noise, "isotropic"),
        ("privacy.sensitivity", rules.scheme.privacy.sensitivity, "global"),
        ("training.local-steps", rules.scheme.training.local_steps, 1),
        ("federation.dropout-rate", rules.scheme.federation.dropout_rate, 0.0),
        ("challenge.kind", rules.challenge.kind, "record"),
        ("challenge.copies", rules.scheme.copies, 1),
        ("canaries.count", rules.canaries.count, 0),
        ("trials.pairing", rules.trials.pairing, "independent"),
    ):
        if value != needed:
            wanted = f'"{needed}"' if isinstance(needed, str) else str(needed)
            raise InputError(
                f"{key} is {value}, but the population's game is about every record alike, in "
                f"independent models and DP-SGD with one step in a round; set {key} = {wanted}"
            )
    if rules.model.initialisation == "worst-case":
        raise InputError(
            "model.initialisation is worst-case, whose first model was fitted to the records of D "
            "without noise, so that a model that is trained on half of them has seen the others; "
            'set model.initialisation = "random"'
        )


def mechanism(scheme: Scheme, nominal: float) -> Mechanism | None:
    """Return what hides one record in all global models; None without clipping.

    A record is there or not, whatever neighbours the noise was made for, and all noise of all
    clients hides it from somebody who is none of them.
    """
    training, federation_ = scheme.training, scheme.federation
    if not training.clipping:
        return None
    whole = aggregate_noise_multiplier(
        nominal, federation_.trust, federation_.clients, federation_.clients
    )
    norm = training.clipping_norm
    return Mechanism.alike(
        whole * sensitivity(scheme.privacy.neighbouring, norm) / norm,
        training.rounds,
        training.sampling_rate,
        Neighbouring.ADD_REMOVE,
    )


def most_true_positives(described: Mechanism, rates: Floats) -> Floats:
    """Return how many true positives anybody can have at some rates of false ones, [m].

    Phi(Phi^-1(rate) + mu) without sampling; else the least over epsilon of e^epsilon rate +
    delta(epsilon) and of 1 - e^-epsilon (1 - rate - delta(epsilon)), from the loss distribution of
    both directions.

    Args:
        rates: float64 [m], of false positives, in [0, 1].
    """
    if described.noiseless:
        return np.ones_like(rates)
    if not described.sampled:
        return np.asarray(ndtr(ndtri(rates) + described.mu))
    # Few rates are asked for at low epsilon; a grid of the most a loss comes to is fine enough.
    reach = max(1.0, PLD.epsilon(described, 1e-9))
    epsilons = np.linspace(0, min(reach, 20.0), 257)
    deltas = np.array([PLD.delta(described, float(epsilon)) for epsilon in epsilons])
    # Either direction's bound at every epsilon, [m, 257]; the least of all counts.
    column = rates[:, None]
    above = np.exp(epsilons) * column + deltas
    below = 1 - np.exp(-epsilons) * (1 - column - deltas)
    return np.clip(np.minimum(above, below).min(axis=1), rates, 1.0)


def _check_memory(memory_limit: int | None, data: DataConfig, rounds: int, count: int) -> None:
    """Raise InputError where the losses of so many models, and the attacks' copies, do not fit."""
    models, limit = max(1, count), memory_limit
    there = spare(torch.device("cpu")) if limit is None else limit
    along = len(observed_rounds(rounds)) * data.records
    each = COPIES * 8 * (along + min(POPULATION, data.held_out))
    if models * each > there:
        fewer = f"--models at most {there // each}, or " * (there // each >= 2 * (FEWEST + 1))
        raise InputError(
            f"--models is {count}, whose losses take {readable(models * each)} with the copies "
            f"that attacks make, but there are {readable(there)} (run.max-memory); give "
            f"{fewer}fewer data.records"
        )


def _check_coins(records: int, seed: int, inside: Bools, count: int) -> None:
    """Raise InputError where coins leave a record without shadow models, or a model without both.

    Shadows choose thresholds, and each is then left out of its own shadows, so that a record needs
    FEWEST + 1 of either kind. count: how many models were asked for.
    """
    if _short(inside[of_shadows(len(inside))]):
        enough = max(count, 4 * (FEWEST + 1))
        while _short(coins := inclusion(seed, enough, records)[of_shadows(enough)]):
            enough *= 2
        tails = (np.argmax(side.cumsum(axis=0) > FEWEST, axis=0) for side in (coins, ~coins))
        raise InputError(
            f"--models is {count}: every second model is a shadow, and a record is in the training "
            f"data of too few of those, or out of it; by the coins of run.seed = {seed} it takes "
            f"{2 * max(int(tail.max()) for tail in tails) + 1} models: give --models as many, "
            "better more"
        )
    sizes = inside.sum(axis=1)
    if alike := np.flatnonzero((sizes == 0) | (sizes == records)).tolist():
        raise InputError(
            f"model {alike[0]} would be trained on {'no' if not sizes[alike[0]] else 'every'} "
            f"record, by the coins of run.seed = {seed} on data.records = {records}; give more "
            "records, or another seed"
        )


def _short(inside: Bools) -> bool:
    """Whether a record is in the training data of too few of the shadows, or out of it."""
    inner = inside.sum(axis=0)
    return bool(np.minimum(inner, len(inside) - inner).min(initial=len(inside)) <= FEWEST)


def observed_rounds(rounds: int) -> tuple[int, ...]:
    """Return after which rounds losses are taken: before the first, and evenly to the last."""
    return tuple(int(round) for round in np.unique(np.linspace(0, rounds, SEEN + 1).round()))


def _losses(known: Federation, theta: Tensor, records: tuple[Tensor, Tensor]) -> Floats:
    return known.evaluate(theta, *records)[0].cpu().numpy()


def _released(
    scheme: Scheme,
    known: Federation,
    theta: Tensor,
    inside: Bools,
    trials: range,
    round: int,
    nominal: float,
) -> Tensor:
    """Return the noisy sum of a round, float64 [T, P], over the records that each model has."""
    rate, records = scheme.training.sampling_rate, scheme.records
    coins = participation(scheme.participation.setting.seed, trials, round, records, rate)
    taking_part = torch.from_numpy(inside if coins is None else inside & coins).to(theta.device)
    total = known.clipped_sum(theta, np.arange(records), taking_part)
    bound = sensitivity(scheme.privacy.neighbouring, scheme.training.clipping_norm)
    each = torch.full((len(trials),), nominal * bound, dtype=torch.float64, device=theta.device)
    for source in noise_sources(scheme.federation):
        total += noise(
            scheme.participation.setting.seed, trials, round, source, each, theta.shape[1]
        )
    return total
