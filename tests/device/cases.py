"""The kinds of results that are computed on a device: those of the corpus, and more of the game."""

import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from corpus import KINDS, TINY, Kind, configuration, options  # noqa: E402

ELSEWHERE = (
    "app-audit",
    "loop-audit",
    "transcript-audit",
    "theory",
    "data",
    "gate",
    "one-run-",
    "client-report",
    "scores",
)
"""Kinds that compute nothing on a device, or nothing that another kind does not."""

PICTURES = {"data.name": "npz", "data.root": "pictures.npz", "data.records": 16, "data.pool": 8}
TABLE = {"data.name": "csv", "data.root": "table.csv", "data.label": "y", "data.target": "-3,3"}
TEXTS = {
    **{"data.name": "texts", "data.root": "texts.csv", "data.label": "", "data.length": 8},
    **{"model.name": "hugging-face", "model.weights": "decoder", "model.task": "next-token"},
}
CANARIES = {"canaries.count": 12, "trials.count": 2, "trials.batch": 2}

CHANGES = {
    "released-model": {"federation.vantage": "released-model"},
    "local-sensitivity": {"privacy.sensitivity": "local", "privacy.neighbouring": "replace"},
    "worst-case-model": {"model.initialisation": "worst-case", "challenge.kind": "clipbkd"},
    "crafted-mislabelled": {"challenge.kind": "mislabelled"},
    "crafted-label": {"challenge.kind": "mislabelled", "privacy.neighbouring": "replace"},
    "chosen-by-embedding": {"challenge.space": "embedding", "model.name": "mlp"},
    "canaries-gradient": CANARIES,
    "canaries-label": CANARIES | {"canaries.kind": "mislabelled"},
    "local-epochs": {"privacy.unit": "client", "training.local-epochs": 2},
    "adam": {"training.optimizer": "adam"},
    "class-priors": {"model.class-priors": ",".join(["0.1"] * 10)},
    "exact-sums": {"federation.trust": "local", "federation.auditor-sees": "messages"},
    "bf16": {"run.precision": "bf16", "model.name": "mlp", "audit.mode": "oracle"},
    "convolutions": PICTURES | {"model.name": "mnist-cnn"},
    "regression": TABLE | {"model.task": "huber"},
    "decoder": TEXTS,
    "decoder-adapters": TEXTS | {"model.trainable": "", "model.lora-rank": 2},
}
"""Games: what each changes of a small one."""


def cases():
    """Return every kind by name, on the device that there is."""
    corpus = [each for name, each in KINDS.items() if not name.startswith(ELSEWHERE)]
    games = [_game(name, changes) for name, changes in CHANGES.items()]
    return {each.name: _anywhere(each) for each in (*corpus, *games)}


def _anywhere(kind):
    return replace(kind, commands=tuple(tuple(map(_word, each)) for each in kind.commands))


def _word(word):
    # All trials of a small game are one batch, as they would be on a device.
    return word.replace("run.device=cpu", "run.device=auto").replace("batch=4", "batch=8")


def _game(name, changes):
    given = TINY | {"training.rounds": 2, "challenge.dissimilarity": "euclidean"} | changes
    run = ("run", configuration("digits"), "--quiet", *options(given), "--out", "run")
    return Kind(name, (run,), files="files.main" if "data.root" in changes else "")
