"""The noise mechanism of the docs, through a run: it says what its release tells."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.campaign.run_directory import Arrays, RunDirectory
from fedsim.config import Config
from fedsim.noise import Noise
from fedsim.noise.mechanism import Floats, Noised, NoiseMechanism, Summed, Trials
from fedsim.trust.model import Vantage

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"


@pytest.fixture
def projected() -> type[NoiseMechanism]:
    """Return the example of the page."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (code,) = (block for block in blocks if "(Isotropic)" in block)
    named: dict[str, Any] = {}
    exec(code, named)
    found: type[NoiseMechanism] = named["Projected"]
    return found


def test_the_example_learns_the_likelihood_ratio_of_what_it_releases(
    projected: type[NoiseMechanism],
) -> None:
    random, worlds, std = np.random.default_rng(5), np.array([True, False, True]), 1.5
    rest, present, absent = random.standard_normal((3, 3, 100))

    def noised(clean: Floats, std: float) -> Noised:
        measured = {"present": present, "absent": absent}
        summed = Summed(1, clean.copy(), np.full(3, std), lambda: measured)
        return projected(Trials(range(3), worlds, 1, 7, 7, True)).add(summed)

    sums = rest + present, rest + absent
    released = noised(np.where(worlds[:, None], *sums), std)
    # With next to no noise the release is what the subspace has of a sum.
    apart = [((released.total - noised(clean, 1e-12).total) ** 2).sum(axis=1) for clean in sums]
    expected = (apart[1] - apart[0]) / 2 / std**2
    np.testing.assert_allclose(released.learnt[Vantage.PARTICIPANT]["ratios"], expected)


def test_the_example_is_run_and_hides_more_of_the_target(
    projected: type[NoiseMechanism],
    small: Callable[..., Config],
    run: Callable[[Config], Arrays],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    config = small({"audit.mode": "oracle"})
    isotropic = run(config)
    monkeypatch.setattr(Noise.ISOTROPIC, "mechanism", projected)
    arrays = run(config)
    assert (arrays["sensitivities"][:, 0] < isotropic["sensitivities"][:, 0] / 2).all()
    np.testing.assert_array_equal(arrays["noise_stds"], isotropic["noise_stds"])
    assert np.isfinite(arrays["log_odds"]).all()
    report = RunDirectory.open(tmp_path / "run-1").read_report()
    assert report["alarms"] == {}
    assert report["mechanism"]["mu"] > report["prediction"]["mu"]
