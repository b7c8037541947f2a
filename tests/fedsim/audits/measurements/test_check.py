from fedsim.audits.results import verdicts
from fedsim.audits.results.verdicts import AlarmCheck

CHECKS = [
    AlarmCheck("fine", None),
    AlarmCheck("odd", "It is odd."),
    AlarmCheck("known", None, by_chance=False),
]


def test_alarms_are_what_contradicts_theory():
    assert verdicts.alarms(CHECKS) == {"odd": "It is odd."}


def test_chance_can_raise_every_check_that_is_a_statistic_whether_it_did_or_not():
    assert verdicts.chance_alarms(CHECKS) == 2
    assert verdicts.chance_alarms([AlarmCheck("known", "It is known.", by_chance=False)]) == 0
