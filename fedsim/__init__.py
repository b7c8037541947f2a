"""fedsim: a Flower federation with DP-SGD clients and an embedded identifiability adversary.

This module has the names of the Python API (docs/reference/api.md) and loads them at their first
use, since a client imports this module too. `__init__.pyi` has the same names for type checkers.
"""

import tomllib
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

DISTRIBUTION = "fedsim-identifiability"


def _version(project_file: Path) -> str:
    """Return the version in pyproject.toml, which Flower requires.

    A clone or a Flower app has that file beside the package, and may differ from the installed
    version. An installed package has its version in its metadata.
    """
    if project_file.exists():
        project = tomllib.loads(project_file.read_text(encoding="utf-8")).get("project", {})
        if project.get("name") == DISTRIBUTION:
            return str(project["version"])
    return metadata.version(DISTRIBUTION)


__version__ = _version(Path(__file__).parents[1] / "pyproject.toml")

API = {
    **{
        name: f"fedsim.commands.{name}"
        for name in (
            *("account", "attack", "audit", "choose", "config", "data", "init", "pac"),
            *("predict", "report", "run", "sensitivity", "verify"),
        )
    },
    **dict.fromkeys(("train", "load", "load_model", "Run", "Training"), "fedsim.commands.run"),
    "Answer": "fedsim.commands.answer",
    "Config": "fedsim.configuration",
    "InputError": "adversaries.errors",
}
"""The module of each name of the Python API."""


def __getattr__(name: str) -> Any:
    if name in API:
        return getattr(import_module(API[name]), name)
    raise AttributeError(f"module 'fedsim' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*API, "__version__"])
