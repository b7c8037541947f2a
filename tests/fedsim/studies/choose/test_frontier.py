"""The figure of a search: each model's settings, the limit, the least value and the choice."""

from types import SimpleNamespace

import pytest

from fedsim.studies.choose.choose_report import frontier
from fedsim.studies.choose.rule import ADVANTAGE, Choice, Limit

from .test_rule import LEAST, LOOSE


def test_the_frontier_marks_the_limit_and_the_chosen_setting():
    request = SimpleNamespace(limit=Limit(ADVANTAGE, 0.2), least=("AUC", 0.75))
    found = Choice("chosen", (LEAST, LOOSE), LEAST)
    (panel,) = frontier(SimpleNamespace(request=request, choice=found)).panels  # type: ignore
    models, chosen = panel.curves
    assert list(models.at) == pytest.approx([60, 70])
    assert list(models.values) == pytest.approx([80, 90])
    assert (chosen.name, *chosen.at, *chosen.values) == ("chosen", 60, 80)
    limit, least = panel.levels
    assert (limit.value, limit.upright) == (60, True)
    assert (least.name, least.value) == ("least AUC, 75 %", 75)
