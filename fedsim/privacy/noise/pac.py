"""PAC privacy's noise, shaped by how the candidates' sums differ."""

import numpy as np

from fedsim.privacy.noise.mechanism import Noised, NoiseMechanism, Summed, Trials
from fedsim.privacy.trust.model import Vantage


class Pac(NoiseMechanism):
    """Releases the sum of the secret candidate; `noise.pac_release` has the mathematics."""

    title = "PAC noise"
    failing = (
        "PAC noise hides nothing along directions in which the stated candidates do not differ: it "
        "bounds the information about which candidate was used, and is not a DP guarantee."
    )
    own_law = True
    by_candidate = True
    columns = ("mutual_information",)

    def __init__(self, trials: Trials) -> None:
        from fedsim.privacy.noise.pac_release import PacReleases  # noqa: PLC0415  (scipy is slow to import)

        super().__init__(trials)
        self._releases = PacReleases(
            trials.information / trials.rounds,
            trials.prior,
            trials.secret_seed,
            trials.numbers,
            trials.worlds,
        )

    def add(self, summed: Summed) -> Noised:
        """Return the secret candidate's sum with noise, from all candidates' sums [T, m, P]."""
        measured = summed.measured()
        present = np.linalg.norm(measured["present"], axis=1)
        absent = measured.get("absent")
        released, learnt = self._releases.step(
            summed.total,
            measured["membership"],
            present,
            np.zeros_like(present) if absent is None else np.linalg.norm(absent, axis=1),
            self.trials.normals(summed.round, summed.total.shape[1]),
        )
        return Noised(released, learnt={Vantage.PARTICIPANT: learnt})
