"""A user's Flower app, loaded from its directory. Loading executes the app's code."""

import difflib
import importlib
import importlib.metadata
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.server.compat import LegacyContext
from flwr.server.compat import app as older
from flwr.serverapp import ServerApp

from adversaries.errors import InputError
from fedsim.audits.app import description
from fedsim.config import Scalar, flatten

Train = Callable[[Message, Context], Message]
Innermost = Callable[[Message, Context, Train], Message]
NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@dataclass(frozen=True)
class FlowerApp:
    """A loaded app.

    Attributes:
        run_config: every declared key, dotted, overrides included.
        mods: mods that the app put around its train functions, in its order.
        described: content of its pyproject.toml.
    """

    name: str
    server_app: ServerApp
    client_app: ClientApp
    run_config: dict[str, Scalar]
    mods: tuple[object, ...]
    described: Mapping[str, Any]
    trains: bool


@contextmanager
def loaded(
    directory: Path, overrides: Mapping[str, Scalar], innermost: Innermost
) -> Iterator[FlowerApp]:
    root = directory.expanduser().resolve()
    described = description.read(root)
    run_config = dict(flatten(described["tool"]["flwr"]["app"].get("config", {})))
    for key in overrides:
        if key not in run_config:
            near = difflib.get_close_matches(key, run_config, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(run_config)}"
            raise InputError(f"the app declares no run configuration key '{key}'; {hint}")
    run_config |= overrides
    with _importable(root), _observed_clients(innermost) as (mods, trained):
        server_app = _component(root, described, "serverapp", ServerApp)
        client_app = _component(root, described, "clientapp", ClientApp)
        name = str(described.get("project", {}).get("name", root.name))
        trains = client_app in trained
        parts = server_app, client_app, run_config, tuple(mods), described, trains
        yield FlowerApp(name, *parts)


def _component(root: Path, described: Mapping[str, Any], kind: str, type_: type) -> Any:
    reference = str(described["tool"]["flwr"]["app"]["components"][kind])
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
        why += missing(why, described)
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


def missing(why: str, described: Mapping[str, Any]) -> str:
    """Return why an import failed, as the end of a sentence; "" if no import did."""
    match = NO_MODULE.search(why)
    if match is None:
        return ""
    top, _, inner = match.group(1).partition(".")
    if inner and _installed(top):
        return f"; the installed {top} {importlib.metadata.version(top)} has no such module"
    lines = [str(line) for line in described.get("project", {}).get("dependencies", ())]
    absent = [f"'{line}'" for line in lines if not _installed(line)]
    if not absent:
        return "; all dependencies in its pyproject.toml are installed"
    return f"; these dependencies are not installed: {', '.join(absent)}; install them with pip"


def _installed(requirement: str) -> bool:
    """Return whether any version of a requirement's package is installed; markers are ignored."""
    name = re.match(r"[\w.-]+", requirement.strip())
    try:
        return name is None or bool(importlib.metadata.version(name.group()))
    except importlib.metadata.PackageNotFoundError:
        return False


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
def _observed_clients(innermost: Innermost) -> Iterator[tuple[list[object], list[ClientApp]]]:
    """Put a mod into every ClientApp made inside; yield the app's mods, and the apps that train."""
    mods_seen: list[object] = []
    trained: list[ClientApp] = []
    make, train = ClientApp.__init__, ClientApp.train

    def observed_make(
        self: ClientApp, client_fn: Any = None, mods: list[Any] | None = None
    ) -> None:
        own = mods or []
        mods_seen.extend(own)
        # Without a client_fn there is no train function to put the mod next to.
        make(self, client_fn, [*own, innermost] if client_fn is not None else own)
        if client_fn is not None:
            trained.append(self)

    def observed_train(
        self: ClientApp, action: str = "default", *, mods: list[Any] | None = None
    ) -> Any:
        own = mods or []
        mods_seen.extend(own)
        trained.append(self)
        return train(self, action, mods=[*own, innermost])

    with patched(ClientApp, "__init__", observed_make), patched(ClientApp, "train", observed_train):
        yield mods_seen, trained


@contextmanager
def patched(holder: Any, name: str, replacement: Any) -> Iterator[None]:
    original = getattr(holder, name)
    setattr(holder, name, replacement)
    try:
        yield
    finally:
        setattr(holder, name, original)


OLDER = (
    "the app's server runs {strategies} of Flower's older flwr.server stack{secure}. This audit "
    "runs strategies of flwr.serverapp.strategy: move the server to one of them, with "
    "strategy.start(grid, ...), and the clients to functions under @app.train()"
)

NO_NUMBERS = (
    "the app's model has no floating-point numbers (for example trees that are sent as bytes). "
    "This audit shifts a model's weights along a direction, so that it needs numeric weights"
)

SEVERAL = (
    "the app runs rounds of several strategies ({}). This audit judges one mechanism, and rounds "
    "of the others release something else: audit an app for each of them"
)

SECURE = ", with SecAgg+ (secaggplus_mod), which Flower offers only for that stack"


@contextmanager
def older_stack(mods: tuple[object, ...]) -> Iterator[None]:
    """Refuse a server of the older stack as soon as it starts, inside the block."""

    def refuse(strategy: Any) -> None:
        names = " > ".join(_chain(strategy)) or "a strategy"
        secure = any(getattr(mod, "__name__", "").startswith("secagg") for mod in mods)
        raise InputError(OLDER.format(strategies=names, secure=SECURE if secure else ""))

    def context(
        self: LegacyContext,
        context: Any,
        config: Any = None,
        strategy: Any = None,
        client_manager: Any = None,
    ) -> None:
        refuse(strategy)

    def start(server: Any, config: Any, strategy: Any, client_manager: Any) -> Any:
        refuse(strategy or getattr(server, "strategy", None))

    with ExitStack() as stack:
        stack.enter_context(patched(LegacyContext, "__init__", context))
        stack.enter_context(patched(older, "init_defaults", start))
        yield


def _chain(strategy: Any) -> list[str]:
    names: list[str] = []
    while strategy is not None and len(names) < 8:
        names.append(type(strategy).__name__)
        strategy = getattr(strategy, "strategy", None)
    return names


def untrained(kinds: Counter[str]) -> str:
    first = "the app trained no model through Strategy.start of flwr.serverapp.strategy"
    if not kinds:
        return f"{first}: its server sent no message"
    sent = " and ".join(
        f"{count} {'message' if count == 1 else 'messages'} of type '{kind}'"
        for kind, count in kinds.items()
    )
    if not any(kind.startswith("train") for kind in kinds):
        return (
            f"the app trains no model: its server sent {sent}. This audit judges models that "
            "clients train; it cannot judge statistics of their data"
        )
    return (
        f"{first}: its server itself sent {sent}, and this audit does not know how it used the "
        "replies; let a strategy aggregate them"
    )
