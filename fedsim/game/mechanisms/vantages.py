"""The vantages whose beliefs a run computes, and the noise that hides the target from each."""

from fedsim.configuration.federation import FederationConfig
from fedsim.privacy.trust import Vantage

EXACT = (Vantage.SERVER, Vantage.PARTICIPANT)
"""Vantages that see every round, whose belief is the exact posterior."""


def measured(primary: Vantage, vantages: str) -> tuple[Vantage, ...]:
    """Return the vantages whose beliefs are computed, "configured" or "all", primary first."""
    if vantages == "configured":
        return (primary,)
    return (primary, *(vantage for vantage in Vantage if vantage is not primary))


def suffix(vantage: Vantage, primary: Vantage) -> str:
    """Return the suffix of a vantage's arrays, as "_released_model"; "" for the configured one."""
    return "" if vantage is primary else "_" + vantage.value.replace("-", "_")


def tells_noise(
    federation: FederationConfig,
    vantages: str,
    target_client: bool,
    adversary: bool,
    colluder: bool,
) -> bool:
    """Return whether the auditor of an oracle audit needs the noise that a client added."""
    return any(
        federation.trust.model.hides(vantage, target_client, adversary, colluder)
        for vantage in measured(federation.vantage, vantages)
        if vantage in EXACT
    )
