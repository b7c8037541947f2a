"""A small one of every kind of page that fedsim writes, made as its users make it.

    python tests/browser/every_page.py DIR

writes them all, to be looked at.
"""

import sys
from pathlib import Path

import numpy as np
import tomli_w
from flwr.app import Context, RecordDict

from fedsim import client_app, server_app
from fedsim.cli.main import main
from fedsim.config import JOBS, Scalar, dump, from_run_config, to_run_config
from fedsim.federation.runtimes.inprocess import RUN_ID, InProcessGrid
from fedsim.federation.server.plan import prepare
from fedsim.federation.transcripts.records import NodeReply, ObservedRound, TranscriptFacts
from fedsim.federation.transcripts.writer import Writer

APP = Path(__file__).parents[1] / "apps" / "dp_app"

SMALL: dict[str, Scalar] = {
    "data.records": 24,
    "data.held-out": 20,
    "data.pool": 30,
    "federation.clients": 3,
    "model.name": "linear",
    "training.rounds": 3,
    "trials.count": 32,
    "trials.batch": 32,
    "audit.evaluated-trials": 4,
    "run.threads": 1,
    "run.device": "cpu",
}
LOCAL: dict[str, Scalar] = {"federation.trust": "local", "privacy.noise-source": "system"}

RUNS: dict[str, dict[str, Scalar]] = {
    "run": LOCAL | {"audit.vantages": "all"},
    "one-run": {"canaries.count": 40},
}
"""Experiments whose reports differ in what they hold."""


KINDS = (
    *RUNS,
    *("training", "sweep", "choice", "comparison", "membership", "sensitivity", "data"),
    "reconstruction",
    *("app-audit", "transcript-audit", "reproduction", "live-audit", "client-report"),
    "officer",
)


def write_all(directory: Path) -> dict[str, Path]:
    """Return the page of every kind, written into a directory.

    Args:
        directory: is made where it is missing.
    """
    directory.mkdir(parents=True, exist_ok=True)
    small = _experiment(directory / "small.toml", {})
    training = _experiment(
        directory / "training.toml", LOCAL | {"federation.vantage": "server"}, "training"
    )
    one_round = _experiment(directory / "one-round.toml", {"training.rounds": 1})
    commands = {
        name: ["run", _experiment(directory / f"{name}.toml", changes)]
        for name, changes in RUNS.items()
    }
    commands |= {
        "training": ["train", training],
        "sweep": ["sweep", one_round, "--over", "privacy.rho-beta=0.6,0.9"],
        "choice": ["choose", one_round, "--max-belief", 0.8],
        "comparison": ["compare", *(directory / kind for kind in RUNS)],
        "membership": ["membership", small, "--models", 48],
        "reconstruction": ["reconstruct", small, "--candidates", 8, "--trials", 20],
        "sensitivity": ["sensitivity", small, "--trials", 4, "--top", 2],
        "data": ["data", small],
        "app-audit": ["audit", "app", APP, *APP_CLAIMS],
        "transcript-audit": ["audit", "transcript", _server_transcript(directory / "server.fedt")],
        "reproduction": ["reproduce", "bernau", "figure-3", "table-2b", "--scale", "smoke"],
    }
    pages = {}
    for kind, command in commands.items():
        _command(*command, "--out", directory / kind)
        name = "reproduction.html" if kind == "reproduction" else "report.html"
        pages[kind] = directory / kind / name
    _command("report", directory / "run", "--for", "officer", "--limit-advantage", 0.2)
    pages["officer"] = directory / "run" / "officer.html"
    pages["live-audit"] = _live_audit(directory / "live")
    pages["client-report"] = _client_report(directory / "client")
    return pages


APP_CLAIMS = (
    *("--trials", 60, "--clients", 2, "--rounds", 2, "--run-config", "clients=2"),
    *("--claimed-delta", 1e-5, "--claimed-epsilon", 1.4),
    *("--run-config", "variant=weighted", "--run-config", "noise-multiplier=1"),
)


def _command(*arguments: object) -> None:
    """Run a command of fedsim's, which may end with a verdict."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as ended:
        assert ended.code in (0, 1, 3, 4), arguments


def _experiment(path: Path, changes: dict[str, Scalar], job: str = "experiment") -> Path:
    values = SMALL | changes
    if job == "training":
        values = {key: value for key, value in values.items() if not key.startswith("trials.")}
    path.write_text(dump(from_run_config(JOBS[job](values))))
    return path


def _server_transcript(path: Path) -> Path:
    """Write what a server recorded whose three clients send updates of norm 1."""
    generator = np.random.default_rng(0)
    mechanism = {"clipping": "server", "noise_multiplier": 1.0, "clipping_norm": 1.0}
    mechanism |= {"num_sampled_clients": 3, "aggregation": "mean"}
    model = np.zeros(200)
    with Writer(path, TranscriptFacts("server", "a test", "digits")) as writer:
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
    return path


def _live_audit(directory: Path) -> Path:
    """Run a federation with an auditor's node in it, and audit what that recorded."""
    config = from_run_config(SMALL | LOCAL | {"run.out": str(directory / "run")})
    plan = prepare(config)
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(plan.config))
    recorded = directory / "transcripts"
    grid.contexts[7777] = Context(
        run_id=RUN_ID,
        node_id=7777,
        node_config={"role": "auditor", "transcript-path": str(recorded)},
        state=RecordDict(),
        run_config=to_run_config(plan.config),
    )
    server_app.carry_out(grid, plan, plan.begin())
    worlds = ("--worlds", directory / "run")
    _command(
        "audit", "transcript", recorded / f"{RUN_ID}.fedt", *worlds, "--out", directory / "audit"
    )
    return directory / "audit" / "report.html"


def _client_report(directory: Path) -> Path:
    """Train on the records of two clients, and let the first one ask what that cost."""
    directory.mkdir()
    for seed, name in enumerate(("client-0", "client-1", "others")):
        generator = np.random.default_rng(seed)
        age, dose = generator.uniform(20, 90, 40), generator.uniform(0, 5, 40)
        sick = np.where(age / 90 + dose / 5 > 1.1, "yes", "no")
        np.savez(directory / f"{name}.npz", age=age, dose=dose, sick=sick)
    columns = {"age": [0, 100], "dose": [0, 5]}
    schema = {"label": "sick", "classes": ["no", "yes"], "columns": columns}
    values: dict[str, Scalar] = LOCAL | {
        "data.name": "own",
        "data.public-schema": tomli_w.dumps(schema),
        "data.root": str(directory / "client-{client}.npz"),
        "data.records": 80,
        "federation.vantage": "server",
        "model.name": "linear",
        "training.rounds": 4,
        "training.clipping-norm": 0.85,
        "privacy.rho-beta": 0.0,
        "privacy.epsilon": 2.0,
        "privacy.delta": 1e-3,
        "run.out": str(directory / "run"),
        "run.device": "cpu",
        "run.threads": 1,
    }
    plan = prepare(from_run_config(JOBS["training"](values)))
    grid = InProcessGrid(client_app.app, 2, to_run_config(plan.config))
    machine = directory / "machine"
    (machine / "work").mkdir(parents=True)
    (machine / "schema.toml").write_text(tomli_w.dumps(schema))
    told = {"consent": "", "epsilon-limit": 3.0, "delta-limit": 1e-3}
    told["schema-path"] = str(machine / "schema.toml")
    places = {"state-path": str(machine / "state"), "data-path": str(directory / "client-0.npz")}
    grid.contexts[1000].node_config.update(told | places)
    places = {"state-path": "../state", "data-path": "../../client-0.npz"}
    node = {"partition-id": 0, "num-partitions": 2, **told, **places}
    (machine / "node.toml").write_text(tomli_w.dumps(node))
    server_app.carry_out(grid, plan, plan.begin())
    against = ("--others", directory / "others.npz", "--model", directory / "run")
    _command("deploy", "report", machine, *against)
    return machine / "report" / "report.html"


if __name__ == "__main__":
    for kind, page in write_all(Path(sys.argv[1])).items():
        print(kind, page)
