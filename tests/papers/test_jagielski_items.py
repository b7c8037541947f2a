"""Poisoned trainings, held against what they must prove and must not."""

import math

import pytest
import torch

from papers.findings import Means, Scale
from papers.jagielski import setting, table
from papers.jagielski.setting import (
    ATTACKS,
    JagielskiCell,
    JagielskiSetting,
    Size,
    play,
)

SIZE = Size(records=60, batch=6, epochs=12, trainings=60, copies=(1, 4), hidden=8)


@pytest.fixture
def smoke(tmp_path):
    return Means(Scale.SMOKE, tmp_path, say=lambda what: None)


def test_a_thousand_trainings_of_a_world_prove_what_is_printed_at_most():
    assert table.ceiling(1000) == pytest.approx(4.54, abs=0.005)


def test_without_noise_and_chance_poisoned_records_are_always_seen(smoke):
    found = play(smoke, JagielskiSetting(smoke, SIZE), JagielskiCell("fixed", 2.0, 0.0))
    # Of four records group privacy divides by four; a threshold that half of the trainings chose
    # may miss one of the others.
    most = table.ceiling(SIZE.trainings)
    assert most >= found.bound(1, 0.99) > 0.85 * most
    assert most / 4 >= found.bound(4, 0.99) > 0.85 * most / 4
    assert found.best(paid=True) < found.best(paid=False)
    # The same call reads what was kept.
    again = play(smoke, JagielskiSetting(smoke, SIZE), JagielskiCell("fixed", 2.0, 0.0))
    assert (again.clean == found.clean).all()


@pytest.mark.slow
def test_where_the_poison_is_left_out_or_drowned_nothing_is_proven(smoke, monkeypatch):
    drowned = play(smoke, JagielskiSetting(smoke, SIZE), JagielskiCell("fixed", 2.0, 50.0))
    assert drowned.best(paid=True) < 0.3
    sample = setting._sample

    def clean(*given):
        rate, count, records, poison, _, draw = given
        return sample(rate, count, records, poison, 0, draw)

    monkeypatch.setattr(setting, "_sample", clean)
    absent = play(smoke, JagielskiSetting(smoke, SIZE), JagielskiCell("fixed", 1.0, 0.0))
    assert absent.best(paid=True) == 0


def test_poisoned_records_have_the_coins_of_those_that_made_room(smoke):
    here = JagielskiSetting(smoke, SIZE)
    draws = [torch.Generator().manual_seed(1) for _ in range(3)]
    clipbkd, backdoor = (ATTACKS[name](here) for name in ("ClipBKD", "backdoor"))
    before = setting._sample(0.5, 50, 60, clipbkd, 0, draws[0])
    copied = setting._sample(0.5, 50, 60, clipbkd, 2, draws[1])
    own = setting._sample(0.5, 50, 60, backdoor, 2, draws[2])
    assert (before[:, 60:] == 0).all()
    assert (copied[:, :2] == 0).all()
    assert (copied[:, 60] == before[:, :2].sum(1)).all()
    assert (own[:, 60:62] == before[:, :2]).all()
    assert (copied[:, 2:60] == before[:, 2:60]).all()


def test_first_models_are_alike_or_as_far_apart_as_is_said(smoke):
    here = JagielskiSetting(smoke, Size(records=60, batch=6, trainings=60, hidden=64))
    draw = torch.Generator().manual_seed(1)
    fixed = here.first("fixed", 5, draw)
    assert (fixed == fixed[0]).all()
    spread = math.sqrt(2 / (64 + 64))
    for name, scale in setting.INITIALISATIONS.items():
        weights = here.first(name, 20, draw)[:, : 64 * 64]
        assert float(weights.std()) == pytest.approx(spread * (scale or 1.0), rel=0.05)
