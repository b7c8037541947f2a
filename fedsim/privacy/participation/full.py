"""Full participation: every client and every record takes part in every step."""

from fedsim.privacy.participation.rule import Participation, Setting


class Full(Participation):
    """Every client and every record takes part."""

    @classmethod
    def applies(cls, setting: Setting) -> bool:
        rates = setting.client_rate, 1.0 if setting.by_client else setting.record_rate
        return rates == (1, 1)
