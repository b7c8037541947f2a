"""`fedsim calibrate` of several targets: the paper's noise beside the tight one, row by row."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

from adversaries.errors import InputError
from fedsim.cli.terminal import Terminal, print_json
from fedsim.privacy.calibration import Comparison, compare
from fedsim.privacy.identifiability import THEOREM2, TOTAL_VARIATION
from fedsim.report.document import terminal
from fedsim.report.document.blocks import tabulated
from fedsim.studies.guarantees.calibration import Sought


def show(sought: Sought, beliefs: list[float], deltas: list[float], *, as_json: bool) -> None:
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
        _print(sought, rows, per_effective)


def _document(row: Comparison, per_effective: float) -> dict[str, object]:
    """Return a row as JSON has it."""
    return {
        **asdict(row),
        "nominal_classic": row.classic * per_effective,
        "nominal_tight": row.tight * per_effective,
    }


def _print(sought: Sought, rows: Sequence[Comparison], per_effective: float) -> None:
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
