"""The Flower ClientApp of a node: a client's, or an auditor's.

Flower may start a process for every message, on cores that others use too. An auditor's node
computes nothing, so that what computes is only imported where a client's node needs it.
"""

import math
from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedsim.audits.live import app as auditor
from fedsim.federation.protocol import messages, patience, versions
from fedsim.federation.protocol.consent import discreet


def same_version(
    message: Message, context: Context, answer: Callable[[Message, Context], Message]
) -> Message:
    """Return the answer to a message, unless this node has another fedsim than the server.

    Args:
        message: as received.
        context: of the node.
        answer: what answers it.

    Returns:
        What it answers.

    Raises:
        InputError: it has.
    """
    versions.check()
    return answer(message, context)


app = ClientApp(mods=[same_version, discreet])


@app.query("identify")
def identify(message: Message, context: Context) -> Message:
    """Return which partition this node holds, or that it is an auditor's.

    It is the first message of a run: a setting of the node that does not fit it is logged here.

    Args:
        message: as received.
        context: of the node.
    """
    patience.warn(float(context.run_config.get("federation.timeout", math.inf)))
    if auditor.is_auditor(context):
        return messages.reply(message, messages.AUDITOR)
    return messages.reply(message, messages.partition(context))


@app.query("sensitivity")
def local_sensitivity(message: Message, context: Context) -> Message:
    """Return the local sensitivity of the challenge: an instrument, not part of a DP release.

    Args:
        message: with the model.
        context: of the node.
    """
    from fedsim.federation.client import training_node  # noqa: PLC0415

    return training_node.local_sensitivity(message, context)


@app.query("data")
def data(message: Message, context: Context) -> Message:
    """Return the digest of what all nodes must hold alike.

    Args:
        message: as received.
        context: of the node.
    """
    from fedsim.federation.client import training_node  # noqa: PLC0415

    return training_node.data_digest(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return what a client adds to the sum of a round; an auditor takes note of what it brings.

    Args:
        message: with the model.
        context: of the node.
    """
    if auditor.is_auditor(context):
        return auditor.record(message, context)
    from fedsim.federation.client import training_node  # noqa: PLC0415
    from fedsim.federation.protocol import secure_aggregation  # noqa: PLC0415

    return secure_aggregation.client_mod(message, context, training_node.train)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Receive the final model and the last aggregate, from which an adversary concludes.

    Args:
        message: with both.
        context: of the node.

    Returns:
        A reply without anything of the node's data.
    """
    if auditor.is_auditor(context):
        return auditor.record(message, context)
    from fedsim.federation.client import training_node  # noqa: PLC0415

    return training_node.evaluate(message, context)


@app.query("findings")
def findings(message: Message, context: Context) -> Message:
    """Return the adversary's findings to whoever audits the run, after its last round.

    Args:
        message: as received.
        context: of the node.
    """
    from fedsim.federation.client import training_node  # noqa: PLC0415

    return training_node.findings(message, context)


@app.query("measures")
def measures(message: Message, context: Context) -> Message:
    """Return the noisy confusion matrix of the trained model on records that the client held back.

    Args:
        message: with the model.
        context: of the node.
    """
    from fedsim.federation.client import measures_node  # noqa: PLC0415

    return measures_node.measures(message, context)
