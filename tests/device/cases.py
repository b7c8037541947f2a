"""The kinds of results that are computed on a device: those of tests/pins, and more of the game."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "pins"))

from kinds import TINY, Kind, kinds  # noqa: E402

ELSEWHERE = ("app-audit", "loop-audit", "transcript-audit", "theory", "data", "gate", "one-run-")
"""Pinned kinds that compute nothing on a device, or nothing that another kind does not."""

PICTURES = {"data.name": "npz", "data.root": "pictures.npz", "data.records": 16, "data.pool": 8}
TABLE = {"data.name": "csv", "data.root": "table.csv", "data.label": "y", "data.target": "-3,3"}
TEXTS = {
    **{"data.name": "texts", "data.root": "texts.csv", "data.label": "", "data.length": 8},
    **{"model.name": "hugging-face", "model.weights": "decoder", "model.task": "next-token"},
}
CANARIES = {"canaries.count": 12, "trials.count": 2, "trials.batch": 2}

CHANGES: dict[str, dict[str, object]] = {
    "released-model": {"federation.vantage": "released-model"},
    "own-rounds": {"federation.sampling-rate": 0.5, "federation.adversary-rounds": "own"}
    | {"privacy.unit": "client"},
    "replaced": {"privacy.neighbouring": "replace"},
    "local-sensitivity": {"privacy.sensitivity": "local", "privacy.neighbouring": "replace"},
    "worst-case-model": {"model.initialisation": "worst-case", "challenge.kind": "blank"},
    "crafted-gradient": {"challenge.kind": "gradient"},
    "crafted-backdoor": {"challenge.kind": "backdoor"},
    "crafted-label": {"challenge.kind": "mislabelled", "privacy.neighbouring": "replace"},
    "chosen-by-embedding": {"challenge.space": "embedding", "model.name": "mlp"},
    "bayesian-pairs": {"audit.bayesian-pairs": 2},
    "canaries-gradient": CANARIES,
    "canaries-label": CANARIES | {"canaries.kind": "mislabelled", "canaries.score": "loss"},
    "local-epochs": {"privacy.unit": "client", "training.local-epochs": 2},
    "adam": {"training.optimizer": "adam"},
    "class-priors": {"model.class-priors": ",".join(["0.1"] * 10)},
    "exact-sums": {"federation.trust": "local", "federation.auditor-sees": "messages"},
    "measures": {"federation.measures-epsilon": 5.0, "federation.measures-share": 0.2},
    "bf16": {"run.precision": "bf16", "model.name": "mlp", "audit.mode": "oracle"},
    "convolutions": PICTURES | {"model.name": "mnist-cnn"},
    "regression": TABLE | {"model.task": "huber"},
    "decoder": TEXTS,
    "decoder-adapters": TEXTS | {"model.trainable": "", "model.lora-rank": 2},
}
"""Games: what each changes of a small one."""

SOURCES = {
    "bernau": "figures-4-5-mnist norms-mnist table-2a-mnist figure-7 figure-6d",
    "triastcyn": "figure-2 table-1-mnist",
    "jagielski": "table-2-fixed figure-2-logistic",
}
"""Reproduced papers: items that train on a device."""


def cases() -> dict[str, Kind]:
    """Return every kind by name."""
    pinned = [each for each in kinds(ROOT) if not each.name.startswith(ELSEWHERE)]
    games = [_game(name, changes) for name, changes in CHANGES.items()]
    sources = [_source(name, items.split()) for name, items in SOURCES.items()]
    every = (*pinned, *games, *sources)
    return {each.name: each for each in every if not each.skipped}


def _options(values: dict[str, object]) -> tuple[str, ...]:
    return tuple(word for key, value in values.items() for word in ("--set", f"{key}={value}"))


def _game(name: str, changes: dict[str, object]) -> Kind:
    given = TINY | {"training.rounds": 2, "challenge.dissimilarity": "euclidean"} | changes
    run = ("run", "{tree}/configs/digits.toml", "--quiet", *_options(given), "--out", "run")
    files = (("{tree}/tests/device/files.py",),) if "data.root" in changes else ()
    return Kind(name, (*files, run))


def _source(name: str, items: list[str]) -> Kind:
    command = ("reproduce", name, *items, "--scale", "smoke", "--out", "reproduction")
    return Kind(f"reproduce-{name}", (command,))
