"""What a client's node says of the trained model, about records that it held back from training."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import torch
from flwr.app import Context, Message

from fedsim.federation.client import admission, client_ledger, holding_back
from fedsim.federation.client.inputs import Received
from fedsim.federation.client.preparation import prepared
from fedsim.federation.protocol import consent, messages
from fedsim.federation.protocol.consent import RefusedError
from fedsim.learning.training import evaluation, quality
from fedsim.privacy import discrete_laplace


def measures(message: Message, context: Context) -> Message:
    """Return the noisy confusion matrix of the model that a message brings, int64 [c, c].

    Each record that was held back is in one cell, and each cell has discrete Laplace noise of the
    operating system's entropy. The answer is in the client's ledger before it is computed.

    Raises RefusedError if the owner did not agree to it, or the run does not plan it.
    """
    received = prepared(message, context)
    config, classes = received.config, received.known.split.dataset.classes
    epsilon = config.federation.measures_epsilon
    if config.run.job != "training" or not epsilon:
        raise RefusedError(
            "a confusion matrix is asked for, but only a training with "
            "federation.measures-epsilon above 0 has any"
        )
    if classes > quality.MOST_CLASSES:
        raise RefusedError(f"a confusion matrix of {classes} classes is asked for, at most 100 are")
    _enter(received)
    sensitivity = discrete_laplace.SENSITIVITY[config.privacy.neighbouring]
    scale = Fraction(sensitivity) / Fraction(epsilon)
    noisy = [
        [count + discrete_laplace.draw(scale) for count in row]
        for row in _confusion(received, classes)
    ]
    answer = {messages.MEASURES: messages.array_record(confusion=np.array(noisy, dtype=np.int64))}
    return messages.reply(message, received.partition, answer)


def _enter(received: Received) -> None:
    """Enter a noisy confusion matrix, the last answer of a training, before it is computed.

    Simulated clients enter nothing, and were asked nothing.

    Raises RefusedError if the owner did not agree to it; if it was answered in this run already,
    which has no round after it; or if the budget does not allow it.
    """
    epsilon, node = received.config.federation.measures_epsilon, received.context.node_config
    terms = consent.terms(node)
    if terms is None:
        return
    consent.check(node, {consent.MEASURES: "a confusion matrix of records held back is asked for"})
    # Behind the last round, so that the ledger lets neither it nor a round come again in this run.
    last = received.config.training.rounds + 1
    answer = replace(
        admission.answer_to(terms, received, admission.agreed_noise(terms, received.context)),
        round=last,
    )
    if consent.EXPERIMENT not in terms.kinds:
        answer = replace(answer, measured=epsilon)
    client_ledger.enter(terms, answer)


def _confusion(received: Received, classes: int) -> list[list[int]]:
    known = received.known
    back = holding_back.held_back(received.whole, known, received.partition)
    if not len(back):
        return [[0] * classes for _ in range(classes)]
    features, labels = known.members(back)
    # One record at a time. The rounding of a kernel depends on how many rows there are, and a model
    # of a hostile server can make it as large as an answer: in blocks, the absence of one record
    # could move others from cell to cell, which the noise does not cover.
    outputs = torch.cat(
        [
            evaluation.logits(known.model, received.model, one.clone())[0]
            for one in features.split(1)
        ]
    )
    return [list(row) for row in quality.confusion(outputs, labels).counts]
