"""`fedsim train` keeps a model; what is for experiments says that a training is none."""

from collections.abc import Callable
from pathlib import Path

from fedsim.config import Config, dump

Command = Callable[..., tuple[int, str, str]]


def test_a_model_is_trained_kept_and_told_from_an_experiment(
    fedsim: Command, small: Callable[..., Config], tmp_path: Path
) -> None:
    path, out = tmp_path / "training.toml", tmp_path / "model"
    local = {"federation.trust": "local", "federation.vantage": "server"}
    path.write_text(dump(small(local | {"privacy.noise-source": "system"})))
    status, _, said = fedsim("train", path, "--out", out)
    assert status == 0, said
    assert "Accuracy" in said
    card = (out / "MODEL_CARD.md").read_text()
    assert "| the server | sees every client's sum under that client's own noise |" in card
    assert "No guarantee" not in card
    # The same command again has nothing to do, and says so with the same numbers.
    again = fedsim("train", path, "--out", out)
    assert (again[0], (out / "MODEL_CARD.md").read_text()) == (0, card)
    for arguments in (("run", "--resume", out), ("run", out / "config.toml")):
        status, _, said = fedsim(*arguments)
        assert (status, "is of a training" in said, said.count("\n")) == (2, True, 1)
    status, _, said = fedsim("report", out)
    assert (status, "holds a trained model" in said, said.count("\n")) == (2, True, 1)
