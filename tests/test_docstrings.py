"""What docstrings must hold.

A public function of the Python API, of a registry or of `adversaries/` documents each argument,
what it returns, and the errors that it raises. Everywhere else a docstring documents what name and
type do not say; what it does document has to exist.
"""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ROOMS = (
    "adversaries",
    "fedsim/client_app.py",
    *(f"fedsim/commands/{name}.py" for name in ("account", "answer", "attack", "audit", "choose")),
    *(f"fedsim/commands/{name}.py" for name in ("config", "data", "init", "pac", "predict")),
    *(f"fedsim/commands/{name}.py" for name in ("report", "run", "sensitivity", "verify")),
    "fedsim/experiment.py",
    "fedsim/learning/data/__init__.py",
    "fedsim/learning/data/partition.py",
    "fedsim/learning/training/models.py",
    "fedsim/learning/training/optimizers.py",
    "fedsim/learning/training/schedules.py",
    "fedsim/privacy/accounting.py",
    "fedsim/privacy/composition.py",
    "fedsim/privacy/renyi.py",
    "fedsim/privacy/noise",
    "fedsim/privacy/participation",
    "fedsim/privacy/trust",
    "fedsim/recording.py",
    "fedsim/server_app.py",
)
"""The Python API, the registries that users add to, and the adversaries, which others copy."""

NOTHING = ("None", "Iterator[None]")
"""What a function returns that has nothing to say of it, a context manager among them."""

ENTRY = re.compile(r"^    \*{0,2}(\w+): \S")
"""One entry of a section, whose continuation lines are indented further."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _public(body, within="", inherits=False):
    """Yield the public functions of a module or class, and those of its public classes.

    inherits: a method without a docstring is left to that of the class that it is inherited from.
    """
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public(node.body, f"{within}{node.name}.", bool(node.bases))
        elif isinstance(node, Function) and not node.name.startswith("_"):
            own = ast.get_docstring(node) is not None
            yield from [(f"{within}{node.name}", node)] if own or not inherits else []


def _arguments(node):
    given = node.args
    several = [argument for argument in (given.vararg, given.kwarg) if argument is not None]
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *several]
    return [argument.arg for argument in every if argument.arg not in ("self", "cls")]


def _entries(text, section):
    """Return the names that a section of a docstring has an entry for."""
    _, _, rest = f"\n{text}\n".partition(f"\n{section}:\n")
    lines = rest.split("\n\n")[0].splitlines()
    return [found[1] for line in lines if (found := ENTRY.match(line))]


def _raised(node):
    """Return the names of the errors that a function makes and raises itself."""
    own = [each for each in ast.iter_child_nodes(node) if not isinstance(each, Function)]
    found = set[str]().union(*map(_raised, own))
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        found.add(ast.unparse(node.exc.func))
    return found


def _faults(node):
    """Yield what the docstring of a function lacks, or says of arguments that it has not."""
    text = ast.get_docstring(node) or "no docstring"
    arguments, documented = _arguments(node), _entries(text, "Args")
    if sorted(documented) != sorted(arguments) and (documented or len(arguments) > 1):
        yield f"takes {arguments}, documents {documented}"
    kinds = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    returns = "None" if node.returns is None else ast.unparse(node.returns)
    says = re.search(r"\b(return|yield)", text.splitlines()[0], re.I)
    says = says or re.search(r"^(Returns|Yields):$", text, re.M)
    if returns not in NOTHING and not says and not kinds & {"property", "cached_property"}:
        yield "does not say what it returns"
    if "InputError" in _raised(node) and "InputError" not in text:
        yield "does not say that it raises InputError"


def _modules(room):
    path = ROOT / room
    return [path] if path.suffix else sorted(path.rglob("*.py"))


def _field_faults(node):
    """Yield where the `Attributes:` of a class are others than its public fields.

    A public dataclass has them; another class may say what it holds elsewhere. A field of the
    report has a string below it instead, which its JSON Schema shows.
    """
    documented = _entries(ast.get_docstring(node) or "", "Attributes")
    below = [one for one, text in pairwise(node.body) if isinstance(text, ast.Expr)]
    strings = [one.target for one in below if isinstance(one, ast.AnnAssign)]
    documented += [each.id for each in strings if isinstance(each, ast.Name)]
    named = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    fields = [each.id for each in named if isinstance(each, ast.Name) and each.id[0] != "_"]
    is_data = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    needed = documented or (is_data and node.name[0] != "_")
    if fields and needed and sorted(documented) != sorted(fields):
        yield f"{node.name}: has {fields}, documents {documented}"


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_function_says_what_it_takes_returns_and_refuses(room):
    found = []
    for path in _modules(room):
        for name, node in _public(ast.parse(path.read_text()).body):
            found += [f"{path.relative_to(ROOT)} {name}: {fault}" for fault in _faults(node)]
    assert "\n".join(found) == ""


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_dataclass_documents_each_of_its_fields_once(room):
    found = []
    for path in _modules(room):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found += [f"{path.relative_to(ROOT)} {fault}" for fault in _field_faults(node)]
    assert "\n".join(found) == ""


def test_no_docstring_documents_an_argument_that_the_function_lacks():
    found = []
    for path in sorted((ROOT / "fedsim").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function):
                stale = set(_entries(ast.get_docstring(node) or "", "Args")) - {*_arguments(node)}
                found += [f"{path.relative_to(ROOT)} {node.name}: {name}" for name in stale]
    assert "\n".join(found) == ""
