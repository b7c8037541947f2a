"""A study of dataset sensitivity: how well a dissimilarity chooses the pair to audit.

It measures the local sensitivity of the pairs that a dissimilarity ranks first and last, at the
first model and during training, and compares how dissimilarities and local sensitivity order pairs.
Source: Bernau et al., Definition 6, section 6.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.arrays import Floats, Ints
from adversaries.errors import InputError
from adversaries.neighbours import dataset_sensitivity, rank_correlation
from adversaries.neighbours.dataset_sensitivity import Pair, rank_records, select
from adversaries.neighbours.dissimilarity import (
    BY_COLUMN,
    MEASURES,
    OF_RAW_FEATURES,
    Columns,
    Features,
    measure,
)
from adversaries.neighbours.rank_correlation import RankCorrelation
from fedsim.common import device
from fedsim.common.randomness import StreamRole, generator
from fedsim.configuration.challenge import ChallengeConfig
from fedsim.configuration.objects import Experiment, GameRules
from fedsim.game import challenge, federation
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import privacy
from fedsim.privacy.mechanism import Neighbouring
from fedsim.studies import rounds
from fedsim.studies.rounds import Progress, Round
from fedsim.studies.sensitivity import gradient_sensitivity
from fedsim.studies.sensitivity.gradient_sensitivity import (
    Ranked,
    Truth,
    check_pairs,
    largest,
    pair_sensitivities,
)

COMPARED_RECORDS = 256

COMPARED_PAIRS = 2**15
"""Most pairs in a rank correlation, which take a second or two for each dissimilarity."""

CHOICES = {
    "max": "most dissimilar",
    "min": "least dissimilar",
    "given": "given by the configuration",
    "worst": "largest local sensitivity",
}


@dataclass(frozen=True, eq=False)
class View:
    """All pairs at the model from which one step of the first trial starts.

    Attributes:
        correlations: rank correlation of each dissimilarity, the highest first.
        refusals: dissimilarity -> why it has no correlation.
    """

    step: int
    truth: Truth
    correlations: Mapping[str, RankCorrelation]
    refusals: Mapping[str, str]

    def reach(self, pair: Ranked) -> float:
        """Return a pair's local sensitivity, divided by the largest of all pairs."""
        return rank_correlation.reach(pair.sensitivity, self.truth.largest.sensitivity)


@dataclass(frozen=True, eq=False)
class PairCandidate:
    """A pair, the choice that selected it, and its local sensitivity.

    Attributes:
        place: 1 for the first of its choice.
        seen: local sensitivity and rank among all pairs, in every view.
        course: float64 [T, k], local sensitivity in every step of every trial.
    """

    choice: str
    place: int
    pair: Pair
    client: int
    seen: tuple[Ranked, ...]
    course: Floats

    @property
    def name(self) -> str:
        """The name of the pair by its choice, such as "max 2"."""
        return f"{self.choice} {self.place}" if self.choice in ("max", "min") else self.choice

    @property
    def rms(self) -> float:
        """The root mean square of the local sensitivities."""
        return float(np.sqrt(np.square(self.course).mean()))


@dataclass(frozen=True, eq=False)
class Study:
    """The results of a study.

    Attributes:
        candidates: the pairs; the experiment's own challenge is the first.
        views: of the first and of the last step.
        compared: number of records of D, and of replacements under replace, that are compared.
    """

    experiment: Experiment
    confidence: float
    loaded: Federation
    candidates: tuple[PairCandidate, ...]
    views: tuple[View, ...]
    compared: tuple[int, int | None]

    def of(self, choice: str) -> list[PairCandidate]:
        """Return the pairs of one choice, in their order."""
        return [candidate for candidate in self.candidates if candidate.choice == choice]


def study(
    experiment: Experiment,
    confidence: float,
    batch: int,
    top: int = 3,
    trials: int = 20,
    progress: Progress = lambda done: None,
) -> Study:
    """Return a study of the configured choice, with `top` pairs from each end of the ranking.

    Args:
        batch: number of trials that are trained at a time (see `plan.fit_batch`).
        progress: receives the share of the work that is done: half of it is the training.
    """
    check_study(experiment, top, trials)
    rules = experiment.game
    loaded, neighbouring = federation.load(experiment), rules.scheme.privacy.neighbouring
    between = _compared(rules, loaded, device.threads(experiment.run.threads))
    ranked = _ranked(experiment, loaded, between, top)
    pairs = [(pair.record, pair.replacement) for _, _, pair in ranked]
    theta = challenge.initial_parameters(rules, loaded).to(loaded.device)
    search = partial(largest, loaded, neighbouring=neighbouring)
    truth = search(theta, of=pairs, progress=lambda done: progress(done / 4))
    worst = (truth.largest.record, truth.largest.replacement)
    ranked.append(("worst", 1, _distance(rules.challenge, loaded, between, *worst)))
    truths = {1: replace(truth, given=(*truth.given, truth.largest))}
    sensitivities, last = follow(
        experiment, batch, [*pairs, worst], trials, lambda done: progress(1 / 4 + done / 2)
    )
    thetas = [theta]
    if (steps := rules.scheme.training.rounds) > 1:
        truths[steps], thetas = search(last, of=[*pairs, worst]), [theta, last]
    compared, heuristics, measured = _sampled(rules, loaded, between, thetas)
    views = tuple(
        View(step, truth, *_correlations(rules.seed, confidence, heuristics, own))
        for (step, truth), own in zip(truths.items(), measured, strict=True)
    )
    progress(1.0)
    candidates = tuple(
        PairCandidate(
            choice,
            place,
            pair,
            int(loaded.client_of[pair.record]),
            tuple(view.truth.given[i] for view in views),
            sensitivities[:, :, i],
        )
        for i, (choice, place, pair) in enumerate(ranked)
    )
    return Study(experiment, confidence, loaded, candidates, views, compared)


def check_study(experiment: Experiment, top: int, trials: int) -> None:
    """Raise InputError, before the work, if the configuration or a number is not allowed."""
    rules = experiment.game
    given = rules.challenge
    rounds.refuse_unplayed(rules, rounds.SENSITIVITY)
    for name, number in (("trials", trials), ("top", top)):
        if number < 1:
            raise InputError(f"{name} is {number}; give 1 or more")
    measure(given.dissimilarity)
    loaded = federation.load(experiment)
    dataset_sensitivity.check_choice(
        rules.scheme.privacy.neighbouring.value,
        given.choice,
        top,
        len(_among(given.client, loaded)),
        len(loaded.split.pool),
    )
    if given.record >= 0:
        challenge.choose(experiment)


def follow(
    experiment: Experiment,
    batch: int,
    pairs: Sequence[gradient_sensitivity.Pair],
    trials: int,
    progress: Progress | None = None,
) -> tuple[Floats, Tensor]:
    """Train trials 0..T-1 on D and measure the local sensitivity of the pairs in every round.

    With privacy.sensitivity = "local", each round's noise is scaled to the local sensitivity of
    pairs[0], the challenge. Results do not depend on the batch, up to rounding.

    Returns:
        Local sensitivities, float64 [T, k, m], and the model from which the first trial's last
        round starts, float32 [P].
    """
    rules, scheme = experiment.game, experiment.game.scheme
    rounds.refuse_unplayed(rules, rounds.SENSITIVITY)
    loaded, length = federation.load(experiment), scheme.training.rounds
    check_pairs(loaded, pairs, scheme.privacy.neighbouring)
    multiplier = privacy.noise_multiplier(scheme)
    sensitivities, last = np.empty((trials, length, len(pairs))), list[Tensor]()

    def release(round: Round) -> Tensor:
        measured = pair_sensitivities(loaded, round.theta, pairs)
        if round.trials.start == 0 and round.number == length:
            last.append(round.theta[0].clone())
        sensitivities[round.rows, round.number - 1] = measured
        local = scheme.privacy.sensitivity == "local"
        return round.clean_sum() + round.noise(multiplier, measured[:, 0] if local else None)

    for part in rounds.batches(trials, batch):
        rounds.train(rules, loaded, part, release, progress=rounds.share(progress, trials))
    return sensitivities, last[0]


@dataclass(frozen=True, eq=False)
class Compared:
    """The records of D, [n, *shape], that a dissimilarity compares, with those of the pool."""

    features: Features
    pool: Features | None
    columns: Columns | None
    threads: int


def _compared(rules: GameRules, loaded: Federation, threads: int) -> Compared:
    split, features = loaded.split, partial(challenge.compared_features, rules, loaded)
    replaced = rules.scheme.privacy.neighbouring is Neighbouring.REPLACE
    return Compared(
        features(split.members_records.features),
        features(split.pool_records.features) if replaced else None,
        challenge.columns_of(loaded),
        threads,
    )


Placed = tuple[str, int, Pair]
"""A choice, the place in it, and the pair."""


def _ranked(
    experiment: Experiment, loaded: Federation, compared: Compared, top: int
) -> list[Placed]:
    """Return the pairs by dissimilarity, the experiment's own challenge first.

    If challenge.client is set, all pairs are of that client's records, as the challenge is.
    """
    given = experiment.game.challenge
    among = _among(given.client, loaded)
    ranked: list[Placed] = []
    for choice in dict.fromkeys(("given" if given.record >= 0 else given.choice, "max", "min")):
        if choice == "given":
            chosen = challenge.choose(experiment)
            assert chosen.record is not None
            pairs = [_distance(given, loaded, compared, chosen.record, chosen.replacement)]
        else:
            selected = select(
                compared.features[among],
                compared.pool,
                given.dissimilarity,
                experiment.game.scheme.privacy.neighbouring.value,
                choice=choice,
                top=top,
                columns=compared.columns,
                threads=compared.threads,
            )
            pairs = [replace(pair, record=int(among[pair.record])) for pair in selected]
        # A pair of several choices has a row for each, so that the places have no gaps.
        ranked += [(choice, place, pair) for place, pair in enumerate(pairs, 1)]
    return ranked


def _among(client: int, loaded: Federation) -> npt.NDArray[np.intp]:
    """Return the positions of the records from which the challenge is chosen."""
    return np.arange(len(loaded.client_of)) if client < 0 else loaded.owned_by(client)


def _distance(
    challenge: ChallengeConfig,
    loaded: Federation,
    compared: Compared,
    record: int,
    replacement: int | None,
) -> Pair:
    """Return a pair of records with its dissimilarity, in the form of `select`."""
    name = challenge.dissimilarity
    if replacement is None:
        among = _among(challenge.client, loaded)
        others = compared.features[among[among != record]]
    else:
        assert compared.pool is not None
        others = compared.pool[[replacement]]
    distances = measure(name, compared.columns)(compared.features[[record]], others)
    return Pair(record, replacement, float(distances.sum()), name)


Heuristics = dict[str, Floats | str]
"""The distances by every dissimilarity, or why it refuses."""


def _sampled(
    rules: GameRules, loaded: Federation, compared: Compared, thetas: list[Tensor]
) -> tuple[tuple[int, int | None], Heuristics, list[Floats]]:
    """Return distances by every dissimilarity, and local sensitivities at every model [P].

    Under add-remove they are for all records [n]. Under replace they are for pairs [n', p'] of
    randomly drawn records and replacements; the interval of a correlation covers that drawing.
    """
    features, pool, columns = compared.features, compared.pool, compared.columns
    size: tuple[int, int | None] = (len(features), None)
    if pool is None:
        truths = [*gradient_sensitivity.record_sensitivities(loaded, torch.stack(thetas))]
    else:
        draw = generator(rules.seed, StreamRole.COMPARED)

        def some(length: int, most: int) -> Ints:
            return np.sort(draw.choice(length, size=min(length, most), replace=False))

        rows = some(len(features), COMPARED_RECORDS)
        others = some(len(pool), COMPARED_PAIRS // len(rows))
        size = (len(rows), len(others))
        features, pool = features[rows], pool[others]
        truths = [
            gradient_sensitivity.sensitivity_matrix(loaded, theta, others)[rows] for theta in thetas
        ]
    heuristics: Heuristics = {}
    for name in MEASURES:
        if name in BY_COLUMN and not loaded.split.dataset.categorical:
            heuristics[name] = "no column is categorical, so that it orders pairs like manhattan"
            continue
        if rules.challenge.space == "embedding" and name in OF_RAW_FEATURES:
            heuristics[name] = "it needs raw features, but challenge.space is embedding"
            continue
        try:
            if pool is None:
                distances = rank_records(features, name, columns=columns, threads=compared.threads)
            else:
                distances = measure(name, columns)(features, pool)
            # Distances that differ by rounding alone must not count as an order.
            heuristics[name] = np.round(distances / max(1.0, distances.max()), 12)
        except InputError as reason:
            heuristics[name] = str(reason)
    # Clipped gradients differ by rounding, which must not count as an order.
    return size, heuristics, [np.round(t / loaded.clipper.clipping_norm, 6) for t in truths]


def _correlations(
    seed: int, confidence: float, heuristics: Heuristics, truth: Floats
) -> tuple[dict[str, RankCorrelation], dict[str, str]]:
    """Return the rank correlations of the dissimilarities, and why some have none."""
    if not np.ptp(truth):
        reason = "all local sensitivities are equal, for example if every gradient is clipped"
        return {}, dict.fromkeys(heuristics, reason)
    applicable: dict[str, Floats] = {}
    refusals: dict[str, str] = {}
    for name, distances in heuristics.items():
        try:
            if isinstance(distances, str):
                raise InputError(distances)
            rank_correlation.places(distances, truth)
            applicable[name] = distances
        except InputError as reason:
            refusals[name] = str(reason)
    if not applicable:
        return {}, refusals
    # The same bootstrap samples in every view.
    draw = generator(seed, StreamRole.COMPARED, trial=1)
    return rank_correlation.compare(applicable, truth, confidence, draw), refusals
