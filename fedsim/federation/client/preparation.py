"""What a client's node takes in before it answers: configuration, its own files, the request."""

import logging
from collections.abc import Mapping

from flwr.app import Context, Message

from adversaries.errors import InputError
from fedsim.common import device
from fedsim.config import Config, Scalar, from_run_config
from fedsim.config.federation import OWN
from fedsim.federation.client import admission
from fedsim.federation.client.inputs import Received
from fedsim.federation.protocol import consent, messages
from fedsim.federation.protocol.consent import RefusedError
from fedsim.federation.protocol.messages import Request
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.learning import data
from fedsim.learning.data import schema as schemas

LOG = logging.getLogger(__name__)


def prepared(message: Message, context: Context) -> Received:
    """Return what is asked, of which experiment, and what this client knows, if its terms allow it.

    Raises RefusedError if the node's owner did not agree to it, or the run does not plan it.
    """
    config, partition = configured(context), messages.partition(context)
    request = Request.from_content(message.content)
    consent.check(context.node_config, admission.needed(config, request, partition))
    whole = known = known_to(config, partition)
    node, share = context.node_config, config.federation.measures_share
    if config.run.job == "training" and (share or consent.MEASURES in str(node.get(consent.KEY))):
        from fedsim.federation.client import holding_back  # noqa: PLC0415  (where some are)

        holding_back.check(node, config.federation.measures_epsilon)
        known = holding_back.trained_on(whole, partition, node, share, config.run.seed)
    received = Received(message, context, config, known, whole, request)
    admission.check(received)
    if received.known.device.type == "cpu":
        device.single_threaded_kernels()
    return received


def known_to(config: Config, partition: int) -> Federation:
    """Return what this client knows of the federation.

    Raises RefusedError if its own records are not as the schema says. Which, and how, is for its
    own log: the server is told what this function raises.
    """
    if config.data.name != OWN or config.run.job != "training":
        return federation.load(config)
    try:
        return federation.load(config, partition)
    except InputError as error:
        LOG.error("this client's records: %s", error)
        raise RefusedError(
            "this client's records are not as data.public-schema says, or the run's model is not "
            "for them; its own log says which"
        ) from None


def configured(context: Context) -> Config:
    """Return the experiment, with this client's own files if its node's config says where.

    Raises RefusedError if the run would read this client's files in a way that it did not agree to,
    its model starts from a file of which this node has no copy, or its schema is not the one that
    this node keeps.
    """
    config, node = from_run_config(context.run_config), context.node_config
    protects = consent.protects(node)
    if protects:
        _check_reading(config.data.name, config.run.job, node)
    if protects or consent.DATA in node:
        # A client's files are where the client says, and nobody else needs to know.
        config = config.reading_data_from(str(node.get(consent.DATA, "")), offline=True)
    weights = str(node.get(consent.WEIGHTS, config.model.weights))
    digest = config.model.weights_sha256
    if digest:
        from fedsim.learning.training import pretrained  # noqa: PLC0415  (for such models alone)

        if not pretrained.same(weights, digest):
            raise RefusedError(
                f"this client has no copy of model.weights with SHA-256 {digest}; set "
                f"{consent.WEIGHTS} in its node.toml to where it lies"
            )
    if config.data.name == OWN:
        _check_schema(str(node.get(consent.SCHEMA, "")), config.data.public_schema)
    return config.starting_from(weights if digest else config.model.weights)


def _check_reading(data_name: str, job: str, node: Mapping[str, Scalar]) -> None:
    """Raise RefusedError if a run would read a client's files otherwise than by its own schema.

    Every other reader takes from the files what the run is told: classes, categories, ranges, and
    how many records there are. A schema of the server's choice would be a question about them: a
    client refuses if a record does not fit, and no noise hides that it does.
    """
    if data_name in data.BUNDLED:  # which reads no file
        return
    if data_name != OWN:
        why = f"data.name is '{data_name}', which is not read by a public schema"
        consent.check(node, {consent.EXPERIMENT: why})
    if job != "training":
        why = f"run.job is '{job}', and these records are nobody else's"
        consent.check(node, {consent.EXPERIMENT: why})
    if not node.get(consent.SCHEMA):
        raise RefusedError(
            f"this client's node.toml has no {consent.SCHEMA}: set it to the client's own copy of "
            "the schema that all clients agreed upon"
        )


def _check_schema(path: str, public_schema: str) -> None:
    """Raise RefusedError if a run's schema is another than the node's copy; "" is none."""
    if not path:
        return
    try:
        own = schemas.load(path)
    except InputError as error:
        LOG.error("%s: %s", consent.SCHEMA, error)
        raise RefusedError(
            f"this client's {consent.SCHEMA} names no schema; its own log says why"
        ) from None
    if said := schemas.difference(own, schemas.parse(public_schema)):
        raise RefusedError(f"data.public-schema is not the schema that this client keeps: {said}")
