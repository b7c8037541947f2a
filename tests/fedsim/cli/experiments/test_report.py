"""Two pages for a data-protection officer say what was found, and what no result says."""

import re
from collections.abc import Callable
from pathlib import Path

Command = Callable[..., tuple[int, str, str]]


def test_an_officers_pages_have_the_first_screen_and_no_conditions_of_a_gate(
    fedsim: Command, experiment: Path, tmp_path: Path
) -> None:
    fedsim("run", experiment, "--trials", 4, "--rounds", 1, "--out", tmp_path / "run")
    status, out, err = fedsim(
        "report", tmp_path / "run", "--for", "officer", "--limit-advantage", 0.2
    )
    assert (status, out) == (0, "")
    assert err.strip().endswith("officer.html")
    page = (tmp_path / "run" / "officer.html").read_text(encoding="utf-8")
    whole = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "GDPR, Recital 26" in page
    assert "--fail-if" in whole
    assert "--fail-if" not in page
    # What the whole report alone has is linked there.
    assert [
        name for name in re.findall('href="#([^"]+)"', page) if f'id="{name}"' not in page
    ] == []
    officer = ("report", tmp_path / "run", "--for", "officer")
    for further in (("--delta", 1e-5), ("--json",), ("--verbose",), (tmp_path / "run",)):
        status, out, err = fedsim(*officer, *further)
        assert (status, out, err.count("\n")) == (2, "", 1), further
