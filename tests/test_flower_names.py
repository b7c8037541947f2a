"""The private names of Flower stand in two modules, and where these import them from."""

import ast
from pathlib import Path

import fedsim
from fedsim.federation.protocol import flower_private
from fedsim.federation.runtimes import flower_services

FEDSIM = Path(fedsim.__file__).parent
PUBLIC = (
    *("flwr.app", "flwr.app.typing", "flwr.clientapp", "flwr.clientapp.mod", "flwr.simulation"),
    *("flwr.clientapp.typing", "flwr.serverapp", "flwr.serverapp.strategy"),
)


def test_no_other_file_imports_a_private_name_of_flower():
    """Where Flower has moved one, the imports above fail and name it."""
    private = {Path(each.__file__) for each in (flower_private, flower_services)}
    for path in {*FEDSIM.rglob("*.py")} - private:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flwr."):
                assert node.module in PUBLIC, path
            if isinstance(node, ast.Import):
                assert not any(each.name.startswith("flwr") for each in node.names), path
