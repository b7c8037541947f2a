"""Whose beliefs a run computes, and which of the noise hides the challenge from whom.

The belief at a vantage point is a matter of the noise that it does not know. Everybody who adds
noise is a source of it: the clients by their partition numbers, and the server.
"""

from fedsim.config.federation import FederationConfig
from fedsim.privacy.trust.model import Vantage

EXACT = (Vantage.SERVER, Vantage.PARTICIPANT)
"""The vantage points that see every round, whose belief is the exact posterior."""


def measured(primary: Vantage, vantages: str) -> tuple[Vantage, ...]:
    """Return the vantage points whose beliefs are computed, the configured one first.

    primary: the configured one.
    vantages: whose beliefs are computed: "configured" or "all".
    """
    if vantages == "configured":
        return (primary,)
    return (primary, *(vantage for vantage in Vantage if vantage is not primary))


def suffix(vantage: Vantage, primary: Vantage) -> str:
    """Return what the transcript appends to the names of a vantage point's arrays.

    Nothing for the configured one; else for example "_released_model".
    """
    return "" if vantage is primary else "_" + vantage.value.replace("-", "_")


def tells_noise(
    federation: FederationConfig,
    vantages: str,
    target_client: bool,
    adversary: bool,
    colluder: bool,
) -> bool:
    """Return whether the auditor of an oracle audit asks a client for the noise that it added.

    federation: who holds the records, who adds the noise, where the adversary sits.
    target_client: whether the client holds the challenge, or is it.
    adversary: whether it is the curious participant.
    colluder: whether it tells its noise.
    """
    return any(
        federation.trust.model.hides(vantage, target_client, adversary, colluder)
        for vantage in measured(federation.vantage, vantages)
        if vantage in EXACT
    )
