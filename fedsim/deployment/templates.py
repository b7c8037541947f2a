"""The texts of a deployment kit, which texts.toml has by the name of a file."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def _texts() -> dict[str, str]:
    path = Path(__file__).with_name("texts.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def filled(name: str, values: Mapping[str, str]) -> str:
    """Return a text with values in place of `@NAME@`, one after the other."""
    text = _texts()[name]
    for placeholder, value in values.items():
        text = text.replace(f"@{placeholder}@", value)
    return text
