"""`fedsim audit` of scores of canaries, with one line for bad input."""

import json

import numpy as np
import pytest

from adversaries.bounds import one_run


def _scores(path, rows, header="included,score"):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_scores_of_anybody_are_estimated(fedsim, tmp_path):
    rng = np.random.default_rng(0)
    coins = rng.random(200) < 0.5
    values = 3 * coins + rng.standard_normal(200)
    path = _scores(tmp_path / "s.csv", list(zip(coins.astype(int), values.tolist(), strict=True)))
    status, printed, _ = fedsim("audit", path, "--delta", "1e-5", "--json")
    assert status == 0
    bound = one_run.bounds(coins, values, 1e-5, 0.95)["f_dp"]
    assert json.loads(printed)["details"]["bounds"]["f_dp"]["epsilon"] == pytest.approx(
        bound.epsilon
    )
    claim = ("--guesses", "100", "--claimed-delta", "1e-5", "--claimed-epsilon")
    for epsilon, expected in (("0.2", 4), ("50", 3)):  # canaries disprove, and support nothing
        assert fedsim("audit", path, *claim, epsilon)[0] == expected
    status, printed, _ = fedsim("audit", path, "--delta", "1e-5", "--guesses", "100")
    assert status == 0
    assert "of 100" in " ".join(printed.split())


def test_a_spreadsheets_mark_is_no_part_of_a_column_and_huge_scores_have_squares(fedsim, tmp_path):
    rng = np.random.default_rng(0)
    coins = rng.random(200) < 0.5
    values = coins + rng.standard_normal(200)
    plain, huge = (
        _scores(path, list(zip(coins.astype(int), (scale * values).tolist(), strict=True)), header)
        for path, scale, header in (
            (tmp_path / "plain.csv", 1.0, "included,score"),
            (tmp_path / "huge.csv", 2.0**1020, "\ufeffincluded,score"),
        )
    )
    found = [fedsim("audit", path, "--delta", "1e-5", "--json") for path in (plain, huge)]
    one, other = (json.loads(printed)["details"] for _, printed, _ in found)
    assert one == other


def test_bad_input_is_one_line(fedsim, tmp_path):
    good = _scores(tmp_path / "good.csv", [(0, 1.0), (1, 2.0)])
    cases = [
        ((tmp_path / "no.csv", "--delta", "1e-5"), "cannot be read"),
        ((good, "--delta", "2"), "delta is 2"),
        ((good, "--delta", "1e-5", "--confidence", "1"), "confidence is 1"),
        ((good, "--delta", "1e-5", "--guesses", "3"), "3 guesses about 2 canaries"),
    ]
    for header, rows, complaint in (
        ("a,b", [(0, 1.0)], "no columns 'included' and 'score'"),
        ("included,score", [], "no columns 'included' and 'score' with rows"),
        ("included,score", [(1, 1.0), (2, 1.0)], "'included' of row 2 is '2'; give 0 or 1"),
        ("included,score", [(1, "high")], "'score' of row 1 is 'high'; give a finite number"),
        ("included,score", [(1, "nan")], "'score' of row 1 is 'nan'"),
        ("included,score", [(1,)], "line 2 of"),
        ("trial,included,score", [(0, 1, 1.0)], "give the rows of one training alone"),
        ("included,score,included", [(1, 1.0, 0)], "give each a different name"),
        ("canary,included,score", [("a", 1, 1.0), ("a", 0, 2.0)], "names a canary twice"),
        ("included,score", [(1, 1.0, 0)], "has 3 values separated by"),
    ):
        path = _scores(tmp_path / f"{len(cases)}.csv", rows, header)
        cases.append(((path, "--delta", "1e-5"), complaint))
    for arguments, complaint in cases:
        status, printed, told = fedsim("audit", *arguments)
        assert (status, printed) == (2, ""), arguments
        assert complaint in told
        assert told.count("\n") == 1
        assert told.count(str(tmp_path)) <= 1
