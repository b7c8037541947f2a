"""`fedsim data` and `fedsim schema`: the records of an experiment, and of each client."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.table import Table

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.cli.options import CONFIG, AsJson, SetOption, bundled
from fedsim.cli.terminal import Terminal, print_json
from fedsim.learning.data import dataset_cards

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.learning.data.schema_proposal import Proposal


def data(
    config_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]", help=f"{CONFIG} Default: list the data sets.", callback=bundled
        ),
    ] = None,
    set_: SetOption = None,
    json_: AsJson = False,
) -> None:
    """Show an experiment's data, with the number of records of each label at every client.

    Without CONFIG, lists the data sets.

    Example: fedsim data configs/digits.toml

    With skewed labels:

    fedsim data configs/digits.toml --set federation.partition=dirichlet

    With all people of one country at one client:

    fedsim data configs/adult.toml --set federation.partition=key
    --set federation.partition-key=native-country
    """
    if config_file is None:
        if set_:
            raise InputError(
                "--set needs a configuration, for example: fedsim data configs/digits.toml --set "
                "federation.clients=5"
            )
        _list(json_)
        return
    from fedsim.report import distribution_report  # noqa: PLC0415

    overrides = configuration.parse_overrides(set_)
    config = configuration.load(config_file, overrides)
    report = distribution_report.assemble(config.experiment)
    if json_:
        print_json(report)
    else:
        Terminal(highlight=False).print(distribution_report.summary(report))


def _list(as_json: bool) -> None:
    datasets = dataset_cards.listing()
    if as_json:
        print_json({"datasets": datasets})
        return
    table = Table("data.name", "what", "data.root", "licence")
    for entry in datasets:
        table.add_row(*entry.values())
    console = Terminal(highlight=False)
    console.print(table)
    console.print(
        "Data of an experiment: fedsim data CONFIG [--set data.name=NAME --set data.root=PATH]",
        soft_wrap=True,
    )


ANSWERS = "Enter: keep; s: do not use; i: identifier; LEAST,LARGEST: the publicly known range"


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
        raise InputError(
            f"'{out}' exists; name another file with --out, or overwrite it with --force"
        )
    console = Terminal(stderr=True, highlight=False)
    labels, proposals, form = schema_proposal.propose(str(file), label)
    console.print(f"'{file}': {form}.", markup=False, soft_wrap=True)
    if not yes:
        console.print(ANSWERS, markup=False)
        proposals = [_ask(each, console) for each in proposals]
    text = schema_proposal.written(label, labels, proposals, form)
    agreed = schemas.parse(text)
    schema_proposal.write_schema(out, text, force)
    marked = sum(bool(each.discloses and each.rule) for each in proposals) + 1
    for each in proposals:
        if each.placeholders and each.rule:
            seen = each.placeholders.removeprefix("; ")
            console.print(f"{each.name}: {seen}.", markup=False)
    names = [each.name for each in proposals if each.kind == "identifier"]
    console.print(
        f"{out}: {len(agreed.columns)} columns, {len(agreed.features)} features, "
        f"{labels}. Identifiers, never features: {', '.join(names) or 'none'}.\n"
        f"Lines marked {schemas.MARK}: {marked}. Replace them by public knowledge before you share "
        f'the file.\nNext, run fedsim deploy check, or set data.public-schema = "{out}"',
        markup=False,
    )


def _ask(proposal: "Proposal", console: Terminal) -> "Proposal":
    """Return a proposal as the owner of the records confirms or changes it."""
    console.print(f"{proposal.name}: {proposal.description}", markup=False)
    while True:
        words = f"  {proposal.rule or proposal.kind}"
        try:
            answer = typer.prompt(words, "", show_default=False, err=True)
        except click.Abort as error:
            if not isinstance(error.__context__, EOFError):
                raise KeyboardInterrupt from None
            raise InputError(
                f"the input ended before the answer for {proposal.name}; answer at a terminal, or "
                "keep every proposal with --yes"
            ) from None
        if not sys.stdin.isatty():
            console.print(answer, markup=False)  # a terminal echoes the answer, a file does not
        if not answer:
            return proposal
        if answer in ("s", "i"):
            return replace(proposal, kind={"s": "ignored", "i": "identifier"}[answer], rule="")
        ends = answer.split(",")
        if proposal.kind == "numbers" and len(ends) == 2:
            try:
                return proposal.with_range(*map(float, ends))
            except ValueError:
                pass
        console.print(f"  {ANSWERS}", markup=False)
