"""Preparation of a client's answer: the configuration, its own files, and the request."""

import logging
from collections.abc import Mapping

from flwr.app import Context, Message

from adversaries.errors import InputError
from fedsim.common import device
from fedsim.configuration import Config, Scalar, from_run_config
from fedsim.configuration.federation import OWN
from fedsim.configuration.objects import Experiment
from fedsim.federation.client import admission
from fedsim.federation.client.admission import ReceivedMessage
from fedsim.federation.protocol import consent, messages
from fedsim.federation.protocol.consent import RefusedError
from fedsim.federation.protocol.messages import Request
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.learning import data
from fedsim.learning.data import schema as schemas

LOG = logging.getLogger(__name__)


def prepared(message: Message, context: Context) -> ReceivedMessage:
    """Return the request with experiment and data, unless the client's terms refuse it."""
    config, partition = configured(context), messages.partition(context)
    request = Request.from_content(message.content)
    consent.require(
        context.node_config, admission.needed(config.game, config.audit, request, partition)
    )
    loaded = known_to(config.experiment, partition)
    received = ReceivedMessage(message, context, config, loaded, request)
    admission.check_request(received)
    # Before the answer is charged: memory that is needed behind that would depend on the records.
    loaded.contents(loaded.owned_by(partition))
    if received.loaded.device.type == "cpu":
        device.single_threaded_kernels()
    return received


def known_to(experiment: Experiment, partition: int) -> Federation:
    """Return the data as this client knows them; a RefusedError says nothing about them."""
    if experiment.data.name != OWN or experiment.run.job != "training":
        return federation.load(experiment)
    try:
        return federation.load(experiment, partition)
    except InputError as error:
        LOG.error("this client's records: %s", error)
        raise RefusedError(
            "this client's records do not fit data.public-schema or the run's model; the client's "
            "own log has the details"
        ) from None


def configured(context: Context) -> Config:
    """Return the experiment with this client's own files. Raises RefusedError without them."""
    config, node = from_run_config(context.run_config), context.node_config
    protects = consent.protects(node)
    if protects:
        _check_reading(config.data.name, config.run.job, node)
    if protects or consent.DATA in node:
        # The node's own config has the path of its files. No other party needs it.
        config = config.reading_data_from(str(node.get(consent.DATA, "")), offline=True)
    weights = str(node.get(consent.WEIGHTS, config.model.weights))
    digest = config.model.weights_sha256
    if digest:
        from fedsim.learning.training import pretrained  # noqa: PLC0415  (only where needed)

        if not pretrained.same(weights, digest):
            raise RefusedError(
                f"this client has no copy of model.weights with SHA-256 {digest}; set "
                f"{consent.WEIGHTS} in its node.toml to the path of the copy"
            )
    if config.data.name == OWN:
        _check_schema(str(node.get(consent.SCHEMA, "")), config.data.public_schema)
    return config.starting_from(weights if digest else config.model.weights)


def _check_reading(data_name: str, job: str, node: Mapping[str, Scalar]) -> None:
    """Raise RefusedError if a file would be read without the client's own public schema."""
    if data_name in data.BUNDLED:  # no file to read
        return
    if data_name != OWN:
        why = f"data.name is '{data_name}', which has no public schema"
        consent.require(node, {consent.EXPERIMENT: why})
    if job != "training":
        why = f"run.job is '{job}', and these records are this client's own"
        consent.require(node, {consent.EXPERIMENT: why})
    if not node.get(consent.SCHEMA):
        raise RefusedError(
            f"this client's node.toml has no {consent.SCHEMA}; set it to the path of the client's "
            "copy of the schema that all clients agreed on"
        )


def _check_schema(path: str, public_schema: str) -> None:
    """Raise RefusedError if a run's schema differs from the node's copy; path "": no copy."""
    if not path:
        return
    try:
        own = schemas.load(path)
    except InputError as error:
        LOG.error("%s: %s", consent.SCHEMA, error)
        raise RefusedError(
            f"this client's {consent.SCHEMA} names no valid schema; its own log says why"
        ) from None
    if change := schemas.difference(own, schemas.parse(public_schema)):
        raise RefusedError(f"data.public-schema differs from this client's own copy: {change}")
