"""README, tutorial and the page on reports show what the commands beside them print."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Fedsim = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[3]
README, START = ROOT / "README.md", ROOT / "docs/start"


def _words(text: str) -> str:
    """Return text without line breaks and indentation, which depend on the terminal."""
    return " ".join(text.split())


def _printed(fedsim: Fedsim, *arguments: object) -> str:
    status, out, err = fedsim("run", *arguments)
    assert status == 0, err
    return _words(out + err)


def _blocks(page: Path, beginning: str) -> list[str]:
    """Return the blocks of a page that begin with some words, each as one line."""
    text = page.read_text()
    fenced = re.findall(r"^```text\n(.*?)^```", text, re.M | re.S)
    indented = re.findall(r"((?:^ {4}.*\n|^\n(?= {4}))+)", text, re.M)
    return [each for each in map(_words, [*fenced, *indented]) if each.startswith(beginning)]


@pytest.mark.slow
def test_the_first_run_prints_what_the_pages_show(fedsim: Fedsim, tmp_path: Path) -> None:
    printed = _printed(fedsim, ROOT / "configs/digits.toml", "--out", tmp_path / "run")
    # All of it, but for the seconds that it took.
    (whole,) = _blocks(README, "digits An adversary")
    assert whole == printed[: len(whole)]
    assert re.match(r" [\d.]+ s: ", printed[len(whole) :])
    (shown,) = _blocks(START / "reading-a-report.md", "server: No protection advantage theory")
    assert shown in whole
    (shown, *_) = _blocks(START / "tutorial.md", "participant (audited): ")
    assert shown in whole


@pytest.mark.slow
def test_every_vantage_is_called_what_the_tutorial_calls_it(fedsim: Fedsim, tmp_path: Path) -> None:
    config = ROOT / "configs/vantages.toml"
    printed = _printed(fedsim, config, "--trials", 200, "--out", tmp_path / "run")
    text = (START / "tutorial.md").read_text()
    (shown,) = re.findall(r"^```text\n(server: .*?)^```", text, re.M | re.S)
    assert shown.count("\n") == 6
    for line in shown.splitlines():
        assert _words(line) in printed


@pytest.mark.slow
@pytest.mark.long
def test_every_vantage_is_called_what_the_page_on_reports_calls_it(
    fedsim: Fedsim, tmp_path: Path
) -> None:
    printed = _printed(fedsim, ROOT / "configs/vantages.toml", "--out", tmp_path / "run")
    (shown,) = _blocks(START / "reading-a-report.md", "server: No protection advantage 1")
    assert shown in printed
