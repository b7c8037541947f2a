"""Measures of a classifier beside its accuracy, for classes of uneven size."""

import torch
from scipy.stats import rankdata
from torch import Tensor


def majority_share(labels: Tensor) -> float:
    """Return the share of the most frequent label: the accuracy of a model that learnt nothing.

    labels: [n] integers.
    Returns: the share; 0 of no records.
    """
    if not labels.numel():
        return 0.0
    return int(torch.bincount(labels.flatten()).max()) / labels.numel()


def balanced_accuracy(correct: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over the classes of the share of their records that is right, float64 [T].

    correct: bool [T, n].
    labels: [n] integers, at least one; classes without a record do not count.
    """
    present = [correct[:, labels == label].double().mean(1) for label in labels.unique()]
    return torch.stack(present).mean(0)


def area_under_curve(losses: Tensor, labels: Tensor, classes: int) -> Tensor | None:
    """Return the area under the ROC curve of two classes, float64 [T].

    With two classes the loss -log p(label) tells the odds of class 1. Ties count half.

    losses: cross-entropy, [T, n].
    labels: [n] integers.
    Returns: the areas; None for other than two classes, or where one of them has no record.
    """
    positive = labels == 1
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if classes != 2 or not ones or not zeros:
        return None
    right = losses.double().clamp(min=torch.finfo(torch.float64).tiny)
    # log p/(1 - p) of the label's p = exp(-loss), and of class 1.
    odds = -right - torch.log(-torch.expm1(-right))
    scores = torch.where(positive, odds, -odds).cpu().numpy()
    ranks = torch.from_numpy(rankdata(scores, axis=1))
    above = ranks[:, positive.cpu()].sum(1) - ones * (ones + 1) / 2
    return above / (ones * zeros)
