"""Waiting costs little, and an answer comes late by a share of the wait at most."""

from itertools import accumulate, takewhile

from fedsim.common.waiting import LONGEST, SHARE, pause


def test_questions_become_rarer_while_one_waits():
    assert pause(0, 0.1) == 0.1
    assert pause(5, 0.1) == SHARE * 5
    assert pause(1e6, 0.1) == LONGEST
    asked = accumulate(range(1000), lambda waited, _: waited + pause(waited, 0.1), initial=0.0)
    # In a minute, instead of the 600 of a question every tenth of a second.
    assert len(list(takewhile(lambda waited: waited < 60, asked))) < 100
