"""No wing grows beyond its budget; a number here may only go down."""

from pathlib import Path

import pytest

from fedsim.commands import main
from fedsim.configuration import Config, to_run_config

ROOT = Path(__file__).parents[1]

BUDGETS = {
    "adversaries": 4_200,
    "fedsim/common": 1_000,
    "fedsim/privacy": 2_300,
    "fedsim/configuration": 1_250,
    "fedsim/learning": 5_000,
    "fedsim/game": 2_400,
    "fedsim/federation": 5_400,
    "fedsim/deployment": 2_000,
    "fedsim/audits": 8_400,
    "fedsim/reports": 4_600,
    "fedsim/studies": 3_300,
    "fedsim/commands": 4_000,
    "papers": 6_000,
    "tests": 40_000,
}
"""Lines of Python of each wing, docstrings and blanks included; `commands` with the root."""

HELD = {
    "adversaries": 4_800,
    "fedsim/common": 1_500,
    "fedsim/privacy": 2_800,
    "fedsim/configuration": 1_600,
    "fedsim/learning": 7_500,
    "fedsim/game": 3_600,
    "fedsim/federation": 7_800,
    "fedsim/deployment": 2_200,
    "fedsim/audits": 11_600,
    "fedsim/reports": 6_700,
    "fedsim/studies": 4_400,
    "fedsim/commands": 4_800,
    "papers": 6_800,
    "tests": 49_000,
}
"""The present size of what is above its budget, in hundreds of lines, rounded up."""


OTHER_BUDGETS = {
    "commands": 16,
    "options": 130,
    "keys": 90,
    "words of documentation": 40_000,
    "lines of README": 60,
}
"""Other sizes; the generated reference is not counted."""

OTHERS_HELD = {
    "commands": 24,
    "options": 105,
    "keys": 89,
}


def _sizes() -> dict[str, int]:
    commands = main.everything()
    shared = {"--json", "--verbose", "--quiet", "--fail-if", "--allow-code"}
    options = {
        (name, each.name)
        for name in commands
        for each in main.arguments(name)
        if each.name.startswith("-") and each.name not in shared
    }
    pages = (ROOT / "docs").rglob("*.md")  # what is generated is in no file
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return {
        "commands": len(commands),
        "options": len(options) + len(shared),
        "keys": len(to_run_config(Config())),
        "words of documentation": sum(len(page.read_text().split()) for page in pages),
        "lines of README": readme.count("\n"),
    }


@pytest.mark.parametrize("what", OTHER_BUDGETS)
def test_what_a_user_takes_in_keeps_its_budget(what: str) -> None:
    assert _sizes()[what] <= OTHERS_HELD.get(what, OTHER_BUDGETS[what])


def _size(wing: str) -> int:
    paths = [*(ROOT / wing).rglob("*.py"), *(ROOT / wing).rglob("*.pyi")]
    if wing == "fedsim/commands":
        paths += [*(ROOT / "fedsim").glob("*.py"), *(ROOT / "fedsim").glob("*.pyi")]
    return sum(path.read_bytes().count(b"\n") for path in paths)


@pytest.mark.parametrize("wing", BUDGETS)
def test_a_wing_keeps_its_budget(wing: str) -> None:
    most = HELD.get(wing, BUDGETS[wing])
    assert _size(wing) <= most, f"{wing} holds {most} lines: remove as many before you add"


@pytest.mark.parametrize("wing", HELD)
def test_what_has_shrunk_is_held_at_its_new_size(wing: str) -> None:
    assert max(BUDGETS[wing], _size(wing)) > HELD[wing] - 500, "put the new size into HELD"


def test_every_folder_of_the_product_has_a_budget() -> None:
    folders = {f"fedsim/{path.parent.name}" for path in (ROOT / "fedsim").glob("*/__init__.py")}
    assert folders <= {*BUDGETS}
