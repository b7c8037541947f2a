"""The numerical core and the adversaries import without Flower and without the command line."""

import json
import pkgutil
import subprocess
import sys
from types import ModuleType

import adversaries
import fedsim

KNOW_FLOWER = {
    "fedsim.admission",
    "fedsim.app_audit.execution",
    "fedsim.app_audit.introspection",
    "fedsim.app_audit.loading",
    "fedsim.app_audit.rehearsal",
    "fedsim.app_audit.worker",
    "fedsim.auditor",
    "fedsim.client_app",
    "fedsim.deployment.checks",
    "fedsim.deployment.node_checks",
    "fedsim.deployment.proxy",
    "fedsim.deployment.supernode",
    "fedsim.deployment.supernode_checks",
    "fedsim.messages",
    "fedsim.node_memory",
    "fedsim.nodes",
    "fedsim.owner_app",
    "fedsim.recorded_messages",
    "fedsim.recording",
    "fedsim.replies",
    "fedsim.runtimes.flower_private",
    "fedsim.runtimes.inprocess",
    "fedsim.runtimes.polling",
    "fedsim.runtimes.private_superlink",
    "fedsim.secure_aggregation",
    "fedsim.server_app",
    "fedsim.strategy",
}
"""What cannot be imported without Flower; all else can, and new modules should."""

CORE = [
    "fedsim.bayesian",
    "fedsim.blocks",
    "fedsim.clipping",
    "fedsim.data",
    "fedsim.evaluation",
    "fedsim.fitting",
    "fedsim.gaussian",
    "fedsim.instrumented",
    "fedsim.layers",
    "fedsim.losses",
    "fedsim.mechanism",
    "fedsim.memory",
    "fedsim.models",
    "fedsim.pac",
    "fedsim.pac_release",
    "fedsim.partition",
    "fedsim.question",
    "fedsim.randomness",
]
"""What needs torch, numpy and scipy alone, as all adversaries do."""

BEYOND_TORCH_NUMPY_SCIPY = [
    "pydantic",
    "dp_accounting",
    "sklearn",
    "skimage",
    "matplotlib",
    "rich",
    "psutil",
]

FAILING = """
import importlib, json, sys
modules, blocked = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(blocked))
failing = {}
for module in modules:
    try:
        importlib.import_module(module)
    except ImportError as error:
        failing[module] = str(error)
print(json.dumps(failing))
"""


def _modules(package: ModuleType) -> list[str]:
    return [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]


def _failing(modules: list[str], blocked: list[str]) -> dict[str, str]:
    """Return which modules cannot be imported without the blocked ones, each with the error."""
    command = [sys.executable, "-c", FAILING, json.dumps(modules), json.dumps(blocked)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found: dict[str, str] = json.loads(result.stdout)
    return found


def test_the_core_and_the_adversaries_need_torch_numpy_and_scipy_alone() -> None:
    attacks = _modules(adversaries)
    assert "adversaries.roc" in attacks
    assert _failing([*attacks, *CORE], ["flwr", *BEYOND_TORCH_NUMPY_SCIPY]) == {}


def test_only_what_is_known_to_needs_flower() -> None:
    failing = _failing([*_modules(fedsim), *_modules(adversaries)], ["flwr"])
    assert failing.keys() - KNOW_FLOWER == set(), failing
    assert KNOW_FLOWER - failing.keys() == set(), "no longer need Flower: take them off the list"
    assert all("flwr" in error for error in failing.values()), failing


def test_nothing_needs_ray_to_be_imported() -> None:
    """Owners, auditors and whoever runs in process do not install it."""
    assert _failing([*_modules(fedsim), *_modules(adversaries)], ["ray"]) == {}
