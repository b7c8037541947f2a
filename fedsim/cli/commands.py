"""The table of commands, in the order of `fedsim --help`: their names and their code.

Help and completion read a command's sentence from the source of its docstring and import nothing.
"""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        code: "module:function" in `fedsim.cli`.
        hidden: leave it out of help, since only scripts call it.
    """

    name: str
    code: str
    hidden: bool = False

    @property
    def words(self) -> str:
        """The first paragraph of the function's docstring, which is its help."""
        module, _, function = self.code.partition(":")
        return _first_paragraphs(module)[function]


@cache
def _first_paragraphs(module: str) -> dict[str, str]:
    """Return the first paragraph of the docstring of each function of a module, by its name."""
    path = Path(__file__).parent / f"{module.replace('.', '/')}.py"
    functions = (
        node for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.FunctionDef)
    )
    documented = {node.name: inspect.cleandoc(ast.get_docstring(node) or "") for node in functions}
    return {name: " ".join(text.split("\n\n")[0].split()) for name, text in documented.items()}


@dataclass(frozen=True)
class CommandGroup:
    """Commands below one name, such as `fedsim audit`.

    Attributes:
        more: paragraphs of the group's help below `words`.
    """

    name: str
    words: str
    commands: tuple[Command, ...] = field(repr=False)
    more: str = ""
    hidden = False


AUDIT = CommandGroup(
    "audit",
    "Check a privacy claim of a Flower app, a training function, or a "
    "recorded or running federation.",
    (
        Command("app", "auditing.audit:app"),
        Command("loop", "auditing.code_audit:loop"),
        Command("transcript", "auditing.audit:transcript"),
        Command("live", "auditing.audit:live"),
    ),
    "`fedsim report` makes the report of a run of `fedsim run`.\n\n"
    "Exit status: 0 the claim is supported, or there is no claim (3 with "
    "--strict); 1 the audit ended with an error; 2 bad input; 3 the audit cannot tell, or a "
    "--fail-if condition holds; 4 the claim is not supported, or it is refuted.",
)

ONE_RUN = CommandGroup(
    "one-run",
    "Audit a single training with canaries that a coin includes or leaves out.",
    (
        Command("draw", "auditing.one_run:draw"),
        Command("score", "auditing.one_run:score"),
        Command("estimate", "auditing.one_run:estimate"),
    ),
    "`draw` lists the canaries of a configuration, `fedsim run` plants them, "
    "`score` scores them from the released sums, and `estimate` computes "
    "bounds from the scores.",
)

DEPLOY = CommandGroup(
    "deploy",
    "Run a federation across machines: keys, certificates, scripts, checks and runs.",
    (
        Command("init", "deploying.kit:init"),
        Command("check", "deploying.kit:check"),
        Command("register", "deploying.kit:register"),
        Command("run", "deploying.run:run"),
        Command("train", "deploying.run:train"),
        Command("stop", "deploying.run:stop"),
        Command("report", "deploying.upkeep:report"),
        Command("status", "deploying.upkeep:status"),
        Command("renew", "deploying.kit:renew"),
        Command("proxy", "deploying.upkeep:proxy", hidden=True),
        Command("superlink", "deploying.upkeep:superlink", hidden=True),
        Command("supernode", "deploying.upkeep:supernode", hidden=True),
    ),
)

CLUSTER = CommandGroup(
    "cluster",
    "Prepare a cluster whose workers train batches of trials.",
    (Command("certificates", "deploying.kit:certificates"),),
    "`fedsim run --cluster ADDRESS` hands batches of trials to its workers.",
)

CONFIG = CommandGroup(
    "config",
    "List and explain configuration keys.",
    (
        Command("list", "config:list_"),
        Command("explain", "config:explain"),
        Command("examples", "config:examples"),
    ),
)

PANELS: dict[str, tuple[Command | CommandGroup, ...]] = {
    "Plan": (Command("account", "theory.account:account"),),
    "Run": (
        Command("init", "init:init"),
        Command("run", "experiments.run:run"),
        Command("choose", "experiments.settings:choose"),
        Command("train", "experiments.train:train"),
        Command("rehearse", "experiments.train:rehearse"),
        Command("predict", "experiments.train:predict"),
        Command("pac", "theory.pac:pac"),
    ),
    "Look": (
        Command("data", "data:data"),
        Command("schema", "data:schema"),
        Command("sensitivity", "experiments.studies:sensitivity"),
        Command("report", "experiments.report:report"),
        Command("track", "experiments.report:track"),
        Command("open", "experiments.report:open_"),
    ),
    "Attack": (
        Command("membership", "experiments.studies:membership"),
        Command("reconstruct", "experiments.studies:reconstruct"),
        ONE_RUN,
    ),
    "Audit": (
        AUDIT,
        Command("verify", "verify:verify"),
    ),
    "Deploy": (DEPLOY, CLUSTER),
    "Reference": (CONFIG,),
}


def everything() -> Iterator[tuple[str, Command]]:
    """Yield every command, also the hidden ones, with its full name, such as "audit app"."""
    for listed in PANELS.values():
        for each in listed:
            if isinstance(each, Command):
                yield each.name, each
            else:
                yield from ((f"{each.name} {inner.name}", inner) for inner in each.commands)
