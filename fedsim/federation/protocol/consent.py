"""What a client's owner agreed to have done with its records, as its node's own config says.

A check in code that the server ships: it stops a run that goes beyond what was agreed to, and a
server that asks for other things than its run's configuration says, but not a server that submits
other code.

Flower sends the text of every exception to the server. A text about a client's files, its folders
or a computation on its records would be a release that no noise protects: see `discreet`.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context, Message

from adversaries import registry
from adversaries.errors import InputError
from fedsim.config import Scalar, from_run_config

LOG = logging.getLogger(__name__)

KEY = "consent"

CENTRAL = "central"
"""The server may see clean sums of the records, and is trusted to add the noise that it says."""

CHALLENGE = "challenge"
"""A run may train with and without one of the client's records, and an adversary tells which."""

ADVERSARY = "adversary"
"""The node may be the adversary: it works out a belief about another client, and hands it over."""

ORACLE = "oracle"
"""A run may read gradients of the client's records, or distances between them, without noise."""

CANARIES = "canaries"
"""Records made up for a test may be added to the client's."""

CANARY_SEED, CANARY_COUNT, CANARY_KIND = "canary-seed", "canary-count", "canary-kind"
"""The keys of a client's node config that turn canaries on, say how many, and what they are."""

MEASURES = "measures"
"""Records are held back from every training, whose confusion matrix leaves after it, with noise."""

MEASURES_SHARE, MEASURES_EPSILON = "measures-share", "measures-epsilon"
"""The keys of a client's node config that say which share, and at which epsilon at most."""

EXPERIMENT = "experiment"
"""The records are public or made for tests: noise may hide nothing, and nothing is charged."""

KINDS = (CENTRAL, CHALLENGE, ADVERSARY, ORACLE, CANARIES, MEASURES, EXPERIMENT)

UNPROTECTED = (ORACLE, EXPERIMENT)
"""What it takes for something of a record to leave without any noise."""

MAX_TRIALS, EPSILON_LIMIT, DELTA_LIMIT = "max-trials", "epsilon-limit", "delta-limit"

STATE, DATA = "state-path", "data-path"

WEIGHTS = "weights-path"
"""Where the node's copy is of the file that a run's model starts from."""

SCHEMA = "schema-path"
"""Where the node's own copy is of the schema that it agreed upon, if it keeps one."""

CODE = "allow-code"
"""Names of the client's own code, "package.module:name" with commas, that a run may name."""

DEPLOYED = (KEY, STATE, EPSILON_LIMIT, DELTA_LIMIT, MAX_TRIALS, DATA)
"""What a simulated node's config has none of; any of them makes the records somebody's."""


class RefusedError(RuntimeError):
    """A client does not do what a message asks; one line that says what would allow it."""


@dataclass(frozen=True)
class Terms:
    """What a client's owner agreed to.

    Attributes:
        kinds: some of `KINDS`.
        max_trials: how many trainings one run may make of the records.
        epsilon_limit: what all runs together may cost any one record, at `delta_limit`.
        delta_limit: the probability with which that may fail.
        state: the folder of the client's own ledger.
    """

    kinds: frozenset[str]
    max_trials: int
    epsilon_limit: float
    delta_limit: float
    state: Path

    @property
    def said(self) -> str:
        """The kinds, in the order of KINDS, as the node's config says them."""
        return ",".join(kind for kind in KINDS if kind in self.kinds)


def terms(node_config: Mapping[str, Scalar]) -> Terms | None:
    """Return what a node's config agrees to.

    What it does not say is agreed to as little as may be: no kind, one trial, and no epsilon at
    all.

    Returns: none for simulated people, whom nobody asks.
    Raises RefusedError if a value means nothing.
    """
    if not any(key in node_config for key in DEPLOYED):
        return None
    kinds = {kind.strip() for kind in str(node_config.get(KEY, "")).split(",") if kind.strip()}
    if unknown := kinds - set(KINDS):
        raise RefusedError(
            f"the node's {KEY} has '{sorted(unknown)[0]}', which is none of {', '.join(KINDS)}"
        )
    state = str(node_config.get(STATE, ""))
    if not state:
        raise RefusedError(
            f"the node's config has no {STATE}, the folder where it enters what it answered; "
            "give one that outlives the run"
        )
    trials = _number(node_config, MAX_TRIALS, 1)
    if trials < 1 or trials != int(trials):
        raise RefusedError(f"the node's {MAX_TRIALS} is {trials:g}; give a whole number from 1 on")
    delta = _number(node_config, DELTA_LIMIT, 1e-5)
    if not 0 < delta < 1:
        raise RefusedError(
            f"the node's {DELTA_LIMIT} is {delta:g}; give a probability above 0 and below 1"
        )
    epsilon = _number(node_config, EPSILON_LIMIT, 0)
    return Terms(frozenset(kinds), int(trials), epsilon, delta, Path(state))


def protects(node_config: Mapping[str, Scalar]) -> bool:
    """Return whether nothing of the records may leave that noise did not touch.

    False for simulated people, and where nothing is to be protected.
    """
    agreed = terms(node_config)
    return agreed is not None and EXPERIMENT not in agreed.kinds


def check(node_config: Mapping[str, Scalar], asked: Mapping[str, str]) -> None:
    """Check that the node agreed to every kind that is asked for.

    asked: what of the request or the run asks for it, by kind, for the error message.
    Raises RefusedError if it did not, or its config means nothing.
    """
    agreed = terms(node_config)
    if agreed is None:
        return
    if missing := [kind for kind in KINDS if kind in asked and kind not in agreed.kinds]:
        wanted = ",".join(kind for kind in KINDS if kind in agreed.kinds or kind in missing)
        raise RefusedError(
            f"{asked[missing[0]]}, but the client did not consent to '{missing[0]}' (its {KEY} is "
            f'"{agreed.said}"); who agrees to it sets {KEY} = "{wanted}" in the node\'s config'
        )


def _number(node_config: Mapping[str, Scalar], name: str, default: float) -> float:
    value = node_config.get(name, default)
    if isinstance(value, str | bool) or not 0 <= value < math.inf:
        raise RefusedError(f"the node's {name} is {value!r}; give a finite number of at least 0")
    return float(value)


def discreet(
    message: Message, context: Context, answer: Callable[[Message, Context], Message]
) -> Message:
    """Return the answer to a message; of what goes wrong, a protecting client tells refusals alone.

    A refusal (`RefusedError`) is a function of the message, the run's configuration, the node's
    terms and its ledger. Everything else goes to the client's own log.

    Raises RefusedError if the client does not answer.
    """
    registry.allow(str(context.node_config.get(CODE, "")).split(","))
    if not protects(context.node_config):
        return answer(message, context)
    try:
        from_run_config(context.run_config)
    except InputError as error:
        raise RefusedError(f"the run's configuration is invalid: {error}") from None
    try:
        return answer(message, context)
    except RefusedError:
        raise
    except Exception:
        LOG.exception("this client did not answer a message")
    raise RefusedError("this client did not answer; its own log says why")
