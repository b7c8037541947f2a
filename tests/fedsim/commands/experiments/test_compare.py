"""`fedsim report` of several runs, and `fedsim open`: runs side by side, and the page of one."""

import json
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

Fedsim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def runs(fedsim: Fedsim, experiment: Path, tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in ("first", "a second")]
    for seed, out in enumerate(found):
        few = ("trials.count=4", "training.rounds=1", f"run.seed={seed}", "--json", "--quiet")
        status, printed, err = fedsim("run", experiment, *few, "--out", out)
        assert (status, err) == (0, "")
        assert json.loads(printed) == json.loads((out / "report.json").read_text())
    return found


def test_runs_are_compared_in_a_table(fedsim: Fedsim, runs: list[Path]) -> None:
    status, table, err = fedsim("report", *runs)
    assert (status, err) == (0, "")
    assert all(f"{place}: " in table for place in (1, 2))
    status, printed, _ = fedsim("report", *runs, "--json")
    assert (status, [row["number"] for row in json.loads(printed)["runs"]]) == (
        0,
        [1] * 3 + [2] * 3,
    )
    assert fedsim("report", runs[0], runs[0])[0] == 2


def test_a_page_is_opened_or_its_path_printed(
    fedsim: Fedsim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    page = tmp_path / "report.html"
    status, _, err = fedsim("open", tmp_path)
    assert (status, err.count("\n"), "has no report.html" in err) == (2, 1, True)
    page.touch()
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) is None)
    assert fedsim("open", tmp_path) == (0, "", "")
    assert opened == [page.as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert fedsim("open", tmp_path) == (0, f"{page}\n", "")
