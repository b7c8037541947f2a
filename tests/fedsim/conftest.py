"""The Flower app that is recorded and audited, run in process."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.transcripts.reader import read_transcript

APP = Path(__file__).parents[1] / "apps" / "quickstart"
NODES = 3


@pytest.fixture
def apps():
    sys.path.insert(0, str(APP))
    try:
        yield (
            importlib.import_module("quickstart.client_app"),
            importlib.import_module("quickstart.server_app"),
        )
    finally:
        sys.path.remove(str(APP))


@pytest.fixture
def strangers(tmp_path):
    """Lay down a folder of installed packages in which another project has our import name."""
    information = tmp_path / "packages" / "fedsim-0.9.0.dist-info"
    information.mkdir(parents=True)
    # From Python 3.12 on, a file that is listed and missing does not count.
    (information.parent / "fedsim").mkdir()
    (information.parent / "fedsim" / "__init__.py").touch()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fedsim\nVersion: 0.9.0\n")
    (information / "RECORD").write_text("fedsim/__init__.py,,\nfedsim-0.9.0.dist-info/RECORD,,\n")
    return information.parent


@pytest.fixture
def quickstart(apps, tmp_path):
    """Return a function that runs the app in process and returns its transcripts by name."""
    client, server = apps

    def run(**changes):
        with (APP / "pyproject.toml").open("rb") as file:
            config = tomllib.load(file)["tool"]["flwr"]["app"]["config"]
        config["transcripts"] = str(tmp_path)
        config |= {key.replace("_", "-"): value for key, value in changes.items()}
        grid = InProcessGrid(client.app, NODES, config)
        server.app(grid, next(iter(grid.contexts.values())))
        return {path.stem: read_transcript(path) for path in tmp_path.glob("*.fedt")}

    return run
