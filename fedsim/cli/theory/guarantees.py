"""What `fedsim account` and `fedsim calibrate` share: their tables, their words."""

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

NARROW = 100
"""Columns of a terminal with room for tails beside the other bounds."""

NOISE_MULTIPLIER_EXPLAINED = (
    "The noise multiplier is how much noise is added to each sum: its standard deviation, in units "
    "of the most that one {unit} can change that sum."
)


PERSON, CLIENT = "person's record", "client's whole data"
"""What the bounds are about: the unit of privacy."""


def verdict(bounds: Bounds, tail_limit: float, unit: str = PERSON) -> Text:
    """Return what the bounds say of one unit of privacy, in a sentence for everybody."""
    if math.isinf(bounds.epsilon):
        what = "a record" if unit == PERSON else f"an {unit}"
        nothing = f": nothing hides {what} from an adversary there."
        return Text.assemble(("No protection", "bold"), nothing)
    return Text(
        f"An adversary there becomes at most {100 * bounds.rho_beta:.6g} % sure that a given "
        f"{unit} was used (rho_beta; epsilon {bounds.epsilon:.6g} at delta "
        f"{bounds.delta:g}), except in up to {100 * tail_limit:.3g} % of trainings with it, and "
        "tells the two worlds apart with an advantage over guessing of at most "
        f"{advantage(bounds.rho_alpha)} (rho_alpha)."
    )


def advantage(value: float) -> str:
    """Return an advantage as text: four decimals, or three digits where these would be lost."""
    return f"{value:.4f}" if value == 0 or value >= 1e-3 else f"{value:.3g}"


def print_description(releases: Releases, vantage: Vantage, console: Console) -> None:
    """Print how much noise there is, and how much of it counts towards a vantage."""
    row = statements.asked(releases, vantage)
    nominal, effective = row["noise_multiplier"], row["effective_noise_multiplier"]
    colluding = f", {row['colluding']} of whom collude" if row["colluding"] else ""
    console.print(
        Text.assemble("Noise multiplier ", (_of_rounds(nominal), "bold")),
        f"({_of_rounds(effective)} towards the vantage {vantage.value}, with "
        f"{releases.trust.value} trust and {releases.clients} clients{colluding}).",
    )
    for alike in releases.rounds:
        if alike.local_steps > 1:
            console.print(
                f"{alike.count} rounds of {alike.local_steps} local steps: "
                f"{alike.count * alike.local_steps} noisy steps are accounted, as if every one "
                "were released under its client's noise alone."
            )


def _of_rounds(value: float | None) -> str:
    return "that differs between rounds" if value is None else f"{value:.6g}"


def assumed(delta: float, is_assumed: bool) -> str:
    """Return what a table's title says of a delta that is a default; "" of one that was given."""
    return f" at delta {delta:g}, because no --delta was given" if is_assumed else ""


def print_accountants(
    title: str, rows: Mapping[str, Row], columns: Mapping[str, str], console: Console
) -> None:
    """Print what every accountant says, what it speaks of, then refusals and notes.

    Args:
        columns: headings, by the key of a row that is shown below; missing values are dashes.
    """
    cells = []
    speak_of: dict[str, list[str]] = {}
    for name, row in rows.items():
        numbers = (_of_row(row, key) for key in columns)
        cells.append([f"{name}: {accountant(name).title}", *numbers])
        speak_of.setdefault(row["covers"], []).append(name)
    table = tabulated(["accountant", *columns.values()], cells)
    console.print(terminal.table(table, title))
    for covers, names in speak_of.items():
        verb = "speaks" if len(names) == 1 else "speak"
        console.print(Text(f"{', '.join(names)} {verb} of {covers}"))
    for name, row in rows.items():
        if "refusal" in row:
            console.print(Text(row["refusal"]))
        elif row["note"]:
            console.print(Text(f"{name}: {row['note']}"))


def print_risks(rows: Sequence[Row], console: Console) -> None:
    """Print how often an attack succeeds at most, by its success without the release."""
    shown = [[_in_cases(row["baseline"]), f"{100 * row['at_most']:.3g} %"] for row in rows]
    title = "Any attack: re-identification, attribute inference, reconstruction"
    headings = ["right without the release", "right with it, at most"]
    console.print(terminal.table(tabulated(headings, shown), title))


def _in_cases(baseline: float) -> str:
    return f"1 in {round(1 / baseline):,}"


def print_pac(row: Row, console: Console) -> None:
    """Print what PAC privacy says of the secret: which of the two worlds, unless row has others."""
    nats = cell(row["mutual_information"])
    if row["success_bound"] == 1:
        console.print(
            f"PAC privacy says nothing here: {nats} nats are more than the one bit there is to "
            "know."
        )
        return
    halves = row.get("prior") == "halves"
    secret = "which of the random halves was used" if halves else "which of the two worlds it is"
    guess = "a guess whether a record was in it" if halves else "a guess"
    equivalent = cell(row["equivalent_epsilon"])
    console.print(
        f"PAC privacy, no DP guarantee: all rounds tell at most {nats} nats of {secret}; {guess} "
        f"is right with probability at most {row['success_bound']:.4f} on average, an advantage of "
        f"{row['advantage_bound']:.4f}, as an epsilon of {equivalent} would allow."
    )


def print_bayesian(row: Row, console: Console) -> None:
    """Print what the Bayesian accountant says, or why it does not."""
    if "refusal" in row:
        console.print(Text(row["refusal"]))
        return
    if row["epsilon"] is None:
        console.print(Text(f"Bayesian DP says nothing: {row['note']}."))
        return
    mean, each = row["epsilon"]["mean"], row["epsilon_at_percentile"]["mean"]
    console.print(
        "Bayesian DP, for people like those in the data and no DP guarantee: epsilon "
        f"{cell(mean)} at delta {row['delta']:g}, {cell(each)} for each of "
        f"{100 * row['percentile']:g} % of them (means of {row['trials']} trials, from "
        f"{row['pairs']} distances in every round)."
    )
    if row["note"]:
        console.print(Text(f"bayesian: {row['note']}"))


def print_to_whom(rows: Sequence[Row], console: Console) -> None:
    """Print the bounds of every trust and vantage, then why some have none.

    Args:
        console: on which it is printed; below 100 columns the tails are left out.
    """
    narrow = console.width < NARROW
    noise = "effective\nnoise" if narrow else "effective noise"
    columns = {"noise_multiplier": noise, "epsilon": "epsilon", "rho_beta": "rho_beta"}
    if not narrow:
        columns["tail_limit"] = "exceeded with"
    columns["rho_alpha"] = "rho_alpha"
    cells = [
        [row["trust"], row["vantage"], *(_of_row(row, key) for key in columns)]
        for row in rows
        if "refusal" not in row
    ]
    table = tabulated(["trust", "vantage", *columns.values()], cells)
    console.print(terminal.table(table, "To whom, and if who adds the noise"))
    for row in rows:
        if "refusal" in row:
            console.print(Text(row["refusal"]))


def _of_row(row: Row, key: str) -> str:
    """Return a cell of a row; a finite epsilon leaves doubt, even where a float has none left."""
    epsilon = row.get("epsilon")
    if key == "rho_beta" and row.get(key) == 1 and epsilon is not None and math.isfinite(epsilon):
        return ">0.999999"
    return cell(row.get(key))


def cell(value: float | None) -> str:
    """Return a number as a table shows it: six digits, and a dash for None."""
    if value is None:
        return "–"
    # A belief that rounds to certainty is none.
    return ">0.999999" if 0.9999995 <= value < 1 else f"{value:.6g}"
