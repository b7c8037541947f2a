"""The Flower ClientApp of a node, a client's or an auditor's, which imports what it needs."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedsim.configuration import from_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.consent import discreet

app = ClientApp(mods=[discreet])


def _is_auditor(context: Context) -> bool:
    return context.node_config.get("role") == "auditor"


@app.query("identify")
def _identify(message: Message, context: Context) -> Message:
    """Return the partition of this node, or that it is an auditor's node."""
    if _is_auditor(context):
        return messages.reply(message, messages.AUDITOR)
    return messages.reply(message, messages.partition(context))


@app.query("sensitivity")
def _local_sensitivity(message: Message, context: Context) -> Message:
    """Return the local sensitivity of the challenge: an instrument, not part of a DP release."""
    from fedsim.federation.client import training_node  # noqa: PLC0415

    return training_node.local_sensitivity(message, context)


@app.query("data")
def _data(message: Message, context: Context) -> Message:
    """Return the digest of the data that all nodes must have in common."""
    from fedsim.federation.client import training_node  # noqa: PLC0415

    return training_node.data_digest(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return a client's part of a round's sum; an auditor's node records the round.

    Args:
        message: the request with the model.
        context: the node's Flower context.
    """
    if _is_auditor(context):
        from fedsim import auditor_app  # noqa: PLC0415  (an auditor only)

        return auditor_app.record(message, context)
    from fedsim.federation.client import training_node  # noqa: PLC0415

    federation = from_run_config(context.run_config).federation
    if federation.masked:
        from fedsim.federation.protocol import secure_aggregation  # noqa: PLC0415

        return secure_aggregation.client_mod(message, context, training_node.train)
    return training_node.train(message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Receive the final model and the last aggregate, from which an adversary concludes.

    Args:
        message: the final model and the last aggregate.
        context: the node's Flower context.

    Returns:
        A reply without data of the node.
    """
    if _is_auditor(context):
        from fedsim import auditor_app  # noqa: PLC0415  (an auditor only)

        return auditor_app.record(message, context)
    from fedsim.federation.client import training_node  # noqa: PLC0415

    return training_node.evaluate(message, context)


@app.query("findings")
def _findings(message: Message, context: Context) -> Message:
    """Return the adversary's findings to the auditor, after the last round."""
    from fedsim.federation.client import training_node  # noqa: PLC0415

    return training_node.findings(message, context)
