"""The version is that of this program, or of nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest


def test_the_version_of_a_program_that_shares_its_name_is_refused(
    fedsim: Callable[..., tuple[int, str, str]],
    strangers: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(strangers)
    status, out, err = fedsim("--version")
    assert (status, out) == (2, "")
    assert "the distribution 'fedsim' is another project" in err
    assert len(err.splitlines()) == 1
