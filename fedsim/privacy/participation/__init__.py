"""Participation rules: who joins a round, with which coins, and the rate that is charged."""

from fedsim.privacy.participation.full import Full
from fedsim.privacy.participation.hidden_clients import HiddenClients
from fedsim.privacy.participation.joining_clients import JoiningClients
from fedsim.privacy.participation.rule import Participation, Setting
from fedsim.privacy.participation.sampled_records import SampledRecords

RULES: tuple[type[Participation], ...] = (
    Full,
    SampledRecords,
    HiddenClients,
    JoiningClients,
)
"""All rules; the last one that applies to a setting decides."""


def rule(setting: Setting) -> Participation:
    """Return the participation rule that applies to a federation's setting."""
    return next(kind for kind in reversed(RULES) if kind.applies(setting))(setting)
