"""What the pages say of the code is true: their snippets print what stands behind them."""

import re
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPET = re.compile(
    r'^(?P<indent> *)python -c "\n(?P<code>.*?)"\n(?:(?P=indent)# (?P<printed>[^\n]*)\n)?',
    re.M | re.S,
)
"""A command of the shell's, alone on its lines, with what it prints in a comment behind it."""

SNIPPETS = [
    pytest.param(dedent(found["code"]), found["printed"], id=f"{page.name}-{place}")
    for page in PAGES
    for place, found in enumerate(SNIPPET.finditer(page.read_text()))
]


@pytest.mark.parametrize(("code", "printed"), SNIPPETS)
def test_a_snippet_prints_what_its_page_says(
    code: str, printed: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(code, "snippet", "exec"), {})
    out = capsys.readouterr().out.strip()
    assert printed is None or out == printed


def test_no_snippet_is_overlooked() -> None:
    """Commands with surroundings of their own (a prompt, an environment) are no snippets."""
    begun = sum(len(re.findall(r"^ *python -c", page.read_text(), re.M)) for page in PAGES)
    assert begun == len(SNIPPETS) > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_imports_exists(page: Path) -> None:
    for line in re.findall(
        r"^ *(from (?:fedsim|adversaries)\b.* import .*)$", page.read_text(), re.M
    ):
        exec(line, {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_exists(page: Path) -> None:
    for path, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not heading or heading in _anchors(target), (path, heading)


def _anchors(page: Path) -> set[str]:
    """Return what the headings of a page are linked by."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_registry_of_the_table_exists() -> None:
    page = (ROOT / "docs" / "how-to" / "extending.md").read_text()
    table = page.split("\n\n")[2]
    rows = [row for row in table.splitlines() if row.startswith("|")][2:]
    assert len(rows) > 10
    for row in rows:
        _, _, pattern, place, _ = row.removeprefix("|").removesuffix("|").split("|")
        assert (ROOT / re.findall(r"`([^`]+)`", pattern)[-1]).exists(), row
        *names, path = re.findall(r"`([^`]+)`", place)
        module = import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        for name in names:
            assert getattr(module, name), row
