"""Central trust: the server sees each client's sum without noise, and adds the noise."""

from collections.abc import Collection

from fedsim.common.randomness import SERVER
from fedsim.privacy.trust.model import TrustModel, Vantage


class Central(TrustModel):
    """The server adds the noise."""

    server_draws = True
    words = "Here the server is trusted to add the noise to the sum of the clients' messages."
    caution = (
        "With central trust, the server sees each client's sum without noise. Nothing protects the "
        "client's records from the server."
    )

    def noise_share(self, clients: float, sources: int) -> float:
        # The server adds all noise or none.
        return 1.0 if sources else 0.0

    def hides(self, vantage: Vantage, target: bool, adversary: bool, colluder: bool) -> bool:
        # Clients have no noise.
        return False

    def sees(self, vantage: Vantage, clients: float, in_the_clear: bool) -> str:
        if vantage is Vantage.SERVER:
            return "sees clean sums: no protection"
        return "sees the aggregate of every round, and did not draw its noise"

    def unknown_noise(
        self,
        vantage: Vantage,
        participants: Collection[int],
        target: int,
        adversary: int,
        colluders: Collection[int] = (),
    ) -> frozenset[int]:
        return frozenset() if vantage is Vantage.SERVER else frozenset({SERVER})

    def unknown_sources(self, vantage: Vantage, participants: int, colluders: int) -> int:
        return 0 if vantage is Vantage.SERVER else 1
