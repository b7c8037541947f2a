"""An honest but curious server, who sees every message, or the sum that hides them."""

from collections.abc import Mapping

import torch

from fedsim.game import federation as data
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms.step import Step
from fedsim.game.observers.seat import Seat, Seen
from fedsim.privacy.trust.model import Vantage


class CuriousServer(Seat):
    """The server itself, beside a participant who keeps a belief of its own."""

    vantages = (Vantage.SERVER,)
    follows = True

    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        """Return what follows from the target's message, or from the sum of all."""
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
