"""Participation rules: who joins a round with which coins, and the rate at which it is charged.

One module a rule; `RULES` is their registry. `config.participation` answers for a run.
"""

from fedsim.privacy.participation.everybody import Everybody
from fedsim.privacy.participation.hidden_clients import HiddenClients
from fedsim.privacy.participation.joining_clients import JoiningClients
from fedsim.privacy.participation.rule import Participation, Setting
from fedsim.privacy.participation.sampled_records import SampledRecords

RULES: tuple[type[Participation], ...] = (
    Everybody,
    SampledRecords,
    HiddenClients,
    JoiningClients,
)
"""The rules; the last that applies to a setting decides, so that a later one can take over."""


def rule(setting: Setting) -> Participation:
    """Return the participation rule of a federation.

    Args:
        setting: what the configuration says about participation.
    """
    return next(kind for kind in reversed(RULES) if kind.applies(setting))(setting)
