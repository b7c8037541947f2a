"""How good models are, in the measure of their task."""

import numpy as np
import pytest

from fedsim.configuration import from_run_config
from fedsim.game import federation
from fedsim.studies.choose import utility


@pytest.mark.parametrize("task", ["regression", "huber"])
def test_a_number_is_judged_by_its_error_whatever_loss_it_was_trained_by(task, tmp_path):
    """By least squares, which is near; the interval is that of the mean error."""
    rng = np.random.default_rng(0)
    ages = rng.uniform(20, 90, 300)
    rows = (f"{age:.2f},{age / 5 + rng.normal():.3f}" for age in ages)
    (tmp_path / "own.csv").write_text("\n".join(["age,label", *rows]))
    data = {"data.name": "csv", "data.root": str(tmp_path / "own.csv"), "data.target": "0,30"}
    sizes = {"data.records": 200, "data.held-out": 100, "model.name": "linear"}
    loaded = federation.load(from_run_config(data | sizes | {"model.task": task}))
    (row,) = utility.measure(loaded, utility.fitted(loaded))
    low, high = row["interval"]
    assert 0.95 < low < row["accuracy"] < high < 1
    assert utility.utility(loaded, [row] * 3).criterion.has_learnt
