"""`fedsim sign`, `verify` and `registry`: evidence of a report, and the entry of a training."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from adversaries.errors import InputError
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import private_files

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.report.evidence.verification import Verification


WORDS = {
    0: ("verified", "bold green"),
    3: ("cannot tell", "bold yellow"),
    4: ("refuted", "bold red"),
}

UNMADE = (
    "Signed without making the report again. The signature states the signer and the files, not "
    "that the report follows from them"
)

TAKEN = "files as signed; the report was not made again"


def sign(
    signed: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", help="Directory of a finished run or audit, or an audited transcript."
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Your Ed25519 private key (PEM or OpenSSH).")
    ] = None,
    new_key: Annotated[
        Path | None,
        typer.Option(
            metavar="KEY.pem",
            help="Path of a new private key. Writes KEY.public.pem too, and signs nothing.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Path of the evidence. Default: DIR/evidence.json."),
    ] = None,
) -> None:
    """Sign the results of a run or audit: report, configuration, ledger, transcript, code,
    versions.

    For a run, a training, or a transcript with its audit, the command first makes the report and
    its pages again from the other files. If they differ, it signs nothing. For an app, loop or live
    audit, it cannot make the report again: the signature then states only the signer and the
    files. The statement lists absent files. The evidence is one file. Anyone with the directory and
    the public key can verify it.

    Example: fedsim sign fedsim-runs/digits --key release.pem
    """
    from fedsim.report.evidence import envelope, verification  # noqa: PLC0415  (torch is slow)

    if new_key is not None:
        if signed is not None or key is not None or out is not None:
            raise InputError("--new-key makes a key and signs nothing; leave out the other options")
        typer.echo(f"Public key: {envelope.create(new_key)}", err=True)
        return
    if signed is None or key is None:
        raise InputError("fedsim sign needs DIR and --key KEY.pem; --new-key makes a key")
    place, unmade = verification.sign(signed, key, out)
    if unmade:
        typer.echo(f"{UNMADE} ({unmade})", err=True)
    typer.echo(f"Evidence: {place}", err=True)


def verify(
    evidence: Annotated[
        Path,
        typer.Argument(metavar="EVIDENCE", help="File that fedsim sign wrote, or its directory."),
    ],
    key: Annotated[
        Path | None, typer.Option(metavar="PUBLIC", help="Public key of the signer you trust.")
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory of the signed files. Default: the directory of EVIDENCE."
        ),
    ] = None,
    as_signed: Annotated[
        bool, typer.Option("--as-signed", help="Accept the signed report without making it again.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Verify signed evidence: the signature, every file, and the report and pages made again.

    Exit status: 0 verified (with --as-signed: files as signed); 3 cannot tell, as without a key;
    4 refuted; 2 bad input.

    Example: fedsim verify fedsim-runs/digits/evidence.json --key release.public.pem
    """
    from fedsim.report.evidence import verification  # noqa: PLC0415  (torch is slow)

    verified = verification.verify_in(evidence, key, files, as_signed)
    if json_:
        print_json(_document(verified))
    else:
        console = Terminal(highlight=False)
        for line in _lines(verified):
            console.print(line, soft_wrap=True)
    raise typer.Exit(int(verified.outcome))


def _document(verified: "Verification") -> dict[str, object]:
    checks = [
        {"of": check.of, "outcome": check.word or WORDS[check.outcome][0], "why": check.words}
        for check in verified.checks
    ]
    statement = verified.statement.model_dump(by_alias=True, mode="json")
    outcome = TAKEN if verified.taken else WORDS[verified.outcome][0]
    return {"outcome": outcome, "checks": checks, "statement": statement}


def _lines(verified: "Verification") -> Iterator[Text]:
    word, style = WORDS[verified.outcome]
    headline = TAKEN.capitalize() if verified.taken else word.upper()
    yield Text.assemble((headline, style), f", signed {verified.statement.predicate.signed}")
    for check in verified.checks:
        word, style = WORDS[check.outcome]
        yield Text.assemble(
            (f"{check.word or word:<13}", "" if check.word else style), f"{check.of}: {check.words}"
        )


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
