"""The consent of a client's owner to the use of its records, from the node's own config.

A node of the kit runs these checks from its own installation. A plain SuperNode of Flower runs the
code that the server submits, without any checks if the server is hostile.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context, Message
from pydantic import BaseModel

from adversaries import registry
from adversaries.errors import InputError
from fedsim.configuration import Scalar, from_run_config
from fedsim.configuration.needs import KeySetting

LOG = logging.getLogger(__name__)

KEY = "consent"

CENTRAL = "central"
"""The server may see the records' sums without noise. It is trusted to add the noise."""

CHALLENGE = "challenge"
"""A run may train with and without one of the client's records, and an adversary guesses which."""

ADVERSARY = "adversary"
"""The node may be the adversary: it computes a belief about another client and hands it over."""

ORACLE = "oracle"
"""A run may read gradients of the client's records, or distances between them, without noise."""

CANARIES = "canaries"
"""A run may add crafted records to the client's."""

CANARY_SEED, CANARY_COUNT = "canary-seed", "canary-count"
"""Keys of a client's node config: the seed and the number of its canaries."""

EXPERIMENT = "experiment"
"""The records are public or made for tests. Noise need not protect them, and nothing is charged."""

KINDS = (CENTRAL, CHALLENGE, ADVERSARY, ORACLE, CANARIES, EXPERIMENT)

UNPROTECTED = (ORACLE, EXPERIMENT)
"""Kinds of consent that a release without noise needs."""

MAX_TRIALS, EPSILON_LIMIT, DELTA_LIMIT = "max-trials", "epsilon-limit", "delta-limit"

STATE, DATA = "state-path", "data-path"

WEIGHTS = "weights-path"
"""Key of the path of the node's copy of the file that a run's model starts from."""

SCHEMA = "schema-path"
"""Key of the path of the node's own copy of the schema."""

CODE = "allow-code"
"""Key of the client's own code that a run may name: "package.module:name", with commas between."""

DEPLOYED = (KEY, STATE, EPSILON_LIMIT, DELTA_LIMIT, MAX_TRIALS, DATA)
"""Keys that only a deployed node's config has. Any of them means that the records are real."""


class RefusedError(RuntimeError):
    """A client does not do what a message asks. The text is one line, with the remedy."""


@dataclass(frozen=True)
class Terms:
    """The terms of a client's owner, with a limit on epsilon of any one record over all runs."""

    kinds: frozenset[str]
    max_trials: int
    epsilon_limit: float
    delta_limit: float
    state: Path

    @property
    def consent(self) -> str:
        """The kinds of consent in the order of KINDS, as the node's config lists them."""
        return ",".join(kind for kind in KINDS if kind in self.kinds)


def terms(node_config: Mapping[str, Scalar]) -> Terms | None:
    """Return the terms in a node's config.

    A missing key means the least: no kind of consent, one trial, and an epsilon of 0.

    Returns: None for a simulated client.
    Raises RefusedError if a value is invalid.
    """
    if not any(key in node_config for key in DEPLOYED):
        return None
    kinds = {kind.strip() for kind in str(node_config.get(KEY, "")).split(",") if kind.strip()}
    if unknown := kinds - set(KINDS):
        raise RefusedError(
            f"the node's {KEY} has '{sorted(unknown)[0]}'; choose from {', '.join(KINDS)}"
        )
    state = str(node_config.get(STATE, ""))
    if not state:
        raise RefusedError(
            f"the node's config has no {STATE}, the folder of the client's ledger; give a folder "
            "that outlives the run"
        )
    trials = _number(node_config, MAX_TRIALS, 1)
    if trials < 1 or trials != int(trials):
        raise RefusedError(f"the node's {MAX_TRIALS} is {trials:g}; give a whole number above 0")
    delta = _number(node_config, DELTA_LIMIT, 1e-5)
    if not 0 < delta < 1:
        raise RefusedError(
            f"the node's {DELTA_LIMIT} is {delta:g}; give a probability above 0 and below 1"
        )
    epsilon = _number(node_config, EPSILON_LIMIT, 0)
    return Terms(frozenset(kinds), int(trials), epsilon, delta, Path(state))


def protects(node_config: Mapping[str, Scalar]) -> bool:
    """Return whether all releases need noise: not of simulated clients, nor of public records."""
    agreed = terms(node_config)
    return agreed is not None and EXPERIMENT not in agreed.kinds


def require(node_config: Mapping[str, Scalar], needs: Mapping[str, str]) -> None:
    """Raise RefusedError unless the node agreed to each kind of consent that is needed."""
    agreed = terms(node_config)
    if agreed is None:
        return
    if missing := [kind for kind in KINDS if kind in needs and kind not in agreed.kinds]:
        wanted = ",".join(kind for kind in KINDS if kind in agreed.kinds or kind in missing)
        raise RefusedError(
            f"{needs[missing[0]]}, but the client did not consent to '{missing[0]}' (its {KEY} is "
            f'"{agreed.consent}"); to agree, set {KEY} = "{wanted}" in the node\'s config'
        )


def _number(node_config: Mapping[str, Scalar], name: str, default: float) -> float:
    value = node_config.get(name, default)
    if isinstance(value, str | bool) or not 0 <= value < math.inf:
        raise RefusedError(f"the node's {name} is {value!r}; give a finite number of at least 0")
    return float(value)


def discreet(
    message: Message, context: Context, answer: Callable[[Message, Context], Message]
) -> Message:
    """Return the answer to a message; a protecting client sends no error but refusals."""
    registry.allow(str(context.node_config.get(CODE, "")).split(","))
    if terms(context.node_config) is None:
        return answer(message, context)
    try:
        check_bounds(from_run_config(context.run_config))
    except InputError as error:
        raise RefusedError(f"the run's configuration is invalid: {error}") from None
    if not protects(context.node_config):
        return answer(message, context)
    try:
        return answer(message, context)
    except RefusedError:
        raise
    except Exception:
        # An error's text may quote the client's records: the server learns only that it failed.
        LOG.exception("this client did not answer a message")
    raise RefusedError("this client did not answer; its own log says why")


@dataclass(frozen=True)
class Bound:
    """The least and the largest value of a key that a client accepts, and the reason."""

    key: str
    least: float
    most: float
    why: str

    @property
    def range(self) -> str:
        return f"{self.least:,.10g} to {self.most:,.10g}"


BOUNDS = tuple(
    Bound(*row)
    for row in (
        ("data.records", 1, 10**9, "it divides sums and decides the range of integers"),
        ("federation.clients", 2, 10**5, "a client lists all clients of a round"),
        ("model.hidden", 1, 4096, "memory grows with it"),
        ("model.lora-rank", 0, 256, "memory grows with it"),
        ("training.rounds", 1, 10**5, "the client composes the cost of all rounds"),
        ("training.learning-rate", 0, 1000, "a larger step leaves every useful model"),
        ("training.local-learning-rate", 0, 1000, "a larger step leaves every useful model"),
        ("training.clipping-norm", 1e-6, 1e6, "float32 holds such sums, with their noise"),
        ("training.sampling-rate", 1e-6, 1, "its inverse scales local steps"),
        ("training.local-steps", 1, 1000, "each step passes over the client's records"),
        ("training.local-epochs", 1, 100, "each epoch passes over the client's records"),
        ("training.batch-size", 0, 10**6, "a larger batch holds all of a client's records"),
        ("privacy.noise-multiplier", 0, 1e6, "float32 holds such noise"),
        ("run.threads", 0, 256, "memory grows with it"),
    )
)


def check_bounds(config: BaseModel) -> None:
    """Raise InputError if a number of a run's configuration is out of a client's range.

    A client checks it before it builds anything; a simulation is free.
    """
    for bound in BOUNDS:
        setting = KeySetting(bound.key, "is", 0)
        value = setting.value(config)
        if not isinstance(value, str) and not bound.least <= value <= bound.most:
            raise InputError(
                f"{setting.current(config)}, but a client accepts {bound.range}, because "
                f"{bound.why}; set it within this range"
            )
