"""What the pyproject.toml of a Flower app's directory says; nothing of the app is executed."""

import re
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.common import reading

STARTS = re.compile(r"\bstart_(?:server|simulation|client|numpy_client)\s*\(")
"""Calls that start Flower from a script of the older stack."""

LARGEST_SCRIPT = 2**20


def read(root: Path) -> dict[str, Any]:
    """Return what pyproject.toml says. Raises InputError if it describes no app."""
    path = root / "pyproject.toml"
    try:
        described = reading.toml(path)
    except FileNotFoundError:
        raise InputError(_no_app(root)) from None
    table: Any = described
    for key in ("tool", "flwr", "app", "components"):
        table = table.get(key) if isinstance(table, dict) else None
    if not isinstance(table, dict) or not {"serverapp", "clientapp"} <= table.keys():
        raise InputError(
            f"'{path}' does not describe a Flower app: [tool.flwr.app.components] must name "
            "serverapp and clientapp"
        )
    return described


def _no_app(root: Path) -> str:
    for path in sorted(root.glob("*.py")):
        with path.open("rb") as file:
            start = STARTS.search(file.read(LARGEST_SCRIPT).decode(errors="replace"))
        if start:
            return (
                f"'{root}' has no pyproject.toml, and {path.name} calls "
                f"{start.group().rstrip('( ')} of Flower's older stack. Scripts cannot be "
                "audited; turn them into an app with a ServerApp and a ClientApp"
            )
    return f"'{root}' has no pyproject.toml; name a Flower app's directory"
