"""`fedsim calibrate`: how much noise, how many rounds or how large a sample a target allows."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedsim import calibration, identifiability, pac
from fedsim.accounting import ACCOUNTANTS
from fedsim.accounting import accountant as find_accountant
from fedsim.calibration import Requirement
from fedsim.cli import guarantees
from fedsim.cli.guarantees import (
    AsJson,
    Clients,
    Colluding,
    LocalSteps,
    NeighbouringChoice,
    Row,
    TrustChoice,
    VantageChoice,
)
from fedsim.cli.terminal import Terminal
from fedsim.description import Description, Rounds
from fedsim.errors import InputError
from fedsim.identifiability import Bounds
from fedsim.mechanism import (
    Neighbouring,
    Trust,
    Vantage,
    effective_noise_multiplier,
    nominal_noise_multiplier,
)

Unknown = Literal["noise_multiplier", "steps", "sampling_rate"]

DEFAULT_ACCOUNTANT = "pld"


@dataclass(frozen=True)
class Question:
    """What is known of the mechanism, and which number is sought."""

    unknown: Unknown
    noise_multiplier: float | None
    steps: int | None
    sampling_rate: float
    local_steps: int
    neighbouring: Neighbouring
    trust: Trust
    clients: int
    colluding: int
    vantage: Vantage

    def answer(self, requirement: Requirement) -> Description:
        """Return the description in which the unknown just meets the requirement."""
        # Refuse what makes no sense before the search, whose answer it would not use.
        self.nominal(1.0)
        setting = (self.trust, self.vantage, self.clients, self.local_steps)
        rounds = Rounds(
            self.noise_multiplier or 0.0, self.steps or 1, self.sampling_rate, self.local_steps
        )
        if self.unknown == "noise_multiplier":
            assert self.steps is not None
            found = calibration.noise_multiplier(
                requirement,
                self.steps * self.local_steps,
                self.sampling_rate,
                self.neighbouring,
            )
            return self._describe(replace(rounds, noise_multiplier=self.nominal(found)))
        assert self.noise_multiplier is not None
        effective = effective_noise_multiplier(
            self.noise_multiplier, *setting, colluders=self.colluding
        )
        if self.unknown == "steps":
            count = calibration.steps(
                requirement, effective, self.sampling_rate, self.neighbouring, self.local_steps
            )
            return self._describe(replace(rounds, count=count // self.local_steps))
        assert self.steps is not None
        rate = calibration.sampling_rate(
            requirement, effective, self.steps * self.local_steps, self.neighbouring
        )
        return self._describe(replace(rounds, sampling_rate=rate))

    def nominal(self, effective: float) -> float:
        """Return the multiplier to add for this effective one. Raises InputError if none helps."""
        return nominal_noise_multiplier(
            effective,
            self.trust,
            self.vantage,
            self.clients,
            self.local_steps,
            colluders=self.colluding,
        )

    def _describe(self, rounds: Rounds) -> Description:
        return Description(
            (rounds,), self.neighbouring, self.trust, self.clients, colluders=self.colluding
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
    question = Question(
        _unknown(noise_multiplier, steps, sampling_rate),
        noise_multiplier,
        steps,
        1.0 if sampling_rate is None else sampling_rate,
        1 if local_steps is None else local_steps,
        neighbouring or Neighbouring.ADD_REMOVE,
        trust or Trust.CENTRAL,
        2 if clients is None else clients,
        colluding or 0,
        vantage or Vantage.PARTICIPANT,
    )
    beliefs, deltas = _numbers("rho-beta", rho_beta), _numbers("delta", delta)
    targets = {
        "--rho-beta": beliefs,
        "--rho-alpha": rho_alpha,
        "--epsilon": epsilon,
        "--mutual-information": mutual_information,
    }
    given = [name for name, value in targets.items() if value not in (None, [])]
    if len(given) != 1:
        raise InputError(
            "give exactly one of --rho-beta, --rho-alpha, --epsilon and --mutual-information, for "
            "example --rho-beta 0.9"
        )
    judge = find_accountant(accountant).name
    if rho_alpha is not None or mutual_information is not None:
        _refuse_accountant(judge, f"it has no say in {given[0]}")
    if not deltas:
        if beliefs or epsilon is not None:
            raise InputError(
                "at which delta? Give the probability with which the guarantee may fail, for "
                "example --delta 0.01"
            )
        deltas = [1e-5]  # the answer does not depend on it, only the epsilon beside it
    if len(beliefs) > 1 or len(deltas) > 1:
        _refuse_accountant(judge, "several targets always compare rdp-classic with pld")
        _compare(question, beliefs, deltas, json_)
        return
    (at,) = deltas
    if rho_alpha is not None:
        required = calibration.advantage_at_most(rho_alpha)
        _answer(question, required, at, json_, assumed=delta is None)
        return
    if mutual_information is not None:
        required = calibration.information_at_most(mutual_information)
        _answer(question, required, at, json_, assumed=delta is None, by_pac=True)
        return
    target = identifiability.epsilon_of_rho_beta(beliefs[0]) if epsilon is None else epsilon
    _answer_epsilon(question, target, at, judge, json_)


def _refuse_accountant(name: str, reason: str) -> None:
    """Raise InputError for an accountant that was asked for where it decides nothing."""
    if name != DEFAULT_ACCOUNTANT:
        raise InputError(f"--accountant is '{name}', but {reason}; leave it out")


def _answer(
    question: Question,
    requirement: Requirement,
    delta: float,
    json_: bool,
    *,
    assumed: bool,
    by_pac: bool = False,
) -> None:
    """Find what meets a requirement in which no accountant has a say, then let each judge it.

    assumed: nobody gave the delta; by_pac: say what PAC privacy says of the answer.
    """
    found = question.answer(requirement)
    mechanism = found.towards(question.vantage)
    bounds = identifiability.bounds(mechanism, delta)
    rows = guarantees.accounted(mechanism, delta)
    columns = {"epsilon": "epsilon", "rho_beta": "rho_beta"}
    title = f"Bounds at delta {delta:g}"
    if assumed:
        title += ", because no --delta was given"
    allowed = asdict(pac.guarantee(pac.mutual_information(mechanism), delta)) if by_pac else None
    _show(question, found, bounds, rows, title, columns, json_, allowed)


def _answer_epsilon(
    question: Question, target: float, delta: float, accountant: str, json_: bool
) -> None:
    """Find what meets (epsilon, delta) by the accountant asked for, and by every other."""

    def answer(name: str) -> Description:
        return question.answer(calibration.epsilon_at_most(target, delta, name))

    def row(name: str) -> Row:
        described = found if name == accountant else answer(name)
        mechanism = described.towards(question.vantage)
        asked = guarantees.asked(described, question.vantage)
        return {
            **{key: asked[key] for key in COLUMNS if key in asked},
            "rho_alpha": identifiability.rho_alpha(mechanism),
            "covers": ACCOUNTANTS[name].covers,
            "note": ACCOUNTANTS[name].note(mechanism, delta),
        }

    found = answer(accountant)
    bounds = identifiability.bounds(found.towards(question.vantage), delta, accountant)
    # As asked, where what the noise gives differs in the last digits only.
    if math.isclose(bounds.epsilon, target, rel_tol=1e-6):
        rho_beta = identifiability.rho_beta_of_epsilon(target)
        bounds = replace(bounds, epsilon=target, rho_beta=rho_beta)
    rows = {name: guarantees.or_refusal(row, name) for name in ACCOUNTANTS}
    shown = (question.unknown, "effective_noise_multiplier", "rho_alpha")
    columns = {key: COLUMNS[key] for key in shown}
    title = "The same request by every accountant"
    _show(question, found, bounds, rows, title, columns, json_)


def _show(
    question: Question,
    found: Description,
    bounds: Bounds,
    rows: dict[str, Row],
    title: str,
    columns: dict[str, str],
    json_: bool,
    allowed: Row | None = None,
) -> None:
    """Print what was found, what it guarantees, and what every accountant says.

    allowed: what PAC privacy says, where that was asked for.
    """
    document: Row = {
        "found": question.unknown,
        **guarantees.asked(found, question.vantage),
        **asdict(bounds),
        "note": rows[bounds.accountant]["note"],
        "accountants": rows,
    }
    if allowed is not None:
        document["pac"] = allowed
    if json_:
        guarantees.print_json(document)
        return
    console = Terminal(highlight=False)
    if question.unknown != "noise_multiplier":
        value = document[question.unknown]
        full = question.unknown == "sampling_rate" and value == 1
        said = "; full batches already satisfy it." if full else "."
        console.print(Text.assemble(f"{FOUND[question.unknown]} ", (f"{value:.6g}", "bold"), said))
    guarantees.print_description(found, question.vantage, console)
    console.print(guarantees.verdict(bounds))
    console.print(guarantees.NOISE_MULTIPLIER_EXPLAINED.format(unit=guarantees.PERSON))
    if allowed is not None:
        guarantees.print_pac(allowed, console)
    guarantees.print_accountants(title, rows, columns, console)


FOUND = {"steps": "Most rounds:", "sampling_rate": "Highest sampling rate:"}
COLUMNS = {
    "noise_multiplier": "noise multiplier",
    "steps": "rounds",
    "sampling_rate": "sampling rate",
    "effective_noise_multiplier": "effective noise",
    "rho_alpha": "rho_alpha",
}


def _compare(question: Question, beliefs: list[float], deltas: list[float], json_: bool) -> None:
    """Print the paper's calibration beside the tight one, a row for each target."""
    if question.unknown != "noise_multiplier" or question.steps is None or not beliefs:
        raise InputError(
            "several targets compare how much noise they need; give them as --rho-beta, with "
            "--steps and without --noise-multiplier"
        )
    # Refuse what makes no sense before the searches, which find effective multipliers.
    per_effective = question.nominal(1.0)
    rows = [
        calibration.compare(
            belief,
            delta,
            question.steps * question.local_steps,
            question.sampling_rate,
            question.neighbouring,
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
        guarantees.print_json({"comparison": comparison})
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
            f"z is effective, towards the vantage {question.vantage.value}; nominal is the noise "
            f"to add, with {question.trust.value} trust and {question.clients} clients"
            f"{f', {question.colluding} of whom collude' if question.colluding else ''}."
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


def _unknown(
    noise_multiplier: float | None, steps: int | None, sampling_rate: float | None
) -> Unknown:
    if noise_multiplier is None:
        if steps is None:
            raise InputError(
                "give --steps to find the noise, --noise-multiplier to find the rounds, or both to "
                "find the sampling rate"
            )
        return "noise_multiplier"
    if steps is None:
        return "steps"
    if sampling_rate is None:
        return "sampling_rate"
    raise InputError(
        "noise, rounds and sampling rate are all given, so that nothing is left to find; leave one "
        "out, or ask fedsim account what they guarantee"
    )


def _numbers(option: str, text: str | None) -> list[float]:
    try:
        return [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--{option} is '{text}'; give a number, or several with commas, such as 0.75,0.9"
        ) from None
