"""`fedsim audit`: what a federation that is not ours guarantees."""

from pathlib import Path
from typing import Annotated

import typer

from fedsim.mechanism import Neighbouring


def audit(
    app: Annotated[
        Path,
        typer.Option(metavar="PATH", help="A Flower app's directory. Its code is run."),
    ],
    trials: Annotated[int, typer.Option(help="Runs of the app under attack.")] = 300,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of the app [its num-server-rounds].")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Clients of the federation.")] = 5,
    run_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Override the app's run config; may be repeated."),
    ] = None,
    claimed_epsilon: Annotated[
        float | None, typer.Option(help="What the run is said to guarantee, at --claimed-delta.")
    ] = None,
    claimed_delta: Annotated[float | None, typer.Option(help="Delta of the claim.")] = None,
    neighbouring: Annotated[
        Neighbouring, typer.Option(help="A client sends its update or none, or another update.")
    ] = Neighbouring.ADD_REMOVE,
    confidence: Annotated[float, typer.Option(help="Of every bound and interval.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of every random number.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Directory for report.json.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on a conviction.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, nothing else.")
    ] = False,
) -> int:
    """Find out what the differential privacy of a Flower app really guarantees, and why.

    Runs the app in this process, again and again: only name code that you would run yourself.

    Example: fedsim audit --app my-app --claimed-epsilon 2 --claimed-delta 1e-5
    """
    from fedsim.cli.app_audit import audit_app  # noqa: PLC0415

    return audit_app(
        app,
        trials=trials,
        rounds=rounds,
        nodes=nodes,
        run_config=run_config or [],
        claimed_epsilon=claimed_epsilon,
        claimed_delta=claimed_delta,
        neighbouring=neighbouring,
        confidence=confidence,
        seed=seed,
        out=out,
        as_json=as_json,
        strict=strict,
    )
