"""Every command: its name, where its code is, and what it is for, in the order of `fedsim --help`.

The words are the first sentence of the command's help, which a test compares: they stand here so
that `--help` and completion import no command.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        code: "module:function" in `fedsim.cli`.
        words: the first paragraph of the function's docstring.
        hidden: whether it is left out of help, since scripts alone call it.
    """

    name: str
    code: str
    words: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class Group:
    """Commands with a name in common."""

    name: str
    words: str
    commands: tuple[Command, ...] = field(repr=False)
    more: str = ""


AUDIT = Group(
    "audit",
    "Judge a claim of privacy: a Flower app, a loop, a recorded training, or one that goes on.",
    (
        Command(
            "app",
            "auditing.audit:app",
            "Audit a Flower app before it runs: what its configuration guarantees, and what an "
            "attack shows.",
        ),
        Command(
            "loop",
            "auditing.code_audit:loop",
            "Audit a training function, with Opacus in it or not: run it with a record and without "
            "it.",
        ),
        Command(
            "transcript",
            "auditing.audit:transcript",
            "Audit a federation that was recorded: the noise that was really added, and what "
            "canaries show.",
        ),
        Command(
            "live",
            "auditing.audit:live",
            "Audit a federation while it is recorded, round by round.",
        ),
    ),
    "The report of a run of `fedsim run` is made by `fedsim report`.\n\n"
    "Exit status: 0 the claim is supported, or there is none; 3 the audit cannot tell, or "
    "--fail-if shuts the gate; 4 the claim is not supported, or refuted; 1 the audit failed; 2 bad "
    "input.",
)

ONE_RUN = Group(
    "one-run",
    "Audit a training that cannot be repeated, by canaries in it or not by a coin.",
    (
        Command(
            "draw",
            "auditing.one_run:draw",
            "Write which canaries the configuration plants, at whom, and the coins of every trial.",
        ),
        Command(
            "score",
            "auditing.one_run:score",
            "Write every canary's score: how far it shows in the released sums of all rounds.",
        ),
        Command(
            "estimate",
            "auditing.one_run:estimate",
            "Say what the canaries prove of ε, by bounds, and what they suggest, by an estimate.",
        ),
    ),
    "`draw` says which canaries a configuration plants, `fedsim run` plants them, `score` looks "
    "for them in what was released, `estimate` says what the scores prove.",
)

DEPLOY = Group(
    "deploy",
    "Run a federation across machines: keys, certificates, scripts, checks and runs.",
    (
        Command(
            "init",
            "deploying.kit:init",
            "Write keys, certificates, scripts and instructions for the server and every client.",
        ),
        Command(
            "check",
            "deploying.kit:check",
            "Say what is wrong with a deployment, and how to mend it. Exit status 1 if anything "
            "is.",
        ),
        Command(
            "register",
            "deploying.kit:register",
            "Tell the running SuperLink which keys may join: every one in server/keys.",
        ),
        Command(
            "run",
            "deploying.run:run",
            "Train on the deployed federation; on the server's machine.",
        ),
        Command(
            "train",
            "deploying.run:train",
            "Train a model on the deployed federation, once, and keep it; on the server's machine.",
        ),
        Command(
            "report",
            "deploying.upkeep:report",
            "Say what this client released, when, at what epsilon, and how exposed its own records "
            "are.",
        ),
        Command(
            "status",
            "deploying.upkeep:status",
            "Say who is connected, what runs and how long the certificate lasts; on the server's "
            "machine.",
        ),
        Command(
            "renew",
            "deploying.kit:renew",
            "Write a new certificate of the server, which every node takes: no node's folder "
            "changes.",
        ),
        Command(
            "rotate",
            "deploying.upkeep:rotate",
            "Make another key for a node, on its machine; the old one serves until the new is "
            "registered.",
        ),
        Command(
            "upgrade",
            "deploying.upkeep:upgrade",
            "Write what every machine needs of this version; keys, settings and ledgers are no "
            "part of it.",
        ),
        Command("proxy", "deploying.upkeep:proxy", hidden=True),
        Command("superlink", "deploying.upkeep:superlink", hidden=True),
        Command("supernode", "deploying.upkeep:supernode", hidden=True),
        Command("apps", "deploying.upkeep:apps", hidden=True),
    ),
)

PANELS: dict[str, tuple[Command | Group, ...]] = {
    "Plan": (
        Command(
            "calibrate",
            "theory.calibrate:calibrate",
            "Find the least noise that keeps an adversary unsure enough of any one person.",
        ),
        Command(
            "account",
            "theory.account:account",
            "Say what a given amount of noise guarantees any one person, by every accountant.",
        ),
        Command(
            "trials",
            "experiments.trials:trials",
            "Say how many trials the advantage's interval needs to be no wider than wanted.",
        ),
    ),
    "Run": (
        Command(
            "init",
            "init:init",
            "Write a commented configuration, after five questions or from options that answer "
            "them.",
        ),
        Command(
            "run",
            "experiments.run:run",
            "Run a federation with the adversary inside it, and report how identifiable one person "
            "is.",
        ),
        Command(
            "sweep",
            "experiments.sweep:sweep",
            "Run an experiment for every combination of settings, one after the other, and "
            "compare.",
        ),
        Command(
            "choose",
            "experiments.choose:choose",
            "Find the least noise that meets a limit on the adversary, and how accurate the model "
            "is then.",
        ),
        Command(
            "tune",
            "experiments.tune:tune",
            "Choose rounds, clipping norm and learning rate of a training on its public records, "
            "free.",
        ),
        Command(
            "train",
            "experiments.train:train",
            "Train a model with differential privacy, once, and keep it.",
        ),
        Command(
            "rehearse",
            "experiments.train:rehearse",
            "Play the identification game for a training, on records that need no protection.",
        ),
        Command(
            "predict",
            "experiments.predict:predict",
            "Predict the class of records with a trained model, or the likelihood of texts.",
        ),
        Command(
            "pac",
            "theory.pac:pac",
            "Release what any function makes of a secret subset of records, with PAC private "
            "noise.",
        ),
    ),
    "Look": (
        Command(
            "data",
            "data:data",
            "Show an experiment's data, and how many records of each label every client holds.",
        ),
        Command(
            "schema",
            "schema:schema",
            "Propose the public schema of a table, column by column, on its owner's machine.",
        ),
        Command(
            "sensitivity",
            "experiments.sensitivity:sensitivity",
            "Find the pair of neighbouring datasets to audit, and say how close to the worst it "
            "comes.",
        ),
        Command(
            "report",
            "experiments.report:report",
            "Write report.json, report.html and the figures of RUN_DIR anew from its transcript.",
        ),
        Command(
            "compare",
            "experiments.report:compare",
            "Compare runs: every trust model and vantage side by side, as a table and as a page.",
        ),
        Command(
            "track",
            "experiments.report:track",
            "Log finished runs to TensorBoard or MLflow, or interrupted ones as far as they got.",
        ),
        Command(
            "open",
            "experiments.report:open_",
            "Open the page of a run in the browser; print where it lies where there is no browser.",
        ),
    ),
    "Attack": (
        Command(
            "membership",
            "experiments.membership:membership",
            "Play membership inference against a federation's models: who was in the training "
            "data?",
        ),
        ONE_RUN,
    ),
    "Audit": (
        AUDIT,
        Command(
            "sign",
            "evidence:sign",
            "Sign what a run or an audit found: report, configuration, ledger, transcript, code, "
            "versions.",
        ),
        Command(
            "verify",
            "evidence:verify",
            "Hold evidence against the files it is about: signature, every file, report and pages "
            "anew.",
        ),
    ),
    "Deploy": (DEPLOY,),
    "Reference": (
        Group(
            "config",
            "List and explain configuration keys.",
            (
                Command(
                    "list",
                    "config:list_",
                    "List all configuration keys by task, each with its default and a short "
                    "description.",
                ),
                Command(
                    "explain",
                    "config:explain",
                    "Explain one configuration key: meaning, type, values, default and "
                    "requirements.",
                ),
                Command(
                    "examples",
                    "config:examples",
                    "List the example configurations that come with fedsim.",
                ),
            ),
        ),
        Command(
            "reproduce",
            "reproduce:reproduce",
            "Make the tables and figures of the papers behind fedsim again, and hold them against "
            "those.",
        ),
    ),
}
"""The panels of `fedsim --help`, and what stands in each."""


def everything() -> Iterator[tuple[str, Command]]:
    """Yield every command, hidden ones too, by its whole name, such as "audit app"."""
    for listed in PANELS.values():
        for each in listed:
            if isinstance(each, Command):
                yield each.name, each
            else:
                yield from ((f"{each.name} {inner.name}", inner) for inner in each.commands)
