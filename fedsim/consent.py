"""What an owner agreed to have done with its records, as its node's own config says.

A check against mistakes, in code that the server ships: it stops a run that goes beyond what the
owners agreed to, not a server that submits other code.
"""

from collections.abc import Collection, Mapping

from fedsim.config import Config, Scalar
from fedsim.messages import Request, Role

KEY = "consent"
CHALLENGE = "challenge"
"""A run may train with and without one of the owner's records, and an adversary tells which."""

INSTRUMENTED = "instrumented"
"""A run may read gradients of the owner's records, or distances between them, without noise."""

CANARIES = "canaries"
"""Records made up for a test may be added to the owner's."""

KINDS = (CHALLENGE, INSTRUMENTED, CANARIES)


class RefusedError(RuntimeError):
    """The owner did not consent to what a message asks."""


def needed(config: Config, request: Request) -> set[str]:
    """Return what the owner who receives a request must have agreed to."""
    kinds = set()
    # A colluder hands its noise to the adversary, and with it what its message protects.
    colludes = request.role == Role.COLLUDER
    if config.audit.mode == "instrumented" or config.audit.bayesian_pairs or colludes:
        kinds.add(INSTRUMENTED)
    if request.role == Role.CHALLENGED:
        kinds.add(CHALLENGE)
        if config.challenge.kind != "record":
            kinds.add(CANARIES)
    return kinds


def given(node_config: Mapping[str, Scalar]) -> set[str] | None:
    """Return what a node's config agrees to; None for simulated people, whom nobody asks.

    Raises RefusedError for a word that means nothing.
    """
    if KEY not in node_config:
        return None
    kinds = {kind.strip() for kind in str(node_config[KEY]).split(",") if kind.strip()}
    if unknown := kinds - set(KINDS):
        raise RefusedError(
            f"the node's {KEY} has '{sorted(unknown)[0]}', which is none of {', '.join(KINDS)}"
        )
    return kinds


def check(node_config: Mapping[str, Scalar], kinds: Collection[str]) -> None:
    """Raise RefusedError unless the node agreed to every one of these kinds."""
    agreed = given(node_config)
    if agreed is None:
        return
    if missing := [kind for kind in KINDS if kind in kinds and kind not in agreed]:
        wanted = ",".join(kind for kind in KINDS if kind in agreed | set(missing))
        raise RefusedError(
            f"the owner did not consent to '{missing[0]}'; who agrees to it sets "
            f'{KEY} = "{wanted}" in the node\'s config'
        )
