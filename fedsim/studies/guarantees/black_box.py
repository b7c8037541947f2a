"""PAC privacy for the user's own function: noise that hides which records it was given.

The prior is the conservative one of Xiao and Devadas. The adversary knows all records; each is used
with the same probability, by an independent coin; the coins are the secret.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats, Ints
from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.learning.data import Dataset
from fedsim.learning.data.dataset import Records
from fedsim.privacy import black_box, pac
from fedsim.privacy.black_box import BlackBoxNoise

Function = Callable[[npt.NDArray[np.float32], Ints, np.random.Generator], npt.ArrayLike]
"""Maps features [n, *shape], labels [n] and a random generator to numbers of a fixed shape."""


def mean(features: npt.NDArray[np.float32], labels: Ints, coins: np.random.Generator) -> Floats:
    return np.asarray(features.mean(0), dtype=np.float64)


def class_means(
    features: npt.NDArray[np.float32], labels: Ints, coins: np.random.Generator, classes: int
) -> Floats:
    """Return the mean of the features of each class, [classes, *shape]; 0 for an empty class.

    classes: number of classes of the whole data set, since a subset may lack some.
    """
    chosen = np.eye(classes)[labels]
    counts = np.maximum(chosen.sum(0), 1)
    return np.asarray(np.tensordot(chosen / counts, features.astype(np.float64), axes=(0, 0)))


MOST = 100_000
"""Most simulations, whose generators and results stay in memory."""

FUNCTIONS: Mapping[str, Callable[..., npt.ArrayLike]] = {"mean": mean, "class-means": class_means}
"""Built-in functions by name; a user's function is package.module:name."""


@dataclass(frozen=True)
class PrivateResult:
    """A function's private result, with its noise and its bounds.

    Attributes:
        rate: probability that a record is used.
        length: norm of the mean result.
        residual: root mean square of the part of a result that the projection loses, without noise.
        average_success: largest probability of a right guess whether a record was used, on average
            over records.
        any_success: the same for a single record, whichever it is.
        chance: probability of a right guess before the release.
        released: [d], the only vector that may be published.
    """

    function: str
    records: int
    rate: float
    simulations: int
    noise: BlackBoxNoise
    length: float
    residual: float
    average_success: float
    any_success: float
    chance: float
    released: Floats

    @property
    def sentences(self) -> tuple[str, ...]:
        noise = self.noise
        relative = f", {noise.size / self.length:.3g} of the result's length" if self.length else ""
        any_record = "For a single record, the guess has no bound."
        if self.any_success < 1:
            any_record = f"For a single record, it is right in at most {self.any_success:.1%}."
        return (
            f"{self.function} ran on a random part of {self.records} records, each used with "
            f"probability {self.rate:g}. It released {len(noise.centre)} numbers, along "
            f"{len(noise.variances)} directions from {self.simulations} simulations.",
            f"Noise: {noise.size:.4g} (root mean square){relative}. The projection onto the "
            f"directions loses {self.residual:.4g}.",
            f"The result releases at most {noise.budget:g} nats about the choice of records, with "
            f"confidence {noise.confidence:.0%} over the simulations. A guess whether a record "
            f"was used is right in at most {self.average_success:.1%} of cases, on average over "
            f"records (without the release, {self.chance:.1%}). {any_record}",
            "This is an average over subsets, not differential privacy.",
        )

    @property
    def document(self) -> dict[str, object]:
        """All numbers without the vectors, for JSON."""
        noise = self.noise
        return {
            **{name: value for name, value in vars(self).items() if name != "released"},
            "mutual_information": noise.budget,
            "confidence": noise.confidence,
            "numbers": len(noise.centre),
            "directions": len(noise.variances),
            "noise": noise.size,
            "relative_noise": noise.size / self.length if self.length else None,
        }


def function(name: str) -> Callable[..., npt.ArrayLike]:
    """Return the function of this name: a key of `FUNCTIONS`, or package.module:name.

    Raises InputError if the function does not exist, or may not be imported.
    """
    named = lookup(FUNCTIONS, name, "the function")
    if not callable(named):
        raise InputError(
            f"'{name}' is not a function; name one of features, labels and a random generator"
        )
    return named


def privatised(
    own: Function | str,
    data: Dataset,
    rate: float,
    budget: float,
    simulations: int,
    confidence: float,
    seed: int = 0,
    followed: Callable[[Iterable[np.random.Generator]], Iterable[np.random.Generator]] = iter,
) -> PrivateResult:
    """Return a function's private result on a subset drawn with the operating system's entropy.

    Args:
        own: the function, or its name.
        rate: probability that a record is used, in (0, 1).
        budget: information that the result may release about the coins, in nats.
        seed: of the simulations, not of the secret subset and the noise.
        followed: wraps the simulations' generators, to show progress.

    Raises:
        InputError: the function does not exist, its results are not vectors of one length, or a
            number is out of range.
    """
    if not 0 < rate < 1:
        raise InputError(f"rate is {rate}; give a probability between 0 and 1")
    if not 2 * black_box.LEAST <= simulations <= MOST:
        raise InputError(f"simulations is {simulations}; give {2 * black_box.LEAST} to {MOST:,}")
    name = own if isinstance(own, str) else getattr(own, "__name__", type(own).__name__)
    applied: Callable[..., npt.ArrayLike] = function(own) if isinstance(own, str) else own
    if name == "class-means":
        applied = partial(applied, classes=data.classes)
    pool = everything(data)
    mechanism = partial(_applied, applied, pool)
    draw = partial(drawn, len(pool), rate)
    seeds: Iterator[np.random.Generator] = iter(
        followed(list(black_box.generators(seed, simulations)))
    )
    noise, results = black_box.privatise(mechanism, draw, seeds, budget, confidence)
    secret = np.random.default_rng(secrets.randbits(128))
    released = black_box.release(noise, mechanism(draw(secret), secret), secret)
    chance = max(rate, 1 - rate)
    apart = results - noise.centre
    lost = apart - noise.coordinates(results) @ noise.directions
    return PrivateResult(
        function=name,
        records=len(pool),
        rate=rate,
        simulations=simulations,
        noise=noise,
        length=float(np.linalg.norm(results.mean(0))),
        residual=math.sqrt(float((lost**2).sum(1).mean())),
        # Coins are independent, so that the information about each adds up to the budget at most.
        average_success=pac.success_bound(budget / len(pool), chance),
        any_success=pac.success_bound(budget, chance),
        chance=chance,
        released=released,
    )


def everything(data: Dataset) -> Records:
    if data.test is None:
        return data.train
    return Records(
        np.concatenate([data.train.features, data.test.features]),
        np.concatenate([data.train.labels, data.test.labels]),
    )


def drawn(count: int, rate: float, coins: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return the positions of the records that independent coins select with probability `rate`."""
    return np.flatnonzero(coins.random(count) < rate)


def _applied(
    own: Callable[..., npt.ArrayLike],
    pool: Records,
    inside: npt.NDArray[np.intp],
    coins: np.random.Generator,
) -> npt.ArrayLike:
    if not len(inside):
        raise InputError("a simulation drew no record; give a higher rate")
    try:
        return own(pool.features[inside], pool.labels[inside], coins)
    except InputError:
        raise
    except Exception as error:  # the user's function may raise anything
        raise InputError(
            f"the function failed on a subset of {len(inside)} records: {type(error).__name__}: "
            f"{' '.join(str(error).split())}; it must take features, labels and a random generator"
        ) from None
