"""The reconstruction game: a secret candidate is in the training data, and the adversary names it.

Every trial trains on D with the target's record replaced by a candidate, drawn from the prior. The
adversary is the curious participant: it knows all other records, their coins, all candidates and
the noise that its own client adds. From the rounds' releases it computes the exact posterior.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from adversaries.arrays import Bools, Floats, Ints
from adversaries.attacks.candidates import log_likelihood_ratios, log_posterior, surprise
from adversaries.errors import InputError
from fedsim.common.blocks import run, slices
from fedsim.common.randomness import SERVER, StreamRole, generator
from fedsim.configuration import Config
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import privacy
from fedsim.learning.data.columns import shortened, text_of
from fedsim.learning.data.dealing import LABEL
from fedsim.privacy.mechanism import (
    Mechanism,
    Neighbouring,
    Steps,
    aggregate_noise_multiplier,
    sensitivity,
)
from fedsim.privacy.trust import Vantage
from fedsim.studies import rounds
from fedsim.studies.rounds import Progress, Round

Prior = Literal["uniform", "data"]
MOST = 1000


@dataclass(frozen=True, eq=False)
class Candidates:
    """The m records of which exactly one is in the training data, in the target's place.

    Attributes:
        question: what the adversary guesses, to follow "The adversary guesses".
        values: the value of the guessed column in each candidate; () where records are guessed.
        prior: float64 [m], probability of each candidate, above 0; sums to 1.
    """

    question: str
    features: Tensor
    labels: Tensor
    values: tuple[str, ...]
    prior: Floats

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def baseline(self) -> float:
        """Success of the best guess without the training: the largest prior probability."""
        return float(self.prior.max())


def of_records(loaded: Federation, record: int, count: int, seed: int) -> Candidates:
    """Return the target's record and random records of the pool, all equally likely.

    Raises InputError for fewer than two candidates, more than `MOST`, or more than records.
    """
    if not 2 <= count <= MOST:
        raise InputError(f"--candidates is {count}; give 2 to {MOST}")
    pool = len(loaded.split.pool)
    if count - 1 > pool:
        raise InputError(
            f"--candidates is {count}, but only {pool} records are outside the training data and "
            f"the held-out data; give at most {pool + 1}, or lower data.records or data.held-out"
        )
    drawn = generator(seed, StreamRole.CANDIDATES).choice(pool, count - 1, replace=False)
    features, labels = loaded.members(np.asarray([record]))
    others = loaded.pool(drawn.tolist())
    return Candidates(
        f"which of {count} records the training used",
        torch.cat([features, others[0]]),
        torch.cat([labels, others[1]]),
        (),
        np.full(count, 1 / count),
    )


def of_column(loaded: Federation, record: int, column: str, prior: Prior) -> Candidates:
    """Return the target's record with each value of a column of a table, or of "label".

    Raises InputError if there is no such column, or it has one value, or more than `MOST`.
    """
    features, labels = loaded.members(np.asarray([record]))
    dataset, pool = loaded.split.dataset, loaded.split.pool
    if column == LABEL:
        if dataset.classes < 2:
            raise InputError(f"--column is {LABEL}, but the labels of {dataset.name} are numbers")
        names = tuple(map(str, range(dataset.classes)))
        number_of, shape = dataset.train.labels, [1] * (features.dim() - 1)
        features = features.repeat(len(names), *shape)
        labels = torch.arange(len(names), dtype=labels.dtype, device=labels.device)
    else:
        named = list(dataset.columns)
        used = [named[place] for place in np.unique(dataset.column_of)]
        if column not in used:
            columns = shortened([LABEL, *used], 30)
            raise InputError(f"--column is '{column}'; {dataset.name} has {columns}")
        block = np.flatnonzero(dataset.column_of == named.index(column))
        rows, first, number_of = np.unique(
            dataset.train.features[:, block], axis=0, return_index=True, return_inverse=True
        )
        _check(column, len(rows))
        values = dataset.columns[column][first]
        names, number_of = tuple(map(text_of, values)), number_of.reshape(-1)
        features, labels = features.repeat(len(rows), 1), labels.repeat(len(rows))
        features[:, torch.from_numpy(block)] = torch.from_numpy(rows).to(features)
    if prior == "uniform":
        shares = np.full(len(names), 1 / len(names))
    else:
        counts = np.bincount(number_of[pool], minlength=len(names))
        shares = counts / max(1, counts.sum())
    kept = np.flatnonzero(shares)
    _check(column, len(kept))
    return Candidates(
        f"which of {len(kept)} values of '{column}' a record has",
        features[torch.from_numpy(kept)],
        labels[torch.from_numpy(kept)],
        tuple(names[place] for place in kept),
        shares[kept],
    )


def _check(column: str, values: int) -> None:
    if not 2 <= values <= MOST:
        raise InputError(
            f"--column is '{column}', which has {values} different values; name a column with 2 "
            f"to {MOST}"
        )


OWN_NOISE = -2
"""Partition of the noise that the adversary's client adds, in the seed tree."""

GRADIENT_BYTES = 16
"""Memory of each number of a candidate's gradient, as it is formed and clipped in float64."""


@dataclass(frozen=True, eq=False)
class PlayedTrials:
    """The outcome of T trials.

    Attributes:
        guesses: the candidate of the largest posterior probability, [T].
        certainty: that probability, [T].
        scores: `surprise` of each trial, [T].
    """

    secrets: Ints
    guesses: Ints
    certainty: Floats
    scores: Floats

    @property
    def right(self) -> Bools:
        """Whether the adversary guessed the true candidate, [T]."""
        return self.guesses == self.secrets


def mechanism(config: Config, nominal: float) -> Mechanism:
    """Return the mechanism whose trade-off curve bounds the success.

    The bound compares every candidate with one reference: the training without the target's
    record. So one record is added, whichever neighbouring relation the noise was chosen for.
    """
    norm = config.training.clipping_norm
    longer = sensitivity(config.privacy.neighbouring, norm) / norm
    (steps,) = privacy.describe(config, nominal).towards(Vantage.PARTICIPANT).groups
    alone = Steps(longer * steps.noise_multiplier, steps.count, steps.sampling_rate)
    return Mechanism((alone,), Neighbouring.ADD_REMOVE)


def play(
    config: Config,
    loaded: Federation,
    record: int,
    candidates: Candidates,
    nominal: float,
    trials: int,
    batch: int,
    progress: Progress | None = None,
) -> PlayedTrials:
    """Play the game in independent trials, `batch` at once.

    A trial's outcome depends only on the seed and its number, up to rounding. Raises InputError if
    a model diverged.

    nominal: noise multiplier.
    """
    hidden, own = round_noise(config, nominal)
    # A coin of each trial, and a number that decides its candidate, [T, 2].
    streams = (
        generator(config.run.seed, StreamRole.RECONSTRUCTION, trial=trial)
        for trial in range(trials)
    )
    coins, numbers = np.stack([stream.random(2) for stream in streams]).T
    upper = candidates.prior.cumsum()
    secrets = np.searchsorted(upper / upper[-1], numbers, side="right").astype(np.int64)
    # The log-likelihood ratio of every candidate, of all rounds so far, [T, m].
    evidence = np.zeros((trials, len(candidates)))

    def release(round: Round) -> Tensor:
        """Return a round's sum with the secret candidate, after the adversary has seen it."""
        takes_part = np.ones((len(round.trials), 1))
        if round.coins is not None:
            takes_part[:, 0] = round.coins[:, record]
        observed = loaded.clipper.clipped_sum(
            round.theta,
            candidates.features,
            candidates.labels,
            torch.from_numpy(takes_part).to(round.theta),
            torch.from_numpy(secrets[round.rows]).to(round.theta.device).reshape(-1, 1),
        )
        observed = observed + round.drawn(hidden, SERVER)
        evidence[round.rows] += _ratios(loaded, candidates, round, observed, hidden)
        released = round.clean_sum(without=record) + observed
        return released + round.drawn(own, OWN_NOISE) if own else released

    for _ in rounds.trained(config, loaded, trials, batch, release, progress=progress):
        pass  # `release` gathers the evidence
    posterior = np.exp(log_posterior(evidence, candidates.prior))
    scores = surprise(posterior, secrets, coins)
    return PlayedTrials(secrets, posterior.argmax(axis=-1), posterior.max(axis=-1), scores)


def round_noise(config: Config, nominal: float) -> tuple[float, float]:
    """Return the standard deviations of a round's noise: that which the adversary does not know,
    and that of its own client."""
    trust, clients = config.federation.trust, config.federation.clients
    bound = sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
    whole = aggregate_noise_multiplier(nominal, trust, clients, clients)
    (steps,) = privacy.describe(config, nominal).towards(Vantage.PARTICIPANT).groups
    hidden = steps.noise_multiplier
    return bound * hidden, bound * max(0.0, whole**2 - hidden**2) ** 0.5


def _ratios(
    loaded: Federation, candidates: Candidates, round: Round, observed: Tensor, std: float
) -> Floats:
    """Return the log-likelihood ratio of every candidate, of one round, [T, m]."""
    clipper, theta, count = loaded.clipper, round.theta, len(candidates)
    features, labels = candidates.features, candidates.labels
    rate, alone = round.config.participation.rate, replace(clipper, threads=1)
    held = int(clipper.block_bytes(theta.device) // (GRADIENT_BYTES * theta.shape[1]))
    at_once = max(1, min(count, held))
    blocks = [
        (trials, part)
        for trials in slices(len(theta), max(1, held // at_once))
        for part in slices(count, at_once)
    ]

    # A thread forms gradients and takes their inner products while they are in its cache.
    def block(trials: slice, part: slice) -> Tensor:
        gradients = alone.clipped_gradients(theta[trials], features[part], labels[part])
        return log_likelihood_ratios(observed[trials, None], gradients, std, rate)[:, 0]

    ratios = np.empty((len(theta), count))
    for (trials, part), some in zip(blocks, run(block, blocks, clipper.threads), strict=True):
        ratios[trials, part] = some.cpu().numpy()
    return ratios
