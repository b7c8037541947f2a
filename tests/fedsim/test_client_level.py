"""An owner's clipped update, and what an adversary makes of it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsim import federation, models
from fedsim.client_level import batches, challenge_contributions, clip, contribution, replacements
from fedsim.config import Config
from fedsim.run_directory import Arrays

Make = Callable[..., Config]
Run = Callable[[Config], Arrays]

CLIENT = {
    "privacy.unit": "client",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 1.5,
    "training.learning-rate": 1.0,
    "training.local-learning-rate": 0.3,
    "training.local-epochs": 2,
    "training.batch-size": 3,
}
"""Unequal numbers of records, 2 epochs of batches of 3: the last batch of an owner is smaller."""

MODES = [
    {"federation.trust": trust, "privacy.neighbouring": neighbouring, "privacy.sensitivity": scale}
    for trust in ("central", "local")
    for neighbouring in ("add-remove", "replace")
    for scale in ("global", "local")
]


def _federation(config: Config, trials: int = 4) -> tuple[federation.Federation, torch.Tensor]:
    known = federation.load(config)
    theta = models.initial_parameters(
        lambda: federation.build_model(config, known.split.dataset), 0, range(trials)
    )
    return known, theta


def _train(
    theta: torch.Tensor,
    features: torch.Tensor,
    labels: torch.Tensor,
    orders: list[list[int]],
    rate: float,
) -> torch.Tensor:
    """Train one linear model as any PyTorch tutorial does; return how far it moved, downhill."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()
    nn.utils.vector_to_parameters(theta.double(), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for batch in orders:
        optimizer.zero_grad()
        functional.cross_entropy(model(features[batch].double()), labels[batch]).backward()
        optimizer.step()
    return theta.double() - nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
@pytest.mark.parametrize("size", [0, 3, 100])
def test_the_update_is_that_of_plain_sgd_on_the_owners_records(
    size: int, neighbouring: str, small: Make
) -> None:
    changes = {"training.batch-size": size, "privacy.neighbouring": neighbouring}
    config = small(CLIENT | changes | {"training.clipping-norm": 0.1})
    known, theta = _federation(config)
    owner, trials = 1, range(5, 9)
    positions = known.owned_by(owner)
    found = challenge_contributions(config, known, owner, theta, trials, 2)
    steps = [
        np.tile(np.arange(len(positions)), (4, 1)) if step is None else step.nonzero()[1]
        for step in batches(config.training, 0, trials, 2, owner, len(positions))
    ]
    orders = [step.reshape(4, -1) for step in steps]
    worlds = [known.members(positions)]
    if neighbouring == "replace":
        worlds.append(known.pool(replacements(known, owner)))
    for clipped, (features, labels) in zip(found, worlds, strict=False):
        for trial in range(4):
            mine = [order[trial].tolist() for order in orders]
            update = _train(theta[trial], features, labels, mine, 0.3)
            assert update.norm() > 0.1
            expected = 0.1 * update / update.norm()
            torch.testing.assert_close(clipped[trial], expected, rtol=1e-4, atol=1e-7)
    if neighbouring == "add-remove":
        assert not found[1].any()


def test_an_update_shorter_than_the_norm_is_left_alone() -> None:
    update = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(clip(update, 1.0), expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_diverged_update_is_refused(bad: float) -> None:
    with pytest.raises(FloatingPointError, match="local-learning-rate"):
        clip(torch.tensor([[1.0, bad]]), 1.0)


@pytest.mark.parametrize("norm", [0.01, 0.5])
def test_no_owner_moves_the_sum_further_than_the_norm(norm: float, small: Make) -> None:
    config = small(CLIENT | {"training.clipping-norm": norm, "training.local-learning-rate": 5.0})
    known, theta = _federation(config)
    for owner in range(3):
        found = contribution(config, known, owner, theta, range(4), 1)
        assert float(found.norm(dim=1).max()) <= norm * (1 + 1e-12)


def test_each_trial_sends_what_its_world_says(small: Make) -> None:
    config = small(CLIENT | {"privacy.neighbouring": "replace"})
    known, theta = _federation(config)
    present, absent = challenge_contributions(config, known, 0, theta, range(4), 1)
    worlds = torch.tensor([True, False, True, False])
    found = contribution(config, known, 0, theta, range(4), 1, worlds)
    for trial, world in enumerate(worlds):
        assert torch.equal(found[trial], present[trial] if world else absent[trial])
    assert not torch.allclose(present, absent)


def test_every_epoch_takes_every_record_once_in_an_order_of_its_own(small: Make) -> None:
    training = small(CLIENT | {"training.local-epochs": 3}).training
    steps = [step for step in batches(training, 0, range(6), 1, 0, 8) if step is not None]
    assert [int(step[0].sum()) for step in steps] == [3, 3, 2] * 3
    epochs = [sum(step.astype(int) for step in steps[i : i + 3]) for i in (0, 3, 6)]
    assert all((epoch == 1).all() for epoch in epochs)
    firsts = {step[trial].tobytes() for step in steps[::3] for trial in range(6)}
    assert len(firsts) > 10  # of 18 draws among 56 possible batches


def test_an_order_depends_on_the_trials_number_and_not_on_its_cohort(small: Make) -> None:
    training = small(CLIENT).training
    whole, part = (list(batches(training, 0, r, 1, 0, 8)) for r in (range(6), range(4, 6)))
    for first, second in zip(whole, part, strict=True):
        assert first is not None
        np.testing.assert_array_equal(first[4:], second)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(mode.values()))
def test_the_adversary_and_the_auditor_agree(mode: dict[str, str], small: Make, run: Run) -> None:
    config = small(CLIENT | mode | {"training.momentum": 0.5})
    instrumented = config.model_copy(
        update={"audit": config.audit.model_copy(update={"mode": "instrumented"})}
    )
    participant, auditor = run(config), run(instrumented)
    assert participant.keys() == auditor.keys()
    np.testing.assert_allclose(auditor["log_odds"], participant["log_odds"], rtol=0, atol=1e-6)
    assert np.abs(participant["log_odds"]).max() > 0.1
    for name in ("final_models", "worlds", "true_positive_rate", "challenge_is_member"):
        np.testing.assert_array_equal(auditor[name], participant[name])
    for name in ("sensitivities", "noise_stds", "present_norms", "absent_norms"):
        np.testing.assert_allclose(auditor[name], participant[name], rtol=1e-6, err_msg=name)


def test_beliefs_do_not_depend_on_the_size_of_the_cohort(small: Make, run: Run) -> None:
    whole, parts = run(small(CLIENT)), run(small(CLIENT | {"trials.cohort": 3}))
    np.testing.assert_allclose(parts["log_odds"], whole["log_odds"], rtol=1e-5, atol=1e-5)
