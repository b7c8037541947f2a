from fedsim.audits.results import verdicts
from fedsim.audits.results.verdicts import Check

CHECKS = [Check("fine", None), Check("odd", "It is odd."), Check("known", None, by_chance=False)]


def test_alarms_are_what_contradicts_theory() -> None:
    assert verdicts.alarms(CHECKS) == {"odd": "It is odd."}


def test_chance_can_raise_every_check_that_is_a_statistic_whether_it_did_or_not() -> None:
    assert verdicts.chance_alarms(CHECKS) == 2
    assert verdicts.chance_alarms([Check("known", "It is known.", by_chance=False)]) == 0
