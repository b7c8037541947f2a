"""The table of commands, in the order of `fedsim --help`: names, code and first sentences of help.

With the sentences here, `--help` and completion need not import the commands. A test compares them
with the commands' docstrings.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        code: "module:function" in `fedsim.cli`.
        words: the first paragraph of the function's docstring.
        hidden: leave it out of help, since only scripts call it.
    """

    name: str
    code: str
    words: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class Group:
    """Commands below one name, such as `fedsim audit`.

    Attributes:
        more: paragraphs of the group's help below `words`.
    """

    name: str
    words: str
    commands: tuple[Command, ...] = field(repr=False)
    more: str = ""


AUDIT = Group(
    "audit",
    "Check a privacy claim of a Flower app, a training function, or a "
    "recorded or running federation.",
    (
        Command(
            "app",
            "auditing.audit:app",
            "Audit a Flower app before it runs: what its configuration guarantees, "
            "what an attack shows.",
        ),
        Command(
            "loop",
            "auditing.code_audit:loop",
            "Audit a training function, with or without Opacus, by runs with and without a record.",
        ),
        Command(
            "transcript",
            "auditing.audit:transcript",
            "Audit a recorded federation: the noise that was really added, and what canaries show.",
        ),
        Command(
            "live",
            "auditing.audit:live",
            "Audit a federation while it is recorded, round by round.",
        ),
    ),
    "`fedsim report` makes the report of a run of `fedsim run`.\n\n"
    "Exit status: 0 the claim is supported, or nothing is claimed; 1 the "
    "audit failed; 2 bad input; 3 the audit cannot tell, or a --fail-if "
    "condition holds; 4 the claim is not supported, or it is refuted.",
)

ONE_RUN = Group(
    "one-run",
    "Audit a single training with canaries that a coin includes or leaves out.",
    (
        Command(
            "draw",
            "auditing.one_run:draw",
            "Write the canaries of a configuration: their clients, and the coins of every trial.",
        ),
        Command(
            "score",
            "auditing.one_run:score",
            "Write the score of every canary: its evidence in the released sums of all rounds.",
        ),
        Command(
            "estimate",
            "auditing.one_run:estimate",
            "Compute lower bounds on ε from the canaries' scores, and an estimate of ε.",
        ),
    ),
    "`draw` lists the canaries of a configuration, `fedsim run` plants them, "
    "`score` scores them from the released sums, and `estimate` computes "
    "bounds from the scores.",
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
            "Check a deployment and say how to fix its problems. Exit status 1 if there are any.",
        ),
        Command(
            "register",
            "deploying.kit:register",
            "Register every key in server/keys with the running SuperLink.",
        ),
        Command(
            "run",
            "deploying.run:run",
            "Train on the deployed federation. Run it on the server's machine.",
        ),
        Command(
            "train",
            "deploying.run:train",
            "Train a model on the deployed federation, once, and keep it. Run it on "
            "the server's machine.",
        ),
        Command(
            "report",
            "deploying.upkeep:report",
            "Report what this client released, when, at what epsilon, and how exposed"
            " its records are.",
        ),
        Command(
            "status",
            "deploying.upkeep:status",
            "Show connected clients, the current run and the certificate's lifetime.",
        ),
        Command(
            "renew",
            "deploying.kit:renew",
            "Write a new certificate for the server. All nodes accept it without changes.",
        ),
        Command(
            "rotate",
            "deploying.upkeep:rotate",
            "Make a new key for a node, on its machine. The old key works until the "
            "new one is registered.",
        ),
        Command(
            "upgrade",
            "deploying.upkeep:upgrade",
            "Write the files of this version for every machine, without keys, "
            "settings and ledgers.",
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
            "Find the least noise that limits how sure an adversary becomes about any one person.",
        ),
        Command(
            "account",
            "theory.account:account",
            "Compute what a given amount of noise guarantees any one person, by every accountant.",
        ),
        Command(
            "trials",
            "experiments.trials:trials",
            "Compute the number of trials that the advantage's interval needs for a given "
            "halfwidth.",
        ),
    ),
    "Run": (
        Command(
            "init",
            "init:init",
            "Write a commented configuration from the answers to five questions, or from options.",
        ),
        Command(
            "run",
            "experiments.run:run",
            "Run a federation with the adversary inside it, and report how "
            "identifiable one person is.",
        ),
        Command(
            "sweep",
            "experiments.sweep:sweep",
            "Run an experiment for every combination of settings, and compare.",
        ),
        Command(
            "choose",
            "experiments.choose:choose",
            "Find the least noise that meets a limit on the adversary, and the "
            "model's accuracy with it.",
        ),
        Command(
            "tune",
            "experiments.tune:tune",
            "Choose rounds, clipping norm and learning rate on public records, at no privacy cost.",
        ),
        Command(
            "train",
            "experiments.train:train",
            "Train a model with differential privacy, once, and keep it.",
        ),
        Command(
            "rehearse",
            "experiments.train:rehearse",
            "Estimate a training's privacy by playing the identification game on public records.",
        ),
        Command(
            "predict",
            "experiments.predict:predict",
            "Predict the class of records, or the likelihood of texts, with a trained model.",
        ),
        Command(
            "pac",
            "theory.pac:pac",
            "Release the result of any function on a secret subset of records, with "
            "PAC private noise.",
        ),
    ),
    "Look": (
        Command(
            "data",
            "data:data",
            "Show an experiment's data, with the number of records of each label at every client.",
        ),
        Command(
            "schema",
            "schema:schema",
            "Propose the public schema of a table, column by column, on its owner's machine.",
        ),
        Command(
            "sensitivity",
            "experiments.sensitivity:sensitivity",
            "Find the pair of neighbouring data sets to audit, and its distance from "
            "the worst case.",
        ),
        Command(
            "report",
            "experiments.report:report",
            "Write report.json, report.html and the figures of RUN_DIR again from its transcript.",
        ),
        Command(
            "compare",
            "experiments.report:compare",
            "Compare runs in a table and a page, with every trust model and vantage "
            "point side by side.",
        ),
        Command(
            "track",
            "experiments.report:track",
            "Export finished or interrupted runs to TensorBoard or MLflow.",
        ),
        Command(
            "open",
            "experiments.report:open_",
            "Open the page of a run in the browser, or print its path where there is no browser.",
        ),
    ),
    "Attack": (
        Command(
            "membership",
            "experiments.membership:membership",
            "Run membership inference attacks on a federation's models: who was in "
            "the training data?",
        ),
        Command(
            "reconstruct",
            "experiments.reconstruct:reconstruct",
            "Measure how often a curious participant guesses which record, or which value of a "
            "column, a training used.",
        ),
        ONE_RUN,
    ),
    "Audit": (
        AUDIT,
        Command(
            "check-auditor",
            "auditing.check_auditor:check_auditor",
            "Play games with a known epsilon against an auditor, and count its bounds above the "
            "truth.",
        ),
        Command(
            "sign",
            "evidence:sign",
            "Sign the results of a run or audit: report, configuration, ledger, "
            "transcript, code, versions.",
        ),
        Command(
            "registry",
            "registry:registry",
            "Write a YAML entry for the public registry of differential-privacy deployments "
            "(tier 3).",
        ),
        Command(
            "verify",
            "evidence:verify",
            "Verify signed evidence: the signature, every file, and the report and "
            "pages made again.",
        ),
    ),
    "Deploy": (
        DEPLOY,
        Group(
            "cluster",
            "Prepare a cluster whose workers train campaigns.",
            (
                Command(
                    "certificates",
                    "deploying.cluster:certificates",
                    "Write the certificates by which the machines of a Dask cluster know each "
                    "other.",
                ),
            ),
            "`fedsim run --cluster ADDRESS` hands batches of trials to its workers.",
        ),
    ),
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
            "plugins",
            "plugins:plugins",
            "List the plug-ins of installed packages, and whether this machine allows them.",
        ),
        Command(
            "reproduce",
            "reproduce:reproduce",
            "Reproduce the tables and figures of the papers behind fedsim, and compare the values.",
        ),
    ),
}
"""Panels of `fedsim --help` with their commands."""


def everything() -> Iterator[tuple[str, Command]]:
    """Yield every command, also the hidden ones, with its full name, such as "audit app"."""
    for listed in PANELS.values():
        for each in listed:
            if isinstance(each, Command):
                yield each.name, each
            else:
                yield from ((f"{each.name} {inner.name}", inner) for inner in each.commands)
