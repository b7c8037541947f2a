"""README, tutorial and the page on reports show what the commands beside them print."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
README, START = ROOT / "README.md", ROOT / "docs/start"


def _words(text):
    """Return text without line breaks and indentation, which depend on the terminal."""
    return " ".join(text.split())


def _printed(fedsim, *arguments):
    status, out, err = fedsim("run", *arguments)
    assert status == 0, err
    return _words(out + err)


def _blocks(page, beginning):
    """Return the blocks of a page that begin with some words, each as one line."""
    text = page.read_text()
    fenced = re.findall(r"^```text\n(.*?)^```", text, re.M | re.S)
    indented = re.findall(r"((?:^ {4}.*\n|^\n(?= {4}))+)", text, re.M)
    return [each for each in map(_words, [*fenced, *indented]) if each.startswith(beginning)]


@pytest.mark.slow
def test_the_first_run_prints_what_the_pages_show(fedsim, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    printed = _printed(fedsim, "configs/digits.toml", "--out", tmp_path / "run")
    beginning = "fedsim run configs/digits.toml 400 trials, 30 rounds, 3 clients"
    for page in (README, START / "reading-a-report.md"):
        # All of it, but for the seconds that it took and the place of the report.
        (whole,) = _blocks(page, beginning)
        shown, place = re.sub(rf"{beginning} \d+ s", beginning, whole).split(" Report: ")
        assert shown in re.sub(rf"{beginning} \d+ s", beginning, printed)
        assert place == "fedsim-runs/digits/report.html"
    for beginning in ("observer right answers", "Could an adversary"):
        shown, *_ = _blocks(START / "tutorial.md", beginning)
        assert shown in printed


@pytest.mark.slow
def test_every_observer_is_called_what_the_tutorial_calls_it(fedsim, tmp_path):
    config = ROOT / "configs/vantages.toml"
    printed = _printed(fedsim, config, "trials.count=200", "--out", tmp_path / "run")
    (shown,) = [
        each
        for each in _blocks(START / "tutorial.md", "observer right answers")
        if "attack below" in each
    ]
    assert shown in printed
