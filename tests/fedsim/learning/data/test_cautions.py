"""What becomes of a table in silence is said: identifiers among the features, rows left out."""

import numpy as np

from fedsim.learning.data import load
from fedsim.learning.data.cautions import cautions


def test_identifiers_and_rows_with_gaps_are_named(tmp_path):
    rng = np.random.default_rng(0)
    rows = ["patient_id,number,age,ward,label"]
    drawn = rng.integers([20, 0, 0], [90, 5, 2], (200, 3))
    for n, (age, ward, label) in enumerate(drawn):
        rows.append(f"p{n},{5000 + n},{'' if n < 7 else age},w{ward},{label}")
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    gaps, named, numbered = cautions(load("csv", str(path)))
    assert gaps == "rows with a missing value are left out: 7 of 200 (age 7)"
    assert "'patient_id' has 193 different values" in named
    assert 'data.exclude = "patient_id"' in named
    assert "'number' has a different whole number in every row" in numbered
    clean = load("csv", str(path), exclude=("patient_id", "number"))
    assert cautions(clean) == [gaps]


def test_ordinary_data_give_no_cause():
    assert cautions(load("breast-cancer")) == []
    assert cautions(load("digits")) == []
