"""Whose beliefs a run computes, and which of the noise hides the challenge from whom.

The belief at a vantage point is a matter of the noise that it does not know. Everybody who adds
noise is a source of it: the owners by their partition numbers, and the server.
"""

from collections.abc import Collection

from fedsim.config import Config
from fedsim.mechanism import Trust, Vantage
from fedsim.randomness import SERVER

EXACT = (Vantage.SERVER, Vantage.PARTICIPANT)
"""The vantage points that see every round, whose belief is the exact posterior."""


def measured(config: Config) -> tuple[Vantage, ...]:
    """Return the vantage points whose beliefs are computed, the configured one first."""
    primary = config.federation.vantage
    if config.audit.vantages == "configured":
        return (primary,)
    return (primary, *(vantage for vantage in Vantage if vantage is not primary))


def suffix(vantage: Vantage, primary: Vantage) -> str:
    """Return what the transcript appends to the names of a vantage point's arrays.

    Nothing for the configured one; else for example "_released_model".
    """
    return "" if vantage is primary else "_" + vantage.value.replace("-", "_")


def hides(
    vantage: Vantage, trust: Trust, challenged: bool, adversary: bool, colluder: bool
) -> bool:
    """Whether the noise of an owner, where owners add it, hides the challenge from a vantage point.

    challenged, adversary, colluder: whether this owner holds the challenge, is the curious one, or
    tells it and the server its noise. The server sees single messages under local trust, and the
    aggregate alone where distributed shares are securely summed.
    """
    if trust is Trust.CENTRAL:
        return False
    if vantage is Vantage.SERVER and trust is Trust.LOCAL:
        return challenged
    return not (colluder or (vantage is Vantage.PARTICIPANT and adversary))


def unknown_noise(
    vantage: Vantage,
    trust: Trust,
    participants: Collection[int],
    challenged: int,
    adversary: int,
    colluders: Collection[int] = (),
) -> frozenset[int]:
    """Return the sources of the noise that hides the challenge from a vantage point.

    participants: the owners that took part; challenged, adversary, colluders: who holds the
    challenge, who is curious, and who helps it. Nothing hides it from the server under central
    trust.
    """
    if trust is Trust.CENTRAL:
        return frozenset() if vantage is Vantage.SERVER else frozenset({SERVER})
    return frozenset(
        owner
        for owner in participants
        if hides(vantage, trust, owner == challenged, owner == adversary, owner in colluders)
    )


def tells_noise(config: Config, challenged: bool, adversary: bool, colluder: bool) -> bool:
    """Whether the auditor of an instrumented run asks this owner for the noise that it added."""
    return any(
        hides(vantage, config.federation.trust, challenged, adversary, colluder)
        for vantage in measured(config)
        if vantage in EXACT
    )
