"""`fedsim calibrate`: how much noise, how many rounds or how large a sample a target allows."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from adversaries.errors import InputError
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.cli.theory import comparison, guarantees, options
from fedsim.privacy.delta import ASSUMED
from fedsim.studies.guarantees import calibration
from fedsim.studies.guarantees.calibration import (
    DEFAULT_ACCOUNTANT,
    Calibrated,
    Sought,
    check_targets,
    refuse_accountant,
)


def calibrate(
    rho_beta: options.RhoBeta = None,
    rho_alpha: options.RhoAlpha = None,
    epsilon: options.Epsilon = None,
    mutual_information: options.MutualInformation = None,
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
    """Find the least noise that keeps an adversary unsure enough of any one person.

    Or, where the noise is given, the most rounds or the highest sampling rate.

    Example, 30 rounds after which nobody is more than 90 % sure of anyone:

    fedsim calibrate --rho-beta 0.9 --delta 0.01 --rounds 30

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
            },
            accountant,
        )
        refuse_accountant(accountant, "several targets always compare rdp-classic with pld")
        comparison.show(Sought.of(**known), beliefs, deltas or [ASSUMED], as_json=json_)
        return
    found = calibration.calibrate(
        rho_beta=beliefs[0] if beliefs else None,
        rho_alpha=rho_alpha,
        epsilon=epsilon,
        mutual_information=mutual_information,
        delta=deltas[0] if deltas else None,
        accountant=accountant,
        **known,
    )
    same = rho_alpha is None and mutual_information is None
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
