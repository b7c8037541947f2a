"""Messages that say why an app cannot be audited, and what its author can change."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from flwr.server.compat import LegacyContext
from flwr.server.compat import app as older

from adversaries.errors import InputError
from fedsim.audits.app.loading import patched

OLDER = (
    "the app's server runs {strategies} of Flower's older flwr.server stack{secure}. This audit "
    "runs strategies of flwr.serverapp.strategy: move the server to one of them, with "
    "strategy.start(grid, ...), and the clients to functions under @app.train()"
)

NO_NUMBERS = (
    "the app's model has no floating-point numbers (for example trees that are sent as bytes). "
    "This audit moves models along a direction, and needs models of weights"
)

SECURE = ", with SecAgg+ (secaggplus_mod), which Flower offers only for that stack"


@contextmanager
def older_stack(mods: tuple[object, ...]) -> Iterator[None]:
    """Refuse a server of the older stack as soon as it starts, inside the block.

    mods: the clients' mods.

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
    """Return the class names of a strategy and the strategies that it wraps, outermost first."""
    names: list[str] = []
    while strategy is not None and len(names) < 8:
        names.append(type(strategy).__name__)
        strategy = getattr(strategy, "strategy", None)
    return names


def untrained(kinds: Counter[str]) -> str:
    """Return why a run in which no strategy trained cannot be audited.

    kinds: number of messages that the server sent, by Flower's message type.
    """
    first = "the app trained no model through Strategy.start of flwr.serverapp.strategy"
    if not kinds:
        return f"{first}: its server sent no message"
    sent = " and ".join(f"{count} messages of type '{kind}'" for kind, count in kinds.items())
    if not any(kind.startswith("train") for kind in kinds):
        return (
            f"the app trains no model: its server sent {sent}. This audit judges models that "
            "clients train; it cannot judge statistics of their data"
        )
    return (
        f"{first}: its server itself sent {sent}, and this audit does not know how it used the "
        "replies; let a strategy aggregate them"
    )
