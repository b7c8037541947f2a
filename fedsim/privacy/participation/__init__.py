"""Participation rules: who joins a round, with which coins, and the rate that is charged."""

from fedsim.privacy.participation.rule import Participation, ParticipationSetting
from fedsim.privacy.participation.rules import Full, HiddenClients, JoiningClients, SampledRecords

RULES: tuple[type[Participation], ...] = (Full, SampledRecords, HiddenClients, JoiningClients)
"""All rules; the last one that applies to a setting decides."""


def rule(setting: ParticipationSetting) -> Participation:
    """Return the participation rule that applies to a federation's setting."""
    return next(kind for kind in reversed(RULES) if kind.applies(setting))(setting)
