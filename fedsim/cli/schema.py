"""`fedsim schema`: a first public schema of a client's table."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from adversaries.errors import InputError
from fedsim.cli.terminal import Terminal

if TYPE_CHECKING:  # NumPy and pydantic
    from fedsim.learning.data.schema_proposal import Proposal

ASKED = "Enter: keep; s: do not use; i: identifier; LEAST,LARGEST: the range that everybody knows"


def schema(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Table: CSV, Parquet or .npz.")],
    label: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the labels.")] = "label",
    out: Annotated[Path, typer.Option(metavar="FILE", help="Path of the new schema.")] = Path(
        "schema.toml"
    ),
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing and keep every proposal.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the schema.")] = False,
) -> None:
    """Propose the public schema of a table, column by column, on its owner's machine.

    It detects numbers, dates, values and identifiers, and states how missing values are treated. It
    marks lines that would disclose something about the records. Replace them by public knowledge
    before you share the schema.

    Example: fedsim schema patients.csv --label readmitted
    """
    from fedsim.learning.data import schema as schemas  # noqa: PLC0415
    from fedsim.learning.data import schema_proposal  # noqa: PLC0415

    if out.exists() and not force:
        raise InputError(f"'{out}' is there already; give --out another file, or --force")
    console = Terminal(stderr=True, highlight=False)
    classes, proposals = schema_proposal.propose(str(file), label)
    if not yes:
        console.print(ASKED, markup=False)
        proposals = [_asked(each, console) for each in proposals]
    text = schema_proposal.written(label, classes, proposals)
    agreed = schemas.parse(text)
    schema_proposal.write(out, text, force)
    marked = sum(bool(each.discloses and each.rule) for each in proposals) + 1
    names = [each.name for each in proposals if each.kind == "identifier"]
    console.print(
        f"{out}: {len(agreed.columns)} columns, {len(agreed.features)} features, "
        f"{len(classes)} classes. Identifiers, never features: {', '.join(names) or 'none'}.\n"
        f"{marked} lines are marked FROM RECORDS: replace them by what everybody knows before you "
        f'share the file.\nNext: fedsim deploy check, or data.public-schema = "{out}"',
        markup=False,
    )


def _asked(proposal: "Proposal", console: Terminal) -> "Proposal":
    """Return what the owner of the records makes of a proposal."""
    console.print(f"{proposal.name}: {proposal.description}", markup=False)
    while True:
        words = f"  {proposal.rule or proposal.kind}"
        try:
            said = typer.prompt(words, "", show_default=False, err=True)
        except click.Abort as error:
            if not isinstance(error.__context__, EOFError):
                raise KeyboardInterrupt from None
            raise InputError(
                f"the answers end before {proposal.name}; answer at a terminal, or keep every "
                "proposal with --yes"
            ) from None
        if not sys.stdin.isatty():
            console.print(said, markup=False)  # an answer from a file is on no screen yet
        if not said:
            return proposal
        if said in ("s", "i"):
            return replace(proposal, kind={"s": "ignored", "i": "identifier"}[said], rule="")
        ends = said.split(",")
        if proposal.kind == "numbers" and len(ends) == 2:
            try:
                return proposal.with_range(*map(float, ends))
            except ValueError:
                pass
        console.print(f"  {ASKED}", markup=False)
