"""A study of dataset sensitivity: how well a dissimilarity chooses the pair to audit.

It measures the local sensitivity of the pairs that a dissimilarity ranks first and last, at the
first model and during training.
Source: Bernau et al., Definition 6, section 6.1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.errors import InputError
from adversaries.neighbours import dataset_sensitivity
from adversaries.neighbours.dataset_sensitivity import Pair, select
from adversaries.neighbours.dissimilarity import measure
from fedsim.common import device
from fedsim.configuration import Config
from fedsim.game import challenge, federation
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import privacy
from fedsim.privacy.mechanism import Neighbouring
from fedsim.studies import rounds
from fedsim.studies.rounds import Progress, Round
from fedsim.studies.sensitivity import gradient_sensitivity
from fedsim.studies.sensitivity.gradient_sensitivity import (
    Largest,
    check_pairs,
    largest,
    pair_sensitivities,
)

CHOICES = {
    "max": "most dissimilar",
    "min": "least dissimilar",
    "given": "given by the configuration",
    "worst": "largest local sensitivity",
}


@dataclass(frozen=True, eq=False)
class PairCandidate:
    """A pair, the choice that selected it, and its local sensitivity.

    Attributes:
        place: 1 for the first of its choice.
        course: float64 [T, k], local sensitivity in every step of every trial.
    """

    choice: str
    place: int
    pair: Pair
    client: int
    course: Floats

    @property
    def name(self) -> str:
        """The name of the pair by its choice, such as "max 2"."""
        return f"{self.choice} {self.place}" if self.choice in ("max", "min") else self.choice

    @property
    def label(self) -> str:
        """The name with the dissimilarity below it."""
        return f"{self.name}\nd = {self.pair.distance:.4g}"

    @property
    def first(self) -> float:
        """The local sensitivity at the first model of the first trial."""
        return float(self.course[0, 0])

    @property
    def rms(self) -> float:
        return float(np.sqrt(np.square(self.course).mean()))


@dataclass(frozen=True, eq=False)
class Study:
    """The results of a study.

    Attributes:
        candidates: the pairs; the experiment's own challenge is the first.
        largest: of all pairs, at the first model of the first trial.
    """

    config: Config
    loaded: Federation
    candidates: tuple[PairCandidate, ...]
    largest: Largest

    def of(self, choice: str) -> list[PairCandidate]:
        return [candidate for candidate in self.candidates if candidate.choice == choice]


def study(
    config: Config,
    batch: int,
    top: int = 3,
    trials: int = 20,
    progress: Progress = lambda done: None,
) -> Study:
    """Return a study of the configured choice, with `top` pairs from each end of the ranking.

    Args:
        batch: number of trials that are trained at a time (see `plan.fit_batch`).
        progress: receives the share of the work that is done.
    """
    check_study(config, top, trials)
    loaded, neighbouring = federation.load(config), config.privacy.neighbouring
    theta = challenge.initial_parameters(config, loaded).to(loaded.device)
    found = largest(loaded, theta, neighbouring, lambda done: progress(done / 4))
    ranked = [*_ranked(config, loaded, top, found)]
    pairs = [(pair.record, pair.replacement) for _, _, pair in ranked]
    sensitivities = follow(config, batch, pairs, trials, lambda done: progress((1 + 3 * done) / 4))
    candidates = tuple(
        PairCandidate(
            choice, place, pair, int(loaded.client_of[pair.record]), sensitivities[:, :, i]
        )
        for i, (choice, place, pair) in enumerate(ranked)
    )
    return Study(config, loaded, candidates, found)


def check_study(config: Config, top: int, trials: int) -> None:
    """Raise InputError, before the work, if the configuration or a number is not allowed."""
    given = config.challenge
    rounds.refuse_unplayed(config, rounds.SENSITIVITY)
    for name, number in (("trials", trials), ("top", top)):
        if number < 1:
            raise InputError(f"{name} is {number}; give 1 or more")
    measure(given.dissimilarity)
    loaded = federation.load(config)
    dataset_sensitivity.check_choice(
        config.privacy.neighbouring.value,
        "max",
        top,
        len(_among(given.client, loaded)),
        len(loaded.split.pool),
    )
    if given.record >= 0:
        challenge.choose(config)


def follow(
    config: Config,
    batch: int,
    pairs: Sequence[gradient_sensitivity.Pair],
    trials: int,
    progress: Progress | None = None,
) -> Floats:
    """Train trials 0..T-1 on D and measure the local sensitivity of the pairs in every round.

    With privacy.sensitivity = "local", each round's noise is scaled to the local sensitivity of
    pairs[0], the challenge. Results do not depend on the batch, up to rounding.

    Returns:
        Local sensitivities, float64 [T, k, m].
    """
    rounds.refuse_unplayed(config, rounds.SENSITIVITY)
    loaded, length = federation.load(config), config.training.rounds
    check_pairs(loaded, pairs, config.privacy.neighbouring)
    multiplier = privacy.noise_multiplier(config)
    sensitivities = np.empty((trials, length, len(pairs)))

    def release(round: Round) -> Tensor:
        measured = pair_sensitivities(loaded, round.theta, pairs)
        sensitivities[round.rows, round.number - 1] = measured
        local = config.privacy.sensitivity == "local"
        return round.clean_sum() + round.noise(multiplier, measured[:, 0] if local else None)

    for _ in rounds.trained(config, loaded, trials, batch, release, progress=progress):
        pass  # `release` measures the rounds
    return sensitivities


def _ranked(
    config: Config, loaded: Federation, top: int, worst: Largest
) -> Iterator[tuple[str, int, Pair]]:
    """Yield choice, place and pair, by dissimilarity: first the experiment's own challenge.

    A pair of several choices is there for each, so that the places have no gaps.
    """
    given, relation, split = config.challenge, config.privacy.neighbouring, loaded.split
    # If challenge.client is set, all pairs are of that client's records, as the challenge is.
    name, among = given.dissimilarity, _among(given.client, loaded)
    features = challenge.compared_features(config, loaded, split.members_records.features)
    pool = None
    if relation is Neighbouring.REPLACE:
        pool = challenge.compared_features(config, loaded, split.pool_records.features)
    columns, threads = challenge.columns_of(loaded), device.threads(config.run.threads)

    def pair(record: int, replacement: int | None) -> Pair:
        others = features[among[among != record]]
        if replacement is not None and pool is not None:
            others = pool[[replacement]]
        distances = measure(name, columns)(features[[record]], others)
        return Pair(record, replacement, float(distances.sum()), name)

    if given.record >= 0:
        chosen = challenge.choose(config)
        assert chosen.record is not None
        yield "given", 1, pair(chosen.record, chosen.replacement)
    for choice in ("max", "min"):
        how: dict[str, Any] = {"choice": choice, "top": top, "columns": columns, "threads": threads}
        pairs = select(features[among], pool, name, relation.value, **how)
        for place, each in enumerate(pairs, 1):
            yield choice, place, replace(each, record=int(among[each.record]))
    yield "worst", 1, pair(worst.record, worst.replacement)


def _among(client: int, loaded: Federation) -> npt.NDArray[np.intp]:
    """Return the positions of the records from which the challenge is chosen."""
    return np.arange(len(loaded.client_of)) if client < 0 else loaded.owned_by(client)
