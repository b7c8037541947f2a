"""The Flower app that is recorded and audited, run in process."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from fedsim.runtimes.inprocess import InProcessGrid
from fedsim.transcript import Transcript, read

APP = Path(__file__).parents[1] / "apps" / "quickstart"
NODES = 3
DEFAULTS: Mapping[str, bool | int | float | str] = {
    "num-server-rounds": 3,
    "local-epochs": 1,
    "learning-rate": 0.1,
    "privacy": "none",
    "noise-multiplier": 1.0,
    "clipping-norm": 0.5,
    "local-epsilon": 5.0,
    "local-delta": 1e-5,
    "canary": False,
    "seed": 0,
    "transcripts": "",
}
Quickstart = Callable[..., dict[str, Transcript]]


@pytest.fixture
def apps() -> Iterator[tuple[ModuleType, ModuleType]]:
    sys.path.insert(0, str(APP))
    try:
        yield (
            importlib.import_module("quickstart.client_app"),
            importlib.import_module("quickstart.server_app"),
        )
    finally:
        sys.path.remove(str(APP))


@pytest.fixture
def quickstart(apps: tuple[ModuleType, ModuleType], tmp_path: Path) -> Quickstart:
    """Return a function that runs the app in process and returns its transcripts by name."""
    client, server = apps

    def run(**changes: bool | int | float | str) -> dict[str, Transcript]:
        config = {**DEFAULTS, "transcripts": str(tmp_path)}
        config |= {key.replace("_", "-"): value for key, value in changes.items()}
        grid = InProcessGrid(client.app, NODES, config)
        server.app(grid, next(iter(grid.contexts.values())))
        return {path.stem: read(path) for path in tmp_path.glob("*.fedt")}

    return run
