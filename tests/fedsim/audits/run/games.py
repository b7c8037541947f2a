"""Games that follow theory, as the facts and the transcript of a run have them."""

import numpy as np

from fedsim.federation.runs import spending
from fedsim.game.mechanisms import privacy

TRIALS, ROUNDS = 2000, 30


def gaussian_game(config, strength=1.0, seed=0, trials=TRIALS):
    """Play the Gaussian game that a configuration describes; `strength` multiplies the signal."""
    generator = np.random.default_rng(seed)
    nominal = privacy.noise_multiplier(config)
    effective = privacy.mechanism(config, nominal).groups[0].noise_multiplier
    worlds = np.arange(trials) % 2 == 0
    step = strength / effective
    signs = np.where(worlds, 1, -1)[:, None]
    ratios = signs * step**2 / 2 + step * generator.standard_normal((trials, ROUNDS))
    transcript = {
        "worlds": worlds,
        "log_odds": np.cumsum(ratios, axis=1),
        "sensitivities": np.ones((trials, ROUNDS)),
        "noise_stds": np.full((trials, ROUNDS), effective),
        "true_positive_rate": generator.uniform(0.5, 0.7, trials),
        "false_positive_rate": generator.uniform(0.5, 0.7, trials),
        "challenge_is_member": generator.random(trials) < 0.5,
        "epsilon_spent": spending.curve(config, nominal, []),
        "losses": np.linspace(2, 1, ROUNDS + 1)[:, None] + np.zeros((1, 3)),
        "accuracies": np.linspace(0.1, 0.8, ROUNDS + 1)[:, None] + np.zeros((1, 3)),
    }
    facts = {
        "created": "2026-01-01T00:00:00+00:00",
        "runtime": "in process",
        "device": "cpu",
        "versions": {"fedsim": "0"},
        "challenge": {
            "record": 0,
            "replacement": None,
            "client": 0,
            "adversary": 1,
            "measure": "given",
            "distance": None,
            "kind": "record",
            "label": None,
        },
        "client_sizes": [12, 12],
        "mean_label_skew": None,
        "gradient_fallbacks": {},
        "frozen_parameters": 0,
        "precision": "float32",
        "dataset": "digits",
        "held_out": 20,
        "majority": 0.3,
        "parameters": 650,
        "noise_multiplier": nominal,
        "planned_trials": trials,
        "batches": 1,
        "timing": {"federation": 1.0, "total": 1.0},
    }
    return facts, transcript
