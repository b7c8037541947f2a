"""Local sensitivity along training is that of the federation that it stands for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from adversaries.errors import InputError
from fedsim.configuration import Config, Scalar
from fedsim.federation.runs.run_directory import Arrays
from fedsim.federation.server import plan
from fedsim.game import challenge, federation
from fedsim.learning.training import models
from fedsim.privacy.mechanism import Neighbouring
from fedsim.studies.sensitivity import sensitivity_course
from fedsim.studies.sensitivity.gradient_sensitivity import pair_sensitivities
from fedsim.studies.sensitivity.sensitivity_course import SensitivityCourse

Make = Callable[..., Config]
Run = Callable[[Config], Arrays]

REPLACE: dict[str, Scalar] = {"privacy.neighbouring": "replace"}
MODES: list[dict[str, Scalar]] = [
    {"privacy.sensitivity": "local"},
    REPLACE,
    REPLACE | {"privacy.sensitivity": "local"},
    REPLACE | {"privacy.sensitivity": "local", "federation.trust": "local"},
    {
        "training.optimizer": "adam",
        "training.schedule": "cosine",
        "training.learning-rate": 0.05,
        "federation.trust": "local",
        "model.name": "mlp",
    },
    REPLACE | {"training.momentum": 0.9, "trials.batch": 3},
]


def follow(config: Config, *what: Any, **options: Any) -> SensitivityCourse:
    """Follow pairs of records with as many trials in a batch as fit in memory."""
    batch = plan.fit_batch(config).trials.batch
    return sensitivity_course.follow(config.experiment, batch, *what, **options)


def _challenge(config: Config) -> tuple[int, int | None]:
    chosen = challenge.choose(config.experiment)
    assert chosen.record is not None
    return chosen.record, chosen.replacement


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(map(str, mode.values())))
def test_it_is_what_a_run_records_in_the_world_of_d(
    mode: dict[str, Scalar], small: Make, run: Run
) -> None:
    """With little noise, and clipping that leaves some gradients as they are."""
    keys = {
        "privacy.rho-beta": 0.0,
        "privacy.noise-multiplier": 0.1,
        "training.clipping-norm": 5.0,
    }
    config = small(keys | mode)
    transcript = run(config)
    course = follow(config, [_challenge(config)], config.trials.count)
    on_d = transcript["worlds"]
    assert 0 < on_d.sum() < len(on_d)
    recorded = transcript["sensitivities"]
    np.testing.assert_allclose(course.sensitivities[on_d, :, 0], recorded[on_d], rtol=1e-5)
    # In the other world the models are others, from the second round on.
    assert (np.abs(course.sensitivities[~on_d, 1:, 0] / recorded[~on_d, 1:] - 1) > 1e-4).any()
    if config.federation.trust.value == "central":
        np.testing.assert_allclose(course.noise_stds[on_d], transcript["noise_stds"][on_d], 1e-5)


def test_batches_do_not_matter_and_progress_reaches_the_whole(small: Make) -> None:
    config = small(REPLACE | {"privacy.sensitivity": "local"})
    pairs, reports = [(0, 0), (1, 2), (23, 29)], []
    whole = follow(config, pairs, 7, reports.append)
    parts = follow(config.with_batch(2), pairs, 7)
    assert whole.sensitivities.shape == (7, 3, 3)
    np.testing.assert_allclose(parts.sensitivities, whole.sensitivities, rtol=1e-5)
    assert reports == sorted(reports)
    assert reports[-1] == 1


def test_noise_under_distributed_trust_is_that_of_all_shares_together(small: Make) -> None:
    """The clients' shares of std z C / sqrt(m) sum to z C, as the server's noise has."""
    central, distributed = (
        follow(
            small({"federation.trust": trust, "privacy.epsilon": 2.0, "privacy.rho-beta": 0.0}),
            [(0, None)],
            2,
        )
        for trust in ("central", "distributed")
    )
    # Calibrated for a participant, which knows its own share of three.
    ratio = distributed.noise_stds / central.noise_stds
    np.testing.assert_allclose(ratio, np.sqrt(3 / 2), rtol=1e-6)


@pytest.mark.parametrize("neighbouring", list(Neighbouring))
def test_no_step_exceeds_what_clipping_allows(neighbouring: Neighbouring, small: Make) -> None:
    config = small({"privacy.neighbouring": neighbouring.value, "training.clipping-norm": 0.1})
    replace = neighbouring is Neighbouring.REPLACE
    course = follow(config, [(record, record if replace else None) for record in range(24)], 2)
    assert course.bound == (0.2 if replace else 0.1)
    assert course.bound / 2 < course.sensitivities.max() <= course.bound * (1 + 1e-6)


def test_a_checkpoint_compares_everything_at_the_model_that_its_round_starts_from(
    small: Make,
) -> None:
    config = small(REPLACE)
    pairs = [(5, 6), (0, 0)]
    course = follow(config, pairs, 3, checkpoints=[3, 1])
    assert [checkpoint.round for checkpoint in course.checkpoints] == [1, 3]
    first, last = course.checkpoints
    known = federation.load(config.experiment)
    theta = models.initial_parameters(
        lambda: federation.build_model(config.game, known.split.dataset), 0, range(1)
    )
    everything = [(i, j) for i in range(24) for j in range(30)]
    at_start = pair_sensitivities(known, theta, everything)[0]
    assert first.truth.largest[0].sensitivity == pytest.approx(at_start.max(), rel=1e-6)
    for checkpoint in (first, last):
        ranked = [found.sensitivity for found in checkpoint.truth.given]
        np.testing.assert_allclose(ranked, course.sensitivities[0, checkpoint.round - 1], 1e-5)
        assert checkpoint.truth.pairs == len(everything)
    assert not np.allclose(first.truth.by_record, last.truth.by_record, rtol=1e-3)
    bare = follow(config, pairs, 3)
    np.testing.assert_array_equal(bare.sensitivities, course.sensitivities)


def test_what_cannot_be_followed_is_refused_in_one_line(small: Make) -> None:
    for changes, message in (
        ({"training.sampling-rate": 0.5}, r"Set training\.sampling-rate = 1\.0"),
        (REPLACE, "a pair has no replacement, but privacy.neighbouring is 'replace'"),
    ):
        with pytest.raises(InputError, match=message) as refused:
            follow(small(changes), [(0, None)], 2)
        assert "\n" not in str(refused.value)


def test_nothing_to_follow_and_rounds_that_are_not_there_are_refused(small: Make) -> None:
    config = small()
    for pairs, trials in (([], 2), ([(0, None)], 0)):
        with pytest.raises(InputError, match="give at least one"):
            follow(config, pairs, trials)
    with pytest.raises(InputError, match="a checkpoint is at round 4, but there are 3 rounds"):
        follow(config, [(0, None)], 1, checkpoints=[1, 4])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_measures_the_same(small: Make) -> None:
    config, on_gpu = (small(REPLACE | {"run.device": name}) for name in ("cpu", "cuda"))
    expected, found = (follow(c, [(0, 0), (3, 5)], 3, checkpoints=[2]) for c in (config, on_gpu))
    np.testing.assert_allclose(found.sensitivities, expected.sensitivities, rtol=1e-4)
    ours, theirs = (course.checkpoints[0].truth.by_record for course in (found, expected))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
