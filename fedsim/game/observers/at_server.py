"""Who looks at the server, by `audit.mode`; a class of a user's own as "package.module:name"."""

from collections.abc import Mapping

import torch

from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.config.objects import Scheme
from fedsim.game import federation as data
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms.step import Step
from fedsim.game.mechanisms.vantages import EXACT
from fedsim.game.observers.seat import Seat, Seen
from fedsim.privacy.trust.model import Vantage


class CuriousServer(Seat):
    """The server itself, beside a participant who keeps a belief of its own."""

    vantages = (Vantage.SERVER,)
    follows = True

    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        if Vantage.SERVER not in seen.unknown_noise:
            return {}
        # A client asks the class alone, and leaves out what concludes.
        from fedsim.game.observers.server_adversary import conclude  # noqa: PLC0415

        config, game = seen.config, seen.game
        known, target = data.load(config), game.target_client
        message, within = seen.total, seen.participants
        if not config.federation.trust.model.summed_securely:
            message, within = seen.message(target), (target,)
        model = torch.tensor(seen.model).to(known.device)
        of_round = KnownRound.drawn(config.game, known, game, model)
        noise_std = seen.unknown_noise[Vantage.SERVER].noise_std.to(known.device)
        step = conclude(of_round, within, noise_std, torch.tensor(message).to(known.device))
        return {Vantage.SERVER: step}


class Oracle(Seat):
    """Whoever is handed the noise, at every vantage that sees the rounds."""

    vantages = EXACT
    reads_noise = True

    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        # A client asks the class alone, and leaves out what concludes.
        from fedsim.game.observers import disclosed_noise  # noqa: PLC0415

        measured = seen.measured()
        return disclosed_noise.measure(
            measured.present,
            measured.absent,
            measured.noises,
            measured.worlds,
            measured.participation,
            seen.unknown_noise,
            seen.config.participation.rate,
        )


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
    exact = vantage in EXACT and local_steps == 1
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
