"""`fedsim compare` and `fedsim open`: runs side by side, and the page of one."""

import json
import re
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

Fedsim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def runs(fedsim: Fedsim, experiment: Path, tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in ("first", "a second")]
    for seed, out in enumerate(found):
        few = ("--trials", 4, "--rounds", 1, "--seed", seed, "--json", "--quiet")
        status, printed, err = fedsim("run", experiment, *few, "--out", out)
        assert (status, err) == (0, "")
        assert json.loads(printed) == json.loads((out / "report.json").read_text())
    return found


def test_runs_are_compared_on_a_page_that_leads_to_each(
    fedsim: Fedsim, runs: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "pages" / "both"
    status, table, err = fedsim("compare", *runs, "--out", out)
    assert (status, err) == (0, f"Report: {out / 'report.html'}\n")
    assert fedsim("report", *runs)[1] == table
    links = re.findall('href="([^"#]+)"', (out / "report.html").read_text())
    assert links == ["../../first/report.html", "../../a%20second/report.html"]
    status, printed, _ = fedsim("compare", *runs, "--out", out, "--json")  # a comparison again
    written = json.loads((out / "report.json").read_text())
    assert (status, json.loads(printed)["runs"]) == (0, written["runs"])
    status, _, err = fedsim("compare", *runs, "--out", runs[0])
    assert (status, err.count("\n")) == (2, 1)
    assert fedsim("compare", runs[0])[0] == 2
    assert fedsim("compare", runs[0], runs[0])[0] == 2


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
