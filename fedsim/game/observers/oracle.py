"""The auditor of a campaign, who reads the noise; `disclosed_noise` computes what it learns."""

from collections.abc import Mapping

from fedsim.game.mechanisms.step import Step
from fedsim.game.mechanisms.vantages import EXACT
from fedsim.game.observers.seat import Seat, Seen
from fedsim.privacy.trust.model import Vantage


class Oracle(Seat):
    """Whoever is handed the noise, at every vantage that sees the rounds."""

    vantages = EXACT
    reads_noise = True

    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        """Return what every vantage that sees the rounds would conclude."""
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
