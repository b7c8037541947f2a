"""Federated averaging by pfl's own loop, with its central Gaussian mechanism, recorded.

    python train.py STEPS.fedt minimize_reuse       # or random, the other way in which pfl samples

360 users with five digits each, 18 of them a step, 20 steps; noise for epsilon 2 at delta 1e-5.
"""

import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from sklearn.datasets import load_digits
from torch import nn

from fedsim.recording import pfl

USERS, COHORT, STEPS = 360, 18, 20
EPSILON, DELTA, NORM = 2.0, 1e-5, 0.5


class Softmax(nn.Linear):
    """Softmax regression on 8x8 pixels, with what pfl asks of a model."""

    def loss(self, images: torch.Tensor, labels: torch.Tensor, eval: bool = False) -> torch.Tensor:
        """Return the mean loss of a user."""
        return nn.functional.cross_entropy(self(images), labels.long())

    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Weighted]:
        """Return the loss of a user."""
        return {"loss": Weighted(self.loss(images, labels).item(), 1)}


def main(path: str, sampler: str) -> None:
    """Train. path: of the transcript; sampler: as pfl names it."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (pfl draws from there)
    digits = load_digits()
    images, labels = (digits.data / 16).astype("f4"), digits.target.astype("f4")
    users = {user: [images[user::USERS], labels[user::USERS]] for user in range(USERS)}
    data = FederatedDataset.from_slices(users, get_user_sampler(sampler, [*users]))
    accountant = PLDPrivacyAccountant(
        num_compositions=STEPS,
        sampling_probability=COHORT / USERS,
        mechanism="gaussian",
        epsilon=EPSILON,
        delta=DELTA,
    )
    gaussian = GaussianMechanism.from_privacy_accountant(accountant, NORM)
    mechanism = pfl(CentrallyAppliedPrivacyMechanism(gaussian), path, population=USERS)  # the line
    network = Softmax(64, 10)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=STEPS,
            evaluation_frequency=STEPS,
            train_cohort_size=COHORT,
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data, [mechanism]),
        PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0)),
        NNTrainHyperParams(local_num_epochs=2, local_learning_rate=0.5, local_batch_size=None),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
