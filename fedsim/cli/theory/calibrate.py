"""`fedsim calibrate`: the noise, rounds or sampling rate for a target."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from adversaries.errors import InputError
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.cli.theory import guarantees, options
from fedsim.privacy.calibration import CalibrationComparison, compare
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
    """Print the paper's calibration beside the tight one, a row for each belief and delta.

    Raises InputError if the noise multiplier is set, or the rounds or beliefs are missing.
    """
    if sought.unknown != "noise_multiplier" or sought.rounds is None or not beliefs:
        raise InputError(
            "several targets are compared by the noise that they need; give them as --rho-beta, "
            "with --rounds and without --noise-multiplier"
        )
    # Refuses impossible options before the searches, which find effective multipliers.
    per_effective = sought.nominal(1.0)
    steps = sought.rounds * sought.local_steps
    rows = [
        compare(belief, delta, steps, sought.sampling_rate, sought.neighbouring)
        for delta in deltas
        for belief in beliefs
    ]
    if as_json:
        document = [
            {
                **asdict(row),
                "nominal_classic": row.classic * per_effective,
                "nominal_tight": row.tight * per_effective,
            }
            for row in rows
        ]
        print_json({"comparison": document})
    else:
        _print_comparison(sought, rows, per_effective)


def _print_comparison(
    sought: Sought, rows: Sequence[CalibrationComparison], per_effective: float
) -> None:
    console = Terminal(highlight=False)
    noise = [_noise(row, per_effective) for row in rows]
    _print_table("The paper's noise (rdp-classic) beside the tight one (pld)", noise, console)
    if per_effective != 1:
        console.print(
            f"z is the effective noise towards the vantage {sought.vantage.value}. The nominal "
            f"noise is the noise to add, with {sought.trust.value} trust and {sought.clients} "
            f"clients{f' ({sought.colluding} colluding)' if sought.colluding else ''}."
        )
    _print_table("Guarantees of that noise", [_guarantee(row) for row in rows], console)
    console.print(
        "wasted: classic noise divided by tight noise. exact epsilon: the true guarantee of the "
        "classic noise at the same delta. --json has rho_alpha by every route."
    )


def _noise(row: CalibrationComparison, per_effective: float) -> dict[str, str]:
    """Return the noise of a row by heading, with the nominal noise if it is another number."""
    cells = {
        "delta": f"{row.delta:g}",
        "rho_beta": f"{row.rho_beta:g}",
        "classic z": f"{row.classic:.4f}",
        "tight z": f"{row.tight:.4f}",
        "wasted": f"x {row.wasted:.3f}",
    }
    if per_effective != 1:
        cells["nominal\nclassic z"] = f"{row.classic * per_effective:.4f}"
        cells["nominal\ntight z"] = f"{row.tight * per_effective:.4f}"
    return cells


def _guarantee(row: CalibrationComparison) -> dict[str, str]:
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
    *,
    rho_beta: options.RhoBeta = None,
    rho_alpha: options.RhoAlpha = None,
    epsilon: options.Epsilon = None,
    max_risk: options.MaxRisk = None,
    baseline_risk: options.BaselineRisk = None,
    delta: options.Deltas = None,
    mechanism: options.SoughtMechanism,
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
    if len(beliefs) > 1 or len(deltas) > 1:
        check_targets(
            {
                "rho-beta": beliefs or None,
                "rho-alpha": rho_alpha,
                "epsilon": epsilon,
                "max-risk": max_risk,
            },
            accountant,
        )
        if baseline_risk is not None:
            raise InputError("--baseline-risk needs --max-risk; give both, or leave it out")
        refuse_accountant(accountant, "several targets always compare rdp-classic with pld")
        _compare(Sought.of(**vars(mechanism)), beliefs, deltas or [ASSUMED], as_json=json_)
        return
    calibrated = calibration.calibrate(
        rho_beta=beliefs[0] if beliefs else None,
        rho_alpha=rho_alpha,
        epsilon=epsilon,
        max_risk=max_risk,
        baseline_risk=baseline_risk,
        delta=deltas[0] if deltas else None,
        accountant=accountant,
        **vars(mechanism),
    )
    assumed = guarantees.assumed(calibrated.bounds.delta, delta is None)
    if json_:
        print_json(calibrated.document)
    elif rho_alpha is None and max_risk is None:
        # Every accountant can solve these targets itself.
        columns = (calibrated.unknown, "effective_noise_multiplier", "rho_alpha")
        _print_answer(calibrated, f"The same request by every accountant{assumed}", columns)
    else:
        title = f"Bounds{assumed or f' at delta {calibrated.bounds.delta:g}'}"
        _print_answer(calibrated, title, ("epsilon", "rho_beta"))


def _print_answer(calibrated: Calibrated, title: str, columns: Sequence[str]) -> None:
    """Print the solution, its guarantees, and the results of every accountant."""
    console = Terminal(highlight=False)
    if calibrated.unknown != "noise_multiplier":
        full = calibrated.unknown == "sampling_rate" and calibrated.value == 1
        end = "; full batches already meet the target." if full else "."
        value = (f"{calibrated.value:.6g}", "bold")
        console.print(Text.assemble(f"{SOLUTIONS[calibrated.unknown]} ", value, end))
    guarantees.print_description(calibrated.releases, calibrated.vantage, console)
    console.print(guarantees.verdict(calibrated.bounds, calibrated.document["tail_limit"]))
    console.print(guarantees.NOISE_MULTIPLIER_EXPLAINED.format(unit=guarantees.PERSON))
    headings = {name: COLUMNS.get(name, name) for name in columns}
    guarantees.print_accountants(title, calibrated.document["accountants"], headings, console)
    guarantees.print_risks(calibrated.document["risks"], console)


SOLUTIONS = {"rounds": "Most rounds:", "sampling_rate": "Highest sampling rate:"}
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
            f"--{option} is '{text}'; give a number, or several separated by commas, such as "
            "0.75,0.9"
        ) from None
