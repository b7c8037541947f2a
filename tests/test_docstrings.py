"""Every public function of the library rooms documents its arguments and what it returns."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ROOMS = ("adversaries", "fedsim/privacy")
"""Folders whose functions somebody calls who did not write them; with all that is in them."""

ENTRY = re.compile(r"^    \*{0,2}(\w+): \S")
"""One argument of an `Args:` section, whose continuation lines are indented further."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _public(
    body: list[ast.stmt], within: str = "", inherits: bool = False
) -> Iterator[tuple[str, Function]]:
    """Yield the public functions of a module or class, and those of its public classes.

    inherits: a method without a docstring is left to that of the class that it is inherited from.
    """
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public(node.body, f"{within}{node.name}.", bool(node.bases))
        elif isinstance(node, Function) and not node.name.startswith("_"):
            own = ast.get_docstring(node) is not None
            yield from [(f"{within}{node.name}", node)] if own or not inherits else []


def _arguments(node: Function) -> list[str]:
    given = node.args
    several = [argument for argument in (given.vararg, given.kwarg) if argument is not None]
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *several]
    return [argument.arg for argument in every if argument.arg not in ("self", "cls")]


def _documented(text: str) -> list[str]:
    """Return the arguments that the `Args:` section of a docstring names."""
    _, _, rest = f"\n{text}\n".partition("\nArgs:\n")
    section = rest.split("\n\n")[0].splitlines()
    return [found[1] for line in section if (found := ENTRY.match(line))]


def _faults(node: Function) -> Iterator[str]:
    """Yield what the docstring of a function lacks, or says of arguments that it has not."""
    text = ast.get_docstring(node) or ""
    arguments, documented = _arguments(node), _documented(text)
    if not text:
        yield "no docstring"
    elif sorted(documented) != sorted(arguments) and (documented or len(arguments) > 1):
        yield f"takes {arguments}, documents {documented}"
    returns = node.returns is not None and ast.unparse(node.returns) != "None"
    kinds = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    says = text.startswith(("Return", "Yield")) or re.search(r"^(Returns|Yields):$", text, re.M)
    if returns and not says and not kinds & {"property", "cached_property"}:
        yield "does not say what it returns"


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_function_documents_its_arguments_and_what_it_returns(room: str) -> None:
    found = []
    for path in sorted((ROOT / room).rglob("*.py")):
        for name, node in _public(ast.parse(path.read_text()).body):
            where = f"{path.relative_to(ROOT)}:{node.lineno} {name}"
            found += [f"{where}: {fault}" for fault in _faults(node)]
    assert found == []
