"""Trainings without an adversary: settings that differ in numbers are trials of one batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from adversaries.errors import InputError
from fedsim.common.randomness import SERVER, StreamRole, gaussian_noise, key
from fedsim.configuration import Config
from fedsim.game import local_training
from fedsim.game.client import clean_sum, local_step_size, local_steps
from fedsim.game.federation import Federation, initial_parameters
from fedsim.game.known_round import KnownRound, coins_of
from fedsim.game.pair import noise_std
from fedsim.game.round_game import RoundGame
from fedsim.learning.training.optimizers import ServerOptimizer

FEWEST_PUBLIC = 40
"""Fewest public records that can tell settings apart."""


COINS = 2**20
"""Numbers of the trials whose coins the trainings from one `start` may draw."""


@dataclass(frozen=True)
class Setting:
    """An experiment with its nominal noise multiplier."""

    config: Config
    noise_multiplier: float


def numbers_of_trials(config: Config) -> tuple[str, ...]:
    """Return the keys, beside the noise, in which settings of one batch may differ."""
    if config.privacy.unit == "client" or config.training.local_steps > 1:
        return ()  # clients' own steps have one learning rate
    return ("training.learning-rate", "training.clipping-norm")


def trained(
    settings: Sequence[Setting],
    loaded: Federation,
    repeats: int,
    records: int | None = None,
    start: int = 0,
) -> Tensor:
    """Return the final models of each setting's trainings, float32 [S repeats, P].

    The trainings of a setting differ in first model, noise and coins; the i-th trainings of all
    settings have first model and noise in common, so that differences between settings are clear.

    Args:
        settings: equal but for the noise and `numbers_of_trials`; else ValueError.
        start: number of the first training; others have other first models, noise and coins.
        records: m, to train on a random part of the n records; None for all. Only for settings of
            one step a round. Where there are m instead of data.records = n records, the noise is
            m/n of it, so that signal and noise keep their ratio.
    """
    first = settings[0].config
    config, training = first, first.training
    numbers = {
        key: {getattr(each.config.training, key) for each in settings}
        for key in ("rate", "clipping_norm")
    }
    if not numbers_of_trials(config) and any(len(each) > 1 for each in numbers.values()):
        raise ValueError("clients' own steps have one learning rate and one clipping norm")
    times, own = repeats, range(start, start + repeats)
    trials = range(start * COINS, start * COINS + len(settings) * repeats)
    some = _part(loaded, records, first.run.seed)
    share = len(some.client_of) / first.data.records
    theta = initial_parameters(config, loaded, own).repeat(len(settings), 1)
    theta = theta.to(loaded.device)

    def of_trials(values: Sequence[float]) -> Tensor:
        numbers = torch.tensor(values, dtype=torch.float64, device=theta.device)
        return numbers.repeat_interleave(times)[:, None]

    norms = of_trials([each.config.training.clipping_norm for each in settings])
    factors = of_trials([each.config.training.rate / training.rate for each in settings])
    optimizer = ServerOptimizer(training, share * config.participation.divisor, factors)
    nothing = torch.zeros(1, theta.shape[1], dtype=torch.float64)
    for round in range(1, training.rounds + 1):
        game = RoundGame(round, trials, 0.0, -1, None, None)
        std = share * of_trials(
            [
                float(noise_std(each.config, each.noise_multiplier, nothing, round))
                for each in settings
            ]
        )
        if training.local_steps > 1:
            total = _of_noisy_steps(config, some, game, theta, std)
        else:
            total = _clean_sum(config, some, game, theta, norms)
            step = config.participation.step_number(round, 1)
            drawn = gaussian_noise(first.run.seed, own, step, SERVER, theta.shape[1])
            total += std * torch.from_numpy(drawn).to(std).repeat(len(settings), 1)
        theta = optimizer.step(theta, total, round)
    return theta


def on_public_records(loaded: Federation, clients: int, seed: int) -> Federation:
    """Return a federation whose clients have two thirds of the public records; others judge.

    It stands for clients whose own records only they may read. Raises InputError for fewer than
    `FEWEST_PUBLIC` public records.
    """
    public = loaded.split.held_out
    if len(public) < FEWEST_PUBLIC:
        raise InputError(
            f"{len(public)} public records stand in for the clients' own, but {FEWEST_PUBLIC} are "
            "needed to tell settings apart; raise data.held-out, or give data.public-root"
        )
    draw = np.random.default_rng(key(seed, StreamRole.CLIENT_SAMPLING))
    order, m = public[draw.permutation(len(public))], 2 * len(public) // 3
    split = replace(loaded.split, members=order[:m], held_out=order[m:])
    return replace(loaded, split=split, client_of=np.arange(m) % clients)


def _part(loaded: Federation, records: int | None, seed: int) -> Federation:
    """Return a federation of a random part of D."""
    if records is None or records >= len(loaded.client_of):
        return loaded
    draw = np.random.default_rng(key(seed, StreamRole.CLIENT_SAMPLING))
    chosen = np.sort(draw.permutation(len(loaded.client_of))[:records])
    members = loaded.split.members[chosen]
    split = replace(loaded.split, members=members)
    return replace(loaded, split=split, client_of=loaded.client_of[chosen])


def _clean_sum(
    config: Config, loaded: Federation, game: RoundGame, theta: Tensor, norms: Tensor
) -> Tensor:
    """Return the sum of a round of one step before its noise, float64 [T, P]."""
    knowledge = KnownRound.drawn(config, loaded, game, theta)
    if config.privacy.unit == "client":
        joining = config.participation.participants(game.round)
        return local_training.total(knowledge, joining)
    coins = knowledge.participation
    weights = None if coins is None else coins.to(theta)
    records = loaded.members(np.arange(len(loaded.client_of)))
    # A model that diverges is NaN from here on, and does not end the other trials.
    return loaded.clipper.clipped_sum(theta, *records, weights, checked=False, norms=norms)


def _of_noisy_steps(
    config: Config, loaded: Federation, game: RoundGame, theta: Tensor, std: Tensor
) -> Tensor:
    """Return the sum of clients that take several noisy steps each, float64 [T, P].

    std: of the noise of all clients' steps together, [T, 1].
    """
    seed = config.run.seed
    joining = config.participation.participants(game.round)
    size = local_step_size(config, game.round)
    total = torch.zeros_like(theta, dtype=torch.float64)
    for client in joining:

        def clean(model: Tensor, step: int, client: int = client) -> Tensor:
            return clean_sum(
                loaded, client, model, participation=coins_of(config, loaded, game, step)
            )

        def noise(step: int, client: int = client) -> Tensor:
            number = config.participation.step_number(game.round, step)
            drawn = gaussian_noise(seed, game.trials, number, client, theta.shape[1])
            return torch.from_numpy(drawn).to(std) * std / math.sqrt(len(joining))

        total += local_steps(clean, theta, config.training.local_steps, size, noise)
    return total
