"""Flower's private names stand in one table, and are where it says."""

import ast
from pathlib import Path

import pytest

from fedsim.federation.protocol import flower_names

FEDSIM = Path(flower_names.__file__).parents[2]
PUBLIC = (
    *("flwr.app", "flwr.app.typing", "flwr.clientapp", "flwr.clientapp.mod"),
    *("flwr.clientapp.typing", "flwr.serverapp", "flwr.serverapp.strategy"),
)


@pytest.mark.parametrize(("module", "names", "what_for"), flower_names.ROWS)
def test_a_private_name_of_flower_is_where_the_table_says(module, names, what_for):
    """Otherwise find what has taken its place, and change the table and its `.pyi`."""
    for name in names.split():
        try:
            assert getattr(flower_names, name) is not None
        except ImportError as error:
            pytest.fail(f"{module} has no {name} any more, for {what_for}: {error}")


def test_no_other_file_imports_a_private_name_of_flower():
    for path in FEDSIM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flwr."):
                assert node.module in PUBLIC, path
            if isinstance(node, ast.Import):
                assert not any(each.name.startswith("flwr") for each in node.names), path


def test_the_types_are_those_of_the_table():
    stub = Path(flower_names.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(stub)) if isinstance(node, ast.ImportFrom)]
    typed = {each.asname: node.module for node in imports for each in node.names}
    assert typed == flower_names.MODULES
