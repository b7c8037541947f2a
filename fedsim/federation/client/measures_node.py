"""A client's measures of the trained model, on the records that it held back from training."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message

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
    scale = Fraction(discrete_laplace.SENSITIVITY[config.privacy.neighbouring]) / Fraction(epsilon)

    def noisy() -> dict[str, ArrayRecord]:
        counts = [
            [count + discrete_laplace.draw(scale) for count in row]
            for row in _confusion(received, classes)
        ]
        confusion = np.array(counts, dtype=np.int64)
        return {messages.MEASURES: messages.array_record(confusion=confusion)}

    answer = kept_answer.answered(received, messages.MEASURES, partial(_enter, received), noisy)
    return messages.reply(message, received.partition, answer)


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
