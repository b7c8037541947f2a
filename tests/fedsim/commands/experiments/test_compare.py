"""`fedsim report` of several runs, and `fedsim open`: runs side by side, and the page of one."""

import json
import webbrowser

import pytest


@pytest.fixture
def runs(fedsim, experiment, tmp_path):
    found = [tmp_path / name for name in ("first", "a second")]
    for seed, out in enumerate(found):
        few = ("trials.count=4", "training.rounds=1", f"run.seed={seed}", "--json", "--quiet")
        status, printed, err = fedsim("run", experiment, *few, "--out", out)
        assert (status, err) == (0, "")
        assert json.loads(printed) == json.loads((out / "report.json").read_text())
    return found


def test_runs_are_compared_in_a_table(fedsim, runs):
    status, table, err = fedsim("report", *runs)
    assert (status, err) == (0, "")
    assert all(f"{place}: " in table for place in (1, 2))
    status, printed, _ = fedsim("report", *runs, "--json")
    assert (status, [row["number"] for row in json.loads(printed)["runs"]]) == (
        0,
        [1] * 3 + [2] * 3,
    )
    assert fedsim("report", runs[0], runs[0])[0] == 2


def test_a_page_is_opened_and_its_path_printed(fedsim, experiment, tmp_path, monkeypatch):
    opened = []
    page = tmp_path / "run" / "report.html"
    assert fedsim("run", experiment, "trials.count=4", "--quiet", "--out", page.parent)[0] == 0
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) is None)
    status, out, _ = fedsim("report", page.parent, "--open")
    assert (status, out.splitlines()[-1]) == (0, f"Report: {page}")
    assert opened == [page.as_uri()]
