"""A whole campaign on MNIST: `fedsim run` with its adversary, and Opacus training the same models.

The campaign is that of configs/mnist.toml (Bernau et al.: T trials of 30 full-batch noisy steps on
100 records). Opacus trains as many models one after another, without a federation and without an
adversary; a part of them is timed and scaled.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from contestants import CORES, OPACUS
from tables import Table
from torch import nn

from fedsim.common import device
from fedsim.common.randomness import SERVER
from fedsim.configuration import files as configuration_files
from fedsim.game import challenge, federation
from fedsim.game.client import clean_sum, noise
from fedsim.game.mechanisms import privacy
from fedsim.game.pair import challenge_gradients
from fedsim.learning.training import models
from fedsim.learning.training.optimizers import ServerOptimizer

CONFIG = Path(__file__).parents[2] / "configs" / "mnist.toml"
MODES = ("oracle", "participant")


@dataclass(frozen=True)
class Size:
    """How much of the campaign is run."""

    trials: int = 1000
    rounds: int = 30
    opacus_trials: int = 40
    alone_trials: int = 200
    pool: int = 2000
    held_out: int = 500

    def overrides(self, root, where):
        """Return what differs from the configuration file."""
        return {
            "trials.count": self.trials,
            "training.rounds": self.rounds,
            "data.pool": self.pool,
            "data.held-out": self.held_out,
            "data.root": str(root),
            "run.device": where.type,
        }


SMOKE = Size(4, 2, opacus_trials=2, alone_trials=4, pool=20, held_out=20)


def measure(size, root, where):
    """Yield the time of the campaign, by fedsim in both audit modes and by Opacus."""
    with tempfile.TemporaryDirectory() as scratch:
        if root is None:
            root = Path(scratch) / "random"
            write_random_mnist(root, size.pool + 200, size.held_out)
            name, records = "idx", "records of random pixels"
        else:
            name, records = "mnist", "MNIST"
        overrides = size.overrides(root, where) | {"data.name": name}
        timings = {mode: _fedsim(overrides, mode, Path(scratch) / mode) for mode in MODES}
        config = configuration_files.load(CONFIG, overrides)
        alone = _training_alone(config, size)
        opacus = {who: _opacus(config, mode, size, where) for who, mode in OPACUS.items()}
    what = f"{size.trials} trials x {size.rounds} rounds x {config.data.records} {records}"
    command = timings["oracle"]["command"]
    rows = [
        (f"fedsim run, {mode} audit", timing["command"], timing["command"] / command)
        for mode, timing in timings.items()
    ]
    rows += [(who, seconds, seconds / command) for who, seconds in opacus.items()]
    rows.append(("the better mode of Opacus", min(opacus.values()), min(opacus.values()) / command))
    note = (
        f"fedsim: the whole command, with start-up, choice of the challenge, federation of "
        f"{config.federation.clients} clients, adversary, evaluation and report. Opacus: the steps "
        f"alone, measured on {min(size.opacus_trials, size.trials)} models and scaled."
    )
    columns = ("contestant", "seconds", "times fedsim's")
    yield Table(f"Campaign: {what}", columns, rows, note)
    columns = (
        "audit",
        "command",
        "federation",
        "training alone",
        "command / training alone",
    )
    rows = [
        (
            mode,
            timing["command"],
            timing["federation"],
            alone,
            timing["command"] / alone,
        )
        for mode, timing in timings.items()
    ]
    note = (
        "Seconds. Training alone: a loop over the rounds that takes the clipped sums of all "
        "clients, the sensitivity that scales the noise, the noise and the step, without Flower, "
        f"adversary, evaluation and report; measured on {min(size.alone_trials, size.trials)} "
        "trials and scaled. Clients computing: in the run, the adversary's part included."
    )
    yield Table("Campaign: where fedsim's time goes", columns, rows, note)


def _training_alone(config, size):
    """Return the seconds in which a plain loop trains all the models, scaled from some of them."""
    device.single_threaded_kernels()
    known, chosen = federation.load(config), challenge.choose(config)
    worlds = challenge.worlds(config.run.seed, config.trials.count)
    multiplier = privacy.noise_multiplier(config)
    timed = min(size.alone_trials, size.trials)

    def train(trials):
        theta = models.initial_parameters(
            lambda: federation.build_model(config, known.split.dataset),
            config.run.seed,
            trials,
        ).to(known.device)
        bits = torch.from_numpy(worlds[trials.start : trials.stop]).to(known.device)
        optimizer = ServerOptimizer(config.training, config.data.records)
        for step in range(1, config.training.rounds + 1):
            pair = chosen.record, chosen.replacement
            present, absent = challenge_gradients(known, theta, *pair)
            std = multiplier * (present - absent).norm(dim=-1)
            total = noise(config.noise_seed, trials, step, SERVER, std, theta.shape[1])
            for client in range(config.federation.clients):
                target_client = pair if client == chosen.client else (None, None)
                total += clean_sum(known, client, theta, *target_client, bits)
            theta = optimizer.step(theta, total.float(), step)

    train(range(min(timed, 2)))  # to warm up
    start = time.perf_counter()
    for first in range(0, timed, config.trials.batch):
        train(range(first, min(first + config.trials.batch, timed)))
    return (time.perf_counter() - start) * size.trials / timed


def _fedsim(overrides, mode, out):
    """Run the command; return its seconds and those that its report states."""
    settings = overrides | {"audit.mode": mode}
    command = [sys.executable, "-c", "from fedsim.commands.entry import main; main()"]
    command += ["run", str(CONFIG), "--quiet", "--out", str(out)]
    for key, value in settings.items():
        command += [f"{key}={json.dumps(value)}"]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - start
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return {"command": seconds, **report["details"]["timing"]}


def _opacus(config, mode, size, where):
    """Return the seconds in which Opacus trains all the models, scaled from some of them."""
    torch.set_num_threads(CORES)
    known = federation.load(config)
    dataset = known.split.dataset
    features, labels = known.members(np.arange(config.data.records))
    timed = range(min(size.opacus_trials, size.trials))
    theta = models.initial_parameters(
        lambda: federation.build_model(config, dataset), config.run.seed, timed
    ).to(where)
    multiplier = privacy.noise_multiplier(config)
    rate = config.training.learning_rate / len(labels)

    def train(flat, rounds):
        model = federation.build_model(config, dataset).to(where)
        nn.utils.vector_to_parameters(flat, model.parameters())
        opacus = mode(model, config.training.clipping_norm, multiplier, rate)
        for _ in range(rounds):
            opacus.optimizer.zero_grad(set_to_none=True)
            opacus.backward(features, labels)
            opacus.optimizer.step()

    train(theta[0].clone(), 1)  # to warm up
    start = time.perf_counter()
    for flat in theta:
        train(flat, size.rounds)
    if where.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * size.trials / len(timed)


def write_random_mnist(root, train, test):
    """Write the four IDX files of MNIST with random pixels and labels, from a fixed seed."""
    root.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = generator.integers(0, 10, count, dtype=np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
            (root / f"{part}-{name}-ubyte").write_bytes(header + array.tobytes())
