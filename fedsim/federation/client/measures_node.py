"""A client's measures of the trained model, on the records that it held back from training."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Context, Message

from fedsim.federation.client import admission, client_ledger, holding_back, kept_answer
from fedsim.federation.client.admission import ReceivedMessage
from fedsim.federation.client.preparation import prepared
from fedsim.federation.protocol import consent, messages
from fedsim.federation.protocol.consent import RefusedError
from fedsim.learning.training import evaluation, quality
from fedsim.privacy import discrete_laplace


def measures(message: Message, context: Context) -> Message:
    """Return the noisy confusion matrix of the model in a message, int64 [c, c].

    Each record that was held back is in one cell. Each cell has discrete Laplace noise from the
    operating system's entropy. The ledger charges the answer before it is computed.

    Raises RefusedError if the owner did not agree, or the run does not plan the request.
    """
    received = prepared(message, context)
    config, classes = received.config, received.loaded.split.dataset.classes
    epsilon = config.federation.measures_epsilon
    if config.run.job != "training" or not epsilon:
        raise RefusedError(
            "the server asks for a confusion matrix, but only a training with "
            "federation.measures-epsilon above 0 has one"
        )
    if classes > quality.MOST_CLASSES:
        raise RefusedError(
            f"the server asks for a confusion matrix of {classes} classes, but at most "
            f"{quality.MOST_CLASSES} are allowed"
        )
    why = "the server asks for a confusion matrix of records held back"
    consent.require(context.node_config, {consent.MEASURES: why})
    with kept_answer.answering(received, received.model) as known:
        if known is not None and known.total is not None:
            confusion = known.total
        else:
            if known is None or not known.entered:
                _enter(received)
            confusion = _noisy(received, classes, Fraction(epsilon))
            if known is not None:
                known.keep(confusion)
    answer = {messages.MEASURES: messages.array_record(confusion=confusion)}
    return messages.reply(message, received.partition, answer)


def _noisy(received: ReceivedMessage, classes: int, epsilon: Fraction) -> npt.NDArray[np.int64]:
    """Return the confusion matrix with discrete Laplace noise, int64 [c, c]."""
    scale = Fraction(discrete_laplace.SENSITIVITY[received.config.privacy.neighbouring]) / epsilon
    noisy = [
        [count + discrete_laplace.draw(scale) for count in row]
        for row in _confusion(received, classes)
    ]
    return np.array(noisy, dtype=np.int64)


def _enter(received: ReceivedMessage) -> None:
    """Enter a noisy confusion matrix, the last answer of a training, before it is computed."""
    epsilon, node = received.config.federation.measures_epsilon, received.context.node_config
    terms = consent.terms(node)
    if terms is None:
        return
    # A round number after the last one: the ledger then refuses every further request of this run.
    last = received.config.training.rounds + 1
    answer = replace(
        admission.answer_to(received, admission.agreed_noise(terms, received.context)),
        round=last,
    )
    if consent.EXPERIMENT not in terms.kinds:
        answer = replace(answer, measured=epsilon)
    client_ledger.enter(terms, answer)


def _confusion(received: ReceivedMessage, classes: int) -> list[list[int]]:
    loaded = received.loaded
    back = holding_back.held_back(received.whole, loaded, received.partition)
    if not len(back):
        return [[0] * classes for _ in range(classes)]
    features, labels = loaded.members(back)
    # One record at a time: the rounding of a kernel depends on the number of rows. A hostile
    # server's model could enlarge such a difference, so that the absence of one record would move
    # other records between cells, which the noise does not cover.
    outputs = torch.cat(
        [
            evaluation.logits(loaded.model, received.model, one.clone())[0]
            for one in features.split(1)
        ]
    )
    return [list(row) for row in quality.confusion(outputs, labels).counts]
