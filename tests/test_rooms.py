"""The house: rooms in an order, no circles, and what each role loads. Worked out from imports."""

import json
import pkgutil
import runpy
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib import import_module, util
from itertools import chain, groupby
from pathlib import Path

import pytest

import adversaries
import fedsim
from fedsim.common.by_use import ByUse
from fedsim.federation.runtimes.flower_command import SHIPPED

ROOT = Path(__file__).parents[1]

ROOMS = (
    "adversaries",
    "adversaries.statistics",
    "adversaries.bounds",
    "adversaries.attacks",
    "adversaries.neighbours",
    "fedsim",
    "fedsim.common",
    "fedsim.privacy.trust",
    "fedsim.privacy.participation",
    "fedsim.privacy",
    "fedsim.privacy.noise",
    "fedsim.configuration",
    "fedsim.learning",
    "fedsim.learning.data",
    "fedsim.learning.training",
    "fedsim.game.mechanisms",
    "fedsim.game",
    "fedsim.game.observers",
    "fedsim.federation",
    "fedsim.federation.runs",
    "fedsim.federation.protocol",
    "fedsim.federation.client",
    "fedsim.federation.transcripts",
    "fedsim.federation.server",
    "fedsim.federation.runtimes",
    "fedsim.audits",
    "fedsim.audits.results",
    "fedsim.audits.measurements",
    "fedsim.audits.judgement",
    "fedsim.audits.run",
    "fedsim.audits.steps",
    "fedsim.audits.recorded",
    "fedsim.audits.child_process",
    "fedsim.audits.loop",
    "fedsim.audits.recording",
    "fedsim.audits.app",
    "fedsim.audits.live",
    "fedsim.reports.figures",
    "fedsim.reports.document",
    "fedsim.reports.sections",
    "fedsim.reports",
    "fedsim.reports.kinds",
    "fedsim.reports.tracking",
    "fedsim.recording",
    "fedsim.server_app",
    "fedsim.auditor_app",
    "fedsim.client_app",
    "fedsim.worker",
    "fedsim.experiment",
    "fedsim.auditors_transcript",
    "fedsim.studies",
    "fedsim.studies.guarantees",
    "fedsim.studies.sensitivity",
    "fedsim.studies.membership",
    "fedsim.studies.reconstruction",
    "fedsim.studies.choose",
    "fedsim.deployment",
    "fedsim.deployment.submission",
    "fedsim.commands",
    "fedsim.commands.main",
    "fedsim.commands.entry",
    "fedsim.__main__",
)
"""Each imports only from itself and from rooms before it."""

WINGS = (
    *("adversaries", "common", "privacy", "configuration", "learning", "game", "federation"),
    *("audits", "reports", "studies", "deployment", "commands"),
)
"""The folders of fedsim/, behind adversaries/: the rooms of each are one after the other."""

WITHOUT_FLOWER = ROOMS[: ROOMS.index("fedsim.federation.protocol")]
"""The numerical core and the game."""

NEVER = {
    "fedsim.client_app": (
        *("fedsim.federation.server", "fedsim.federation.runtimes", "fedsim.server_app"),
        *("fedsim.audits.", "fedsim.reports", "fedsim.studies", "fedsim.deployment"),
        "fedsim.commands.",
    ),
    "fedsim.auditor_app": (
        *("fedsim.federation.runs", "fedsim.federation.client", "fedsim.federation.server"),
        *("fedsim.federation.runtimes", "fedsim.reports", "fedsim.studies", "fedsim.deployment"),
        *("fedsim.audits.run", "fedsim.audits.measurements", "fedsim.commands."),
    ),
    "fedsim.server_app": (
        *("fedsim.federation.client", "fedsim.federation.runtimes", "fedsim.client_app"),
        *("fedsim.audits.recorded", "fedsim.audits.app", "fedsim.audits.loop"),
        *("fedsim.audits.recording", "fedsim.audits.live", "fedsim.reports.kinds"),
        *("fedsim.reports.tracking", "fedsim.studies", "fedsim.deployment", "fedsim.commands."),
    ),
}
"""Where each role begins, and what it never loads, also within functions."""


FILES = runpy.run_path(str(ROOT / "docs" / "client_files.py"))
SOURCES, _imports = FILES["sources"](), FILES["imports"]


def _room(module):
    return module if module in ROOMS else module.rpartition(".")[0]


def _loaded(module):
    """Return everything that a module imports, and what that imports."""
    seen, ahead = set(), [module]
    while ahead:
        if (name := ahead.pop()) not in seen:
            seen.add(name)
            ahead += _imports(name)
    return seen


def test_every_module_is_in_a_room_and_imports_only_from_rooms_before_it():
    for module in SOURCES:
        here = ROOMS.index(_room(module))
        later = [name for name in _imports(module) if ROOMS.index(_room(name)) > here]
        assert later == [], module


def test_a_table_of_entries_imports_by_use_only_from_rooms_before_it():
    tables = [name for name, path in SOURCES.items() if "= ByUse(" in path.read_text("utf-8")]
    assert len(tables) >= 4
    for module in tables:
        held = vars(import_module(module)).values()
        places = [table._places.values() for table in held if isinstance(table, ByUse)]
        rooms = [ROOMS.index(_room(each.partition(":")[0])) for each in chain(*places)]
        assert rooms and max(rooms) <= ROOMS.index(_room(module)), module


def test_the_rooms_of_a_wing_are_one_after_the_other_and_no_folder_is_anything_else():
    def wing(room):
        return room.split(".")[1] if room.startswith("fedsim.") else room

    order = [wing(room) for room in ROOMS if wing(room) in WINGS]
    assert [key for key, _ in groupby(order)] == list(WINGS)
    folders = {path.parent.name for path in (ROOT / "fedsim").glob("*/__init__.py")}
    assert folders == set(WINGS) - {"adversaries"}
    assert len(folders) <= 11


def test_no_modules_import_each_other_in_a_circle():
    """Nor by imports within functions."""
    TopologicalSorter({name: _imports(name) for name in SOURCES}).prepare()


@pytest.mark.parametrize("role", NEVER)
def test_a_role_loads_nothing_of_another(role):
    loaded = _loaded(role)
    assert [name for name in sorted(loaded) if name.startswith(NEVER[role])] == []


def test_what_a_clients_process_imports_is_small_enough_to_review():
    """What it does now and then, such as calibrating, planting canaries or attacking, comes on top.

    That is imported where it is done, so that a process that does not do it leaves it out.
    """
    files = FILES["of_client"]()
    assert len(files) <= 85
    assert sum(lines for lines, _ in files.values()) <= 10_000
    assert all(words for _, words in files.values())


def test_a_flower_app_ships_what_a_client_and_a_server_run_and_nothing_else():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert table["fab-include"] == list(SHIPPED)
    run = _loaded("fedsim.client_app") | _loaded("fedsim.server_app")
    files = {path for pattern in SHIPPED for path in ROOT.glob(pattern)}
    shipped = {name for name, path in SOURCES.items() if path in files}
    assert run <= shipped
    rooms = {_room(name) for name in run} | {name.rpartition(".")[0] for name in run}
    assert {_room(name) for name in shipped if SOURCES[name].name != "__init__.py"} <= rooms


CORE = [
    "fedsim.common.blocks",
    "fedsim.learning.training.clipping",
    "fedsim.learning.data",
    "fedsim.learning.training.evaluation",
    "fedsim.learning.training.fitting",
    "adversaries.statistics.gaussian",
    "fedsim.game.observers.disclosed_noise",
    "fedsim.learning.training.layers",
    "fedsim.learning.training.tasks",
    "fedsim.privacy.mechanism",
    "fedsim.common.memory",
    "fedsim.learning.training.models",
    "fedsim.privacy.pac",
    "fedsim.learning.data.partition",
    "fedsim.game.round_game",
    "fedsim.common.randomness",
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
import importlib, json, os, sys
import torch  # once for all cases
for modules, blocked in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    sys.modules.update(dict.fromkeys(blocked))
    failing = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            failing[module] = str(error)
    print(json.dumps(failing), flush=True)
    os._exit(0)
"""


def _modules(package):
    return [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]


def _failing(*cases):
    """Return which modules cannot be imported without the blocked ones, each with the error."""
    command = [sys.executable, "-c", FAILING, json.dumps(cases)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(found) == len(cases), result.stderr
    return found


def test_what_leaves_packages_out_is_imported_without_them():
    """Core and adversaries have torch, numpy and scipy; core and game no Flower.

    Flower starts a client's process for each message, and a command should begin soon: what the
    first round does not need, and is slow to import, is imported where it is needed.
    """
    attacks = _modules(adversaries)
    assert "adversaries.attacks.roc" in attacks
    core = [name for name in SOURCES if _room(name) in WITHOUT_FLOWER]
    assert "fedsim.game.observers.participant" in core
    client = ["fedsim.client_app", "fedsim.federation.client.training_node"]
    first = [*client, "fedsim.experiment", "fedsim.server_app", "fedsim.federation.server.training"]
    slow = ["dp_accounting", "scipy.stats", "scipy.optimize", "scipy.signal", "matplotlib"]
    slow += ["scipy.spatial", "scipy.linalg"]
    assert _failing(
        ([*attacks, *CORE], ["flwr", *BEYOND_TORCH_NUMPY_SCIPY]),
        (core, ["flwr"]),
        (first, slow),
        (client, ["scipy.special", "scipy.fft"]),
    ) == [{}, {}, {}, {}]


@pytest.mark.slow
def test_nothing_needs_ray_to_be_imported():
    """Clients, auditors and whoever runs in process do not install it."""
    assert _failing(([*_modules(fedsim), *_modules(adversaries)], ["ray"])) == [{}]


def test_the_drawing_of_the_wings_has_them_in_order():
    spec = util.spec_from_file_location("drawings", ROOT / "docs" / "drawings.py")
    assert spec is not None and spec.loader is not None
    drawings = util.module_from_spec(spec)
    sys.modules["drawings"] = drawings  # its dataclass looks itself up
    spec.loader.exec_module(drawings)
    assert tuple(drawings.WINGS) == WINGS


def test_only_what_plays_the_game_knows_the_whole_configuration():
    """The numerical core takes values and single tables, so that others can use it."""
    below = ("adversaries", "fedsim.common", "fedsim.privacy", "fedsim.learning")
    knowing = {"fedsim.configuration", "fedsim.configuration.experiment"}
    core = [name for name in SOURCES if name.startswith(below)]
    assert [name for name in core if knowing & _imports(name)] == []
