"""Tables and sentences that `fedsim account` prints."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from fedsim.privacy.accounting import accountant
from fedsim.privacy.identifiability import Bounds
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust.model import Vantage
from fedsim.report.document import terminal
from fedsim.report.document.blocks import tabulated
from fedsim.studies.guarantees import statements
from fedsim.studies.guarantees.statements import Row

NOISE_MULTIPLIER_EXPLAINED = (
    "The noise multiplier is the standard deviation of the noise in each sum, divided by the "
    "largest change that one {unit} can cause in that sum."
)


PERSON, CLIENT = "person's record", "client's whole data"


def verdict(bounds: Bounds, tail_limit: float, unit: str = PERSON) -> Text:
    """Return a sentence about the protection of one unit of privacy."""
    if math.isinf(bounds.epsilon):
        unprotected = "a record" if unit == PERSON else f"a {unit}"
        return Text.assemble(
            ("No protection", "bold"),
            f": nothing hides {unprotected} from an adversary at this vantage.",
        )
    return Text(
        f"An adversary at this vantage becomes at most {100 * bounds.rho_beta:.6g} % sure that a "
        f"given {unit} was used (rho_beta; epsilon {bounds.epsilon:.6g} at delta "
        f"{bounds.delta:g}), except in up to {100 * tail_limit:.3g} % of trainings with it. Its "
        f"advantage over guessing is at most {advantage(bounds.rho_alpha)} (rho_alpha)."
    )


def advantage(value: float) -> str:
    """Return an advantage as text: four decimals, or three digits for small values."""
    return f"{value:.4f}" if value == 0 or value >= 1e-3 else f"{value:.3g}"


def print_description(releases: Releases, vantage: Vantage, console: Console) -> None:
    """Print the noise multiplier, and the effective one towards a vantage."""
    row = statements.described(releases, vantage)
    nominal, effective = row["noise_multiplier"], row["effective_noise_multiplier"]
    colluding = f", {row['colluding']} colluding" if row["colluding"] else ""
    towards = f"towards the {vantage.value.replace('-', ' ')}, with {releases.trust.value} trust"
    if nominal == effective:
        faced = f"(the same {towards})."
    else:
        faced = f"({_of_rounds(effective)} {towards} and {releases.clients} clients{colluding})."
    console.print(Text.assemble("Noise multiplier ", (_of_rounds(nominal), "bold")), faced)
    for alike in releases.rounds:
        if alike.local_steps > 1:
            console.print(
                f"{alike.count} rounds of {alike.local_steps} local steps: fedsim accounts for "
                f"{alike.count * alike.local_steps} noisy steps, as if each were released with "
                "only its client's noise."
            )


def _of_rounds(value: float | None) -> str:
    return "that differs between rounds" if value is None else f"{value:.6g}"


def print_accountants(
    title: str, rows: Mapping[str, Row], columns: Mapping[str, str], console: Console
) -> None:
    """Print the numbers of every accountant and what they cover, then refusals and notes."""
    cells = []
    covering: dict[str, list[str]] = {}
    for name, row in rows.items():
        numbers = (_of_row(row, key) for key in columns)
        cells.append([f"{name}: {accountant(name).title}", *numbers])
        covering.setdefault(row["covers"], []).append(name)
    table = tabulated(["accountant", *columns.values()], cells)
    console.print(terminal.table(table, title))
    for covers, names in covering.items():
        console.print(Text(f"{', '.join(names)}: {covers}"))
    for name, row in rows.items():
        if "refusal" in row:
            console.print(Text(row["refusal"]))
        elif row["note"]:
            console.print(Text(f"{name}: {row['note']}"))


def print_risks(rows: Sequence[Row], console: Console) -> None:
    """Print upper bounds on the success of any attack, by its success without the release."""
    cells = [[_one_in(row["baseline"]), f"{100 * row['at_most']:.3g} %"] for row in rows]
    title = "Any attack: re-identification, attribute inference, reconstruction"
    headings = ["right without the release", "right with it, at most"]
    console.print(terminal.table(tabulated(headings, cells), title))


def _one_in(baseline: float) -> str:
    people = round(1 / baseline)
    return f"1 in {people:,}" if math.isclose(people * baseline, 1) else f"{100 * baseline:.3g} %"


def print_precision(row: Row, console: Console) -> None:
    """Print the number of trials for an interval of the advantage."""
    console.print(
        f"The advantage ± {row['halfwidth']:g} at {100 * row['confidence']:g}% needs "
        f"{row['trials']:,} trials if it is {row['advantage']:.3f} ({row['advantage_from']}), and "
        f"{row['trials_at_zero']:,} if it is 0."
    )


def print_pac(row: Row, console: Console) -> None:
    """Print the PAC bound on a guess of the world."""
    nats = cell(row["mutual_information"])
    if row["success_bound"] == 1:
        console.print(f"PAC privacy gives no bound: {nats} nats exceed the one bit of the secret.")
        return
    equivalent = cell(row["equivalent_epsilon"])
    console.print(
        f"PAC privacy, not a DP guarantee: all rounds release at most {nats} nats about "
        "whether the record was used. "
        f"On average, a guess is right with probability at most {row['success_bound']:.4f}, an "
        f"advantage of {row['advantage_bound']:.4f}. An epsilon of {equivalent} allows the same."
    )


def print_bayesian(row: Row, console: Console) -> None:
    """Print the epsilon of the Bayesian accountant, or why it has none."""
    if "refusal" in row:
        console.print(Text(row["refusal"]))
        return
    if row["epsilon"] is None:
        console.print(Text(f"Bayesian DP gives no epsilon: {row['note']}."))
        return
    mean, each = row["epsilon"]["mean"], row["epsilon_at_percentile"]["mean"]
    console.print(
        "Bayesian DP, for people like those in the data, not a DP guarantee: epsilon is "
        f"{cell(mean)} at delta {row['delta']:g}. For each of {100 * row['percentile']:g} % of "
        f"them, it is {cell(each)}. Both are means of {row['trials']} trials, from {row['pairs']} "
        "distances in every round."
    )
    if row["note"]:
        console.print(Text(f"bayesian: {row['note']}"))


def print_to_whom(rows: Sequence[Row], console: Console) -> None:
    """Print the bounds for every trust and vantage, then the reasons for missing bounds."""
    columns = {"noise_multiplier": "effective\nnoise", "epsilon": "epsilon"}
    columns |= {"rho_beta": "rho_beta", "rho_alpha": "rho_alpha"}
    cells = [
        [row["trust"], row["vantage"], *(_of_row(row, key) for key in columns)]
        for row in rows
        if "refusal" not in row
    ]
    table = tabulated(["trust", "vantage", *columns.values()], cells)
    title = "By trust (the party that adds the noise) and vantage of the adversary"
    console.print(terminal.table(table, title))
    for row in rows:
        if "refusal" in row:
            console.print(Text(row["refusal"]))


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
