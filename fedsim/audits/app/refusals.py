"""Why an app cannot be audited, by the cause that its author can do something about."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from flwr.server.compat import LegacyContext
from flwr.server.compat import app as older

from adversaries.errors import InputError
from fedsim.audits.app.loading import patched

OLDER = (
    "the app's server runs {strategies} of Flower's older flwr.server stack{secure}; this audit "
    "runs strategies of flwr.serverapp.strategy: move the server to one of them, with "
    "strategy.start(grid, ...), and the clients to functions under @app.train()"
)

NO_NUMBERS = (
    "the app's model has no floating-point numbers (trees, say, that are sent as bytes), and this "
    "audit moves models along a direction; it audits models of weights"
)

SECURE = ", with SecAgg+ (secaggplus_mod), which Flower has for that stack alone"


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
