"""Tests whether a training's sums and messages have the claimed noise, for any records."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from adversaries.bounds.e_process import closed
from adversaries.statistics.intervals import ALARM_CONFIDENCE, significance
from adversaries.statistics.noise_limit import NoiseLimit
from fedsim.configuration import Config
from fedsim.configuration.privacy import PrivacyConfig
from fedsim.configuration.training import TrainingConfig
from fedsim.privacy.mechanism import aggregate_noise_multiplier, sensitivity

SUM = "sum"
"""Name of the series of released sums; the other series are named after clients."""

TELLING = 1.2
"""Limit below which half of the noise would have been detected."""


class NoiseWatch:
    """The noise of every series of releases of one training: sums, and clients' messages."""

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
        """Observe a round's sum [P], and where it is received the message [P] of each client."""
        self._one(SUM, released, std)
        for client, sent in messages.items():
            self._one(_of_client(client), sent, own_std)
        log_e = np.array([one.log_e for one in self._series.values()])
        # Ville's inequality covers the largest value so far, so evidence once found remains.
        self._against = np.maximum(self._against, closed(log_e))

    def limits(self, confidence: float) -> dict[str, float]:
        """Return the largest possible noise of each series over the claimed; inf without a limit.

        All limits hold together, after every round, with this confidence in (0, 1).

        Raises InputError for a confidence out of range.
        """
        # Bonferroni over all series, seen or not, so that a later series changes no limit.
        each = 1 - significance(confidence) / len(self._series)
        limits = {name: one.limit(each) for name, one in self._series.items()}
        return {name: limit for name, limit in limits.items() if name in self._seen}

    def accused(self, confidence: float) -> list[str]:
        """Return the series that have less noise than claimed.

        With this confidence in (0, 1), no series with the claimed noise is ever accused. The
        e-processes of the series are averaged (`e_process.closed`). If many have less noise, each
        is accused sooner than by its own limit.

        Raises InputError for a confidence out of range.
        """
        threshold = -math.log(significance(confidence))
        pairs = zip(self._series, self._against.tolist(), strict=True)
        return [name for name, against in pairs if against >= threshold]

    @property
    def telling(self) -> bool:
        """Whether half of the noise would have been detected in the sums."""
        return self.limits(ALARM_CONFIDENCE).get(SUM, TELLING) < TELLING

    def _one(self, name: str, released: npt.NDArray[np.floating], std: float) -> None:
        self._seen.add(name)
        self._series[name].observe(released, std)


def alarms(accused: Sequence[str], limits: Mapping[str, float]) -> list[str]:
    """Return the alarms about series with less noise than claimed."""
    sure = f"with confidence {ALARM_CONFIDENCE:g}, for any records"
    texts = []
    for name in accused:
        subject = "The released sums" if name == SUM else f"The messages of {name}"
        less = "less noise than claimed"
        if limits[name] <= 1:
            less = f"less than {limits[name]:.3g} times the claimed noise"
        texts.append(f"{subject} have {less} ({sure}).")
    return texts


def claimed_std(config: Config, noise_multiplier: float, sources: int) -> float:
    """Return the standard deviation of the noise in `sources` clients' messages together."""
    bound = sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
    together = aggregate_noise_multiplier(
        noise_multiplier, config.federation.trust, config.participation.expected_clients, sources
    )
    return bound * together


def watchable(privacy: PrivacyConfig, training: TrainingConfig, trial_count: int) -> bool:
    """Return whether noise can be judged: of a single training, and added last."""
    simple = training.local_steps == 1 and training.clipping
    return trial_count == 1 and simple and privacy.sensitivity == "global"


def _of_client(client: int) -> str:
    return f"client-{client}"
