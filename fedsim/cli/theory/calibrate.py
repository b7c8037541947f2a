"""`fedsim calibrate`: the noise, rounds or sampling rate for a target."""

from collections.abc import Sequence

from rich.text import Text

from fedsim.cli.options import AsJson, Delta
from fedsim.cli.terminal import Terminal, print_json
from fedsim.cli.theory import guarantees, options
from fedsim.studies.guarantees import calibration
from fedsim.studies.guarantees.calibration import (
    DEFAULT_ACCOUNTANT,
    Calibrated,
)


def calibrate(
    *,
    rho_beta: options.RhoBeta = None,
    rho_alpha: options.RhoAlpha = None,
    epsilon: options.Epsilon = None,
    max_risk: options.MaxRisk = None,
    baseline_risk: options.BaselineRisk = None,
    delta: Delta = None,
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
    calibrated = calibration.calibrate(
        rho_beta=rho_beta,
        rho_alpha=rho_alpha,
        epsilon=epsilon,
        max_risk=max_risk,
        baseline_risk=baseline_risk,
        delta=delta,
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
