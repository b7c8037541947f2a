"""Why an app cannot be audited, by the cause that its author can do something about."""

import importlib.metadata
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from flwr.server.compat import LegacyContext
from flwr.server.compat import app as older

from adversaries.errors import InputError

OLDER = (
    "the app's server runs {strategies} of Flower's older flwr.server stack{secure}; this audit "
    "runs strategies of flwr.serverapp.strategy: move the server to one of them, with "
    "strategy.start(grid, ...), and the clients to functions under @app.train()"
)

SECURE = ", with SecAgg+ (secaggplus_mod), which Flower has for that stack alone"

STARTS = re.compile(r"\bstart_(?:server|simulation|client|numpy_client)\s*\(")
"""Calls that start Flower from a script of the older stack."""

LARGEST_SCRIPT = 2**20
"""Bytes of a script that is searched for them."""


@contextmanager
def older_stack(mods: tuple[object, ...]) -> Iterator[None]:
    """Refuse a server of the older stack as soon as it starts, while inside.

    Args:
        mods: of the app's clients.

    Raises:
        InputError: the server makes a LegacyContext, or its `server_fn` returned components.
    """

    def refuse(strategy: Any) -> None:
        names = " > ".join(_chain(strategy)) or "a strategy"
        secure = any(getattr(mod, "__name__", "").startswith("secagg") for mod in mods)
        raise InputError(OLDER.format(strategies=names, secure=SECURE if secure else ""))

    def context(
        self: LegacyContext, context: Any, config: Any = None, strategy: Any = None, *_: Any
    ) -> None:
        refuse(strategy)

    def start(server: Any, config: Any, strategy: Any, client_manager: Any) -> Any:
        refuse(strategy or getattr(server, "strategy", None))

    from fedsim.audits.app.loading import patched  # noqa: PLC0415

    with ExitStack() as stack:
        stack.enter_context(patched(LegacyContext, "__init__", context))
        stack.enter_context(patched(older, "init_defaults", start))
        yield


def _chain(strategy: Any) -> list[str]:
    """Return the names of a strategy's class, of that which it wraps, and so on inwards."""
    names: list[str] = []
    while strategy is not None and len(names) < 8:
        names.append(type(strategy).__name__)
        strategy = getattr(strategy, "strategy", None)
    return names


def untrained(kinds: Counter[str]) -> str:
    """Return why a run in which no strategy trained shows nothing.

    Args:
        kinds: how many messages of each of Flower's types the server sent.
    """
    first = "the app trained no model through Strategy.start of flwr.serverapp.strategy"
    if not kinds:
        return f"{first}: its server sent no message"
    sent = " and ".join(f"{count} messages of type '{kind}'" for kind, count in kinds.items())
    if not any(kind.startswith("train") for kind in kinds):
        return (
            f"the app trains no model: its server sent {sent}, and this audit judges "
            "models that clients train; it says nothing about statistics of their data"
        )
    return (
        f"{first}: its server sent {sent} itself, and this audit does not know what it "
        "made of the replies; let a strategy aggregate them"
    )


def no_app(root: Path) -> str:
    """Return why a directory without a pyproject.toml is no app."""
    for path in sorted(root.glob("*.py")):
        with path.open("rb") as file:
            found = STARTS.search(file.read(LARGEST_SCRIPT).decode(errors="replace"))
        if found:
            call = found.group().rstrip("( ")
            return (
                f"'{root}' has no pyproject.toml, and {path.name} calls {call} of Flower's older "
                "stack: scripts cannot be audited; make them an app of ServerApp and ClientApp"
            )
    return f"'{root}' has no pyproject.toml; name a Flower app's directory"


def missing(described: Mapping[str, Any]) -> str:
    """Return which of an app's declared dependencies are not installed, as a sentence's end.

    Args:
        described: its pyproject.toml.
    """
    lines = [str(line) for line in described.get("project", {}).get("dependencies", ())]
    absent = [f"'{line}'" for line in lines if not _installed(line)]
    if not absent:
        return "; its pyproject.toml names no dependency that is not installed"
    return f"; not installed of its dependencies: {', '.join(absent)}; install them with pip"


def _installed(requirement: str) -> bool:
    """Whether some version of a requirement's package is there; markers are not looked at."""
    name = re.match(r"[\w.-]+", requirement.strip())
    try:
        return name is None or bool(importlib.metadata.version(name.group()))
    except importlib.metadata.PackageNotFoundError:
        return False
