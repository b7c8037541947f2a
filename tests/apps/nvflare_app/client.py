"""A site of NVFlare's hello-world: softmax regression on a share of the digits, in NumPy."""

import numpy as np
import nvflare.client as flare
from sklearn.datasets import load_digits

STEPS, RATE = 5, 0.5


def main() -> None:
    """Train whatever model arrives, and send the difference."""
    flare.init()
    share = slice(int(flare.get_site_name().rpartition("-")[2]) - 1, None, 5)
    digits = load_digits()
    images = np.hstack([digits.data[share] / 16, np.ones((len(digits.data[share]), 1))])
    labels = np.eye(10)[digits.target[share]]
    while flare.is_running():
        ((name, model),) = flare.receive().params.items()
        weights = model.copy()
        for _ in range(STEPS):
            scores = np.exp(images @ weights)
            chances = scores / scores.sum(1, keepdims=True)
            weights -= RATE * images.T @ (chances - labels) / len(labels)
        update = {name: weights - model}
        flare.send(flare.FLModel(params=update, params_type=flare.ParamsType.DIFF))


if __name__ == "__main__":
    main()
