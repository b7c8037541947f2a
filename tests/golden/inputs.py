"""Makes the files that commands of the corpus read, in the present folder.

This module knows fedsim's inside: records that a server or a node keeps come about in a federation,
and what plays one in a single process has no command.
"""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import tomli_w
from flwr.app import Context, RecordDict

from fedsim import client_app, recording, server_app
from fedsim.configuration import JOBS, Scalar, from_run_config, to_run_config
from fedsim.federation.runtimes import inprocess
from fedsim.federation.server.plan import prepare
from fedsim.federation.transcripts.records import NodeReply, ObservedRound, TranscriptFacts
from fedsim.federation.transcripts.writer import Writer

LOCAL: dict[str, Scalar] = {
    "federation.trust": "local",
    "model.name": "linear",
    "privacy.noise-source": "seed",
    "run.device": "cpu",
    "run.threads": 1,
    "run.out": "run",
}


def table() -> None:
    """Write a table of people, as one brings it: with a gap and a name of classes."""
    generator = np.random.default_rng(3)
    age, dose = generator.uniform(20, 90, 240).round(), generator.uniform(0, 5, 240).round(2)
    sick = np.where(age / 90 + dose / 5 > 1.1, "yes", "no")
    rows = [f"{a:g},{d:g},{s}" for a, d, s in zip(age, dose, sick, strict=True)]
    rows[5] = f"{age[5]:g},,{sick[5]}"
    Path("table.csv").write_text("\n".join(["age,dose,sick", *rows]) + "\n", encoding="utf-8")


def scores() -> None:
    """Write the scores of 40 canaries, which those of a training with little noise would get."""
    generator = np.random.default_rng(4)
    coins = generator.integers(0, 2, 40)
    values = 3 * coins + generator.standard_normal(40)
    rows = [f"{coin},{value!r}" for coin, value in zip(coins, values.tolist(), strict=True)]
    Path("scores.csv").write_text("\n".join(["included,score", *rows]) + "\n", encoding="utf-8")


def server() -> None:
    """Write what a server recorded whose three clients send updates of norm 1."""
    generator, model = np.random.default_rng(0), np.zeros(200)
    mechanism = {"clipping": "server", "noise_multiplier": 1.0, "clipping_norm": 1.0}
    mechanism |= {"num_sampled_clients": 3, "aggregation": "mean", "unit": "client"}
    with Writer(Path("server.fedt"), TranscriptFacts("server", "a test", "digits")) as writer:
        for number in range(1, 5):
            updates = generator.standard_normal((3, 200))
            updates /= np.linalg.norm(updates, axis=1, keepdims=True)
            after = model + updates.mean(0) + generator.standard_normal(200) / 3
            replies = {7 + j: NodeReply({"w": model + u}, 5.0) for j, u in enumerate(updates)}
            seen = ObservedRound(
                number, {"w": model}, replies, aggregate={"w": after}, mechanism=mechanism
            )
            writer.append(seen)
            model = after
        writer.end()


def loop() -> None:
    """Write the steps of a training loop with noise of its own."""
    generator = np.random.default_rng(1)
    told = {"divisor": 64, "noise_multiplier": 1.0, "clipping_norm": 0.5, "sample_rate": 0.1}
    with recording.Recorder("loop.fedt", records=640) as recorder:
        for _ in range(6):
            summed = generator.standard_normal(500)
            noisy = (summed + 0.5 * generator.standard_normal(500)) / 64
            recorder.step(noisy, summed, batch=int(generator.binomial(640, 0.1)), **told)


def live() -> None:
    """Run a federation with an auditor's node in it, which records."""
    values = {"data.records": 24, "data.held-out": 20, "data.pool": 30, "federation.clients": 3}
    values |= {"training.rounds": 3, "trials.count": 32, "trials.batch": 32}
    config = from_run_config(LOCAL | values | {"audit.evaluated-trials": 4})
    _federation(config, {7777: {"role": "auditor", "transcript-path": "transcripts"}})


def deployment() -> None:
    """Train on the records of two clients, of which the first has a machine with a node's file."""
    for seed, name in enumerate(("client-0", "client-1", "others")):
        generator = np.random.default_rng(seed)
        age, dose = generator.uniform(20, 90, 40), generator.uniform(0, 5, 40)
        sick = np.where(age / 90 + dose / 5 > 1.1, "yes", "no")
        np.savez(f"{name}.npz", age=age, dose=dose, sick=sick)
    columns = {"age": [0, 100], "dose": [0, 5]}
    schema = tomli_w.dumps({"label": "sick", "classes": ["no", "yes"], "columns": columns})
    Path("machine/work").mkdir(parents=True)
    Path("machine/schema.toml").write_text(schema)
    deployed_training({}, {})


def deployed_training(changes: dict[str, Scalar], limits: dict[str, Any], number: int = 1) -> None:
    """Train once more on the records of `deployment`, where the first client has limits.

    Args:
        changes: of the training's configuration.
        limits: of the node's file.
        number: of the run, by which the client knows it.
    """
    values: dict[str, Scalar] = {
        "data.name": "own",
        "data.public-schema": Path("machine/schema.toml").read_text(),
        "data.root": f"{Path.cwd()}/client-{{client}}.npz",
        "data.records": 80,
        "federation.clients": 2,
        "federation.vantage": "server",
        "privacy.noise-source": "system",
        "training.rounds": 4,
        "training.clipping-norm": 0.85,
        "privacy.rho-beta": 0.0,
        "privacy.epsilon": 2.0,
        "privacy.delta": 1e-3,
    }
    machine = Path.cwd() / "machine"
    agreed = {"consent": "", "epsilon-limit": 3.0, "delta-limit": 1e-3} | limits
    node = {"partition-id": 0, "num-partitions": 2, "schema-path": str(machine / "schema.toml")}
    node |= agreed
    there = {"state-path": "../state", "data-path": "../../client-0.npz"}
    Path("machine/node.toml").write_text(tomli_w.dumps(node | there))
    here = {"state-path": str(machine / "state"), "data-path": str(Path("client-0.npz").resolve())}
    config = from_run_config(JOBS["training"](LOCAL | values | changes))
    with patch.object(inprocess, "RUN_ID", number):
        _federation(config, {1000: node | here})


def _federation(config: Any, nodes: dict[int, dict[str, Any]]) -> None:
    """Run a federation in this process, with what some nodes are configured with."""
    plan = prepare(config)
    run_config = to_run_config(plan.config)
    grid = inprocess.InProcessGrid(client_app.app, plan.config.federation.clients, run_config)
    for node, values in nodes.items():
        given = Context(
            run_id=inprocess.RUN_ID,
            node_id=node,
            node_config=dict(values),
            state=RecordDict(),
            run_config=run_config,
        )
        grid.contexts[node] = given
    server_app.carry_out(grid, plan, plan.begin())
