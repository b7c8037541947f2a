"""Whether the sums of a training, and the messages in them, have the noise that is claimed.

Nobody's records are known here, and nothing is subtracted from a release: what is found holds for
whatever they may be (`adversaries.statistics.noise_limit`).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from adversaries.statistics.e_process import closed
from adversaries.statistics.intervals import ALARM_CONFIDENCE, significance
from adversaries.statistics.noise_limit import NoiseLimit
from fedsim.config.objects import Scheme
from fedsim.config.privacy import PrivacyConfig
from fedsim.config.training import TrainingConfig
from fedsim.privacy.mechanism import aggregate_noise_multiplier, sensitivity

SUM = "sum"
"""The series of the released sums; the others are of clients, by their names."""

TELLING = 1.2
"""Below this limit, half of the noise would have been seen.

What of the coordinates is not noise has a variance of at most 1.2^2 - 1 = .44 then; with a quarter
of the noise's variance beside it they would vary by .69, which is less than 1.
"""


class NoiseWatch:
    """The noise of every series of releases of one training.

    What is said of all series together does not depend on which were seen so far: a client whose
    messages come late was counted from the beginning.

    clients: how many clients' messages may be looked at beside the sums, from client 0 on.
    """

    def __init__(self, clients: int = 0) -> None:
        names = [SUM, *map(_of_client, range(clients))]
        self._series = {name: NoiseLimit() for name in names}
        self._seen: set[str] = set()
        self._against = np.zeros(len(names))

    def observe(
        self,
        released: npt.NDArray[np.floating],
        std: float,
        messages: Mapping[int, npt.NDArray[np.floating]],
        own_std: float,
    ) -> None:
        """Take in a round.

        released: [P], the sum.
        messages: [P] of each client, where the auditor is sent them.
        """
        self._one(SUM, released, std)
        for client, sent in messages.items():
            self._one(_of_client(client), sent, own_std)
        log_e = np.array([one.log_e for one in self._series.values()])
        self._against = np.maximum(self._against, closed(log_e))

    def limits(self, confidence: float) -> dict[str, float]:
        """Return how many times the claimed noise each series has at most; infinity for no limit.

        All of them hold together, after every round, with this confidence.

        confidence: in (0, 1).
        Raises InputError for an impossible confidence.
        """
        each = 1 - significance(confidence) / len(self._series)
        found = {name: one.limit(each) for name, one in self._series.items()}
        return {name: limit for name, limit in found.items() if name in self._seen}

    def accused(self, confidence: float) -> list[str]:
        """Return the series that have less noise than is claimed.

        With this confidence none of them, after any round, that has it: their e-processes are
        averaged (`e_process.closed`), so that where many have less, each is found sooner than by
        its own limit.

        confidence: in (0, 1).
        Raises InputError for an impossible confidence.
        """
        threshold = -math.log(significance(confidence))
        found = zip(self._series, self._against.tolist(), strict=True)
        return [name for name, against in found if against >= threshold]

    @property
    def telling(self) -> bool:
        """Whether half of the noise would have been seen in the sums."""
        return self.limits(ALARM_CONFIDENCE).get(SUM, TELLING) < TELLING

    def _one(self, name: str, released: npt.NDArray[np.floating], std: float) -> None:
        self._seen.add(name)
        self._series[name].observe(released, std)


def alarms(accused: Sequence[str], limits: Mapping[str, float]) -> list[str]:
    """Return what has less noise than is claimed."""
    sure = f"with confidence {ALARM_CONFIDENCE:g}, whatever the records are"
    found = []
    for name in accused:
        who = "The released sums" if name == SUM else f"The messages of {name}"
        less = "less noise than is claimed"
        if limits[name] <= 1:
            less = f"less than {limits[name]:.3g} times the noise that is claimed"
        found.append(f"{who} have {less} ({sure}).")
    return found


def claimed_std(scheme: Scheme, noise_multiplier: float, sources: int) -> float:
    """Return the standard deviation of the noise that so many clients add together.

    sources: how many clients' messages are in what is looked at.
    """
    bound = sensitivity(scheme.privacy.neighbouring, scheme.training.clipping_norm)
    together = aggregate_noise_multiplier(
        noise_multiplier, scheme.federation.trust, scheme.participation.expected_clients, sources
    )
    return bound * together


def watchable(privacy: PrivacyConfig, training: TrainingConfig, trial_count: int) -> bool:
    """Return whether the noise of a run can be judged without its records.

    It takes one training, since trials may share their noise, and noise that the released sum or
    message has on top of everything: with local steps, later ones depend on that of earlier ones.
    """
    plain = not privacy.noise.mechanism.own_law and privacy.sensitivity == "global"
    return trial_count == 1 and training.local_steps == 1 and training.clipping and plain


def _of_client(client: int) -> str:
    return f"client-{client}"
