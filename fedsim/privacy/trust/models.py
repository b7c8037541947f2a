"""The three trust models: who adds the noise, and what the server sees."""

import math
from collections.abc import Collection

from fedsim.common.randomness import SERVER
from fedsim.privacy.trust.model import TrustModel, Vantage


class Central(TrustModel):
    """The server adds the noise."""

    server_draws = True
    words = "Here the server is trusted to add the noise to the sum of the clients' messages."
    caution = (
        "With central trust, the server sees each client's sum of gradients without noise. Nothing "
        "protects the client's records from the server."
    )

    def noise_share(self, clients: float, sources: int) -> float:
        # The server adds all noise or none.
        return 1.0 if sources else 0.0

    def hides(self, vantage: Vantage, target: bool, adversary: bool, colluder: bool) -> bool:
        # Clients have no noise.
        return False

    def sees(self, vantage: Vantage, clients: float, in_the_clear: bool) -> str:
        if vantage is Vantage.SERVER:
            return "sees sums without noise: no protection"
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


class Local(TrustModel):
    """Every client adds noise that is enough to hide its own records."""

    local_steps = True
    words = "Here every client adds the whole noise to its own message."

    def noise_share(self, clients: float, sources: int) -> float:
        # Each source has the whole variance.
        return math.sqrt(max(1, sources))

    def hides(self, vantage: Vantage, target: bool, adversary: bool, colluder: bool) -> bool:
        # The server sees the target's own message, whose only noise is that client's.
        if vantage is Vantage.SERVER:
            return target
        return not (colluder or (vantage is Vantage.PARTICIPANT and adversary))

    def sees(self, vantage: Vantage, clients: float, in_the_clear: bool) -> str:
        if vantage is Vantage.SERVER:
            return "sees every client's sum with that client's own noise in it"
        return "sees the aggregate of every round, and removes its own noise from it"


SECURE = "sees only the aggregate, as long as secure aggregation holds"
AS_IF_SECURE = (
    "as if aggregated securely: aggregation was simulated, and the server received every message "
    "under one client's share of the noise (the nominal multiplier over the square root of {:g} "
    "clients)"
)


class Distributed(TrustModel):
    """The clients' shares of the noise together hide the target."""

    summed_securely = True
    words = (
        "Here every client adds a share of the noise. Every observer is assumed to see no more of "
        "the messages than their sum."
    )

    def noise_share(self, clients: float, sources: int) -> float:
        # Each of m shares has 1 / m of the variance.
        return math.sqrt(max(1, sources) / clients)

    def hides(self, vantage: Vantage, target: bool, adversary: bool, colluder: bool) -> bool:
        # All shares hide the target except the ones that the observer knows.
        return not (colluder or (vantage is Vantage.PARTICIPANT and adversary))

    def sees(self, vantage: Vantage, clients: float, in_the_clear: bool) -> str:
        if vantage is Vantage.SERVER:
            return AS_IF_SECURE.format(clients) if in_the_clear else SECURE
        return "sees the aggregate of every round, and removes its own noise from it"
