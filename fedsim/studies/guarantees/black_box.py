"""A function of one's own made PAC private: what it tells about which records it was given.

The prior is the conservative one of Xiao and Devadas: all records are known to the adversary, each
is used with the same probability, by a coin of its own, and the coins are the secret.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.learning.data import Dataset
from fedsim.learning.data.loaders.dataset import Records
from fedsim.privacy import black_box, pac
from fedsim.privacy.black_box import Noise
from fedsim.privacy.pac import Floats

Function = Callable[
    [npt.NDArray[np.float32], npt.NDArray[np.int64], np.random.Generator], npt.ArrayLike
]
"""From features [n, *shape], labels [n] and coins to numbers, of one shape whatever n is."""


def mean(
    features: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], coins: np.random.Generator
) -> Floats:
    """Return the mean of features.

    Args:
        features: [n, *shape].
    """
    return np.asarray(features.mean(0), dtype=np.float64)


def class_means(
    features: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], coins: np.random.Generator
) -> Floats:
    """Return the mean of the features of each class, [classes, *shape]; 0 where it has no record.

    Args:
        features: [n, *shape].
        labels: [n]; of the class with the highest number at least one record must be there.
    """
    chosen = np.eye(int(labels.max()) + 1)[labels]
    counts = np.maximum(chosen.sum(0), 1)
    return np.asarray(np.tensordot(chosen / counts, features.astype(np.float64), axes=(0, 0)))


FUNCTIONS: Mapping[str, Function] = {"mean": mean, "class-means": class_means}
"""By name; one of the user's own goes by package.module:name."""


@dataclass(frozen=True)
class PrivateResult:
    """What a function's result is worth once it is private.

    Attributes:
        rate: the probability that a record is used.
        length: the norm of an average result.
        residual: the root of the mean squared distance of a result from where it is released: what
            projection loses, without noise.
        average_success: how often a guess whether a record was used is right at most, on average
            over records; by chance alone `chance`.
        any_success: the same of one record, whichever it is.
        chance: how often the better guess is right before the release.
        released: the vector that may be seen, [d].
    """

    function: str
    records: int
    rate: float
    simulations: int
    noise: Noise
    length: float
    residual: float
    average_success: float
    any_success: float
    chance: float
    released: Floats

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is released, how much noise it has, and what it tells, in words."""
        noise = self.noise
        relative = f", {noise.size / self.length:.3g} of the result's length" if self.length else ""
        any_record = (
            "nothing is bounded."
            if self.any_success == 1
            else f"in at most {self.any_success:.1%}."
        )
        return (
            f"{self.function} of some of {self.records} records, each used with probability "
            f"{self.rate:g}: {len(noise.centre)} numbers, released along {len(noise.variances)} "
            f"directions that {self.simulations} simulations found.",
            f"Noise: {noise.size:.4g} (root of its mean square){relative}; what no direction "
            f"holds: {self.residual:.4g}.",
            f"It tells at most {noise.budget:g} nats about which records were used, with "
            f"confidence {noise.confidence:.0%} over the simulations. Guesses whether a record was "
            f"used are right in at most {self.average_success:.1%} of cases, on average over "
            f"records ({self.chance:.1%} without the release); of a single record, whichever it "
            f"is, {any_record}",
            "An average over subsets, and no differential privacy.",
        )

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)

    @property
    def document(self) -> dict[str, object]:
        """Everything but vectors, by name."""
        return {
            "function": self.function,
            "records": self.records,
            "rate": self.rate,
            "simulations": self.simulations,
            "mutual_information": self.noise.budget,
            "confidence": self.noise.confidence,
            "numbers": len(self.noise.centre),
            "directions": len(self.noise.variances),
            "noise": self.noise.size,
            "relative_noise": self.noise.size / self.length if self.length else None,
            "length": self.length,
            "residual": self.residual,
            "chance": self.chance,
            "average_success": self.average_success,
            "any_success": self.any_success,
        }


def function(name: str) -> Function:
    """Return the function of this name.

    Args:
        name: a key of `FUNCTIONS`, or package.module:name.

    Raises:
        InputError: there is none, or it may not be imported.
    """
    found = lookup(FUNCTIONS, name, "the function")
    if not callable(found):
        raise InputError(f"'{name}' is no function; name one that takes features, labels, coins")
    return found


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
    """Return a function's private result on a subset that the operating system's entropy draws.

    Args:
        own: the function, or its name as `function` takes it.
        rate: the probability that a record is used, in (0, 1).
        budget: of what the result tells about the coins, in nats.
        seed: of the simulations; the secret subset and the noise are not made from it.

    Raises:
        InputError: no such function, results that are no vectors of one length, or numbers out of
            range.
    """
    if not 0 < rate < 1:
        raise InputError(f"the rate is {rate}; give a probability between 0 and 1")
    if simulations < 2 * black_box.LEAST:
        raise InputError(
            f"{simulations} simulations are too few; give {2 * black_box.LEAST} or more"
        )
    name = own if isinstance(own, str) else getattr(own, "__name__", type(own).__name__)
    own = function(own) if isinstance(own, str) else own
    pool = everything(data)
    mechanism = partial(_applied, own, pool)
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
        # Coins are independent: what is told of each adds up to the budget at most.
        average_success=pac.success_bound(budget / len(pool), chance),
        any_success=pac.success_bound(budget, chance),
        chance=chance,
        released=released,
    )


def everything(data: Dataset) -> Records:
    """Return the records of a data set, those held out by its authors among them."""
    if data.test is None:
        return data.train
    return Records(
        np.concatenate([data.train.features, data.test.features]),
        np.concatenate([data.train.labels, data.test.labels]),
    )


def drawn(count: int, rate: float, coins: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return the positions of records that take part, each by a coin of its own.

    Args:
        rate: the probability of each.
    """
    return np.flatnonzero(coins.random(count) < rate)


def _applied(
    own: Function, pool: Records, inside: npt.NDArray[np.intp], coins: np.random.Generator
) -> npt.ArrayLike:
    if not len(inside):
        raise InputError("a simulation drew no record at all; give a higher rate")
    try:
        return own(pool.features[inside], pool.labels[inside], coins)
    except InputError:
        raise
    except Exception as error:  # of a function that is not ours, whatever it raises
        raise InputError(
            f"the function failed on a subset of {len(inside)} records: {type(error).__name__}: "
            f"{' '.join(str(error).split())}; it is called with features, labels and a random "
            "generator"
        ) from None
