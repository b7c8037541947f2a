"""`fedsim data`: the data sets, and the distribution of an experiment's data over the clients."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.cli.options import CONFIG, AsJson, SetOption, bundled
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory
from fedsim.learning.data import dataset_cards


def data(
    config_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]", help=f"{CONFIG} Left out: list the data sets.", callback=bundled
        ),
    ] = None,
    set_: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of the report. Default: no report."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Show an experiment's data, with the number of records of each label at every client.

    Without CONFIG, lists the data sets. Writes files only with --out.

    Example: fedsim data configs/digits.toml

    With skewed labels, and a page that shows them:

    fedsim data configs/digits.toml --set federation.partition=dirichlet --out skew

    With all people of one country at one client:

    fedsim data configs/adult.toml --set federation.partition=key
    --set federation.partition-key=native-country
    """
    if config_file is None:
        if set_ or out is not None:
            raise InputError(
                "--set and --out need a configuration, for example: fedsim data "
                "configs/digits.toml --out distribution"
            )
        _list(json_)
        return
    from fedsim.report import distribution_report  # noqa: PLC0415

    overrides = configuration.parse_overrides(set_)
    config = configuration.load(config_file, overrides)
    if out is not None:
        report_directory.check_new(out)
    report = distribution_report.assemble(config)
    console = Terminal(highlight=False)
    if json_:
        print_json(report.as_json())
    else:
        console.print(distribution_report.summary(report))
    if out is not None:
        with report_directory.refusing(out):
            page = distribution_report.write(report, out)
        Terminal(stderr=True).print(f"Report: {page}", soft_wrap=True, highlight=False)


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
