"""What a report says of rounding, of missing owners and of colluders."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsim import client_app, server_app, trust_report
from fedsim.config import Config, to_run_config
from fedsim.run_directory import RunDirectory
from fedsim.runtimes.inprocess import InProcessGrid

Make = Callable[..., Config]


def test_only_integers_are_rounded(small: Make) -> None:
    assert trust_report.rounding(small(), 2.0, 650, 3) is None
    found = trust_report.rounding(small({"federation.trust": "distributed"}), 2.0, 650, 3)
    assert found is not None
    assert found["sensitivity"] == pytest.approx(1 + found["step"] * np.sqrt(650))
    assert found["relative_growth"] == pytest.approx(found["sensitivity"] - 1)
    assert found["total_variation"] < 1e-20


def test_a_report_counts_the_noise_of_the_owners_that_came(small: Make, tmp_path: Path) -> None:
    config = small(
        {
            "federation.owners": 5,
            "federation.trust": "distributed",
            "federation.tolerated-dropouts": 2,
            "federation.dropout-rate": 0.3,
            "federation.colluding": 1,
        }
    )
    directory = RunDirectory.create(tmp_path / "run", config)
    server_app.run(InProcessGrid(client_app.app, 5, to_run_config(config)), config, directory)
    report, facts = directory.read_json("report.json"), directory.read_json("facts.json")
    std = directory.read_arrays("transcript.npz")["noise_stds"][0]
    found, missing = report["dropouts"], [e for e, _ in directory.events() if "dropped" in e]
    assert missing
    assert found["rounds_with_missing_owners"] == len({event["of"] for event in missing})
    # Present, less the adversary and the one colluder; what the adversary faced or, where the
    # colluder itself was missing, at most that.
    z, shares = facts["noise_multiplier"], found["fewest_shares"]
    assert found["effective_noise_multiplier"][0] == pytest.approx(z * np.sqrt((shares - 2) / 5))
    sensitivity = report["mechanism"]["rounding"]["sensitivity"]
    assert found["effective_noise_multiplier"][0] <= std.min() / sensitivity * (1 + 1e-9)
    text = " ".join(report["warnings"])
    assert "in the clear: a simulation of secure aggregation" in text
    assert "Owners were missing in" in text
    assert "1 of 5 owners colluded" in text
    page = " ".join(directory.path.joinpath("report.html").read_text().split())
    assert "aggregated in the clear: a simulation of secure aggregation, as integers" in page
    assert "1 of the 5 owners told the adversary their noise" in page
    # Calibrated for two missing owners in every round: the target holds.
    assert report["bounds"]["rho_beta"] <= 0.9
