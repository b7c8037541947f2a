"""The membership inference game: N models, each trained on a random half of D.

A fair coin puts each record of D into each model's training data, so that every pair of a model and
a record is one question. Every second model is a shadow model, whose training data the attacker
knows. The others are attacked; given the shadow models, they are independent games. The training
takes place in one process: the clients' sums are one sum, with all noise of the federation. The
attacker sees the global models and some losses, but no gradients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from adversaries.arrays import Bools, Floats
from adversaries.attacks import roc
from adversaries.attacks.membership_attacks import Attack
from adversaries.attacks.shadow_models import FEWEST, Observations
from adversaries.errors import InputError
from fedsim.common.device import single_threaded_kernels
from fedsim.common.memory import readable, spare
from fedsim.common.randomness import StreamRole, generator
from fedsim.config import Config, Scalar, from_run_config, to_run_config
from fedsim.config.federation import DataConfig
from fedsim.config.needs import require
from fedsim.config.objects import Experiment, GameRules, Scheme
from fedsim.config.training import refuse_unless_classified
from fedsim.federation.runtimes.batch_task import ONE_AT_A_TIME, Program
from fedsim.federation.runtimes.places import Workers, opened, processes
from fedsim.federation.runtimes.spread import spread
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

Progress = Callable[[float], None]

POPULATION = 1000
"""Most held-out records that stand for the population."""

LEAVES = (
    "get the configuration with its seed, and the paths of the data. They read the data themselves "
    "and send the losses of the models back."
)
"""What the workers of a cluster get."""

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


@dataclass(frozen=True, eq=False)
class Trained:
    """The losses of some models, as in a `MembershipGame`: [T, n], [T, m], [T]."""

    losses: Floats
    population: Floats
    accuracy: Floats


@dataclass(frozen=True)
class ModelsTask:
    """A batch of models for a worker, in plain values that another version can read and refuse.

    Attributes:
        run_config: the configuration, as Flower's run config.
        program: the program of the process that plays the game.
        noise_multiplier: nominal.
        first: index of the first model.
        stop: index behind the last one.
    """

    run_config: dict[str, Scalar]
    program: dict[str, str]
    noise_multiplier: float
    first: int
    stop: int


@dataclass(frozen=True, eq=False)
class _Models:
    """The values that all models of a game share."""

    experiment: Experiment
    loaded: Federation
    nominal: float

    def train(self, part: range, progress: Progress) -> Trained:
        """Train a batch of models and record their losses.

        progress: receives the number of models that are trained so far.
        """
        rules, loaded = self.experiment.game, self.loaded
        scheme = rules.scheme
        rounds, size = scheme.training.rounds, scheme.records
        inside = inclusion(rules.seed, part.stop, size)[part.start :]
        records = loaded.members(np.arange(size))
        others = tuple(tensor[:POPULATION] for tensor in loaded.held_out())
        if loaded.device.type == "cpu":
            single_threaded_kernels()
        theta = federation.initial_parameters(rules, loaded, part).to(loaded.device)
        # A coin includes each record, so that half of the records are expected in each sum.
        optimizer = ServerOptimizer(scheme.training, scheme.participation.divisor / 2)
        for round in range(1, rounds + 1):
            try:
                total = _released(scheme, loaded, theta, inside, part, round, self.nominal)
            except FloatingPointError as error:  # the model diverged
                raise InputError(str(error)) from None
            theta = optimizer.step(theta, total.float(), round)  # a run broadcasts float32, too
            progress(part.start + len(part) * round / rounds)
        losses = loaded.evaluate(theta, *records)[0].cpu().numpy()
        population, correct = loaded.evaluate(theta, *others)
        accuracy = correct.double().mean(1).cpu().numpy()
        return Trained(losses, population.cpu().numpy(), accuracy)


def train_models(task: ModelsTask) -> Trained:
    """Train a batch of models in a worker.

    Raises InputError if the worker has another program, another kind of device or other data.
    """
    config = from_run_config(task.run_config)
    with ONE_AT_A_TIME:
        Program.here(config.experiment).check(task.program)
        models = _Models(
            config.experiment, federation.load(config.experiment), task.noise_multiplier
        )
        return models.train(range(task.first, task.stop), lambda _: None)


def play(
    config: Config,
    count: int,
    progress: Progress | None = None,
    workers: Workers | None = None,
    say: Callable[[str], None] = print,
) -> MembershipGame:
    """Train models on random halves of D and record their losses.

    A model's numbers depend only on the seed and its index, up to rounding. The learning rate is
    for the mean over the n/2 expected records.

    Args:
        count: N, number of models.
        progress: receives the share of the work that is done.
        workers: the workers that train batches of models; None for this process.
        say: shows a line to the user.

    Raises:
        InputError: the configuration does not fit the game, or a model diverged.
    """
    check_attacked_training(config.game)
    _check_memory(config.run.memory_limit, config.data, count)
    inside = inclusion(config.run.seed, count, config.data.records)
    _check_coins(config.data.records, config.run.seed, inside, count)
    loaded = federation.load(config.experiment)
    models = _Models(config.experiment, loaded, privacy.noise_multiplier(config.scheme))
    # Train one batch of models at a time, to bound the memory of their gradients.
    batch = plan.fit_batch(config, processes(workers)).trials.batch
    parts = [range(first, min(first + batch, count)) for first in range(0, count, batch)]

    def show(done: float) -> None:
        if progress is not None:
            progress(done / count)

    if workers is None:
        trained = [models.train(part, show) for part in parts]
    else:
        run_config = to_run_config(config)
        trained = _trained_elsewhere(models, run_config, parts, workers, show, say)
    losses, population, accuracy = (
        np.concatenate([getattr(each, name) for each in trained])
        for name in ("losses", "population", "accuracy")
    )
    observations, nominal = Observations(losses, inside, population), models.nominal
    return MembershipGame(observations, nominal, mechanism(config.scheme, nominal), accuracy)


def _trained_elsewhere(
    models: _Models,
    run_config: Mapping[str, Scalar],
    parts: Sequence[range],
    workers: Workers,
    progress: Progress,
    say: Callable[[str], None],
) -> list[Trained]:
    program = asdict(Program.here(models.experiment))
    with opened(workers, say, LEAVES) as pool:
        values = {**run_config, **pool.settings(models.experiment.run)}
        tasks = {
            f"models {part.start} to {part.stop - 1}": partial(
                ModelsTask, values, program, models.nominal, part.start, part.stop
            )
            for part in parts
        }
        trained, done = dict[str, Trained](), 0
        for name, future in spread(pool, train_models, tasks):
            trained[name] = future.result()
            done += len(trained[name].accuracy)
            progress(done)
    return [trained[name] for name in tasks]


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
        threshold = roc.curve(attack.score(shadows, None), shadows.inclusion).best_threshold
    return attack.score(games, shadows), threshold


def check_attacked_training(rules: GameRules) -> None:
    """Raise InputError unless the training is DP-SGD on records, with one step in a round.

    Settings of a single challenge are refused too, since the game treats every record alike.
    """
    refuse_unless_classified(rules.model.task, "fedsim membership")
    require(
        (
            ("privacy.unit", rules.scheme.privacy.unit, "record"),
            ("privacy.sensitivity", rules.scheme.privacy.sensitivity, "global"),
            ("privacy.stop-at", rules.scheme.privacy.stop_at, 0.0),
            ("training.local-steps", rules.scheme.training.local_steps, 1),
            ("federation.sampling-rate", rules.scheme.federation.sampling_rate, 1.0),
            ("federation.dropout-rate", rules.scheme.federation.dropout_rate, 0.0),
            ("challenge.kind", rules.challenge.kind, "record"),
            ("canaries.count", rules.canaries.count, 0),
        ),
        "fedsim membership treats all records alike. It needs independent models of all rounds, "
        "and DP-SGD with one step in a round",
    )
    if rules.model.initialisation == "worst-case":
        raise InputError(
            'model.initialisation is "worst-case", which fits the first model to all records of '
            "D without noise. Every model would have seen the records that it is tested on; set "
            'model.initialisation = "random"'
        )


def mechanism(scheme: Scheme, nominal: float) -> Mechanism | None:
    """Return the mechanism that protects one record in all global models; None without clipping.

    The game adds or removes a record, for either neighbouring relation. The attacker is not a
    client, so that the noise of all clients counts.
    """
    training, federation_ = scheme.training, scheme.federation
    if not training.clipping:
        return None
    whole = aggregate_noise_multiplier(
        nominal, federation_.trust, federation_.clients, federation_.clients
    )
    norm = training.clipping_norm
    # The noise is scaled to the sensitivity, 2C under replace, but the game moves a sum by C.
    return Mechanism.alike(
        whole * sensitivity(scheme.privacy.neighbouring, norm) / norm,
        training.rounds,
        training.sampling_rate,
        Neighbouring.ADD_REMOVE,
    )


def most_true_positives(described: Mechanism, rates: Floats) -> Floats:
    """Return the largest true positive rates that theory allows at some false positive rates, [m].

    Without sampling, it is Phi(Phi^-1(rate) + mu). With sampling, it is the minimum over epsilon of
    e^epsilon rate + delta(epsilon) and of 1 - e^-epsilon (1 - rate - delta(epsilon)), by the loss
    distributions of both directions.

    Args:
        rates: float64 [m], false positive rates in [0, 1].
    """
    if described.noiseless:
        return np.ones_like(rates)
    if not described.sampled:
        return np.asarray(ndtr(ndtri(rates) + described.mu))
    # A grid up to nearly the largest loss; every epsilon gives a valid bound, so 257 are enough.
    reach = max(1.0, PLD.epsilon(described, 1e-9))
    epsilons = np.linspace(0, min(reach, 20.0), 257)
    deltas = np.array([PLD.delta(described, float(epsilon)) for epsilon in epsilons])
    # Bounds of both directions at every epsilon, [m, 257]; the smallest holds.
    column = rates[:, None]
    above = np.exp(epsilons) * column + deltas
    below = 1 - np.exp(-epsilons) * (1 - column - deltas)
    return np.clip(np.minimum(above, below).min(axis=1), rates, 1.0)


def _check_memory(memory_limit: int | None, data: DataConfig, count: int) -> None:
    """Raise InputError if the losses, with the copies that attacks make, do not fit into memory."""
    models, limit = max(1, count), memory_limit
    available = spare(torch.device("cpu")) if limit is None else limit
    each = COPIES * 8 * (data.records + min(POPULATION, data.held_out))
    if models * each > available:
        fits = available // each
        fewer = f"--models at most {fits}, or " * (fits >= 2 * (FEWEST + 1))
        raise InputError(
            f"--models is {count}. Its losses take {readable(models * each)} with the copies that "
            f"attacks make, but {readable(available)} are available (run.max-memory); give "
            f"{fewer}fewer data.records"
        )


def _check_coins(records: int, seed: int, inside: Bools, count: int) -> None:
    """Raise InputError if a record lacks shadow models, or if a model has no or all records.

    A record needs FEWEST + 1 shadow models with it and as many without it, since the choice of a
    threshold leaves one of them out.
    """
    if _short(inside[of_shadows(len(inside))]):
        enough = max(count, 4 * (FEWEST + 1))
        while _short(coins := inclusion(seed, enough, records)[of_shadows(enough)]):
            enough *= 2
        # The first shadow model, for each record, at which it has more than FEWEST on this side.
        tails = (np.argmax(side.cumsum(axis=0) > FEWEST, axis=0) for side in (coins, ~coins))
        # Shadow i is model 2 i.
        needed = 2 * max(int(tail.max()) for tail in tails) + 1
        raise InputError(
            f"--models is {count}: every second model is a shadow model. For some record, too few "
            f"of them have it in their training data, or too few lack it. With run.seed = {seed}, "
            f"at least {needed} models are needed; give --models {needed} or more"
        )
    sizes = inside.sum(axis=1)
    if alike := np.flatnonzero((sizes == 0) | (sizes == records)).tolist():
        raise InputError(
            f"model {alike[0]} would be trained on {'no' if not sizes[alike[0]] else 'every'} "
            f"record, with run.seed = {seed} and data.records = {records}; give more records, or "
            "another seed"
        )


def _short(inside: Bools) -> bool:
    """Return whether too few shadow models have a record in their training data, or lack it."""
    members = inside.sum(axis=0)
    return bool(np.minimum(members, len(inside) - members).min(initial=len(inside)) <= FEWEST)


def _released(
    scheme: Scheme,
    loaded: Federation,
    theta: Tensor,
    inside: Bools,
    trials: range,
    round: int,
    nominal: float,
) -> Tensor:
    """Return the noisy sum of a round over each model's training data, float64 [T, P]."""
    rate, records = scheme.training.sampling_rate, scheme.records
    coins = participation(scheme.participation.setting.seed, trials, round, records, rate)
    taking_part = torch.from_numpy(inside if coins is None else inside & coins).to(theta.device)
    total = loaded.clipped_sum(theta, np.arange(records), taking_part)
    bound = sensitivity(scheme.privacy.neighbouring, scheme.training.clipping_norm)
    each = torch.full((len(trials),), nominal * bound, dtype=torch.float64, device=theta.device)
    for source in noise_sources(scheme.federation):
        total += noise(
            scheme.participation.setting.seed, trials, round, source, each, theta.shape[1]
        )
    return total
