"""A private training of a table to its AUC, by `fedsim train` and by Opacus at the same epsilon.

Both train the same linear network on the same features, and are timed without the start of the
process: Opacus from the features on; fedsim from there, with three clients, a ledger and a
checkpoint a round, and also from its configuration to the model's file. The search of each for its
fastest setting that reaches an AUC that both reach is free.
"""

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.accountants.utils import get_noise_multiplier
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from sklearn.metrics import roc_auc_score
from tables import Table
from torch import nn
from torch.utils.data import TensorDataset

import fedsim
from fedsim.commands.init import init
from fedsim.configuration import files as configuration_files
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game import federation

EPSILON, BATCH = float(np.log(9)), 512
ROUNDS, EPOCHS = (8, 12, 20), (1, 2, 5, 10, 20)
RATES = (0.5, 2.0, 8.0)
"""Learning rates of Opacus; fedsim's default optimiser needs none."""

LOST = 0.002
"""Difference of AUC that does not count."""

HEADER = "age,stay,labs,meds,inpatient,emergency,diagnoses,admission,ward,sex,insulin,readmitted"


def measure(smoke):
    """Yield the seconds and AUC of both, and the ratio at fedsim's AUC."""
    records = 2_000 if smoke else 39_000  # of which init keeps a tenth or more apart
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "warm").mkdir()
        write_patients(folder / "warm" / "patients.csv", 500)
        write_patients(folder / "patients.csv", records)
        _fedsim(folder / "warm")  # imports, and kernels' first calls
        proposed, area, loaded = _fedsim(folder)
        ours = [_fedsim(folder, rounds)[:2] for rounds in ROUNDS[: 1 if smoke else None]]
    rows = [("fedsim train, as init proposes", *proposed, area)]
    rows += [
        (f"fedsim train, {count} rounds", *seconds, reached)
        for count, (seconds, reached) in zip(ROUNDS, ours, strict=False)
    ]
    theirs = []
    for epochs in EPOCHS[: 1 if smoke else None]:
        for rate in RATES:
            seconds, reached = _opacus(loaded, epochs, rate)
            theirs.append((seconds, reached))
            rows.append((f"Opacus, {epochs} epochs, rate {rate:g}", seconds, None, None, reached))
    ours.append((proposed, area))
    target = min(max(reached for _, reached in each) for each in (ours, theirs)) - LOST
    fast = min(seconds for seconds, reached in theirs if reached >= target)
    times = [
        min(each[part] for each, reached in ours if reached >= target) / fast for part in range(3)
    ]
    rows.append(("fastest of fedsim / of Opacus", *times, target))
    columns = ("contestant", "seconds", "from file", "with report", "AUC")
    note = f"epsilon {EPSILON:.3f} at delta 1/(10 n), linear network, one thread each."
    yield Table(f"A training of {records} rows", columns, rows, note)


def write_patients(path, records):
    """Write a table of synthetic patients, whose best AUC is about 0.68."""
    draw = np.random.default_rng(1)
    age, diagnoses = draw.integers(18, 95, records), draw.integers(1, 16, records)
    stay = draw.gamma(2, 2.2, records).clip(1, 14).round()
    labs, meds = draw.normal(43, 19, records), draw.normal(16, 8, records)
    inpatient, emergency = draw.poisson(0.6, records), draw.poisson(0.2, records)
    admission = draw.choice(list("ABCDE"), records, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    ward = draw.choice([f"w{number}" for number in range(12)], records)
    sex = draw.choice(["m", "f"], records)
    insulin = draw.choice(["no", "steady", "up", "down"], records)
    odds = 0.012 * (age - 60) + 0.06 * stay + 0.45 * inpatient + 0.35 * emergency - 0.9
    odds += 0.05 * (diagnoses - 8) + 0.3 * (admission == "B") - 0.3 * (admission == "E")
    odds += 0.2 * (insulin == "up") + 0.0125 * (meds - 16)
    label = np.where(draw.random(records) < 1 / (1 + np.exp(-odds)), "yes", "no")
    columns = (age, stay, labs.round(), meds.round(), inpatient, emergency, diagnoses)
    rows = zip(*columns, admission, ward, sex, insulin, label, strict=True)
    path.write_text("\n".join([HEADER, *(",".join(map(str, row)) for row in rows)]) + "\n")


def _fedsim(folder, rounds=None):
    """Return seconds of the rounds, to the model, and with the report; AUC; and the federation."""
    own = folder / f"{rounds}"  # a file that was read before is not read again
    own.mkdir()
    shutil.copy(folder / "patients.csv", own)
    settings, out = own / "patients.toml", own / "model"
    init(settings, data=str(own / "patients.csv"), label="readmitted")
    start = time.time()
    fedsim.train(settings, *([] if rounds is None else [f"training.rounds={rounds}"]), out=out)
    whole = time.time() - start
    seconds = (out / "public" / "model.safetensors").stat().st_mtime - start
    events = [event for event, _ in RunDirectory(out).events()]
    at = {event["phase"]: event["time"] for event in events if "phase" in event}
    training = at["reporting"] - at["training"]
    area = [event["area_under_curve"] for event in events if "loss" in event][-1]
    loaded = federation.load(configuration_files.load(settings))
    return (training, seconds, whole), area, loaded


def _opacus(loaded, epochs, rate):
    """Return the seconds and the AUC of a training by Opacus."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    features, labels = loaded.members(np.arange(len(loaded.split.members)))
    start = time.perf_counter()
    sampled = BATCH / len(labels)
    multiplier = get_noise_multiplier(
        target_epsilon=EPSILON,
        target_delta=1 / (10 * len(labels)),
        sample_rate=sampled,
        epochs=epochs,
        accountant="rdp",
    )
    network = nn.Linear(features[0].numel(), loaded.split.dataset.classes)
    module = GradSampleModule(network)
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9),
        noise_multiplier=multiplier,
        max_grad_norm=1.0,
        expected_batch_size=BATCH,
    )
    loader = DPDataLoader(TensorDataset(features.flatten(1), labels), sample_rate=sampled)
    for _ in range(epochs):
        for some, of in loader:
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(module(some), of).backward()
            optimizer.step()
    seconds = time.perf_counter() - start
    held_out, answers = loaded.held_out()
    with torch.no_grad():
        scores = network(held_out.flatten(1)).diff(dim=1)[:, 0]
    return seconds, float(roc_auc_score(answers, scores))
