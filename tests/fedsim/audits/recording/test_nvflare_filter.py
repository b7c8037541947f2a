"""NVFlare's privacy filters, recorded by a filter around them."""

# ruff: noqa: PLC0415  (the framework is an extra, without which this module is skipped)

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.report import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.audits.recorded.participant_rounds import laplace_epsilon
from fedsim.federation.transcripts.reader import read_transcript

pytest.importorskip("nvflare", reason="nvflare is not installed")

ROUNDS, DELTA = 5, 1e-5

NORM = 7e-4  # a tenth of what the updates have


def _filtered(filter: Any, folder: Path, kind: str = "WEIGHT_DIFF", **declared: float) -> Path:
    """Send updates through a recorded filter, as a site does, and return the transcript."""
    from nvflare.apis.dxo import DXO
    from nvflare.apis.fl_constant import ReservedKey
    from nvflare.apis.fl_context import FLContext

    from fedsim.recording import NVFlareFilter

    recorded = NVFlareFilter(filter, str(folder / "{site}.fedt"), **declared)
    context, generator = FLContext(), np.random.default_rng(0)
    context.set_prop(ReservedKey.IDENTITY_NAME, "site-1", private=True, sticky=False)
    for number in range(ROUNDS):
        update = {"w": generator.normal(0, 1e-4, (50, 100)), "b": generator.normal(0, 1e-4, 100)}
        sent = DXO(kind, data=update).to_shareable()
        sent.set_header("current_round", number)
        recorded.process(sent, context)
    return folder / "site-1.fedt"


def test_what_svt_privacy_is_given_is_not_what_it_spends(tmp_path: Path) -> None:
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    np.random.seed(4)  # noqa: NPY002  (NVFlare draws its noise from there)
    path = _filtered(SVTPrivacy(epsilon=0.1), tmp_path)
    report = audit(read_transcript(path), AuditOptions(claim=Claim(0.1, DELTA))).as_json()
    found = report["filtered"]
    assert report["claim"]["verdict"] == "convicted"
    assert found["rounds"] == ROUNDS
    # 0.1 for the choice, and 0.1 for each of 510 numbers.
    assert found["ledger_epsilon"] == pytest.approx(ROUNDS * (0.1 + 0.1 * 510))
    scale = found["scale_over_configured"]
    assert scale["low"] < 1 < scale["high"]
    assert 10 < found["proven"]["epsilon"] < found["ledger_epsilon"]


def test_percentile_privacy_adds_no_noise(tmp_path: Path) -> None:
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

    report = audit(
        read_transcript(_filtered(PercentilePrivacy(), tmp_path)),
        AuditOptions(claim=Claim(8, DELTA)),
    ).as_json()
    assert report["claim"]["verdict"] == "convicted"
    assert "adds no noise" in report["findings"][0]["why"]


@pytest.mark.parametrize(("share", "verdict"), [(0.1, "convicted"), (0.3, "not judged")])
def test_noise_that_is_a_share_of_the_update_is_told_from_another_filter_of_its_name(
    tmp_path: Path, share: float, verdict: str
) -> None:
    from nvflare.apis.dxo import DataKind
    from nvflare.apis.dxo_filter import DXOFilter

    class GaussianPrivacy(DXOFilter):  # type: ignore[misc]
        """As that of NVFlare's research examples, if the share is the one that it is given."""

        sigma0, max_percentile = 0.1, 95.0

        def process_dxo(self, dxo: Any, shareable: Any, fl_ctx: Any) -> Any:
            sizes = np.abs(np.concatenate([each.ravel() for each in dxo.data.values()]))
            std, generator = share * np.percentile(sizes, 95), np.random.default_rng(2)
            dxo.data = {name: each + generator.normal(0, std, each.shape)
                        for name, each in dxo.data.items()}  # fmt: skip
            return dxo

    path = _filtered(GaussianPrivacy([DataKind.WEIGHT_DIFF], None), tmp_path)
    assert (
        audit(read_transcript(path), AuditOptions(claim=Claim(8.0, DELTA))).as_json()["claim"][
            "verdict"
        ]
        == verdict
    )


def _gaussian(folder: Path, noise: float, seed: int, kind: str = "WEIGHT_DIFF") -> dict[str, Any]:
    """Return the audit of a site that clips its update and adds so much of the declared noise."""
    from nvflare.apis.dxo import DataKind
    from nvflare.apis.dxo_filter import DXOFilter

    class Gaussian(DXOFilter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__([DataKind.WEIGHT_DIFF, DataKind.WEIGHTS], None)
            self.generator = np.random.default_rng(seed)

        def process_dxo(self, dxo: Any, shareable: Any, fl_ctx: Any) -> Any:
            length = math.sqrt(sum(float((each**2).sum()) for each in dxo.data.values()))
            dxo.data = {
                name: each * min(1, 0.005 / length)
                + 0.01 * noise * self.generator.standard_normal(each.shape)
                for name, each in dxo.data.items()
            }
            return dxo

    path = _filtered(Gaussian(), folder, kind, clipping_norm=0.005, noise_std=0.01)
    # z = 2, five rounds: mu = 1.118, epsilon 4.96 at 1e-5.
    return audit(
        read_transcript(path), AuditOptions(claim=Claim(5.0, DELTA), rounds=ROUNDS)
    ).as_json()


@pytest.mark.parametrize(
    ("kind", "noise", "verdict"),
    [
        ("WEIGHT_DIFF", 1.0, "supported"),
        ("WEIGHT_DIFF", 0.5, "convicted"),
        ("WEIGHTS", 1.0, "supported"),
    ],
)
def test_a_gaussian_filter_of_ones_own_is_measured(
    tmp_path: Path, kind: str, noise: float, verdict: str
) -> None:
    report = _gaussian(tmp_path, noise, 1, kind)
    assert report["claim"]["verdict"] == verdict, report["findings"]


@pytest.mark.slow
@pytest.mark.long
def test_honest_sites_are_not_accused_and_those_of_less_noise_are(tmp_path: Path) -> None:
    def verdicts(noise: float, count: int) -> list[str]:
        (tmp_path / f"{noise}").mkdir()
        found = []
        for seed in range(count):
            (folder := tmp_path / f"{noise}" / f"{seed}").mkdir()
            found.append(_gaussian(folder, noise, seed)["claim"]["verdict"])
        return found

    # One test at one in ten thousand: .04 of 400, and two once in a thousand studies.
    assert 400 - verdicts(1.0, 400).count("supported") <= 1
    for noise in (0.9, 0.7, 0.5):
        assert verdicts(noise, 60) == 60 * ["convicted"]


def test_the_bound_of_laplace_noise_is_exact_for_one_variable() -> None:
    assert laplace_epsilon(0.5, 1, 1e-9) == pytest.approx(0.5, abs=1e-3)
    # delta = 1 - exp((epsilon - reach)/2)
    assert laplace_epsilon(1.0, 1, 0.1) == pytest.approx(1 + 2 * math.log(0.9), abs=1e-3)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "supported"), (0.0, "suspect")])
def test_a_declared_filter_that_does_not_clip_is_not_supported(
    factor: float, verdict: str, tmp_path: Path
) -> None:
    """What is left of the noise then moves with the update, by ten times the norm."""
    from nvflare.apis.dxo_filter import DXOFilter

    class Noisy(DXOFilter):  # type: ignore[misc]  # NVFlare has no types
        def __init__(self) -> None:
            super().__init__(None, None)
            self.generator = np.random.default_rng(1)

        def process_dxo(self, dxo: Any, shareable: Any, fl_ctx: Any) -> Any:
            norm = math.sqrt(sum(float(np.square(each).sum()) for each in dxo.data.values()))
            scale = min(1.0, NORM / norm) ** factor
            dxo.data = {
                name: scale * each + 2 * NORM * self.generator.standard_normal(each.shape)
                for name, each in dxo.data.items()
            }
            return dxo

    path = _filtered(Noisy(), tmp_path, clipping_norm=NORM, noise_std=2 * NORM)
    report = audit(
        read_transcript(path), AuditOptions(claim=Claim(6, DELTA), rounds=ROUNDS)
    ).as_json()
    assert report["claim"]["verdict"] == verdict
    assert any("moves with the updates" in one["why"] for one in report["findings"]) == (
        factor == 0
    )
