"""Requests and configurations of a hostile server, and what a client says to each.

A client without any consent holds records that nobody else has. Each case is played with two files
that differ in all that a file can: number of records, values, labels, extra columns, name and
folder. What the client says to a case must be the same of both, and what it charges too.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedsim import client_app
from fedsim.configuration import Scalar, from_run_config, to_run_config
from fedsim.configuration.jobs import JOBS
from fedsim.federation.client import client_ledger
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.flower_private import Key, Stage, become_task
from fedsim.federation.protocol.messages import Request, Role
from fedsim.federation.protocol.secure_aggregation import CONFIGS

Z, DELTA = 5.0, 1e-5

SCHEMA = """\
label = "ill"
classes = ["no", "yes"]

[columns]
age = [0, 120]
ward = ["north", "south"]
"""

OTHER_SCHEMA = SCHEMA.replace("120", "50")
"""Whether a record fits it says whether somebody is older than 50."""

PARAMETERS = 8
"""Of the linear model: three features and a bias, for two classes."""

FILES = {
    "ward-7/patients.csv": ("age,ward,ill", *(f"{20 + age},north,no" for age in range(12))),
    "tumours/people.csv": (
        "ward,name,ill,age",
        *(f"south,person {age},yes,{61.7 + age}" for age in range(31)),
    ),
}

UNFIT = ("age,ward,ill", "20,north,no", "1700,zoo,perhaps")
"""A file that is not as the schema says; which record, and how, is its owner's business."""

RUN = {
    "data.name": "own",
    "data.public-schema": SCHEMA,
    "data.records": 40,
    "federation.clients": 3,
    "federation.trust": "local",
    "federation.vantage": "server",
    "model.name": "linear",
    "training.rounds": 3,
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": Z,
    "privacy.delta": DELTA,
    "run.threads": 1,
    "run.device": "cpu",
}

DIGITS = {"data.name": "digits", "data.public-schema": ""}
"""Of records that every copy of scikit-learn has: no file of the client is read."""


@dataclass(frozen=True)
class Case:
    """A request in a run.

    Attributes:
        name: what is asked, in words.
        run: what the run's configuration has else than `RUN`, after its checks.
        lie: what the request has else than an honest one.
        kind: of the message, as Flower calls it.
        model: maps the honest model to what is sent; None for no model.
        node: what the client's own config has else.
        honest: how many honest rounds come before.
        content: what else the message has, by record; a request of None is left out.
        id: of the run, for the rounds behind the honest ones.
        checked: whether the configuration is one that fedsim would write.
        schema: the client's own.
    """

    name: str
    run: Mapping[str, Scalar] = field(default_factory=dict)
    lie: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "train"
    model: Callable[[np.ndarray], np.ndarray] | None = np.asarray
    node: Mapping[str, Scalar] = field(default_factory=dict)
    honest: int = 0
    content: Mapping[str, ConfigRecord | None] = field(default_factory=dict)
    id: int = 1
    checked: bool = True
    schema: str = SCHEMA


@dataclass(frozen=True)
class Answer:
    """What a client said and charged.

    Attributes:
        said: its reply, or why it refused; of a sum its type and shape, since noise hides the rest.
        epsilon: all that its ledger charges, at `DELTA`.
        answered: how many entries the ledger has.
    """

    said: str
    epsilon: float
    answered: int

    @property
    def has_sum(self):
        """Whether something computed on records left."""
        return self.said.startswith(f"{messages.REPLY}: ")


def _reads(name):
    run = {"data.name": name, "data.public-schema": ""}
    return Case(f'`data.name = "{name}"` in place of the schema', run, checked=False)


def _asks(name, value, **run):
    shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
    return Case(f"`{name} = {shown}`", {name: value, **run}, checked=False)


def _overflowing(model):
    """Return a model whose output is infinite for old patients of the south, and for nobody else.

    Its weights are of age, north and south, for each of the two classes; behind them are biases.
    """
    weights = np.asarray([[3e38, 0, 3e38] * 2 + [0, 0]], dtype=np.float32)
    return model + weights


def _stage(stage, **values):
    return {CONFIGS: ConfigRecord({Key.STAGE: stage, **values})}


SECURE = {
    "federation.trust": "distributed",
    "federation.secure-aggregation": "secagg+",
}

CASES = (
    Case("an honest round"),
    Case("the same round again", lie={"round": 1}, honest=1),
    Case("an earlier round", lie={"round": 1}, honest=2),
    Case("the next round of another run, of the same number", lie={"round": 2}, honest=1, id=2),
    Case("round 4 of 3", lie={"round": 4}),
    Case("round 0", lie={"round": 0}),
    Case("round 1.5", lie={"round": 1.5}),
    Case("trial 1 of one", lie={"first_trial": 1}),
    Case(
        "2,000 trials in a message",
        lie={"trials": 2000},
        model=lambda model: np.repeat(model, 2000, 0),
    ),
    Case("noise of 0", lie={"noise_multiplier": 0.0}),
    Case("noise that is not a number", lie={"noise_multiplier": math.nan}),
    Case("less noise than configured", lie={"noise_multiplier": 0.99 * Z}),
    Case("the role of an adversary", lie={"role": Role.ADVERSARY}),
    Case("the role of a colluder", lie={"role": Role.COLLUDER}),
    Case("a game about record 20", lie={"role": Role.TARGET_CLIENT, "record": 20}),
    Case(
        'a game about record 20, with consent to "challenge"',
        lie={"role": Role.TARGET_CLIENT, "record": 20, "target_client": 1},
        node={"consent": "challenge"},
    ),
    Case("an unknown role", lie={"role": "boss"}),
    Case("a model that is not a number", model=lambda model: model + np.nan),
    Case("a model of values of 3e38", model=lambda model: model + np.float32(3e38)),
    Case("a model that overflows at records of one ward", model=_overflowing),
    Case("a model of another shape", model=lambda model: model[:, 1:]),
    Case("a model in float64", model=lambda model: model.astype(np.float64)),
    Case("no model", model=None),
    Case("no request", content={messages.REQUEST: None}),
    Case(
        "a request with a field too many",
        content={messages.REQUEST: ConfigRecord({"round": 1, "records": 1})},
    ),
    Case("which client are you? (`query.identify`)", kind="query.identify"),
    Case("what are your data? (`query.data`)", kind="query.data"),
    Case("how long is a gradient? (`query.sensitivity`)", kind="query.sensitivity"),
    Case("what did the adversary find? (`query.findings`)", kind="query.findings"),
    Case("how good is the final model? (`evaluate`)", kind="evaluate", lie={"round": 4}),
    _reads("csv"),
    _reads("npz"),
    _reads("hf"),
    _reads("idx"),
    _reads("images"),
    _reads("mnist"),
    _reads("adult"),
    _reads("os:getcwd"),
    Case("another schema", {"data.public-schema": OTHER_SCHEMA}),
    Case("the client keeps no schema", node={"schema-path": ""}),
    Case("the client's copy of the schema is missing", node={"schema-path": "missing.toml"}),
    Case("its own records as an experiment", {"run.job": "experiment"}, checked=False),
    Case("its own records in a rehearsal", {"run.job": "rehearsal"}, checked=False),
    Case("the records of digits, of which all have a copy", DIGITS, checked=False),
    _asks("data.root", "/etc/passwd"),
    _asks("data.public-root", "/etc/passwd"),
    Case(
        "a model from a file of the client's",
        {"model.weights": "/etc/passwd", "model.weights-sha256": "0" * 64},
        checked=False,
    ),
    _asks("model.weights", "/etc/passwd"),
    _asks("model.name", "os:getcwd"),
    _asks("model.name", "cnn"),
    _asks("federation.trust", "central"),
    _asks("model.hidden", 10**8),
    _asks("training.local-steps", 10**7),
    _asks("challenge.kind", "clipbkd"),
    Case(
        "a client's own training with a rate of 1000 and 20 epochs",
        {
            "privacy.unit": "client",
            "training.local-learning-rate": 1000.0,
            "training.local-epochs": 20,
        },
    ),
    _asks("training.clipping", False),
    _asks("training.clipping-norm", 1e30),
    _asks("privacy.noise-source", "seed"),
    _asks("privacy.sensitivity", "local"),
    _asks("privacy.noise-multiplier", 0.01),
    _asks("privacy.unit", "client"),
    _asks("audit.mode", "oracle"),
    _asks("canaries.count", 4),
    _asks("trials.count", 400),
    _asks("training.rounds", 10_000),
    _asks("federation.dropout-rate", 0.9),
    _asks("federation.auditor-sees", "messages"),
    _asks("federation.trust", "distributed"),
    Case("a sum outside of secure aggregation", SECURE, checked=False),
    Case(
        "secure aggregation of one client",
        SECURE,
        content=_stage(
            Stage.SETUP,
            **{
                Key.SAMPLE_NUMBER: 1,
                Key.SHARE_NUMBER: 1,
                Key.THRESHOLD: 1,
                Key.CLIPPING_RANGE: 8.0,
                Key.TARGET_RANGE: 1 << 22,
                Key.MOD_RANGE: 1 << 32,
            },
        ),
        checked=False,
    ),
    Case(
        "the shares that unmask it",
        SECURE,
        content=_stage(
            Stage.UNMASK,
            **{Key.ACTIVE_NODE_ID_LIST: [7], Key.DEAD_NODE_ID_LIST: [7]},
        ),
        checked=False,
    ),
    Case("a key that no configuration has", {"data.peek": True}, checked=False),
    Case("the budget is spent", node={"epsilon-limit": 0.1}),
    Case("the client's ledger cannot be written", node={"state-path": "/dev/null/state"}),
    Case("the client's file is missing", node={"data-path": "missing.csv"}),
    Case("the client's file does not fit the schema", node={"data-path": "unfit.csv"}),
)


def play(case, name, machine, rows=()):
    """Return what a client says to a case.

    Args:
        case: to be played.
        name: of its file, a key of `FILES`, or another with its rows.
        machine: an empty folder, for its file, schema and ledger.
        rows: of another file.
    """
    node = _node(case, name, machine, rows or FILES[name])
    run = _configuration({} if not case.checked else case.run)
    values = to_run_config(run) | ({} if case.checked else case.run)
    for round in range(1, case.honest + 1):
        client_app.app(_message(Case("", lie={"round": round})), _context(1, node, values))
    context = _context(case.id, node, values)
    try:
        said = _told(client_app.app(_message(case), context))
    except Exception as error:
        said = f"refused: {error}"  # as Flower sends it, with the error's type before it
    return _answer(said, node)


def contexts(case, name, machine, rows):
    """Return a client that has some rows, and the message of a case."""
    values = to_run_config(_configuration(case.run))
    return _context(case.id, _node(case, name, machine, rows), values), _message(case)


def _node(case, name, machine, rows):
    """Return a client's own config; its files are laid down."""
    path = machine / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    path.with_name("unfit.csv").write_text("\n".join(UNFIT) + "\n", encoding="utf-8")
    (machine / "schema.toml").write_text(case.schema, encoding="utf-8")
    node = {
        "partition-id": 1,
        "consent": "",
        "state-path": str(machine / "state"),
        "schema-path": str(machine / "schema.toml"),
        "data-path": str(path),
        "epsilon-limit": 3.0,
        "delta-limit": DELTA,
    }
    changed = dict(case.node)
    if "data-path" in changed:
        changed["data-path"] = str(path.with_name(str(changed["data-path"])))
    return node | changed


def _configuration(changes):
    return from_run_config(JOBS["training"](RUN | changes))


def _context(id, node, run):
    become_task(id, 1)
    return Context(
        run_id=id, node_id=7, node_config=dict(node), state=RecordDict(), run_config=dict(run)
    )


def _message(case):
    said = {"round": 1, "first_trial": 0, "trials": 1, "noise_multiplier": Z, **case.lie}
    content = RecordDict({messages.REQUEST: Request(**said).to_record()})
    if case.model is not None:
        size = 650 if case.run.get("data.name") == "digits" else PARAMETERS
        model = case.model(np.zeros((1, size), dtype=np.float32))
        content[messages.MODEL] = messages.array_record(parameters=model)
    for name, record in case.content.items():
        if record is None:
            del content[name]
        else:
            content[name] = record
    return Message(content, 7, case.kind)


def _told(reply):
    """Return all that a reply says; of a noisy sum the type and the shape."""
    parts = []
    for name, record in reply.content.items():
        if name in messages.array_records(reply.content):
            arrays = messages.arrays_of(messages.array_records(reply.content)[name])
            parts += [f"{name}: {each.dtype} {list(each.shape)}" for each in arrays.values()]
        else:
            parts.append(f"{name}: {dict(record)}")
    return "; ".join(parts)


def _answer(said, node):
    state = Path(str(node["state-path"]))
    answers = client_ledger.read_answers(state) if state.is_dir() else []
    return Answer(said, client_ledger.epsilon(answers, DELTA), len(answers))
