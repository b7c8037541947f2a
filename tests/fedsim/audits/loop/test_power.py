"""What an audit says that it would have seen of a loop, by what the loop returns."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Claim, Scope, Verdict
from fedsim.audits.loop.audit import LoopAudit, audit_loop
from fedsim.audits.loop.contract import array, carried, tensors
from fedsim.audits.loop.direction import learnt
from fedsim.audits.loop.support import least_apart

LOOPS = Path(__file__).parents[3] / "apps" / "loops" / "returned_loops.py"
CLAIM = Claim(1.5, 1e-5, Scope.RUN, "given")


def outcome(form: str, percent: int, trials: int = 400, seed: int = 0) -> LoopAudit:
    return audit_loop(
        f"{LOOPS}:{form}_noise_{percent}",
        data="breast-cancer",
        trials=trials,
        claim=CLAIM,
        seed=seed,
    )


def test_no_distance_convicts_where_winning_all_trials_does_not() -> None:
    """400 trials that are all won prove epsilon 2.9 with 99.99 %."""
    assert least_apart(400, 3.0, 1e-5) == math.inf
    assert 2 < least_apart(400, 1.5, 1e-5) < least_apart(400, 2.5, 1e-5) < 8
    assert least_apart(4000, 1.5, 1e-5) < least_apart(400, 1.5, 1e-5)


def rows(seed: int, moved: float) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and models [8, 50] of one run; the target moves every step by `moved`."""
    drawn = np.random.default_rng(seed)
    start = 20 * drawn.standard_normal(50)
    steps = drawn.standard_normal((8, 50)) + moved * np.eye(50)[0]
    return steps, start + np.cumsum(steps, axis=0)


def test_the_differences_of_models_are_the_steps_but_for_the_first() -> None:
    pairs = [[rows(seed, moved) for seed in range(10)] for moved in (4.0, 0.0)]
    of_steps, of_models = (
        learnt(*([each[form] for each in runs] for runs in pairs), models=bool(form))
        for form in (0, 1)
    )
    assert abs(of_models.unit[0]) > 0.99
    assert (len(of_steps.middle), len(of_models.middle)) == (8, 7)
    assert of_models.distance == pytest.approx(of_steps.distance * (7 / 8) ** 0.5, rel=0.1)
    steps, models = rows(99, 4.0)
    assert of_models.scales is not None
    scaled = steps[1:] / of_models.scales[:, None]
    apart = of_models.features(models)[1] * of_models.std + of_models.middle.sum()
    assert apart == pytest.approx((scaled @ of_models.unit).sum())


def test_a_list_of_models_must_be_of_copies() -> None:
    model = {"weights": np.ones(3)}
    with pytest.raises(AppFailedError, match=r"one model 2 times; .*deepcopy"):
        array([model, model])
    assert array([model, {"weights": np.zeros(3)}]).shape == (2, 3)


def test_what_models_of_a_list_carry_is_seen() -> None:
    first, last = nn.Linear(2, 1), nn.Linear(2, 1)
    last.register_buffer("secret", torch.tensor(7))
    names = [name for name, _ in carried(tensors([first, last]))]
    assert names == ["integer tensor secret of model 2"]


@pytest.mark.slow
def test_what_a_loop_returns_decides_what_is_seen() -> None:
    """Noise of 4 in 8 steps: mu = sqrt(8)/4, and sqrt(7)/4 where the first step is hidden."""
    for form, count in (("steps", 8), ("lists", 7)):
        found = outcome(form, 400)
        assert found.verdict is Verdict.NOT_JUDGED
        assert found.power is not None
        assert found.power.apart == pytest.approx(count**0.5 / 4, abs=0.3)  # standard error 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "count"), [("steps", 8), pytest.param("lists", 7, marks=pytest.mark.long)]
)
def test_noise_as_small_as_is_stated_is_convicted(form: str, count: int) -> None:
    """Of 5 audits at .9 of the stated multiplier at least 4; at 95 % fewer come once in 40.

    The multiplier is sqrt(count) over the distance that a conviction needs.
    """
    percent = round(90 * count**0.5 / least_apart(400, CLAIM.epsilon, CLAIM.delta))
    found = [outcome(form, percent, seed=seed).verdict for seed in range(5)]
    assert found.count(Verdict.CONVICTED) >= 4
