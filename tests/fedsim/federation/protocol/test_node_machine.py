"""A node of another version than the server's answers nothing, and says what to do."""

from collections.abc import Callable

import pytest

import fedsim
from fedsim.config import Config
from fedsim.federation.protocol import node_machine
from fedsim.federation.runs.run_directory import Arrays


def test_a_node_with_another_version_ends_the_run_by_naming_both(
    run: Callable[[Config], Arrays], small: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(node_machine.VERSION, "9.9")
    said = rf"this node has fedsim 9\.9, but the server has {fedsim.__version__}; install"
    with pytest.raises(RuntimeError, match=said):
        run(small())
