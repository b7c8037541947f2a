"""Sampled clients: fedsim beside pfl and Flower's own simulation, on one job in one run.

The job: of N clients with a few records each, fifty a round train a linear model on their own in
batches, and the server averages their clipped updates under noise. Each contestant is a process of
its own on one thread, but Ray, which takes all cores; the time of a round is the median of those
after the first, and memory is the most that it and its children held together. fedsim keeps its
ledger and its adversary's belief besides, which the others have no counterpart of.
"""

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import psutil
from tables import Table

FEATURES, CLASSES = 64, 10
RATE, CLIPPING_NORM, NOISE = 0.1, 0.5, 1.0
FEDSIM = "from fedsim.commands.entry import main; main()"
NOTE = (
    "Seconds a round, the median after the first; a trial: of T = 64 trainings at once, over 64. "
    "Memory: the most that the process and its children held together, MiB; fedsim's grows with "
    "the text of the CSV file that it reads, which the others are given as arrays. Flower's has "
    "several processes, whose shared pages count in each, and neither clips nor adds noise."
)


@dataclass(frozen=True)
class Job:
    """What everybody trains.

    clients: N; records: of each client; cohort: clients in a round, on average; epochs: of each
    client; batch: its records in a step; rounds: how many.
    """

    clients: int = 1000
    records: int = 20
    cohort: int = 50
    epochs: int = 2
    batch: int = 10
    rounds: int = 100

    def data(self):
        """Return features [N, n, 64] and labels [N, n], the same for everybody."""
        generator = np.random.default_rng(0)
        centres = generator.normal(size=(CLASSES, FEATURES))
        labels = generator.integers(CLASSES, size=(self.clients, self.records))
        noise = generator.normal(size=(*labels.shape, FEATURES))
        return (0.1 * (centres[labels] + noise)).astype(np.float32), labels


FEW = 8
"""Rounds of Flower's simulation."""

SIZES = (100, 1000, 10_000)
SMOKE = Job(clients=12, records=3, cohort=4, epochs=1, batch=2, rounds=3)


def measure(smoke):
    """Yield seconds and memory of everybody who is installed."""
    jobs = [SMOKE] if smoke else [Job(clients=clients) for clients in SIZES]
    trials = 4 if smoke else 64
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for job in jobs:
            one, one_peak = _fedsim(job, 1, Path(scratch) / f"one-{job.clients}")
            many, many_peak = _fedsim(job, trials, Path(scratch) / f"many-{job.clients}")
            rows += [
                (job.clients, "fedsim, T = 1", one, 1.0, one_peak),
                (job.clients, f"fedsim, T = {trials}, a trial", many / trials, None, many_peak),
            ]
            for name, module in (("pfl", "pfl"), ("flower", "ray")):
                if smoke or importlib.util.find_spec(module) is None:
                    continue
                # Ray's rounds take seconds where there are many clients, and are alike.
                few = replace(job, rounds=FEW) if name == "flower" else job
                seconds, peak = _other(name, few)
                rows.append((job.clients, NAMES[name], seconds, seconds / one, peak))
    columns = ("clients", "by", "s a round", "over fedsim's at T = 1", "memory")
    job = jobs[0]
    title = (
        f"Sampled clients: {job.cohort} a round, {job.records} records each, {job.epochs} epochs "
        f"in batches of {job.batch}, {FEATURES * CLASSES + CLASSES} parameters"
    )
    yield Table(title, columns, rows, NOTE)


NAMES = {"pfl": "pfl (Apple), simulated backend", "flower": "Flower's simulation (Ray), FedAvg"}


def _fedsim(job, trials, folder):
    """Return seconds a round of all trials together, and the peak memory in MiB."""
    folder.mkdir()
    features, labels = (array.reshape(-1, *array.shape[2:]) for array in job.data())
    # Held-out records besides: the data are cut by fedsim.
    rows = np.concatenate([features, features[:100]]), np.concatenate([labels, labels[:100]])
    header = ",".join([*(f"x{i}" for i in range(FEATURES)), "label"])
    table = np.column_stack(rows)
    np.savetxt(folder / "data.csv", table, "%.4g", ",", header=header, comments="")
    settings = {
        "data": {"name": "csv", "root": str(folder / "data.csv"), "records": len(features)},
        "federation": {"clients": job.clients, "sampling-rate": job.cohort / job.clients},
        "model": {"name": "linear"},
        "training": {
            "rounds": job.rounds,
            "learning-rate": 1.0,
            "local-learning-rate": RATE,
            "local-epochs": job.epochs,
            "batch-size": job.batch,
            "clipping-norm": CLIPPING_NORM,
        },
        "privacy": {"unit": "client", "neighbouring": "add-remove", "noise-multiplier": NOISE},
        "challenge": {"client": 0},
        "trials": {"count": trials, "batch": trials},
        "audit": {"mode": "oracle", "evaluated-trials": 1},
        "run": {"threads": 1, "device": "cpu"},
    }
    settings["data"] |= {"held-out": min(100, len(features) // 2)}
    settings["federation"] |= {"partition": "iid", "trust": "central"}
    settings["privacy"] |= {"rho-beta": 0.0}
    lines = []
    for name, values in settings.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    (folder / "job.toml").write_text("\n".join(lines), encoding="utf-8")
    out = folder / "run"
    _, peak = _watched(
        ["-c", FEDSIM, "run", str(folder / "job.toml"), "--quiet", "--out", str(out)]
    )
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    return _median([each["time"] for each in events if each.get("round", 0) >= 1]), peak


def _other(name, job):
    said, peak = _watched([__file__, name, json.dumps(asdict(job))])
    return _median(json.loads(said.splitlines()[-1])), peak


def _median(ends):
    return statistics.median(np.diff(ends))


def _watched(arguments):
    """Run a Python process to its end; return what it printed and the peak of its tree, in MiB."""
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    peak = [0.0]

    def watch():
        root = psutil.Process(process.pid)
        while process.poll() is None:
            held = 0
            try:
                for each in (root, *root.children(recursive=True)):
                    held += each.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            peak[0] = max(peak[0], held / 2**20)
            time.sleep(0.05)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    said, complaints = process.communicate()
    watcher.join()
    if process.returncode:
        raise RuntimeError(complaints[-2000:])
    return said, peak[0]


def _pfl(job):
    """Train by pfl's simulated backend; return when each round ended."""
    import os  # noqa: PLC0415

    os.environ["PFL_PYTORCH_DEVICE"] = "cpu"
    import torch  # noqa: PLC0415
    from pfl.aggregate.simulate import SimulatedBackend  # noqa: PLC0415
    from pfl.algorithm.base import NNAlgorithmParams  # noqa: PLC0415
    from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: PLC0415
    from pfl.callback.base import TrainingProcessCallback  # noqa: PLC0415
    from pfl.data.dataset import Dataset  # noqa: PLC0415
    from pfl.data.federated_dataset import FederatedDataset  # noqa: PLC0415
    from pfl.data.sampling import get_user_sampler  # noqa: PLC0415
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams  # noqa: PLC0415
    from pfl.metrics import Metrics  # noqa: PLC0415
    from pfl.model.pytorch import PyTorchModel  # noqa: PLC0415
    from pfl.privacy.gaussian_mechanism import GaussianMechanism  # noqa: PLC0415
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism  # noqa: PLC0415

    torch.set_num_threads(1)
    features, labels = map(torch.from_numpy, job.data())

    class Net(torch.nn.Linear):
        def loss(self, inputs, targets, **_):
            return torch.nn.functional.cross_entropy(self(inputs), targets)

        def metrics(self, *_, **__):
            return {}

    ends = []

    class Clock(TrainingProcessCallback):
        def after_central_iteration(self, *_, **__):
            ends.append(time.time())
            return False, Metrics()

    net = Net(FEATURES, CLASSES)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    users = get_user_sampler("random", list(range(job.clients)))
    data = FederatedDataset(lambda user: Dataset([features[user], labels[user]]), users)
    noise = GaussianMechanism(clipping_bound=CLIPPING_NORM, relative_noise_stddev=NOISE)
    backend = SimulatedBackend(
        training_data=data,
        val_data=None,
        postprocessors=[CentrallyAppliedPrivacyMechanism(noise)],
    )
    FederatedAveraging().run(
        backend=backend,
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=job.rounds,
            evaluation_frequency=10**6,
            train_cohort_size=job.cohort,
            val_cohort_size=0,
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=job.epochs,
            local_learning_rate=RATE,
            local_batch_size=job.batch,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=100),
        callbacks=[Clock()],
    )
    return ends


def _flower(job):
    """Train by Flower's simulation, without noise; return when each round ended."""
    import torch  # noqa: PLC0415
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: PLC0415
    from flwr.clientapp import ClientApp  # noqa: PLC0415
    from flwr.serverapp import Grid, ServerApp  # noqa: PLC0415
    from flwr.serverapp.strategy import FedAvg  # noqa: PLC0415
    from flwr.simulation import run_simulation  # noqa: PLC0415

    client_app, server_app, ends = ClientApp(), ServerApp(), []

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        user, net = int(context.node_config["partition-id"]), torch.nn.Linear(FEATURES, CLASSES)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        features, labels = (torch.from_numpy(each[user]) for each in _cached(job))
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        for _ in range(job.epochs):
            for some in torch.randperm(job.records).split(job.batch):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(features[some]), labels[some]).backward()
                optimizer.step()
        content = RecordDict(
            {
                "arrays": ArrayRecord(net.state_dict()),
                "metrics": MetricRecord({"num-examples": job.records}),
            }
        )
        return Message(content, reply_to=message)

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=job.cohort / job.clients,
            fraction_evaluate=0.0,
            min_train_nodes=job.cohort,
            min_available_nodes=job.clients,
        )
        strategy.start(
            grid,
            ArrayRecord(torch.nn.Linear(FEATURES, CLASSES).state_dict()),
            num_rounds=job.rounds,
            evaluate_fn=lambda *_: ends.append(time.time()),
        )

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, job.clients, backend_config=resources)
    return ends[1:]  # before the first round it evaluates once


_DATA = {}


def _cached(job):
    """Return the data of a job, made once in each of Ray's processes."""
    if job not in _DATA:
        _DATA[job] = job.data()
    return _DATA[job]


if __name__ == "__main__":
    found = {"pfl": _pfl, "flower": _flower}[sys.argv[1]](Job(**json.loads(sys.argv[2])))
    print(json.dumps(found))
