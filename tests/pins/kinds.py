"""The results that are pinned: for each kind, the commands that make a small one of it."""

from dataclasses import dataclass
from pathlib import Path

SMALL = {
    "training.rounds": 3,
    "run.threads": 1,
    "run.device": "cpu",
}
GAME = SMALL | {"trials.count": 8, "trials.batch": 8, "audit.evaluated-trials": 4}
SEEDED = {"privacy.noise-source": "seed"}
DIGITS = {"data.name": "digits", "data.pool": 0, "model.name": "linear", "data.records": 100}
"""In place of data that are read from files: the other settings of the configuration remain."""

TRAININGS = {"train-digits": {}, "fine-tune-digits": None}
"""Configurations of `fedsim train`; None where a file that the configuration names is missing."""

CHANGES: dict[str, dict[str, object]] = {
    "adult": DIGITS | {"challenge.dissimilarity": "manhattan"},
    "cifar-10": DIGITS,
    "mnist": DIGITS,
    "purchase-100": DIGITS | {"challenge.dissimilarity": "euclidean"},
    "deployment": SEEDED,
    "one-run": {"trials.count": 2, "trials.batch": 2, "canaries.count": 100},
    "opacus-clients": {"training.local-steps": 3},
    "vantages": {"trials.count": 40, "trials.batch": 20},
}
"""What else a configuration needs to be small and the same in every run."""

TINY = GAME | {
    "data.records": 24,
    "data.held-out": 20,
    "data.pool": 30,
    "federation.clients": 3,
    "model.name": "linear",
}


@dataclass(frozen=True)
class Kind:
    """A kind of result.

    Attributes:
        name: on the command line.
        commands: arguments of `python -m fedsim`, or of a script of this folder, in their order.
            Every one runs in the same empty directory; {tree} stands for the audited tree.
        skipped: why it cannot be made here; "" if it can.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    skipped: str = ""


def kinds(tree: Path) -> list[Kind]:
    """Return every kind that a tree has.

    Args:
        tree: a checkout of this repository.
    """
    files = sorted((tree / "configs").glob("*.toml"))
    return [*map(_configuration, files), *_others()]


def _set(values: dict[str, object]) -> tuple[str, ...]:
    return tuple(word for key, value in values.items() for word in ("--set", f"{key}={value}"))


def _configuration(path: Path) -> Kind:
    name, given = path.stem, f"{{tree}}/configs/{path.name}"
    if name in TRAININGS:
        if TRAININGS[name] is None:
            return Kind(name, (), "the private records that it names are not here")
        options = _set(SMALL | SEEDED | TRAININGS[name])
        return Kind(name, (("train", given, "--quiet", *options, "--out", "run"),))
    options = _set(GAME | CHANGES.get(name, {}))
    return Kind(name, (("run", given, "--quiet", *options, "--out", "run"),))


def _others() -> list[Kind]:
    digits, tiny = "{tree}/configs/digits.toml", _set(TINY)
    claim = ("--claimed-delta", "1e-5", "--claimed-epsilon")
    app = ("audit", "app", "{tree}/tests/apps/dp_app", "--trials", "20", "--clients", "2")
    app += ("--rounds", "2", "--run-config", "clients=2", *claim)
    loops = "{tree}/tests/apps/loops"
    loop = ("--trials", "40", "--out", "loop", *claim)
    live = ("audit", "transcript", "transcripts", *claim)
    # Its trials are an option.
    changes = {key: value for key, value in TINY.items() if key != "trials.count"}
    reconstruct = ("reconstruct", digits, *_set(changes))
    tables: dict[str, tuple[tuple[str, ...], ...]] = {
        "app-audit": ((*app, "1.4", "--out", "supported"),),
        "app-audit-broken": (
            (*app, "1.4", "--run-config", "variant=weighted", "--out", "suspect"),
        ),
        "loop-audit": (
            ("audit", "loop", f"{loops}/opacus_loops.py:correct", *loop, "2", "--out", "loop"),
        ),
        "loop-audit-own": (
            ("audit", "loop", f"{loops}/own_loops.py:no_clipping", *loop, "2", "--out", "loop"),
        ),
        "transcript-audit": (
            ("recorded.py", "server"),
            ("audit", "transcript", "server.fedt", *claim, "20", "--out", "claimed"),
            ("audit", "transcript", "server.fedt", *claim, "0.1", "--out", "refuted"),
            ("audit", "transcript", "server.fedt", "--out", "unclaimed"),
        ),
        "transcript-audit-loop": (
            ("recorded.py", "loop"),
            ("audit", "transcript", "loop.fedt", *claim, "99", "--out", "claimed"),
        ),
        "live-audit": (
            ("recorded.py", "live"),
            (*live, "2", "--worlds", "run", "--out", "refuted"),
            (*live, "99", "--worlds", "run", "--out", "claimed"),
            (*live, "99", "--claimed-unit", "client", "--out", "other-unit"),
            ("audit", "transcript", "transcripts", "--out", "unclaimed"),
        ),
        "membership": (("membership", digits, *tiny, "--models", "48", "--out", "membership"),),
        "reconstruct": (
            (*reconstruct, "--candidates", "6", "--trials", "8", "--out", "records"),
            (*reconstruct, "--column", "label", "--trials", "8", "--out", "labels"),
        ),
        "sweep-and-compare": (
            ("sweep", digits, *tiny, "--over", "privacy.rho-beta=0.6,0.9", "--out", "sweep"),
            ("compare", "sweep/rho-beta=0.6", "sweep/rho-beta=0.9", "--out", "compared"),
        ),
        "choose": (("choose", digits, *tiny, "--max-belief", "0.8", "--out", "chosen"),),
        "sensitivity": (
            ("sensitivity", digits, *tiny, "--trials", "4", "--top", "2", "--out", "pairs"),
        ),
        "data": (("data", digits, *tiny, "--out", "data"),),
        "rehearse": (
            (
                *("rehearse", "{tree}/configs/train-digits.toml", "--quiet", "--trials", "8"),
                *_set(SMALL | {"model.name": "linear", "data.records": 100}),
                *("--out", "rehearsal"),
            ),
        ),
        "theory": (
            ("calibrate", "--rho-beta", "0.9", "--rounds", "30", "--delta", "1e-3", "--json"),
            ("account", digits, "--json"),
            ("trials", digits, "--halfwidth", "0.1", "--json"),
            ("pac", "mean", "--data", "digits", "--json"),
            ("config", "list", "--json"),
        ),
        "one-run-commands": (
            ("one-run", "draw", digits, *tiny, *_set(ONE_RUN), "--out", "canaries.json"),
            ("run", digits, "--quiet", *tiny, *_set(ONE_RUN), "--out", "run"),
            ("one-run", "score", "run", "--out", "scores.csv"),
            ("one-run", "estimate", "scores.csv", "--json"),
        ),
        "gate": (
            ("run", digits, "--quiet", *tiny, "--fail-if", "advantage.low > -1", "--out", "shut"),
            ("report", "shut", "--fail-if", "epsilon > 99", "--json"),
            ("run", digits, "--quiet", *tiny, "--set", "training.rounds=0", "--out", "refused"),
        ),
    }
    return [Kind(name, commands) for name, commands in tables.items()]


ONE_RUN = {"canaries.count": 40, "trials.count": 2, "trials.batch": 2}
