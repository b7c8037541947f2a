"""`fedsim choose` without a limit, as a user types it."""

import csv
import json

import pytest

from fedsim.configuration.files import dump, load
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability


@pytest.mark.usefixtures("without_pages")
def test_without_a_limit_every_combination_is_trained_and_listed(fedsim, small, tmp_path):
    experiment, out = tmp_path / "tiny.toml", tmp_path / "all"
    experiment.write_text(dump(small({"training.rounds": 1, "trials.count": 4})))
    over = ("--over", "privacy.rho-beta=0.6,0.9", "--over", "training.rounds=1,2")
    asked = ("choose", experiment, *over, "--out", out, "--quiet", "--json")
    status, printed, err = fedsim(*asked)
    assert (status, err) == (0, "")
    found = json.loads(printed)
    assert (found["state"], found["chosen"], found["tried"]) == ("listed", None, 4)
    combinations = {(row["privacy.rho-beta"], row["training.rounds"]) for row in found["settings"]}
    assert combinations == {(0.6, 1), (0.6, 2), (0.9, 1), (0.9, 2)}
    for row in found["settings"]:
        keys = ("privacy.rho-beta", "training.rounds")
        config = load(experiment, {key: row[key] for key in keys})
        at = privacy.describe(config, privacy.noise_multiplier(config))
        mechanism = at.towards(config.federation.vantage)
        assert row["epsilon"] == pytest.approx(
            identifiability.bounds(mechanism, config.privacy.delta).epsilon, rel=1e-6
        )
        assert (row["chosen"], row["trainings"] >= 3) == (False, True)
    rows = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert [float(row["value"]) for row in rows] == [row["value"] for row in found["settings"]]
    assert not (out / "config.toml").exists()
    # The same command again trains nothing.
    kept = (out / "trainings.jsonl").read_bytes()
    assert json.loads(fedsim(*asked)[1]) == found
    assert (out / "trainings.jsonl").read_bytes() == kept
    # Of another command, whose report must not be lost.
    (out / "report.json").write_text('{"kind": "membership inference"}')
    status, _, err = fedsim(*asked)
    assert (status, "since it has report.json; name a new directory with --out" in err) == (2, True)
    assert (out / "report.json").read_text() == '{"kind": "membership inference"}'
