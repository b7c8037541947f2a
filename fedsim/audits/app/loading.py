"""A user's Flower app, loaded from its directory. Loading executes the app's code."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.configuration import Scalar, flatten
from fedsim.federation.protocol.flower_private import LegacyContext, older

Train = Callable[[Message, Context], Message]
Innermost = Callable[[Message, Context, Train], Message]

OLDER = (
    "the app's server runs Flower's older flwr.server stack. This audit runs strategies of "
    "flwr.serverapp.strategy: move the server to one of them, with strategy.start(grid, ...), and "
    "the clients to functions under @app.train(). SecAgg+ (secaggplus_mod) is only in the older "
    "stack, and cannot be audited"
)


@dataclass(frozen=True)
class FlowerApp:
    """A loaded app.

    Attributes:
        run_config: every declared key, dotted, overrides included.
        trains: whether its client app has a train function.
    """

    name: str
    server_app: ServerApp
    client_app: ClientApp
    run_config: dict[str, Scalar]
    trains: bool


def described(root: Path) -> dict[str, Any]:
    """Return what pyproject.toml says; nothing of the app is executed.

    Raises InputError if it describes no app.
    """
    path = root / "pyproject.toml"
    try:
        table: Any = reading.toml(path)
    except FileNotFoundError:
        raise InputError(
            f"'{root}' has no pyproject.toml; name a Flower app's directory. A script that calls "
            "start_server or start_simulation cannot be audited"
        ) from None
    whole = table
    for key in ("tool", "flwr", "app", "components"):
        table = table.get(key) if isinstance(table, dict) else None
    if not isinstance(table, dict) or not {"serverapp", "clientapp"} <= table.keys():
        raise InputError(
            f"'{path}' does not describe a Flower app: [tool.flwr.app.components] must name "
            "serverapp and clientapp"
        )
    return dict(whole)


@contextmanager
def loaded(
    directory: Path, overrides: Mapping[str, Scalar], innermost: Innermost
) -> Iterator[FlowerApp]:
    """Yield the app of a directory, with a mod next to its train functions."""
    root = directory.expanduser().resolve()
    project = described(root)
    app = project["tool"]["flwr"]["app"]
    run_config = dict(flatten(app.get("config", {})))
    if undeclared := [key for key in overrides if key not in run_config]:
        raise InputError(
            f"the app declares no run configuration key '{undeclared[0]}'; it has "
            f"{', '.join(run_config)}"
        )
    with _importable(root), _observed_clients(innermost) as trained:
        server_app = _component(root, app["components"], "serverapp", ServerApp)
        client_app = _component(root, app["components"], "clientapp", ClientApp)
        yield FlowerApp(
            name=str(project.get("project", {}).get("name", root.name)),
            server_app=server_app,
            client_app=client_app,
            run_config={**run_config, **overrides},
            trains=client_app in trained,
        )


def _component(root: Path, components: Mapping[str, Any], kind: str, type_: type) -> Any:
    reference = str(components[kind])
    module, _, attribute = reference.partition(":")
    top = module.partition(".")[0]
    if top in sys.modules and not _within(sys.modules[top], root):
        other = getattr(sys.modules[top], "__file__", None) or "elsewhere"
        raise InputError(
            f"the app's module '{top}' has the name of a module that is already loaded, from "
            f"{other}; rename it, or audit the app in another environment"
        )
    try:
        # The app's prints must not mix with the audit's output, which may be a JSON document.
        with redirect_stdout(sys.stderr):
            component = getattr(importlib.import_module(module), attribute)
    # SystemExit too: an app that ends the process would end the audit without a verdict.
    except (Exception, SystemExit) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        if isinstance(error, ModuleNotFoundError):
            why += "; install the dependencies that its pyproject.toml lists"
        raise InputError(f"the app's {kind} '{reference}' cannot be loaded: {why}") from None
    if not isinstance(component, type_):
        actual = type(component).__name__
        raise InputError(f"the app's {kind} '{reference}' is a {actual}, not a {type_.__name__}")
    return component


def _within(module: Any, root: Path) -> bool:
    """Return whether a module is from the directory; a namespace package has only folders."""
    names = getattr(module, "__dict__", {})  # getattr on PyTorch's modules would invent attributes
    file = names.get("__file__")
    places = [file] if file is not None else list(names.get("__path__", ()))
    return bool(places) and all(Path(str(each)).is_relative_to(root) for each in places)


@contextmanager
def _importable(root: Path) -> Iterator[None]:
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name, module in list(sys.modules.items()):
            if _within(module, root):
                del sys.modules[name]


@contextmanager
def _observed_clients(innermost: Innermost) -> Iterator[list[ClientApp]]:
    """Put a mod into every ClientApp made inside; yield those that train."""
    trained: list[ClientApp] = []
    make, train = ClientApp.__init__, ClientApp.train

    def observed_make(
        self: ClientApp, client_fn: Any = None, mods: list[Any] | None = None
    ) -> None:
        own = mods or []
        # Without a client_fn there is no train function to put the mod next to.
        make(self, client_fn, [*own, innermost] if client_fn is not None else own)
        if client_fn is not None:
            trained.append(self)

    def observed_train(
        self: ClientApp, action: str = "default", *, mods: list[Any] | None = None
    ) -> Any:
        own = mods or []
        trained.append(self)
        return train(self, action, mods=[*own, innermost])

    with patched(ClientApp, "__init__", observed_make), patched(ClientApp, "train", observed_train):
        yield trained


@contextmanager
def patched(holder: Any, name: str, replacement: Any) -> Iterator[None]:
    original = getattr(holder, name)
    setattr(holder, name, replacement)
    try:
        yield
    finally:
        setattr(holder, name, original)


@contextmanager
def without_older_stack() -> Iterator[None]:
    """Refuse a server of the older stack as soon as it starts, inside the block."""

    def refuse(*_: Any, **__: Any) -> None:
        raise InputError(OLDER)

    with patched(LegacyContext, "__init__", refuse), patched(older, "init_defaults", refuse):
        yield
