"""Who looks at the server, by `audit.mode`; a class of a user's own as "package.module:name"."""

from collections.abc import Mapping

from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.config.objects import Scheme
from fedsim.game.mechanisms import vantages
from fedsim.game.observers.curious_server import CuriousServer
from fedsim.game.observers.oracle import Oracle
from fedsim.game.observers.seat import Seat
from fedsim.privacy.trust.model import Vantage

SEATS: Mapping[str, type[Seat]] = {
    "participant": CuriousServer,
    "oracle": Oracle,
}
"""Who looks at the server, by `audit.mode`."""


def seat(audit_mode: str) -> type[Seat]:
    """Return who looks at the server.

    audit_mode: how the belief is computed: as the "participant" must, from what it receives and
    knows, or by an "oracle" from the noise, which the auditor of a campaign reads.
    Raises InputError if there is no such seat.
    """
    return lookup(SEATS, audit_mode, "audit.mode")


def is_exact(local_steps: int, adversary_rounds: str, audit_mode: str, vantage: Vantage) -> bool:
    """Return whether the log-odds at a vantage point are the exact posterior's.

    local_steps: noisy steps that a client takes on its own model within a round.
    adversary_rounds: which rounds the curious client is asked in: "every" one, or its "own", in
    which it is sampled.
    audit_mode: how the belief is computed: as the "participant" must, from what it receives and
    knows, or by an "oracle" from the noise, which the auditor of a campaign reads.
    """
    exact = vantage in vantages.EXACT and local_steps == 1
    if vantage is Vantage.PARTICIPANT and adversary_rounds == "own":
        return False
    return exact and seat(audit_mode).exact


def check(scheme: Scheme, audit_mode: str) -> None:
    """Check that the adversary at the server knows what it needs, and looks where it is to.

    Raises InputError if it does not.
    """
    found, primary = seat(audit_mode), scheme.federation.vantage
    if not (
        primary in found.vantages
        or (primary is Vantage.PARTICIPANT and found.follows)
        or primary is Vantage.RELEASED_MODEL
    ):
        raise InputError(
            f"federation.vantage is '{primary}', but audit.mode is '{audit_mode}', which "
            f"looks from the {' and the '.join(found.vantages)}; set federation.vantage to that"
        )
    participation = scheme.participation
    if participation.secret and participation.setting.seed is None and not found.reads_noise:
        raise InputError(
            "privacy.noise-source is 'system' with training.sampling-rate below 1: the adversary's "
            "background knowledge, which of the other records take part, is known to their clients "
            'alone; choose audit.mode = "oracle" or noise-source = "seed"'
        )
