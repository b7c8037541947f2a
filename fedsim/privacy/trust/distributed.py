"""Distributed trust: every client adds a share of the noise, and messages are summed securely."""

import math

from fedsim.privacy.trust.model import TrustModel, Vantage

SECURE = "sees only the aggregate, as long as secure aggregation holds"
AS_IF_SECURE = (
    "as if aggregated securely: aggregation was simulated, and the server received every message "
    "under one client's share of the noise, the nominal multiplier over the root of {:g} clients"
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
