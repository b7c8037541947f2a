"""The numerical core and the adversaries import without Flower and without the command line."""

import subprocess
import sys

import pytest

CORE = [
    "adversaries.agreement",
    "adversaries.canaries",
    "adversaries.dataset_sensitivity",
    "adversaries.design",
    "adversaries.dissimilarity",
    "adversaries.estimators",
    "adversaries.forecast",
    "adversaries.gaussian_bounds",
    "adversaries.intervals",
    "adversaries.lower_bounds",
    "adversaries.membership",
    "adversaries.membership_attacks",
    "adversaries.noisy_means",
    "adversaries.one_run",
    "adversaries.poisoning",
    "adversaries.posterior",
    "adversaries.privacy_profile",
    "adversaries.rank_correlation",
    "adversaries.sample_size",
    "adversaries.stopping",
    "adversaries.rate_bounds",
    "adversaries.residuals",
    "adversaries.roc",
    "adversaries.shadow_models",
    "adversaries.trials",
    "fedsim.bayesian",
    "fedsim.blocks",
    "fedsim.clipping",
    "fedsim.data",
    "fedsim.evaluation",
    "fedsim.fitting",
    "fedsim.gaussian",
    "fedsim.instrumented",
    "fedsim.layers",
    "fedsim.losses",
    "fedsim.mechanism",
    "fedsim.memory",
    "fedsim.models",
    "fedsim.pac",
    "fedsim.pac_release",
    "fedsim.partition",
    "fedsim.question",
    "fedsim.randomness",
]
WITHOUT_FLOWER = ["fedsim.accounting", "fedsim.audit", "fedsim.calibration", "fedsim.challenge"]
WITHOUT_FLOWER += ["fedsim.bayesian_audit"]
WITHOUT_FLOWER += ["fedsim.bounds_audit", "fedsim.bounds_report", "fedsim.noise_family"]
WITHOUT_FLOWER += ["fedsim.adversary", "fedsim.federation", "fedsim.owner"]
WITHOUT_FLOWER += ["fedsim.config", "fedsim.privacy", "fedsim.figures", "fedsim.identifiability"]
WITHOUT_FLOWER += ["fedsim.report", "fedsim.run_directory", "fedsim.optimizers"]
WITHOUT_FLOWER += ["fedsim.sampling", "fedsim.schedules", "fedsim.ledger"]
WITHOUT_FLOWER += ["fedsim.transcript", "fedsim.transcript_audit"]
WITHOUT_FLOWER += ["fedsim.transcript_report", "fedsim.report_directory"]
WITHOUT_FLOWER += ["fedsim.client_level"]
WITHOUT_FLOWER += ["fedsim.app_audit.configuration", "fedsim.app_audit.guarantee"]
WITHOUT_FLOWER += ["fedsim.app_audit.rules"]
WITHOUT_FLOWER += ["fedsim.vantages", "fedsim.server_adversary", "fedsim.released_model"]
WITHOUT_FLOWER += ["fedsim.vantage_report", "fedsim.comparison"]
WITHOUT_FLOWER += ["fedsim.fixed_point", "fedsim.trust_report"]
WITHOUT_FLOWER += ["fedsim.canary", "fedsim.live_audit", "fedsim.live_report"]
WITHOUT_FLOWER += ["fedsim.audit_page"]
WITHOUT_FLOWER += ["fedsim.gradient_sensitivity", "fedsim.sensitivity_course"]
WITHOUT_FLOWER += ["fedsim.sensitivity_figures"]
WITHOUT_FLOWER += ["fedsim.catalogue", "fedsim.holdings", "fedsim.holdings_report"]
WITHOUT_FLOWER += ["fedsim.embedding"]
WITHOUT_FLOWER += ["fedsim.sensitivity_study", "fedsim.sensitivity_report"]
WITHOUT_FLOWER += ["fedsim.record_display"]
WITHOUT_FLOWER += ["fedsim.one_run", "fedsim.one_run_report"]
WITHOUT_FLOWER += ["fedsim.cohorts", "fedsim.extension", "fedsim.precision"]
WITHOUT_FLOWER += ["fedsim.sweep", "fedsim.sweep_figures"]
WITHOUT_FLOWER += ["fedsim.residual_report"]
WITHOUT_FLOWER += ["fedsim.crafting", "fedsim.poison_scores", "fedsim.crafted_report"]
WITHOUT_FLOWER += ["fedsim.group_privacy"]
WITHOUT_FLOWER += ["fedsim.membership_game", "fedsim.membership_report", "fedsim.membership_audit"]
BEYOND_TORCH_NUMPY_SCIPY = [
    "pydantic",
    "dp_accounting",
    "sklearn",
    "skimage",
    "matplotlib",
    "rich",
    "psutil",
]


def _import(module: str, blocked: list[str]) -> subprocess.CompletedProcess[str]:
    hide = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))"
    command = [sys.executable, "-c", f"{hide}; import {module}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("modules", "blocked"),
    [(CORE, ["flwr", *BEYOND_TORCH_NUMPY_SCIPY]), (WITHOUT_FLOWER, ["flwr"])],
    ids=["with torch, numpy and scipy alone", "without Flower"],
)
def test_imports(modules: list[str], blocked: list[str]) -> None:
    result = _import(", ".join(modules), blocked)
    assert result.returncode == 0, result.stderr


def test_the_block_works() -> None:
    assert _import("fedsim.client_app", ["flwr"]).returncode != 0
