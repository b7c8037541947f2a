"""`fedsim calibrate`: how much noise, how many rounds or how large a sample a target allows."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from adversaries.errors import InputError
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.cli.theory import guarantees, options
from fedsim.privacy.calibration import Comparison, compare
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.identifiability import THEOREM2, TOTAL_VARIATION
from fedsim.report.document import terminal
from fedsim.report.document.blocks import tabulated
from fedsim.studies.guarantees import calibration
from fedsim.studies.guarantees.calibration import (
    DEFAULT_ACCOUNTANT,
    Calibrated,
    Sought,
    check_targets,
    refuse_accountant,
)


def _compare(sought: Sought, beliefs: list[float], deltas: list[float], *, as_json: bool) -> None:
    """Print the paper's calibration beside the tight one, a row for each target.

    Args:
        sought: what is given of the mechanism; its noise multiplier is what is sought.
        beliefs: targets of rho_beta, in (0.5, 1).
        deltas: each of which every belief is compared at, in (0, 1).

    Raises:
        InputError: it is not the noise for given rounds and beliefs that is sought.
    """
    if sought.unknown != "noise_multiplier" or sought.rounds is None or not beliefs:
        raise InputError(
            "several targets compare how much noise they need; give them as --rho-beta, with "
            "--rounds and without --noise-multiplier"
        )
    # Refuse what makes no sense before the searches, which find effective multipliers.
    per_effective = sought.nominal(1.0)
    steps = sought.rounds * sought.local_steps
    rows = [
        compare(belief, delta, steps, sought.sampling_rate, sought.neighbouring)
        for delta in deltas
        for belief in beliefs
    ]
    if as_json:
        print_json({"comparison": [_document(row, per_effective) for row in rows]})
    else:
        _print_comparison(sought, rows, per_effective)


def _document(row: Comparison, per_effective: float) -> dict[str, object]:
    """Return a row as JSON has it."""
    return {
        **asdict(row),
        "nominal_classic": row.classic * per_effective,
        "nominal_tight": row.tight * per_effective,
    }


def _print_comparison(sought: Sought, rows: Sequence[Comparison], per_effective: float) -> None:
    """Print the noise of every row, and what it guarantees."""
    console = Terminal(highlight=False)
    noise = [_noise(row, per_effective) for row in rows]
    _print_table("The paper's noise (rdp-classic) beside the tight one (pld)", noise, console)
    if per_effective != 1:
        console.print(
            f"z is effective, towards the vantage {sought.vantage.value}; nominal is the noise "
            f"to add, with {sought.trust.value} trust and {sought.clients} clients"
            f"{f', {sought.colluding} of whom collude' if sought.colluding else ''}."
        )
    _print_table("What that noise guarantees", [_guarantee(row) for row in rows], console)
    console.print(
        "wasted: classic over tight noise. exact epsilon: what the classic noise really "
        "guarantees at the same delta. --json has rho_alpha by every route."
    )


def _noise(row: Comparison, per_effective: float) -> dict[str, str]:
    """Return the noise of a row by heading; the nominal one where it is not the effective."""
    shown = {
        "delta": f"{row.delta:g}",
        "rho_beta": f"{row.rho_beta:g}",
        "classic z": f"{row.classic:.4f}",
        "tight z": f"{row.tight:.4f}",
        "wasted": f"x {row.wasted:.3f}",
    }
    if per_effective != 1:
        shown["nominal\nclassic z"] = f"{row.classic * per_effective:.4f}"
        shown["nominal\ntight z"] = f"{row.tight * per_effective:.4f}"
    return shown


def _guarantee(row: Comparison) -> dict[str, str]:
    """Return what the noise of a row guarantees, by heading."""
    return {
        "delta": f"{row.delta:g}",
        "rho_beta": f"{row.rho_beta:g}",
        "epsilon": f"{row.epsilon:.4f}",
        "exact\nepsilon": f"{row.exact_epsilon:.4f}",
        "rho_alpha,\nclassic z": f"{row.classic_rho_alpha[TOTAL_VARIATION]:.4f}",
        "rho_alpha,\ntight z": f"{row.tight_rho_alpha[TOTAL_VARIATION]:.4f}",
        "Theorem 2,\nno bound": f"{row.tight_rho_alpha[THEOREM2]:.4f}",
    }


def _print_table(title: str, rows: list[dict[str, str]], console: Console) -> None:
    table = tabulated(list(rows[0]), [list(row.values()) for row in rows])
    console.print(terminal.table(table, title))


def calibrate(
    rho_beta: options.RhoBeta = None,
    rho_alpha: options.RhoAlpha = None,
    epsilon: options.Epsilon = None,
    mutual_information: options.MutualInformation = None,
    max_risk: options.MaxRisk = None,
    baseline_risk: options.BaselineRisk = None,
    delta: options.Deltas = None,
    rounds: options.RoundsSought = None,
    noise_multiplier: options.NoiseMultiplierSought = None,
    local_steps: options.LocalSteps = None,
    sampling_rate: options.SamplingRateSought = None,
    neighbouring: options.NeighbouringChoice = None,
    trust: options.TrustChoice = None,
    clients: options.Clients = None,
    colluding: options.Colluding = None,
    vantage: options.VantageChoice = None,
    accountant: options.Accountant = DEFAULT_ACCOUNTANT,
    json_: AsJson = False,
) -> None:
    """Find the least noise that limits how sure an adversary becomes about any one person.

    If you give the noise, it finds the most rounds or the highest sampling rate instead.

    Example, 30 rounds after which an adversary is at most 90 % sure about any person:
    fedsim calibrate --rho-beta 0.9 --delta 0.01 --rounds 30

    An attacker who names one of 1,000 people rightly by chance names at most 5 of 1,000:

    fedsim calibrate --max-risk 0.005 --baseline-risk 0.001 --rounds 30

    How many rounds does this noise allow?

    fedsim calibrate --rho-beta 0.9 --delta 0.01 --noise-multiplier 4
    """
    beliefs, deltas = _numbers("rho-beta", rho_beta), _numbers("delta", delta)
    known: dict[str, Any] = {
        "noise_multiplier": noise_multiplier,
        "rounds": rounds,
        "local_steps": local_steps,
        "sampling_rate": sampling_rate,
        "neighbouring": neighbouring,
        "trust": trust,
        "clients": clients,
        "colluding": colluding,
        "vantage": vantage,
    }
    if len(beliefs) > 1 or len(deltas) > 1:
        check_targets(
            {
                "rho-beta": beliefs or None,
                "rho-alpha": rho_alpha,
                "epsilon": epsilon,
                "mutual-information": mutual_information,
                "max-risk": max_risk,
            },
            accountant,
        )
        refuse_accountant(accountant, "several targets always compare rdp-classic with pld")
        _compare(Sought.of(**known), beliefs, deltas or [ASSUMED], as_json=json_)
        return
    found = calibration.calibrate(
        rho_beta=beliefs[0] if beliefs else None,
        rho_alpha=rho_alpha,
        epsilon=epsilon,
        mutual_information=mutual_information,
        max_risk=max_risk,
        baseline_risk=baseline_risk,
        delta=deltas[0] if deltas else None,
        accountant=accountant,
        **known,
    )
    same = rho_alpha is None and mutual_information is None and max_risk is None
    _print(found, json_, same, guarantees.assumed(found.bounds.delta, delta is None))


def _print(found: Calibrated, as_json: bool, same: bool, assumed: str) -> None:
    """Print what was found; same: for the target itself, by every accountant; assumed: of delta."""
    if as_json:
        print_json(found.document)
    elif same:
        columns = (found.unknown, "effective_noise_multiplier", "rho_alpha")
        _print_answer(found, f"The same request by every accountant{assumed}", columns)
    else:
        title = f"Bounds{assumed or f' at delta {found.bounds.delta:g}'}"
        _print_answer(found, title, ("epsilon", "rho_beta"))


def _print_answer(found: Calibrated, title: str, columns: Sequence[str]) -> None:
    """Print what was found, what it guarantees, and what every accountant says."""
    console = Terminal(highlight=False)
    if found.unknown != "noise_multiplier":
        full = found.unknown == "sampling_rate" and found.value == 1
        said = "; full batches already satisfy it." if full else "."
        console.print(
            Text.assemble(f"{FOUND[found.unknown]} ", (f"{found.value:.6g}", "bold"), said)
        )
    guarantees.print_description(found.releases, found.vantage, console)
    console.print(guarantees.verdict(found.bounds, found.document["tail_limit"]))
    console.print(guarantees.NOISE_MULTIPLIER_EXPLAINED.format(unit=guarantees.PERSON))
    if "pac" in found.document:
        guarantees.print_pac(found.document["pac"], console)
    rows = found.document["accountants"]
    shown = {name: COLUMNS.get(name, name) for name in columns}
    guarantees.print_accountants(title, rows, shown, console)
    guarantees.print_risks(found.document["risks"], console)


FOUND = {"rounds": "Most rounds:", "sampling_rate": "Highest sampling rate:"}
COLUMNS = {
    "noise_multiplier": "noise multiplier",
    "sampling_rate": "sampling rate",
    "effective_noise_multiplier": "effective noise",
    "rho_alpha": "rho_alpha",
}


def _numbers(option: str, text: str | None) -> list[float]:
    try:
        return [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--{option} is '{text}'; give a number, or several with commas, such as 0.75,0.9"
        ) from None
