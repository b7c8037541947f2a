"""`fedsim calibrate`: how much noise, how many rounds or how large a sample a target allows."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adversaries.errors import InputError
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.cli.theory import guarantees
from fedsim.cli.theory.guarantees import (
    Clients,
    Colluding,
    LocalSteps,
    NeighbouringChoice,
    TrustChoice,
    VantageChoice,
)
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import ACCOUNTANTS
from fedsim.privacy.calibration import compare
from fedsim.studies import calibration
from fedsim.studies.calibration import (
    DEFAULT_ACCOUNTANT,
    Calibrated,
    Sought,
    check_targets,
    refuse_accountant,
)


def calibrate(
    rho_beta: Annotated[
        str | None,
        typer.Option(
            metavar="BELIEF",
            help="How sure the adversary may become of one person: 0.5 to 1. Several with commas "
            "compare the paper's noise with the tight one.",
        ),
    ] = None,
    rho_alpha: Annotated[
        float | None,
        typer.Option(help="By how much it may do better than guessing: 0 to 1."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The bound on belief as epsilon, instead of --rho-beta.")
    ] = None,
    mutual_information: Annotated[
        float | None,
        typer.Option(
            help="How much all rounds may tell of which world it is, in nats (PAC privacy): 0 to "
            "0.69. Bounds an average, and is no DP guarantee."
        ),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(
            metavar="PROBABILITY",
            help="With which the guarantee may fail, e.g. 1/records; several with commas.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Number of rounds, k. Left out beside --noise-multiplier: sought."),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise standard deviation over the sensitivity. Left out: sought."),
    ] = None,
    local_steps: LocalSteps = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(
            help="Probability that a record joins a step; 1: full batches. Left out beside "
            "--noise-multiplier and --steps: sought.",
            show_default="1",
        ),
    ] = None,
    neighbouring: NeighbouringChoice = None,
    trust: TrustChoice = None,
    clients: Clients = None,
    colluding: Colluding = None,
    vantage: VantageChoice = None,
    accountant: Annotated[
        str, typer.Option(help=f"Method of accounting: {', '.join(ACCOUNTANTS)}.")
    ] = DEFAULT_ACCOUNTANT,
    json_: AsJson = False,
) -> None:
    """Find the least noise that keeps an adversary unsure enough of any one person.

    Or, where the noise is given, the most rounds or the highest sampling rate.

    Example, 30 rounds after which nobody is more than 90 % sure of anyone:

    fedsim calibrate --rho-beta 0.9 --delta 0.01 --steps 30

    How many rounds does this noise allow?

    fedsim calibrate --rho-beta 0.9 --delta 0.01 --noise-multiplier 4
    """
    beliefs, deltas = _numbers("rho-beta", rho_beta), _numbers("delta", delta)
    if len(beliefs) > 1 or len(deltas) > 1:
        targets = {
            "--rho-beta": beliefs or None,
            "--rho-alpha": rho_alpha,
            "--epsilon": epsilon,
            "--mutual-information": mutual_information,
        }
        check_targets(targets, deltas or None, accountant)
        refuse_accountant(accountant, "several targets always compare rdp-classic with pld")
        sought = Sought.of(
            noise_multiplier,
            steps,
            sampling_rate,
            local_steps,
            neighbouring,
            trust,
            clients,
            colluding,
            vantage,
        )
        _compare(sought, beliefs, deltas, json_)
        return
    found = calibration.calibrate(
        rho_beta=beliefs[0] if beliefs else None,
        rho_alpha=rho_alpha,
        epsilon=epsilon,
        mutual_information=mutual_information,
        delta=deltas[0] if deltas else None,
        rounds=steps,
        noise_multiplier=noise_multiplier,
        local_steps=local_steps,
        sampling_rate=sampling_rate,
        neighbouring=neighbouring,
        trust=trust,
        clients=clients,
        colluding=colluding,
        vantage=vantage,
        accountant=accountant,
    )
    if json_:
        print_json(found.document)
    elif rho_alpha is None and mutual_information is None:
        columns = (found.unknown, "effective_noise_multiplier", "rho_alpha")
        _print(found, "The same request by every accountant", columns)
    else:
        assumed = ", because no --delta was given" if delta is None else ""
        _print(found, f"Bounds at delta {found.bounds.delta:g}{assumed}", ("epsilon", "rho_beta"))


def _print(found: Calibrated, title: str, columns: Sequence[str]) -> None:
    """Print what was found, what it guarantees, and what every accountant says."""
    console = Terminal(highlight=False)
    if found.unknown != "noise_multiplier":
        full = found.unknown == "sampling_rate" and found.value == 1
        said = "; full batches already satisfy it." if full else "."
        console.print(
            Text.assemble(f"{FOUND[found.unknown]} ", (f"{found.value:.6g}", "bold"), said)
        )
    guarantees.print_description(found.releases, found.vantage, console)
    console.print(guarantees.verdict(found.bounds))
    console.print(guarantees.NOISE_MULTIPLIER_EXPLAINED.format(unit=guarantees.PERSON))
    if "pac" in found.document:
        guarantees.print_pac(found.document["pac"], console)
    rows = found.document["accountants"]
    shown = {name: COLUMNS.get(name, name) for name in columns}
    guarantees.print_accountants(title, rows, shown, console)


FOUND = {"steps": "Most rounds:", "sampling_rate": "Highest sampling rate:"}
COLUMNS = {
    "noise_multiplier": "noise multiplier",
    "steps": "rounds",
    "sampling_rate": "sampling rate",
    "effective_noise_multiplier": "effective noise",
    "rho_alpha": "rho_alpha",
}


def _compare(sought: Sought, beliefs: list[float], deltas: list[float], json_: bool) -> None:
    """Print the paper's calibration beside the tight one, a row for each target."""
    if sought.unknown != "noise_multiplier" or sought.rounds is None or not beliefs:
        raise InputError(
            "several targets compare how much noise they need; give them as --rho-beta, with "
            "--steps and without --noise-multiplier"
        )
    # Refuse what makes no sense before the searches, which find effective multipliers.
    per_effective = sought.nominal(1.0)
    rows = [
        compare(
            belief,
            delta,
            sought.rounds * sought.local_steps,
            sought.sampling_rate,
            sought.neighbouring,
        )
        for delta in deltas
        for belief in beliefs
    ]
    if json_:
        comparison = [
            {
                **asdict(row),
                "nominal_classic": row.classic * per_effective,
                "nominal_tight": row.tight * per_effective,
            }
            for row in rows
        ]
        print_json({"comparison": comparison})
        return
    noise = [
        {
            "delta": f"{row.delta:g}",
            "rho_beta": f"{row.rho_beta:g}",
            "classic z": f"{row.classic:.4f}",
            "tight z": f"{row.tight:.4f}",
            "wasted": f"x {row.wasted:.3f}",
        }
        | (
            {}
            if per_effective == 1
            else {
                "nominal\nclassic z": f"{row.classic * per_effective:.4f}",
                "nominal\ntight z": f"{row.tight * per_effective:.4f}",
            }
        )
        for row in rows
    ]
    advantage = [
        {
            "delta": f"{row.delta:g}",
            "rho_beta": f"{row.rho_beta:g}",
            "epsilon": f"{row.epsilon:.4f}",
            "exact\nepsilon": f"{row.exact_epsilon:.4f}",
            "rho_alpha,\nclassic z": (
                f"{row.classic_rho_alpha[identifiability.TOTAL_VARIATION]:.4f}"
            ),
            "rho_alpha,\ntight z": f"{row.tight_rho_alpha[identifiability.TOTAL_VARIATION]:.4f}",
            "Theorem 2,\nno bound": f"{row.tight_rho_alpha[identifiability.THEOREM2]:.4f}",
        }
        for row in rows
    ]
    console = Terminal(highlight=False)
    _print_table("The paper's noise (rdp-classic) beside the tight one (pld)", noise, console)
    if per_effective != 1:
        console.print(
            f"z is effective, towards the vantage {sought.vantage.value}; nominal is the noise "
            f"to add, with {sought.trust.value} trust and {sought.clients} clients"
            f"{f', {sought.colluding} of whom collude' if sought.colluding else ''}."
        )
    _print_table("What that noise guarantees", advantage, console)
    console.print(
        "wasted: classic over tight noise. exact epsilon: what the classic noise really "
        "guarantees at the same delta. --json has rho_alpha by every route."
    )


def _print_table(title: str, rows: list[dict[str, str]], console: Console) -> None:
    table = Table(title=title, title_justify="left")
    for heading in rows[0]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


def _numbers(option: str, text: str | None) -> list[float]:
    try:
        return [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--{option} is '{text}'; give a number, or several with commas, such as 0.75,0.9"
        ) from None
