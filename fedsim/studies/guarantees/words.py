"""What `fedsim account` says: its sentences and tables."""

import math
from collections.abc import Iterator, Mapping, Sequence

from fedsim.privacy.accounting import accountant
from fedsim.reports.document.blocks import Block, Heading, Label, Prose, tabulated
from fedsim.reports.document.wording import percent
from fedsim.reports.sections.risks import in_cases
from fedsim.studies.guarantees.accounting import UNCLIPPED, AccountedGuarantees, Row

NOISE_MULTIPLIER_EXPLAINED = (
    "The noise multiplier is the standard deviation of the noise in each sum, divided by the "
    "largest change that one {unit} can cause in that sum."
)

BOUNDS = {"epsilon": "epsilon", "rho_beta": "rho_beta", "tail_limit": "exceeded with"}
SOLVED = {"effective_noise_multiplier": "effective noise", "rho_alpha": "rho_alpha"}
TOWARDS = {"noise_multiplier": "effective\nnoise", "epsilon": "epsilon"}
TOWARDS |= {"rho_beta": "rho_beta", "rho_alpha": "rho_alpha"}


def blocks(found: AccountedGuarantees, assumed_delta: bool) -> Iterator[Block]:
    """Yield the answer of `fedsim account`.

    Args:
        found: the guarantees, or the solution for a limit.
        assumed_delta: whether the user gave no delta, and no source has one.
    """
    document, config = found.document, found.config
    title = f" at delta {found.bounds.delta:g}"
    title += ", because no --delta was given" * assumed_delta
    if found.found == "rounds":
        yield Prose(f"Most rounds: {found.value:.6g}.")
    yield from _description(found)
    if config is not None:
        label = "A DP guarantee" if document["dp_guarantee"] else "No DP guarantee"
        yield Prose(f"{label}. {document['dp_note']}")
    if document["note"] == UNCLIPPED:
        yield Prose(f"No bound on the belief: {UNCLIPPED} for every trust and vantage.")
    else:
        by_client = config is not None and config.privacy.unit == "client"
        unit = "client's whole data" if by_client else "person's record"
        yield _verdict(found, unit)
        yield Prose(NOISE_MULTIPLIER_EXPLAINED.format(unit=unit))
        yield from _tables(found, title)
    if (row := document.get("precision")) is not None:
        yield Prose(
            f"The advantage ± {row['halfwidth']:g} at {100 * row['confidence']:g}% needs "
            f"{row['trials']:,} trials if it is {row['advantage']:.3f} ({row['advantage_from']}), "
            f"and {row['trials_at_zero']:,} if it is 0."
        )


def _tables(found: AccountedGuarantees, title: str) -> Iterator[Block]:
    document, unknown = found.document, str(found.found)
    if document.get("solutions"):
        columns = {unknown: unknown.replace("_", " "), **SOLVED}
        heading = f"The same limit by every accountant{title}"
        yield from _accountants(heading, document["solutions"], columns)
    if not found.releases.towards(found.vantage).noiseless:
        if not document.get("solutions"):
            yield from _accountants(f"Bounds{title}", document["accountants"], BOUNDS)
        cells = [[in_cases(row["baseline"]), percent(row["at_most"])] for row in document["risks"]]
        yield Heading("Any attack: re-identification, attribute inference, reconstruction")
        yield tabulated(["right without the release", "right with it, at most"], cells)
        if found.found is None:
            yield _pac(document["pac"])
    if found.found is None:
        yield from _to_whom(document["to_whom"])


def _verdict(found: AccountedGuarantees, unit: str) -> Block:
    bounds = found.bounds
    if math.isinf(bounds.epsilon):
        return Label("No protection:", f"nothing hides a {unit} from an adversary at this vantage.")
    return Prose(
        f"An adversary at this vantage becomes at most {100 * bounds.rho_beta:.6g} % sure that a "
        f"given {unit} was used (rho_beta; epsilon {bounds.epsilon:.6g} at delta "
        f"{bounds.delta:g}), except in up to {100 * found.document['tail_limit']:.3g} % of "
        f"trainings with it. Its advantage over guessing is at most {bounds.rho_alpha:.4g} "
        "(rho_alpha)."
    )


def _description(found: AccountedGuarantees) -> Iterator[Block]:
    row, releases = found.document, found.releases
    nominal, effective = row["noise_multiplier"], row["effective_noise_multiplier"]
    colluding = f", {row['colluding']} colluding" if row["colluding"] else ""
    towards = f"towards the {row['vantage'].replace('-', ' ')}, with {row['trust']} trust"
    faced = f"the same {towards}"
    if nominal != effective:
        faced = f"{_of_rounds(effective)} {towards} and {row['clients']} clients{colluding}"
    yield Prose(f"Noise multiplier {_of_rounds(nominal)} ({faced}).")
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
    covering: dict[str, list[str]] = {}
    for name, row in rows.items():
        covering.setdefault(row["covers"], []).append(name)
    yield Heading(title)
    yield tabulated(
        ["accountant", *columns.values()],
        [
            [f"{name}: {accountant(name).title}", *(_of_row(row, key) for key in columns)]
            for name, row in rows.items()
        ],
    )
    for covers, names in covering.items():
        yield Prose(f"{', '.join(names)}: {covers}")
    for name, row in rows.items():
        if said := row.get("refusal") or row["note"]:
            yield Prose(f"{name}: {said}")


def _pac(row: Row) -> Block:
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


def _to_whom(rows: Sequence[Row]) -> Iterator[Block]:
    """Yield the bounds for every trust and vantage, then the reasons for missing bounds."""
    yield Heading("By trust (the party that adds the noise) and vantage of the adversary")
    yield tabulated(
        ["trust", "vantage", *TOWARDS.values()],
        [
            [row["trust"], row["vantage"], *(_of_row(row, key) for key in TOWARDS)]
            for row in rows
            if "refusal" not in row
        ],
    )
    yield from (Prose(row["refusal"]) for row in rows if "refusal" in row)


def _of_row(row: Row, key: str) -> str:
    """Return a cell of a row. With a finite epsilon, a belief that rounds to 1 is below 1."""
    certain = key == "rho_beta" and row.get(key) == 1 and math.isfinite(row["epsilon"] or math.inf)
    return ">0.999999" if certain else cell(row.get(key))


def cell(value: float | None) -> str:
    """Return a number with six digits, or a dash for None."""
    if value is None:
        return "–"
    # A belief that rounds to 1 is not certainty.
    return ">0.999999" if 0.9999995 <= value < 1 else f"{value:.6g}"
