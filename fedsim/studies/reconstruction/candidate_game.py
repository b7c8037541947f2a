"""The reconstruction game: a secret candidate is in the training data, and the adversary names it.

Every trial trains on D with the target's record replaced by a candidate, drawn from the prior. The
adversary is the curious participant: it knows all other records, their coins, all candidates and
the noise that its own client adds. From the rounds' releases it computes the exact posterior.

A prediction comes with each trial: further observers draw a candidate, a coin and noise of their
own in every round, at the trial's models. They succeed as often as theory expects of the adversary,
up to the effect of a round's noise on later gradients."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.arrays import Bools, Floats, Ints
from adversaries.attacks.candidates import log_likelihood_ratios, log_posterior, surprise
from adversaries.errors import InputError
from fedsim.common.blocks import run, slices
from fedsim.common.device import single_threaded_kernels
from fedsim.common.randomness import StreamRole, gaussian_noise, generator
from fedsim.config.needs import require
from fedsim.config.objects import GameRules, Scheme
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import privacy
from fedsim.learning.data.columns import shortened
from fedsim.learning.data.distribution import LABEL
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy.mechanism import (
    Mechanism,
    Neighbouring,
    Steps,
    aggregate_noise_multiplier,
    sensitivity,
)
from fedsim.privacy.noise import add_noise
from fedsim.privacy.participation.sampling import participation
from fedsim.privacy.trust.model import Vantage

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
        block = _block(loaded, column)
        rows, first, number_of = np.unique(
            dataset.train.features[:, block], axis=0, return_index=True, return_inverse=True
        )
        _check(column, len(rows))
        values = dataset.columns[column][first]
        names, number_of = tuple(map(str, values)), number_of.reshape(-1)
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


def _block(loaded: Federation, column: str) -> npt.NDArray[np.intp]:
    """Return the positions of a column's features. Raises InputError if it has none."""
    dataset = loaded.split.dataset
    names = list(dataset.columns)
    used = [names[place] for place in np.unique(dataset.column_of)]
    if column not in used:
        columns = shortened([LABEL, *used], 30)
        raise InputError(f"--column is '{column}'; {dataset.name} has {columns}")
    return np.flatnonzero(dataset.column_of == names.index(column))


def _check(column: str, values: int) -> None:
    if not 2 <= values <= MOST:
        raise InputError(
            f"--column is '{column}', which has {values} different values; name a column with 2 "
            f"to {MOST}"
        )


OBSERVERS = 4
"""Number of further observers of each trial, for the prediction."""

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
        predicted: mean certainty of each trial's further observers, [T]. It is how often they are
            right on average, with less spread.
    """

    secrets: Ints
    guesses: Ints
    certainty: Floats
    scores: Floats
    predicted: Floats

    @property
    def right(self) -> Bools:
        """Whether the adversary guessed the true candidate, [T]."""
        return self.guesses == self.secrets


@dataclass(frozen=True)
class RoundNoise:
    """Standard deviations of a round's noise: unknown to the adversary, and of its own client."""

    unknown: float
    own: float

    @classmethod
    def of(cls, scheme: Scheme, nominal: float) -> "RoundNoise":
        """Return the noise of a round, given the nominal multiplier."""
        trust, clients = scheme.federation.trust, scheme.federation.clients
        bound = sensitivity(scheme.privacy.neighbouring, scheme.training.clipping_norm)
        whole = aggregate_noise_multiplier(nominal, trust, clients, clients)
        (steps,) = _towards_participant(scheme, nominal).groups
        hidden = steps.noise_multiplier
        return cls(bound * hidden, bound * max(0.0, whole**2 - hidden**2) ** 0.5)


def mechanism(scheme: Scheme, nominal: float) -> Mechanism:
    """Return the mechanism whose trade-off curve bounds the success.

    The bound compares every candidate with one reference: the training without the target's
    record. So one record is added, whichever neighbouring relation the noise was chosen for.
    """
    norm = scheme.training.clipping_norm
    longer = sensitivity(scheme.privacy.neighbouring, norm) / norm
    groups = (
        Steps(longer * each.noise_multiplier, each.count, each.sampling_rate)
        for each in _towards_participant(scheme, nominal).groups
    )
    return Mechanism(tuple(groups), Neighbouring.ADD_REMOVE)


def _towards_participant(scheme: Scheme, nominal: float) -> Mechanism:
    return privacy.describe(scheme, nominal).towards(Vantage.PARTICIPANT)


def check_guessed_training(rules: GameRules) -> None:
    """Raise InputError unless a round is one sum of clipped records with noise of known size."""
    scheme = rules.scheme
    require(
        (
            ("privacy.unit", scheme.privacy.unit, "record"),
            ("privacy.sensitivity", scheme.privacy.sensitivity, "global"),
            ("privacy.stop-at", scheme.privacy.stop_at, 0.0),
            ("training.clipping", scheme.training.clipping, True),
            ("training.local-steps", scheme.training.local_steps, 1),
            ("federation.sampling-rate", scheme.federation.sampling_rate, 1.0),
            ("federation.vantage", scheme.federation.vantage.value, "participant"),
            ("federation.colluding", scheme.federation.colluding, 0),
            ("federation.dropout-rate", scheme.federation.dropout_rate, 0.0),
            ("federation.tolerated-dropouts", scheme.federation.tolerated_dropouts, 0),
            ("challenge.kind", rules.challenge.kind, "record"),
            ("canaries.count", rules.canaries.count, 0),
        ),
        "fedsim reconstruct plays a curious participant against DP-SGD on single records",
    )


def play(
    rules: GameRules,
    loaded: Federation,
    record: int,
    candidates: Candidates,
    noise: RoundNoise,
    trials: int,
    batch: int,
    progress: Callable[[float], None] = lambda fraction: None,
) -> PlayedTrials:
    """Play the game in independent trials, `batch` at once.

    A trial's outcome depends only on the seed and its number, up to rounding. Raises InputError if
    a model diverged.
    """
    if loaded.device.type == "cpu":
        single_threaded_kernels()
    rounds = rules.scheme.training.rounds
    parts = []
    for first in range(0, trials, batch):
        part = range(first, min(first + batch, trials))

        def report(round: int, part: range = part) -> None:
            progress((part.start * rounds + len(part) * round) / (trials * rounds))

        try:
            parts.append(_Batch(rules, loaded, record, candidates, noise, part).play(report))
        except FloatingPointError as error:  # the model diverged
            raise InputError(str(error)) from None
    columns = zip(*parts, strict=True)
    return PlayedTrials(*(np.concatenate(column) for column in columns))


@dataclass(frozen=True, eq=False)
class _Batch:
    """A batch of T trials, each with its adversary and further observers: s observers in all."""

    rules: GameRules
    loaded: Federation
    record: int
    candidates: Candidates
    noise: RoundNoise
    trials: range

    @cached_property
    def _clipper(self) -> Clipper:
        """Clipper for one thread of several."""
        return replace(self.loaded.clipper, threads=1)

    def play(self, report: Callable[[int], None]) -> tuple[Ints, Ints, Floats, Floats, Floats]:
        """Return the columns of `PlayedTrials` for these trials."""
        scheme, loaded = self.rules.scheme, self.loaded
        secrets, coins = self._secrets()
        theta = federation.initial_parameters(self.rules, loaded, self.trials).to(loaded.device)
        optimizer = ServerOptimizer(scheme.training, scheme.participation.divisor)
        total = np.zeros((*secrets.shape, len(self.candidates)))
        for round in range(1, scheme.training.rounds + 1):
            others, sums = self._sums(theta, secrets, round)
            stds = np.full(len(self.trials), self.noise.unknown)
            real = sums[:, 0].cpu().numpy().copy()
            noised = add_noise(real, stds, self.rules.noise_seed, self.trials, round)
            sums[:, 0] = torch.from_numpy(noised.total).to(theta.device)
            total += self._evidence(theta, sums)
            released = others + sums[:, 0] + self._own_noise(round, theta)
            theta = optimizer.step(theta, released.float(), round)
            report(round)
        posterior = np.exp(log_posterior(total, self.candidates.prior))
        certainty = posterior.max(axis=-1)
        scores = surprise(posterior[:, 0], secrets[:, 0], coins)
        predicted = certainty[:, 1:].mean(axis=1)
        return secrets[:, 0], posterior[:, 0].argmax(axis=-1), certainty[:, 0], scores, predicted

    def _secrets(self) -> tuple[Ints, Floats]:
        """Return the candidates of all observers, [T, s], and a coin of each trial, [T]."""
        upper = self.candidates.prior.cumsum()
        drawn = np.stack([self._stream(trial).random(OBSERVERS + 2) for trial in self.trials])
        secrets = np.searchsorted(upper / upper[-1], drawn[:, 1:], side="right")
        return secrets.astype(np.int64), drawn[:, 0]

    def _stream(self, trial: int, round: int = 0) -> np.random.Generator:
        return generator(self.rules.seed, StreamRole.RECONSTRUCTION, trial=trial, round=round)

    def _sums(self, theta: Tensor, secrets: Ints, round: int) -> tuple[Tensor, Tensor]:
        """Return the sum of the other records, [T, P], and what each observer sees, [T, s, P].

        An observer sees its candidate's gradient, if that takes part, and noise. The adversary's
        noise, of observer 0, is left out.
        """
        rule, size = self.rules.scheme, theta.shape[1]
        setting = rule.participation.setting
        rate, records = rule.participation.rate, rule.records
        others = np.delete(np.arange(records), self.record)
        drawn = participation(setting.seed, self.trials, round, records, rate)
        coins = None if drawn is None else torch.from_numpy(drawn).to(theta.device)
        common = self.loaded.clipped_sum(theta, others, coins)
        takes_part, noise = np.ones(secrets.shape), np.zeros((*secrets.shape, size))
        for place, trial in enumerate(self.trials):
            stream = self._stream(trial, round)
            takes_part[place, 1:] = stream.random(OBSERVERS) < rate
            stream.standard_normal(out=noise[place, 1:])
        if drawn is not None:
            takes_part[:, 0] = drawn[:, self.record]
        each = self.loaded.clipper.clipped_sum(
            theta.repeat_interleave(secrets.shape[1], dim=0),
            self.candidates.features,
            self.candidates.labels,
            torch.from_numpy(takes_part).to(theta).reshape(-1, 1),
            torch.from_numpy(secrets).to(theta.device).reshape(-1, 1),
        )
        observed = each.reshape(noise.shape) + self.noise.unknown * torch.from_numpy(noise).to(each)
        return common, observed

    def _evidence(self, theta: Tensor, observed: Tensor) -> Floats:
        """Return the log-likelihood ratio of every candidate, [T, s, m], of one round."""
        threads, size, count = self.loaded.clipper.threads, theta.shape[1], len(self.candidates)
        features, labels = self.candidates.features, self.candidates.labels
        rate = self.rules.scheme.participation.rate
        bytes_held = self.loaded.clipper.block_bytes(theta.device)
        held = max(1, int(bytes_held // (GRADIENT_BYTES * size)))
        at_once = min(count, held)
        blocks = [
            (trials, part)
            for trials in slices(len(theta), max(1, held // at_once))
            for part in slices(count, at_once)
        ]

        # A thread forms gradients and takes their inner products while they are in its cache.
        def block(trials: slice, part: slice) -> Tensor:
            gradients = self._clipper.clipped_gradients(theta[trials], features[part], labels[part])
            return log_likelihood_ratios(observed[trials], gradients, self.noise.unknown, rate)

        evidence = np.empty((*observed.shape[:2], count))
        for (trials, part), ratios in zip(blocks, run(block, blocks, threads), strict=True):
            evidence[trials, :, part] = ratios.cpu().numpy()
        return evidence

    def _own_noise(self, round: int, theta: Tensor) -> Tensor | float:
        """Return the noise of the adversary's client, which it knows: [T, P], or 0."""
        if not self.noise.own:
            return 0.0
        seed, size = self.rules.noise_seed, theta.shape[1]
        drawn = gaussian_noise(seed, self.trials, round, OWN_NOISE, size)
        return self.noise.own * torch.from_numpy(drawn).to(theta.device)
