"""The files that a client's process loads: `python docs/client_files.py` lists them.

Calibration, canaries, attacks and what only some networks, accountants, data sets, trust models,
samplings or units of privacy need come on top, each imported where a request asks for it.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

FIRST = ("fedsim.client_app", "fedsim.federation.client.training_node")
"""Where a client's process begins, and the handlers that it imports for a message."""


@cache
def sources() -> dict[str, Path]:
    """Return the file of every module of the two packages by its name."""
    found = {}
    for package in ("adversaries", "fedsim"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imported(tree: ast.AST, deep: bool) -> Iterator[str]:
    """Yield the modules of the two packages that code imports; deep: within functions too."""
    nodes = ast.walk(tree) if deep else iter(getattr(tree, "body", []))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in sources())
        elif isinstance(node, ast.ImportFrom) and node.module in sources():
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in sources() else node.module for name in inner)


@cache
def imports(module: str, deep: bool = True) -> frozenset[str]:
    """Return the modules of the two packages that a module imports."""
    tree = ast.parse(sources()[module].read_text(encoding="utf-8"))
    return frozenset(imported(tree, deep)) - {module}


def of_client() -> dict[str, tuple[int, str]]:
    """Return, for each file that a client's process loads, its lines and what it is for."""
    seen, ahead = set[str](), [*FIRST]
    while ahead:
        if (name := ahead.pop()) not in seen:
            seen.add(name)
            ahead += imports(name, deep=False)
            ahead += [name.rpartition(".")[0]] if "." in name else []
    listed = {}
    for name in sorted(seen):
        text = sources()[name].read_text(encoding="utf-8")
        words = inspect.cleandoc(ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
        path = str(sources()[name].relative_to(ROOT))
        listed[path] = len(text.splitlines()), " ".join(words.split())
    return listed


if __name__ == "__main__":
    for path, (lines, words) in of_client().items():
        print(f"{lines:6}  {path:50}  {words}")
    print(f"{sum(lines for lines, _ in of_client().values()):6}  lines")
