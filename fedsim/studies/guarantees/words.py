"""What `fedsim account` says: its sentences and tables."""

import math
from collections.abc import Iterator, Mapping, Sequence

from fedsim.privacy.accounting import accountant
from fedsim.privacy.identifiability import Bounds
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust.model import Vantage
from fedsim.reports.document.blocks import Block, Heading, Label, Prose, tabulated
from fedsim.studies.guarantees import statements
from fedsim.studies.guarantees.accounting import AccountedGuarantees, unbounded
from fedsim.studies.guarantees.statements import Row

NOISE_MULTIPLIER_EXPLAINED = (
    "The noise multiplier is the standard deviation of the noise in each sum, divided by the "
    "largest change that one {unit} can cause in that sum."
)

PERSON, CLIENT = "person's record", "client's whole data"

SOLUTIONS = {"rounds": "Most rounds:", "sampling_rate": "Highest sampling rate:"}
BOUNDS = {"epsilon": "epsilon", "rho_beta": "rho_beta"}
SOLVED = {"effective_noise_multiplier": "effective noise", "rho_alpha": "rho_alpha"}


def blocks(found: AccountedGuarantees, assumed_delta: bool) -> list[Block]:
    """Return the answer of `fedsim account`.

    Args:
        found: the guarantees, or the solution for a limit.
        assumed_delta: whether the user gave no delta, and no source has one.
    """
    title = f" at delta {found.bounds.delta:g}"
    if assumed_delta:
        title += ", because no --delta was given"
    said = [*(_guarantee(found, title) if found.found is None else _solution(found, title))]
    if (precision := found.document.get("precision")) is not None:
        said.append(_precision(precision))
    return said


def _solution(found: AccountedGuarantees, title: str) -> Iterator[Block]:
    """Yield the number for a limit, its guarantees, and the numbers of every accountant."""
    document, unknown = found.document, found.found
    assert unknown is not None
    if unknown != "noise_multiplier":
        full = unknown == "sampling_rate" and found.value == 1
        end = "; full batches already meet the limit." if full else "."
        yield Prose(f"{SOLUTIONS[unknown]} {found.value:.6g}{end}")
    yield from _description(found.releases, found.vantage)
    yield verdict(found.bounds, document["tail_limit"])
    yield Prose(NOISE_MULTIPLIER_EXPLAINED.format(unit=PERSON))
    if rows := document["solutions"]:
        columns = {unknown: unknown.replace("_", " "), **SOLVED}
        yield from _accountants(f"The same limit by every accountant{title}", rows, columns)
    else:
        yield from _accountants(f"Bounds{title}", document["accountants"], BOUNDS)
    yield from _risks(document["risks"])


def _guarantee(found: AccountedGuarantees, title: str) -> Iterator[Block]:
    bounds, document, config = found.bounds, found.document, found.config
    reason = None if config is None else unbounded(config.training.clipping)
    yield from _description(found.releases, found.vantage)
    if config is not None:
        label = "A DP guarantee" if document["dp_guarantee"] else "No DP guarantee"
        yield Prose(f"{label}. {document['dp_note']}")
    if reason is not None:
        yield Prose(f"No bound on the belief: {reason} for every trust and vantage.")
        yield from _bayesian(document["bayesian"])
        return
    by_client = config is not None and config.privacy.unit == "client"
    unit = CLIENT if by_client else PERSON
    yield verdict(bounds, document["tail_limit"], unit)
    yield Prose(NOISE_MULTIPLIER_EXPLAINED.format(unit=unit))
    if not found.releases.towards(found.vantage).noiseless:
        columns = {**BOUNDS, "tail_limit": "exceeded with"}
        yield from _accountants(f"Bounds{title}", document["accountants"], columns)
        yield Prose(
            f"The bound on the advantage is rho_alpha = {advantage(bounds.rho_alpha)}. "
            f"Theorem 2 of Bernau et al. gives {advantage(bounds.theorem2_rho_alpha)}, which may "
            f"be exceeded. Membership inference: at most {cell(bounds.yeom_bound)} (Yeom's bound "
            "e^epsilon - 1, for pure epsilon)."
        )
        yield from _risks(document["risks"])
        yield _pac(document["pac"])
    yield from _bayesian(document["bayesian"])
    yield from _to_whom(document["to_whom"])


def verdict(bounds: Bounds, tail_limit: float, unit: str = PERSON) -> Block:
    """Return a sentence about the protection of one unit of privacy."""
    if math.isinf(bounds.epsilon):
        unprotected = "a record" if unit == PERSON else f"a {unit}"
        return Label(
            "No protection:", f"nothing hides {unprotected} from an adversary at this vantage."
        )
    return Prose(
        f"An adversary at this vantage becomes at most {100 * bounds.rho_beta:.6g} % sure that a "
        f"given {unit} was used (rho_beta; epsilon {bounds.epsilon:.6g} at delta "
        f"{bounds.delta:g}), except in up to {100 * tail_limit:.3g} % of trainings with it. Its "
        f"advantage over guessing is at most {advantage(bounds.rho_alpha)} (rho_alpha)."
    )


def advantage(value: float) -> str:
    """Return an advantage as text: four decimals, or three digits for small values."""
    return f"{value:.4f}" if value == 0 or value >= 1e-3 else f"{value:.3g}"


def _description(releases: Releases, vantage: Vantage) -> Iterator[Block]:
    """Yield the noise multiplier, and the effective one towards a vantage."""
    row = statements.described(releases, vantage)
    nominal, effective = row["noise_multiplier"], row["effective_noise_multiplier"]
    colluding = f", {row['colluding']} colluding" if row["colluding"] else ""
    towards = f"towards the {vantage.value.replace('-', ' ')}, with {releases.trust.value} trust"
    if nominal == effective:
        faced = f"(the same {towards})."
    else:
        faced = f"({_of_rounds(effective)} {towards} and {releases.clients} clients{colluding})."
    yield Prose(f"Noise multiplier {_of_rounds(nominal)} {faced}")
    for alike in releases.rounds:
        if alike.local_steps > 1:
            yield Prose(
                f"{alike.count} rounds of {alike.local_steps} local steps: fedsim accounts for "
                f"{alike.count * alike.local_steps} noisy steps, as if each were released with "
                "only its client's noise."
            )


def _of_rounds(value: float | None) -> str:
    return "that differs between rounds" if value is None else f"{value:.6g}"


def _accountants(
    title: str, rows: Mapping[str, Row], columns: Mapping[str, str]
) -> Iterator[Block]:
    """Yield the numbers of every accountant and what they cover, then refusals and notes."""
    cells = []
    covering: dict[str, list[str]] = {}
    for name, row in rows.items():
        numbers = (_of_row(row, key) for key in columns)
        cells.append([f"{name}: {accountant(name).title}", *numbers])
        covering.setdefault(row["covers"], []).append(name)
    yield Heading(title)
    yield tabulated(["accountant", *columns.values()], cells)
    for covers, names in covering.items():
        yield Prose(f"{', '.join(names)}: {covers}")
    for name, row in rows.items():
        if "refusal" in row:
            yield Prose(row["refusal"])
        elif row["note"]:
            yield Prose(f"{name}: {row['note']}")


def _risks(rows: Sequence[Row]) -> Iterator[Block]:
    """Yield upper bounds on the success of any attack, by its success without the release."""
    cells = [[_one_in(row["baseline"]), f"{100 * row['at_most']:.3g} %"] for row in rows]
    yield Heading("Any attack: re-identification, attribute inference, reconstruction")
    yield tabulated(["right without the release", "right with it, at most"], cells)


def _one_in(baseline: float) -> str:
    people = round(1 / baseline)
    return f"1 in {people:,}" if math.isclose(people * baseline, 1) else f"{100 * baseline:.3g} %"


def _precision(row: Row) -> Block:
    """Return the number of trials for an interval of the advantage."""
    return Prose(
        f"The advantage ± {row['halfwidth']:g} at {100 * row['confidence']:g}% needs "
        f"{row['trials']:,} trials if it is {row['advantage']:.3f} ({row['advantage_from']}), and "
        f"{row['trials_at_zero']:,} if it is 0."
    )


def _pac(row: Row) -> Block:
    """Return the PAC bound on a guess of the world."""
    nats = cell(row["mutual_information"])
    if row["success_bound"] == 1:
        return Prose(f"PAC privacy gives no bound: {nats} nats exceed the one bit of the secret.")
    return Prose(
        f"PAC privacy, not a DP guarantee: all rounds release at most {nats} nats about "
        "whether the record was used. "
        f"On average, a guess is right with probability at most {row['success_bound']:.4f}, an "
        f"advantage of {row['advantage_bound']:.4f}. An epsilon of "
        f"{cell(row['equivalent_epsilon'])} allows the same."
    )


def _bayesian(row: Row) -> Iterator[Block]:
    """Yield the epsilon of the Bayesian accountant, or why it has none."""
    if "refusal" in row:
        yield Prose(row["refusal"])
        return
    if row["epsilon"] is None:
        yield Prose(f"Bayesian DP gives no epsilon: {row['note']}.")
        return
    mean, each = row["epsilon"]["mean"], row["epsilon_at_percentile"]["mean"]
    yield Prose(
        "Bayesian DP, for people like those in the data, not a DP guarantee: epsilon is "
        f"{cell(mean)} at delta {row['delta']:g}. For each of {100 * row['percentile']:g} % of "
        f"them, it is {cell(each)}. Both are means of {row['trials']} trials, from {row['pairs']} "
        "distances in every round."
    )
    if row["note"]:
        yield Prose(f"bayesian: {row['note']}")


def _to_whom(rows: Sequence[Row]) -> Iterator[Block]:
    """Yield the bounds for every trust and vantage, then the reasons for missing bounds."""
    columns = {"noise_multiplier": "effective\nnoise", "epsilon": "epsilon"}
    columns |= {"rho_beta": "rho_beta", "rho_alpha": "rho_alpha"}
    cells = [
        [row["trust"], row["vantage"], *(_of_row(row, key) for key in columns)]
        for row in rows
        if "refusal" not in row
    ]
    yield Heading("By trust (the party that adds the noise) and vantage of the adversary")
    yield tabulated(["trust", "vantage", *columns.values()], cells)
    yield from (Prose(row["refusal"]) for row in rows if "refusal" in row)


def _of_row(row: Row, key: str) -> str:
    """Return a cell of a row. With a finite epsilon, a belief that rounds to 1 is below 1."""
    epsilon = row.get("epsilon")
    if key == "rho_beta" and row.get(key) == 1 and epsilon is not None and math.isfinite(epsilon):
        return ">0.999999"
    return cell(row.get(key))


def cell(value: float | None) -> str:
    """Return a number with six digits, or a dash for None."""
    if value is None:
        return "–"
    # A belief that rounds to 1 is not certainty.
    return ">0.999999" if 0.9999995 <= value < 1 else f"{value:.6g}"
