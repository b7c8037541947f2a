"""Which setting `fedsim init` and `fedsim choose` find for tables, without any further option.

Beside the chosen setting stand a linear model of scikit-learn without privacy, and the best of ten
settings of Opacus at the same epsilon and delta. Opacus' settings are chosen by the very records on
which all are compared, which flatters it.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from opacus import PrivacyEngine
from scipy.optimize import brentq
from scipy.special import expit
from sklearn import datasets
from tables import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fedsim.configuration import Config
from fedsim.configuration import files as configuration_files
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.learning.training import tasks
from fedsim.learning.training.criterion import Judged
from fedsim.studies.choose import utility

BELIEF = 0.9
"""Limit on the belief: epsilon is ln 9 = 2.197."""

BATCH, SEEDS = 512, 3
TUNED = [(epochs, rate) for epochs in (5, 20) for rate in (0.02, 0.1, 0.5, 2.0, 8.0)]
"""Epochs and learning rates of SGD that are tried with Opacus."""


@dataclass(frozen=True)
class Named:
    """A table with the name of its label."""

    name: str
    label: str
    make: Callable[[], pd.DataFrame]


def bank(rows: int = 40_000, positives: float = 0.18) -> pd.DataFrame:
    """Return customers with gaps, dates and an id, some of whom default."""
    random = np.random.default_rng(7)
    opened = pd.Timestamp("2004-01-01") + pd.to_timedelta(random.integers(0, 7000, rows), "D")
    frame = pd.DataFrame(
        {
            "customer": random.permutation(rows) + 1_000_000,
            "opened": opened.strftime("%Y-%m-%d"),
            "age": np.clip(random.normal(43, 13, rows), 18, 90).round(),
            "income": np.exp(random.normal(7.8, 0.45, rows)).round(2),
            "loan": np.exp(random.normal(9.0, 0.8, rows)).round(2),
            "savings": np.exp(random.normal(7.5, 1.0, rows)).round(2),
            "late": random.poisson(0.7, rows).clip(0, 9),
            "contact": random.integers(0, 60, rows),
            "purpose": random.choice(["car", "home", "study", "trade"], rows),
            "housing": random.choice(["own", "rent", "free"], rows, p=[0.62, 0.28, 0.1]),
        }
    )
    odds = 0.4 * frame["late"] - 0.5 * np.log(frame["income"]) + 0.4 * np.log(frame["loan"])
    odds += frame["housing"].map({"own": -0.4, "rent": 0.3, "free": 0.1}) - 0.02 * frame["age"]
    odds -= brentq(lambda shift: expit(odds - shift).mean() - positives, -20, 20)
    frame["income"] = frame["income"].where(random.random(rows) > 0.05)
    frame["contact"] = frame["contact"].where(random.random(rows) > 0.03)
    frame["default"] = np.where(random.random(rows) < expit(odds), "yes", "no")
    return frame


def made(classes: int, rows: int, columns: int = 12) -> pd.DataFrame:
    """Return a table of classes that overlap, by scikit-learn."""
    features, labels = datasets.make_classification(
        rows, columns, n_informative=8, n_classes=classes, flip_y=0.05, random_state=3
    )
    return pd.DataFrame(features.round(4)).add_prefix("x").assign(label=labels)


def categories(rows: int = 8000) -> pd.DataFrame:
    """Return ten columns of six values each, which become 60 columns."""
    random = np.random.default_rng(5)
    values = random.integers(0, 6, (rows, 10))
    effects = random.normal(0, 0.5, (10, 6))
    odds = effects[np.arange(10), values].sum(1)
    frame = pd.DataFrame(values).map(lambda value: "abcdef"[value]).add_prefix("c")
    return frame.assign(label=np.where(random.random(rows) < expit(odds), "yes", "no"))


def bundled(load: Callable[..., object]) -> Callable[[], pd.DataFrame]:
    """Return a function that reads a data set of scikit-learn."""
    return lambda: load(as_frame=True).frame  # type: ignore[attr-defined]


TABLES = [
    Named("bank, 18% default", "default", bank),
    Named("bank, 2% default", "default", lambda: bank(20_000, 0.02)),
    Named("breast-cancer", "target", bundled(datasets.load_breast_cancer)),
    Named("wine, 3 classes", "target", bundled(datasets.load_wine)),
    Named("digits, 10 classes", "target", bundled(datasets.load_digits)),
    Named("8 classes", "label", lambda: made(8, 6000)),
    Named("300 rows", "label", lambda: made(2, 300)),
    Named("60 one-hot columns", "label", categories),
    Named("diabetes, a number", "target", bundled(datasets.load_diabetes)),
]


ADULT = (
    *("age", "workclass", "weight", "education", "years", "marital", "occupation", "relationship"),
    *("race", "sex", "gain", "loss", "hours", "country", "income"),
)
ABALONE_FILE = "abalone/abalone.data"
ABALONE = ("sex", "length", "diameter", "height", "whole", "shucked", "viscera", "shell", "rings")


def _read(path: Path, names: tuple[str, ...]) -> pd.DataFrame:
    """Return a table of the UCI repository, which has no header."""
    return pd.read_csv(path, names=list(names), skipinitialspace=True, na_values="?")


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a row for each table."""
    chosen = [Named("300 rows", "label", lambda: made(2, 300))] if smoke else [*TABLES]
    if data_root is not None and not smoke:
        chosen += [
            Named("adult", "income", lambda: _read(data_root / "adult/adult.data.gz", ADULT)),
            Named("abalone, a number", "rings", lambda: _read(data_root / ABALONE_FILE, ABALONE)),
        ]
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for each in chosen:
            rows.append(_row(each, Path(folder), smoke))
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    yield Table(
        "What `fedsim init TABLE` and `fedsim choose FILE --max-belief 0.9` find at this limit",
        (
            *("table", "records", "s", "chosen", "criterion", "fedsim"),
            *("Opacus, best of ten", "without privacy", "a constant answer"),
        ),
        rows,
        "95% intervals over held-out records and trainings. Opacus: a linear model, Poisson "
        f"batches of {BATCH}, clipping norm 1; of ten settings of epochs and rate, the one "
        f"whose first training is best on the held-out records of the comparison, with {SEEDS} "
        "trainings.",
    )


def _row(table: Named, folder: Path, smoke: bool) -> tuple[str, ...]:
    place = folder / table.name.translate({ord(sign): "-" for sign in " ,%"})
    place.mkdir(exist_ok=True)
    data, file, out = place / "table.csv", place / "table.toml", place / "out"
    table.make().to_csv(data, index=False)
    start = time.perf_counter()
    _fedsim("init", file, "--data", data, "--label", table.label)
    limit = ("--max-belief", BELIEF, "--over", f"privacy.rho-beta={BELIEF}")
    answered = json.loads(_fedsim("choose", file, *limit, "--out", out, "--json"))
    seconds = time.perf_counter() - start
    best = next((each for each in answered["settings"] if each["chosen"]), None)
    if best is None:
        return table.name, "", f"{seconds:.0f}", answered["sentences"][0], *[""] * 5
    config = configuration_files.load(out / "config.toml", {"model.name": "linear"})
    loaded = federation.load(config)
    opacus = _opacus(loaded, config, best["epsilon"], TUNED[:2] if smoke else TUNED)
    rows = utility.measure(loaded, utility.fitted(loaded))
    judged = utility.utility(loaded, rows).criterion
    return (
        table.name,
        str(config.data.records),
        f"{seconds:.0f}",
        f"{best['model.name']}, {best['training.rounds']} rounds",
        judged.name,
        _shown(best["value"], (best["low"], best["high"])),
        _shown(opacus.value, opacus.interval),
        _shown(judged.value, None),
        _shown(judged.constant, None),
    )


def _fedsim(*words: object) -> str:
    command = [sys.executable, "-m", "fedsim", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def _shown(value: float | None, between: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    ends = "" if between is None else f" ({between[0]:.3f} to {between[1]:.3f})"
    return f"{value:.3f}{ends}"


def _opacus(
    loaded: Federation, config: Config, epsilon: float, tried: list[tuple[int, float]]
) -> Judged:
    """Return the best of some settings of Opacus over a few trainings; one training ranks them."""

    def judged(setting: tuple[int, float], seeds: int) -> utility.Utility:
        models = [_trained(loaded, config, epsilon, *setting, seed) for seed in range(seeds)]
        return utility.utility(loaded, utility.measure(loaded, torch.stack(models)))

    best = max(tried, key=lambda setting: judged(setting, 1).gain)
    return judged(best, SEEDS).criterion


def _trained(
    loaded: Federation, config: Config, epsilon: float, epochs: int, rate: float, seed: int
) -> Tensor:
    """Return the final parameters of a training by Opacus, float32 [P]."""
    features, labels = loaded.members(np.arange(len(loaded.client_of)))
    torch.manual_seed(seed)
    model = federation.build_model(config, loaded.split.dataset)
    task = tasks.task_of(model)
    network = nn.Sequential(model)  # a module without the attributes of fedsim's models
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    loader = DataLoader(TensorDataset(features, labels), batch_size=min(BATCH, len(labels) // 4))
    with warnings.catch_warnings(), contextlib.redirect_stderr(None):
        warnings.simplefilter("ignore")
        private, stepping, batches = PrivacyEngine().make_private_with_epsilon(
            module=network,
            optimizer=optimizer,
            data_loader=loader,
            epochs=epochs,
            target_epsilon=epsilon,
            target_delta=config.privacy.delta,
            max_grad_norm=1.0,
        )
        for _ in range(epochs):
            for inputs, targets in batches:
                if not len(targets):
                    continue
                stepping.zero_grad()
                task.loss(private(inputs), targets).mean().backward()
                stepping.step()
    return nn.utils.parameters_to_vector(network.parameters()).detach()
