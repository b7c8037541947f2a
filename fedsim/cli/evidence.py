"""`fedsim registry`: the entry of a training in a public registry."""

from pathlib import Path
from typing import Annotated, Any

import typer

from adversaries.errors import InputError
from fedsim.cli.terminal import Terminal
from fedsim.common import private_files


def registry(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of a finished training.")
    ],
    fact: Annotated[
        list[str] | None,
        typer.Option(
            "--fact",
            metavar="KEY=VALUE",
            help="Fact that only you know: curator, region, intended-use, author, slug, "
            "publication-date, sector, data-domain, tuning or sources. May be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Path of the entry. Default: printed.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The registry's schema (YAML), which then validates the entry."
        ),
    ] = None,
) -> None:
    """Write a YAML entry for the public registry of differential-privacy deployments (tier 3).

    The entry states what the card, the ledger and the threat model of a training say. You give what
    only its owner knows. Every entry is a draft: read it before you submit it.

    Example: fedsim registry fedsim-runs/model --fact curator=Example --fact region=EU
    """
    from fedsim.federation.runs.run_directory import RunDirectory  # noqa: PLC0415  (slow to import)
    from fedsim.report import model_card, registry_entry, training_report  # noqa: PLC0415

    run = RunDirectory.open(directory)
    if run.config.run.job != "training":
        raise InputError(
            f"'{directory}' is not a training, and the registry lists released models only; name a "
            "directory of fedsim train"
        )
    alarms = training_report.assemble(run).alarms
    facts = {}
    for text in fact or []:
        key, _, facts[key] = text.partition("=")
        if not facts[key]:
            raise InputError(f"--fact {text} has no value; write KEY=VALUE, such as region=EU")
    made = registry_entry.entry(model_card.read_card(run), run.config.run.author, alarms, facts)
    refused = [] if schema is None else registry_entry.complaints(made, _schema(schema))
    if refused:
        raise InputError(f"'{schema}' refuses the entry: {'; '.join(refused)}")
    text = registry_entry.as_yaml(made) + "\n"
    if out is None:
        typer.echo(text, nl=False)
        return
    with private_files.new_file(out, mode=0o644) as file:
        file.write(text.encode())
    Terminal(stderr=True).print(f"Entry: {out}", soft_wrap=True, highlight=False)


def _schema(path: Path) -> dict[str, Any]:
    try:
        import yaml  # noqa: PLC0415
    except ImportError:
        raise InputError("--schema needs PyYAML; run pip install pyyaml") from None
    try:
        schema = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"cannot read the schema '{path}': {error}") from None
    if not isinstance(schema, dict):
        raise InputError(f"'{path}' is not a schema; give the registry's deployments-schema.yaml")
    return schema
