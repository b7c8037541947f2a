"""The loop of the studies is that of a run, and no key is played in another way than a run does."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from adversaries.errors import InputError
from fedsim.configuration import Config, to_run_config
from fedsim.federation.server import training
from fedsim.game import federation
from fedsim.game.mechanisms import privacy
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.studies import rounds
from fedsim.studies.rounds import UNPLAYED

PLAYED = (
    *("data.", "model.", "training.", "run.device", "run.threads", "run.max-memory"),
    *("run.precision", "run.seed", "trials.batch", "federation.clients", "federation.partition"),
    *("federation.dirichlet-alpha", "federation.trust", "federation.vantage"),
    *("federation.colluding", "privacy.", "challenge."),
)
"""Keys that a study plays as a run does: they reach the loop by the same objects.

The vantage and the colluders decide how much noise a target needs.
"""

OF_A_RUN = (
    *("audit.", "report.", "run.name", "run.job", "run.purpose", "run.out"),
    *("trials.count", "canaries.", "federation.timeout", "federation.secure-aggregation"),
    "federation.auditor-sees",
)
"""Keys that change no training: how messages travel, what is measured, and where it is written."""


def test_every_key_of_the_configuration_is_played_refused_or_of_no_effect():
    for key in to_run_config(Config()):
        kinds = [key in UNPLAYED, key.startswith(PLAYED), key.startswith(OF_A_RUN)]
        assert any(kinds), f"{key}: can a study play it? see fedsim.studies.rounds.UNPLAYED"
        assert kinds[1:] != [True, True], f"{key} is in two lists"
    assert set(UNPLAYED) <= set(to_run_config(Config()))


def _changed(config, key, value):
    """Return a configuration with another value, whatever other keys need."""
    name, field = key.replace("-", "_").split(".")
    table = getattr(config, name).model_copy(update={field: value})
    return config.model_copy(update={name: table})


@pytest.mark.parametrize("key", UNPLAYED)
def test_what_a_study_cannot_play_is_refused_in_whole_sentences(key, small):
    playable, default = UNPLAYED[key], to_run_config(Config())[key]
    assert default in playable.values
    other = "another" if isinstance(default, str) else not default
    for study in rounds.ALL:
        rounds.refuse_unplayed(small(), study)
        config = _changed(small(), key, other)
        if study not in playable.studies:
            rounds.refuse_unplayed(config, study)
            continue
        with pytest.raises(InputError) as refused:
            rounds.refuse_unplayed(config, study)
        message = str(refused.value)
        assert message.startswith(f"{key} is ")
        assert f"which {study} cannot play. {playable.why} Set {key} = " in message


MODES = [
    {},
    {"training.sampling-rate": 0.5},
    {"privacy.neighbouring": "replace", "model.initialisation": "fixed"},
    {"federation.trust": "local", "training.optimizer": "adam", "training.learning-rate": 0.05},
    {"federation.trust": "distributed", "model.name": "mlp"},
    {"training.clipping": False, "privacy.rho-beta": 0.0, "privacy.noise-multiplier": 1.0},
    {"training.schedule": "cosine", "training.warmup-rounds": 1, "training.optimizer": "sgd"},
]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(map(str, mode.values())))
def test_the_models_of_every_round_are_those_of_a_run_in_the_world_of_d(
    mode, small, run, monkeypatch
):
    """To a part in 1e5: the clients' sums are one sum, and float32 rounds them."""
    config, models = small(mode), list[Tensor]()

    class Recorded(ServerOptimizer):
        def step(self, *arguments):
            models.append(super().step(*arguments))
            return models[-1]

    monkeypatch.setattr(training, "ServerOptimizer", Recorded)
    on_d = run(config)["worlds"]
    assert 0 < on_d.sum() < len(on_d)
    loaded, nominal = federation.load(config), privacy.noise_multiplier(config)
    own = list[Tensor]()

    def release(round):
        own.append(round.theta)
        return round.clean_sum() + round.noise(nominal)

    [last] = rounds.trained(config, loaded, len(on_d), len(on_d), release)
    for ours, theirs in zip([*own[1:], last], models, strict=True):
        np.testing.assert_allclose(ours[on_d], theirs[on_d], rtol=1e-5, atol=2e-5)
        assert not torch.allclose(ours[~on_d], theirs[~on_d], rtol=1e-4, atol=1e-4)


def test_trainings_come_in_batches_and_progress_reaches_all_of_them(small):
    config, reports = small(), list[float]()
    loaded = federation.load(config)

    def models(batch):
        trained = rounds.trained(
            config,
            loaded,
            7,
            batch,
            lambda round: round.clean_sum(),
            progress=reports.append,
        )
        return list(trained)

    [whole], parts = models(7), models(3)
    np.testing.assert_allclose(torch.cat(parts), whole, rtol=1e-5, atol=1e-6)
    assert [len(part) for part in parts] == [3, 3, 1]
    assert reports.count(1) == 2


def test_a_model_that_diverges_is_bad_input(small):
    config = small({"training.learning-rate": 1e38, "model.name": "mlp"})
    loaded = federation.load(config)
    with pytest.raises(InputError, match=r"diverged; lower training\.learning-rate"):
        list(rounds.trained(config, loaded, 2, 2, lambda round: round.clean_sum()))


def test_no_study_steps_a_model_by_itself():
    for path in (Path(rounds.__file__).parent).rglob("*.py"):
        assert ("ServerOptimizer" in path.read_text()) == (path.name == "rounds.py"), path.name
