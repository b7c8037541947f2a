"""pfl's central Gaussian mechanism, recorded in one line: claim, theory, and what was measured."""

# ruff: noqa: PLC0415  (the framework is an extra, without which this module is skipped)

import gc
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.report import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.federation.transcripts.reader import read_transcript
from fedsim.recording import pfl as record_pfl

pytest.importorskip("pfl", reason="pfl is not installed")

STEPS, COHORT, POPULATION, DELTA = 20, 50, 5000, 1e-5


@dataclass
class _Context:
    cohort_size: int
    seed: int


@dataclass
class _User:
    user_id: None  # the users of a step are not told
    seed: int


@cache
def _accountant(noise_scale: float) -> Any:
    """Return pfl's accountant, whose calibration takes ten seconds."""
    from pfl.privacy.privacy_accountant import PLDPrivacyAccountant

    return PLDPrivacyAccountant(
        num_compositions=STEPS,
        sampling_probability=COHORT / POPULATION,
        mechanism="gaussian",
        epsilon=2.0,
        delta=DELTA,
        noise_scale=noise_scale,
    )


@pytest.mark.filterwarnings("ignore")
def _train(
    path: Path, noise_scale: float, weights: tuple[float, ...] = (1,), seed: int = 0
) -> dict[str, Any]:
    from pfl.internal.ops import numpy_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
    from pfl.stats import MappedVectorStatistics

    set_framework_module(numpy_ops)
    accountant = _accountant(noise_scale)
    gaussian = GaussianMechanism.from_privacy_accountant(accountant, 0.5)
    mechanism = record_pfl(CentrallyAppliedPrivacyMechanism(gaussian), path, population=POPULATION)
    generator = np.random.default_rng(seed)
    for step in range(STEPS):
        total = None
        for user in range(COHORT):
            update = generator.normal(size=(40, 50)).astype("f4")
            weighed = MappedVectorStatistics({"w": update}, weights[user % len(weights)])
            sent, _ = mechanism.postprocess_one_user(stats=weighed, user_context=_User(None, user))
            total = sent if total is None else total + sent
        mechanism.postprocess_server(
            stats=total,
            central_context=_Context(COHORT, STEPS * seed + step),
            aggregate_metrics=None,
        )
    del mechanism
    gc.collect()
    return audit(read_transcript(path), AuditOptions(claim=Claim(2.0, DELTA))).as_json()


def _alarms(report: dict[str, Any]) -> str:
    return " ".join(one["why"] for one in report["findings"] if one["severity"] == "alarm")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_its_noise_is_what_its_accountant_says_and_its_cohorts_are_not(tmp_path: Path) -> None:
    report = _train(tmp_path / "pfl.fedt", 1.0)
    release = report["release"]
    assert release["noise"] == "as claimed"
    assert release["accountants"]["all_steps"] == pytest.approx(2.0, rel=0.01)
    assert release["accountants"]["at_measured_noise"] == pytest.approx(2.0, rel=0.05)
    # It draws as many users in every step, which its accountant does not speak of.
    assert report["claim"] | {"reasons": []} == {
        "epsilon": 2.0, "delta": DELTA, "unit": "client", "verdict": "suspect", "reasons": []
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "alarm"), [((1, 2, 3), "99"), ((0.5, 1.5), "50"), ((10,), "")])
@pytest.mark.filterwarnings("ignore")
def test_weights_that_differ_and_no_noise_is_added_to_are_an_alarm(
    tmp_path: Path, weights: tuple[float, ...], alarm: str
) -> None:
    report = _train(tmp_path / "pfl.fedt", 1.0, weights)
    said = [one["why"] for one in report["findings"] if "the total weight of" in one["why"]]
    assert len(said) == bool(alarm)
    if alarm:
        assert f"divided by {alarm}, the total weight of 50 users" in said[0]
        assert said[0] in [one["why"] for one in report["findings"] if one["severity"] == "alarm"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_noise_for_a_larger_cohort_than_there_was_is_an_alarm(tmp_path: Path) -> None:
    assert "recorded a noise multiplier" in _alarms(_train(tmp_path / "pfl.fedt", 0.5))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_honest_noise_is_as_claimed_and_less_is_an_alarm(tmp_path: Path) -> None:
    def trained(scale: float, count: int) -> list[dict[str, Any]]:
        return [
            _train(tmp_path / f"{scale}-{seed}.fedt", scale, seed=seed) for seed in range(count)
        ]

    # One test at one in ten thousand: .04 of 400, and two once in a thousand studies.
    honest = [report["release"]["noise"] for report in trained(1.0, 400)]
    assert 400 - honest.count("as claimed") <= 1
    for scale in (0.9, 0.7, 0.5):
        assert all("recorded a noise multiplier" in _alarms(each) for each in trained(scale, 60))


def test_other_mechanisms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a CentrallyAppliedPrivacyMechanism"):
        record_pfl(object(), tmp_path / "pfl.fedt")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_users_that_are_not_clipped_and_sums_of_something_else_are_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pfl.internal.ops import numpy_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
    from pfl.stats import MappedVectorStatistics

    set_framework_module(numpy_ops)

    def alarms(name: str, factor: float, more: float) -> str:
        gaussian = GaussianMechanism.from_privacy_accountant(_accountant(1.0), 0.5)
        central = CentrallyAppliedPrivacyMechanism(gaussian)
        path = tmp_path / f"{name}.fedt"
        mechanism = record_pfl(central, path, population=POPULATION)
        monkeypatch.setattr(
            type(mechanism),
            "postprocess_one_user",
            lambda self, *, stats, user_context: (
                stats.apply_elementwise(lambda x: factor * x),
                None,
            ),
        )
        unit = np.full((40, 50), 0.5 / 2000**0.5, "f4")
        for step in range(3):
            total = None
            for user in range(COHORT):
                sent, _ = mechanism.postprocess_one_user(
                    stats=MappedVectorStatistics({"w": unit}, 1), user_context=_User(None, user)
                )
                total = sent if total is None else total + sent
            total["w"] = total["w"] + more * unit
            mechanism.postprocess_server(
                stats=total, central_context=_Context(COHORT, step), aggregate_metrics=None
            )
        monkeypatch.undo()
        del mechanism, central
        gc.collect()
        return _alarms(
            audit(read_transcript(path), AuditOptions(claim=Claim(2.0, DELTA))).as_json()
        )

    assert "clipped gradient" not in alarms("right", 1.0, 0.0)
    assert "clipped gradient" in alarms("longer", 1.5, 0.0)
    assert "clipped gradient" in alarms("more", 1.0, 1.0)
