"""Draws docs/explanation/architecture.svg from the imports: python docs/architecture.py.

A row for each wing, with the machines whose process loads something of it, and an arc to each wing
that it imports which none of its other imports leads to.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
WINGS = {
    "adversaries": "what an attacker computes, and its statistics",
    "common": "files, seeds, devices, memory",
    "privacy": "theory: mechanisms, accountants, trust, noise",
    "config": "the configuration file, checked",
    "learning": "data sets; training with clipping per example",
    "game": "target, worlds, and who observes them",
    "federation": "messages, clients, server, runs, runtimes",
    "audits": "what a training proves: run, app, loop, recorded, live",
    "report": "documents, figures, trackers, evidence",
    "studies": "choosing, sweeps, sensitivity, the sources made again",
    "deployment": "the kit for machines, and its checks",
    "cli": "the command line",
}
"""In the order of imports, each with what it holds."""

ROLES = {
    "client": "fedsim.client_app",
    "server": "fedsim.server_app",
    "auditor": "fedsim.audits.live.app",
}
"""Whose process begins with which module; what nobody of them loads is the desk's."""

ROW, LEFT, WIDTH, TOP = 34, 150, 780, 40


def sources() -> dict[str, Path]:
    """Return the file of every module by its name."""
    paths = [path for folder in ("adversaries", "fedsim") for path in (ROOT / folder).rglob("*.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return {
        name.removesuffix(".__init__"): path
        for name, path in sorted(zip(names, paths, strict=True))
    }


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports, also within functions.

    Args:
        path: of the file.
        known: modules by name.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else str(node.module) for name in inner)


def wing(module: str) -> str:
    """Return the wing of a module, "" for what lies at the root.

    Args:
        module: its name.
    """
    first, *rest = module.split(".")
    found = first if first == "adversaries" else (rest or [""])[0]
    return found if found in WINGS else ""


def loaded(begin: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Return the wings of everything that a process can load.

    Args:
        begin: the module that it begins with.
        imports: of each module.
    """
    seen: set[str] = set()
    ahead = [begin]
    while ahead:
        if (name := ahead.pop()) not in seen:
            seen.add(name)
            ahead += imports[name]
    return {wing(name) for name in seen}


def drawing() -> str:
    """Return the figure as SVG."""
    known = sources()
    imports = {name: set(imported(path, known)) for name, path in known.items()}
    order = list(WINGS)
    direct: dict[str, set[str]] = {name: set() for name in order}
    for module, others in imports.items():
        if wing(module):
            direct[wing(module)] |= {wing(other) for other in others} - {"", wing(module)}
    reach: dict[str, set[str]] = {}
    for name in order:
        reach[name] = direct[name].union(*(reach[other] for other in direct[name]))
    roles = {role: loaded(begin, imports) for role, begin in ROLES.items()}
    return "\n".join(_svg(order, direct, reach, roles)) + "\n"


def _svg(
    order: list[str],
    direct: Mapping[str, set[str]],
    reach: Mapping[str, set[str]],
    roles: Mapping[str, set[str]],
) -> Iterator[str]:
    height = TOP + ROW * len(order) + 12
    at = {name: TOP + ROW * (len(order) - 1 - place) for place, name in enumerate(order)}
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13" role="img">'
    )
    yield "<title>The wings of fedsim: each imports only from those below it</title>"
    yield f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    columns = {role: 600 + 62 * place for place, role in enumerate(roles)}
    for role, x in columns.items():
        yield f'<text x="{x}" y="24" text-anchor="middle" fill="#333">{role}</text>'
    for name, y in at.items():
        middle = y + ROW / 2 - 2
        yield (
            f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{ROW - 4}" rx="4" '
            'fill="#eef1f8" stroke="#5a6ea8"/>'
        )
        yield f'<text x="{LEFT + 10}" y="{middle + 5}" font-weight="bold">{name}</text>'
        yield f'<text x="{LEFT + 100}" y="{middle + 5}" fill="#333">{WINGS[name]}</text>'
        for role, x in columns.items():
            if name in roles[role]:
                yield f'<circle cx="{x}" cy="{middle}" r="6" fill="#5a6ea8"/>'
        # Only what no other import leads to: the rest follows.
        nearest = direct[name] - set().union(*(reach[other] for other in direct[name]))
        for other in sorted(nearest):
            end = at[other] + ROW / 2 - 2
            bulge = 12 + (end - middle) / 4
            yield (
                f'<path d="M{LEFT} {middle} C{LEFT - bulge} {middle} {LEFT - bulge} {end} '
                f'{LEFT} {end}" fill="none" stroke="#8a96bd"/>'
            )
    yield "</svg>"


if __name__ == "__main__":
    (ROOT / "docs" / "explanation" / "architecture.svg").write_text(drawing(), encoding="utf-8")
