"""Local trust: every client adds the whole noise to its own message, which the server sees."""

import math
from collections.abc import Sequence

from fedsim.privacy.trust.model import TrustModel, Vantage


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
            return "sees every client's sum under that client's own noise"
        return "sees the aggregate of every round, and removes its own noise from it"

    def played_by(self, clients: int) -> Sequence[int]:
        """Return every client."""
        return range(clients)
