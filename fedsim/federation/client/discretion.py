"""What a client tells a server of what went wrong: that it refused, and why only where it may.

Flower sends the text of every exception to the server. A text about a client's files, its folders
or a computation on its records would be a release that no noise protects.
"""

import logging
from collections.abc import Callable

from flwr.app import Context, Message

from adversaries import registry
from adversaries.errors import InputError
from fedsim.config import from_run_config
from fedsim.federation.protocol import consent
from fedsim.federation.protocol.consent import RefusedError

LOG = logging.getLogger(__name__)


def discreet(
    message: Message, context: Context, answer: Callable[[Message, Context], Message]
) -> Message:
    """Return the answer to a message; of what goes wrong, a protecting client tells refusals alone.

    A refusal (`RefusedError`) is a function of the message, the run's configuration, the node's
    terms and its ledger. Everything else goes to the client's own log.

    Raises RefusedError if the client does not answer.
    """
    registry.allow(str(context.node_config.get(consent.CODE, "")).split(","))
    if not consent.protects(context.node_config):
        return answer(message, context)
    try:
        from_run_config(context.run_config)
    except InputError as error:
        raise RefusedError(f"the run's configuration is invalid: {error}") from None
    try:
        return answer(message, context)
    except RefusedError:
        raise
    except Exception:
        LOG.exception("this client did not answer a message")
    raise RefusedError("this client did not answer; its own log says why")
