"""What a choice by dataset sensitivity is worth, for one experiment.

The pairs that a dissimilarity ranks first and last, the local sensitivity they really have at the
first model and during training, where they rank among all pairs, and which dissimilarity orders
pairs most like their local sensitivity does. Local sensitivity is a measurement on private data,
never a DP release. Source: Bernau et al., Definition 6 and section 6.1.
"""

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from adversaries import rank_correlation
from adversaries.dataset_sensitivity import (
    Pair,
    Progress,
    rank_records,
    select,
    select_per_owner,
)
from adversaries.dissimilarity import MEASURES, measure
from adversaries.rank_correlation import Comparison
from fedsim import challenge, federation, gradient_sensitivity, models, sensitivity_course
from fedsim.config import Config
from fedsim.errors import InputError
from fedsim.federation import Federation
from fedsim.gradient_sensitivity import Ranked, Truth
from fedsim.mechanism import Neighbouring
from fedsim.randomness import Role, generator

Floats = npt.NDArray[np.float64]

Stages = Callable[[str], Progress]
"""Called with the name of a stage as it begins; what it returns is told how far the stage is."""

COMPARED_RECORDS = 1000
"""Of D or of the pool: at most so many enter a rank correlation of pairs."""

COMPARED_PAIRS = 2**18
"""At most so many pairs enter a rank correlation: a second for each dissimilarity."""

LABEL = (
    "Local sensitivity is a measurement on the private data, not a DP release: keep this report "
    "with whoever may see the records."
)

CHOICES = {
    "max": "most dissimilar",
    "min": "least dissimilar",
    "median": "of median dissimilarity",
    "given": "given by the configuration",
    "oracle": "largest local sensitivity",
    "owner": "most dissimilar of one owner",
}
"""How a pair came into the study."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pair, by which choice it came in, and its local sensitivity.

    place: 1 for the first of its choice, or the number of the owner; owner: who holds the record;
    initial: local sensitivity and rank among all pairs at theta_0 of the first trial; course
    [T, k]: local sensitivity in every step of every trial.
    """

    choice: str
    place: int
    pair: Pair
    owner: int
    initial: Ranked
    course: Floats


@dataclass(frozen=True, eq=False)
class Study:
    """What was found. candidates: first the experiment's own challenge, last the owners' pairs.

    truth, last: of all pairs, at theta_0 and at the model before the last step, of the first trial;
    comparison: of the dissimilarities by their rank correlation with local sensitivity at theta_0,
    None where none applies; refusals: why others do not; compared: how many records of D and, of
    replace, replacements they were compared on; seconds: by stage; peak_memory: of this process, in
    bytes.
    """

    config: Config
    known: Federation
    candidates: tuple[Candidate, ...]
    truth: Truth
    last: Truth
    comparison: Comparison | None
    refusals: Mapping[str, str]
    compared: tuple[int, int | None]
    seconds: Mapping[str, float]
    peak_memory: int

    @property
    def chosen(self) -> Candidate:
        """The pair that the experiment's challenge is."""
        return self.candidates[0]

    @property
    def reach(self) -> float:
        """The share of the largest local sensitivity at theta_0 that the chosen pair has."""
        return rank_correlation.reach(self.chosen.initial.sensitivity, self.truth.largest[0].sensitivity)

    def of(self, choice: str) -> list[Candidate]:
        """Return the pairs of one choice, in their order."""
        return [candidate for candidate in self.candidates if candidate.choice == choice]


def study(
    config: Config, top: int = 3, trials: int = 20, stages: Stages = lambda name: lambda done: None
) -> Study:
    """Return what the configured choice of a challenge is worth.

    top: how many pairs from either end of the ranking; trials: how many trainings on D the local
    sensitivity is followed through; stages: shows progress. Raises InputError.
    """
    check(config, top, trials)
    seconds: dict[str, float] = {}

    @contextmanager
    def stage(name: str) -> Iterator[Progress]:
        begun, progress = time.perf_counter(), stages(name)
        yield progress
        progress(1.0)
        seconds[name] = time.perf_counter() - begun

    with stage("data and model"):
        known = federation.load(config)
        theta = models.initial_parameters(
            lambda: federation.build_model(config, known.split.dataset),
            config.run.seed,
            range(1),
        )[0].to(known.device)
    ranked = _ranked(config, known, top, stage)
    neighbouring = config.privacy.neighbouring
    with stage("local sensitivity of all pairs") as progress:
        pairs = [(pair.record, pair.replacement) for _, _, pair in ranked]
        truth = gradient_sensitivity.largest(
            known, theta, neighbouring, top=1, of=pairs, progress=progress
        )
    for found in truth.largest:
        given = _distance(config, known, found.record, found.replacement)
        ranked.append(("oracle", 1, given))
        pairs.append((found.record, found.replacement))
    with stage("dissimilarities against local sensitivity") as progress:
        comparison, refusals, compared = _compare(config, known, theta, progress)
    with stage("local sensitivity during training") as progress:
        course = sensitivity_course.follow(
            config, pairs, trials, progress, checkpoints=[config.training.rounds]
        )
    candidates = tuple(
        Candidate(
            choice,
            place,
            pair,
            int(known.owner_of[pair.record]),
            initial,
            course.sensitivities[:, :, i],
        )
        for i, ((choice, place, pair), initial) in enumerate(
            zip(ranked, (*truth.given, *truth.largest), strict=True)
        )
    )
    return Study(
        config,
        known,
        candidates,
        truth,
        course.checkpoints[0].truth,
        comparison,
        refusals,
        compared,
        seconds,
        _peak_memory(),
    )


def check(config: Config, top: int, trials: int) -> None:
    """Raise InputError for what cannot be studied, before the work rather than after it."""
    if config.privacy.unit != "record":
        raise InputError(
            "the sensitivity to a whole owner is not studied, only that to a record; set "
            'privacy.unit = "record"'
        )
    if trials < 1:
        raise InputError(f"trials is {trials}; give how many trainings to follow, 1 or more")
    if top < 1:
        raise InputError(f"top is {top}; give how many pairs to show, 1 or more")
    measure(config.challenge.dissimilarity)


Stage = Callable[[str], AbstractContextManager[Progress]]
Placed = tuple[str, int, Pair]
"""A choice, the place in it, and the pair."""


def _ranked(config: Config, known: Federation, top: int, stage: Stage) -> list[Placed]:
    """Return the pairs by dissimilarity, the experiment's own challenge first."""
    features = known.split.members_records.features
    pool = _pool_features(config, known)
    name, neighbouring = config.challenge.dissimilarity, config.privacy.neighbouring.value
    own = "given" if config.challenge.record >= 0 else config.challenge.choice
    choices = dict.fromkeys((own, "max", "min"))
    ranked: list[Placed] = []
    for choice in choices:
        if choice == "given":
            chosen = challenge.choose(config)
            assert chosen.record is not None
            pairs = [_distance(config, known, chosen.record, chosen.replacement)]
        else:
            count = 1 if choice == "median" else top
            with stage(f"{name}: {CHOICES[choice]}") as progress:
                pairs = select(
                    features,
                    pool,
                    name,
                    neighbouring,
                    choice=choice,
                    top=count,
                    progress=progress,
                )
        # Of few pairs, the first may be among the last as well.
        seen = {(pair.record, pair.replacement) for _, _, pair in ranked}
        ranked += [
            (choice, place, pair)
            for place, pair in enumerate(pairs, 1)
            if (pair.record, pair.replacement) not in seen
        ]
    with stage(f"{name}: {CHOICES['owner']}") as progress:
        owners = select_per_owner(
            features, known.owner_of, pool, name, neighbouring, progress=progress
        )
    return ranked + [("owner", owner, pair) for owner, pair in enumerate(owners)]


def _distance(config: Config, known: Federation, record: int, replacement: int | None) -> Pair:
    """Return a pair that was found otherwise with its dissimilarity, as `select` would."""
    name, features = config.challenge.dissimilarity, known.split.members_records.features
    if replacement is None:
        others = np.delete(features, record, axis=0)
    else:
        others = known.split.pool_records.features[[replacement]]
    distances = measure(name)(features[[record]], others)
    return Pair(record, replacement, float(distances.sum()), name)


def _pool_features(config: Config, known: Federation) -> npt.NDArray[np.float32] | None:
    replace = config.privacy.neighbouring is Neighbouring.REPLACE
    return known.split.pool_records.features if replace else None


def _compare(
    config: Config, known: Federation, theta: Tensor, progress: Progress
) -> tuple[Comparison | None, dict[str, str], tuple[int, int | None]]:
    """Return how all dissimilarities compare, why some do not, and on how many records.

    Under replace, on records and replacements drawn at random: the correlation over all pairs is
    estimated, and the interval counts the drawing.
    """
    features, pool = known.split.members_records.features, _pool_features(config, known)
    draw = generator(config.run.seed, Role.COMPARED)
    if pool is None:
        compared: tuple[int, int | None] = (len(features), None)
        truth = gradient_sensitivity.record_sensitivities(known, theta[None])[0]
    else:
        rows = _some(len(features), COMPARED_RECORDS, draw)
        columns = _some(len(pool), min(COMPARED_RECORDS, COMPARED_PAIRS // len(rows)), draw)
        compared = (len(rows), len(columns))
        truth = gradient_sensitivity.sensitivity_matrix(known, theta, columns)[rows]
        features, pool = features[rows], pool[columns]
    # Gradients that are clipped differ by rounding, which must not pass for an order.
    truth = np.round(truth / known.clipper.clipping_norm, 6)
    if not np.ptp(truth):
        reason = "all compared local sensitivities are the same, as where every gradient is clipped"
        return None, dict.fromkeys(MEASURES, reason), compared
    heuristics: dict[str, Floats] = {}
    refusals: dict[str, str] = {}
    for done, name in enumerate(MEASURES):
        try:
            if pool is None:
                distances = rank_records(features, name)
            else:
                distances = measure(name)(features, pool)
            largest = np.abs(distances).max() or 1.0
            heuristics[name] = np.round(distances / largest, 12)
            rank_correlation.check(heuristics[name], truth)
        except InputError as reason:
            heuristics.pop(name, None)
            refusals[name] = str(reason)
        progress((done + 1) / (len(MEASURES) + 1))
    if not heuristics:
        return None, refusals, compared
    confidence = config.audit.confidence
    return rank_correlation.compare(heuristics, truth, confidence, draw), refusals, compared


def _some(length: int, most: int, draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return at most `most` of 0..length-1, in order."""
    return np.sort(draw.choice(length, size=min(length, most), replace=False))


def _peak_memory() -> int:
    """Return the most bytes that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # elsewhere it is in KiB
