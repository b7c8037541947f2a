"""Every observer of a run in words: its state, what theory allows it, and what was measured."""

import math
from collections.abc import Iterator

from rich.text import Text

from fedsim.audits.results.report import Report
from fedsim.audits.results.rows import OwnLimit
from fedsim.audits.results.rows import RunRow as Row
from fedsim.audits.results.verdicts import (
    MUST_BE_TRUSTED,
    NO_GUARANTEE,
    NO_LIMIT,
    NO_PROTECTION,
    TOO_FEW,
    StateWords,
    words_of,
)
from fedsim.privacy.trust import Trust
from fedsim.report.document.blocks import Block, Cell, Group, Line, Listing, Mark, Prose, Table
from fedsim.report.document.first_screen import share, shares
from fedsim.report.document.wording import DASH, number, percent, plain, span, would_have_noticed
from fedsim.report.sections.section import (
    Section,
    challenge_of,
    clients_of,
    confidence_of,
    is_client,
    is_clipped,
    is_sampled,
    score_caution,
    takes_local_steps,
)

NAMES = {"server": "server", "participant": "participant", "released-model": "released model"}
WHO = {
    "server": "the operator of the server",
    "participant": "a participant",
    "released-model": "someone who sees only the released model",
}
SHOWN = ("participant", "released-model", "server")
"""Order of observers on a screen, after those whose measurement contradicts theory."""

INFORMED = ("participant", "oracle")
"""The values of `audit.mode` whose adversaries know all that the bounds assume."""

NOT_ATTACKED = "not attacked"
GAUSSIAN = "if the noise is Gaussian"
CONDITIONS = {
    "gaussian": GAUSSIAN,
    "mu_gdp": GAUSSIAN,
    "one_run": GAUSSIAN,
    "trade_off": "if the noise differs from the claim only in its amount",
}
"""Condition under which a lower bound on epsilon holds, for estimators that need more than
independent trials. Both leading bounds from canaries need Gaussian noise."""

NEARLY = 0.01
"""Relative distance from the limit that trials cannot resolve."""


def shown(report: Report) -> list[Row]:
    """Return the rows in the order in which a screen shows them."""
    ordered = sorted(report.rows.values(), key=lambda row: SHOWN.index(row.observer))
    return sorted(ordered, key=lambda row: row.standing != "contradicted")


def mark(report: Report, row: Row) -> Mark:
    """Return the state of an observer in a few words; good is only what lies below its limit."""
    words = state_words(report, row)
    return Mark(words.kind, words.text)


def state_words(report: Report, row: Row) -> StateWords:
    interval = None if row.attack is None else row.attack.interval
    if row.standing == "agrees" and interval and interval[0] <= 0:
        return TOO_FEW  # it contains guessing too
    return words_of(
        row.standing,
        interval=interval,
        measured=row.attack is not None,
        unlimited=_unlimited(report, row),
    )


def _unlimited(report: Report, row: Row) -> StateWords:
    if not is_clipped(report):
        return NO_GUARANTEE
    if math.isfinite(row.limit.epsilon):
        return NO_LIMIT
    return MUST_BE_TRUSTED if row.observer == "server" else NO_PROTECTION


def right(row: Row) -> str:
    """Return the measured share of right answers with its interval, or why there is none."""
    attack = row.attack
    if attack is None:
        sees_all = row.observer == "server" and math.isinf(row.limit.epsilon)
        return "sees unprotected sums" if sees_all else "not measured"
    if attack.advantage is None:
        return "no rate (one training)"
    ends = shares(attack.interval)
    between = f" ({percent(ends[0])[:-1]} to {percent(ends[1])})" if ends else ""
    return f"{percent(share(attack.advantage))}{between}"


def right_at_most(row: Row) -> str:
    """Return the largest share of right answers that theory allows."""
    return "none" if row.limit.rho_alpha >= 1 else percent(share(row.limit.rho_alpha))


def epsilon(row: Row) -> str:
    return number(row.limit.epsilon) if math.isfinite(row.limit.epsilon) else "none"


def condition(estimator: str) -> str:
    """Return the condition under which a lower bound on epsilon holds, as the end of a sentence."""
    words = CONDITIONS.get(estimator, "")
    return f", {words}" if words else ""


def measures_noise(report: Report, row: Row) -> bool:
    return row.observer == report.vantage and report.residuals is not None


def power(report: Report, row: Row) -> str:
    """Return how much missing noise the trials at a vantage detect."""
    what = "audit" if row.observer == report.vantage else "attack"
    return would_have_noticed(row.detects, what, measures_noise=measures_noise(report, row))


def reaches_limit(row: Row) -> bool:
    """Return whether theory predicts that this adversary is as good as the limit allows.

    No realistic number of trials can then show that it stays below.
    """
    advantage = None if row.predicted is None else row.predicted.advantage
    limit = row.limit.rho_alpha
    return limit < 1 and advantage is not None and advantage >= (1 - NEARLY) * limit


def holds_for(report: Report) -> str:
    if report.contradictions:
        return "A measurement contradicts the limits of theory: do not rely on them."
    if not is_clipped(report):
        return "Without clipping, theory sets no limit."
    if report.mechanism.sensitivity == "local":
        return "The noise was scaled to this target: the limits hold for this target alone."
    return worst_off(report) or (
        "The limits of theory hold for every record, also those that were not attacked."
    )


def worst_off(report: Report) -> str:
    """Return what theory allows about the client in most rounds; "" where it is no more."""
    worse = [
        f"{NAMES[row.observer]} {percent(share(row.limit.largest.rho_alpha))}, "
        f"ε {number(row.limit.largest.epsilon)}"
        for row in report.rows.values()
        if row.limit.largest.rho_alpha > row.limit.rho_alpha
    ]
    if not worse:
        return ""
    return f"For the client in most rounds, theory allows more: {'; '.join(worse)}."


def how_to_measure(report: Report, row: Row) -> str:
    """Return how to measure a vantage, or why fedsim does not, as a sentence."""
    for part in row.note.split("; "):
        if part.startswith(NOT_ATTACKED):
            return f"It was {part}."
    if report.one_run is not None:
        return "A run with canaries does not measure it."
    return 'To measure it, set audit.vantages = "all".'


READINGS = {
    "contradicted": "The adversary learns more than theory allows. Do not rely on ε before the "
    "cause is known, which the alarms name.",
    "above-by-chance": "The measurement is above the limit, but chance alone can explain it.",
    "agrees": "The interval contains the limit: the trials neither contradict theory nor prove "
    "that the adversary stays below.",
    "attack-below": "This attack stays below the limit. A better attack may achieve more.",
    "below": "The adversary stays below the limit, and no adversary at this place does better.",
    "not-measured": "The limit comes from theory alone.",
}
"""By state; those without a limit depend on why there is none."""


def reading(report: Report, row: Row) -> str:
    """Return what a row means, in sentences."""
    sentences = [_no_limit(report, row) if row.standing == "no-limit" else READINGS[row.standing]]
    attack = row.attack
    if row.standing == "agrees" and attack and attack.interval and attack.interval[0] <= 0:
        sentences = ["The trials cannot tell: the interval contains both guessing and the limit."]
    if row.observer == "server" and row.standing != "no-limit" and row.limit.note:
        note = row.limit.note
        sentences.append(f"The server {note}." if note.startswith("sees") else _sentence(note))
    if attack is not None and not attack.best and row.observer == report.vantage:
        sentences.append(score_caution(report).strip())
    if attack is None and row.standing == "not-measured":
        sentences.append(how_to_measure(report, row))
    if attack is not None and row.note:
        sentences.append(_sentence(row.note))
    if row.standing != "contradicted":
        sentences.append(power(report, row))
    return " ".join(filter(None, sentences))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _no_limit(report: Report, row: Row) -> str:
    who, limit = WHO[row.observer], row.limit.rho_alpha
    if limit < 1 and math.isinf(row.limit.epsilon):
        return (
            f"In a round that samples it, no noise surely hides {clients_of(report)} from {who}. "
            f"Sampling alone limits this adversary to {percent(share(limit))} right answers."
        )
    if not is_clipped(report):
        return "Gradients are not clipped, so theory sets no limit."
    if math.isfinite(row.limit.epsilon):
        return "The budget is so large that theory allows certainty."
    return (
        f"No noise hides {clients_of(report)} from {who}, who can always tell whether it was used."
    )


def own_limit(report: Report, row: Row, limit: OwnLimit) -> Mark:
    """Return the answer to a limit of the organisation's own in a few words.

    Good is only what theory promises everybody, in every training: never a limit of the belief.
    """
    if limit.answer == "misses":
        return Mark("alarm", "Misses")
    if limit.answer == "cannot-tell":
        return Mark("open", "Cannot tell")
    rounding = report.mechanism.rounding
    simulated = rounding is not None and rounding.secure_aggregation == "simulated"
    conditional = (
        limit.of == "belief"
        or limit.by == "measured"
        or report.mechanism.sensitivity == "local"
        or (simulated and row.observer == "server")
    )
    return Mark("open", "Meets, with a condition") if conditional else Mark("good", "Meets")


WITH_A_CONDITION = (
    "“With a condition” means: for the attacked target alone, except in rare trainings, or once "
    "aggregation is secure."
)


def _own(report: Report, row: Row, limit: OwnLimit) -> Line:
    allowed, attack = row.limit, row.attack
    if limit.of == "advantage":
        most = max(allowed.rho_alpha, allowed.largest.rho_alpha)
        theory = "no limit" if allowed.rho_alpha >= 1 else f"at most {number(most)}"
        measured = "not measured"
        if attack is not None:
            measured = f"{number(attack.advantage)} ({span(attack.interval, number) or DASH})"
    else:
        most = max(allowed.rho_beta, allowed.largest.rho_beta)
        theory = f"at most {percent(most)}, except in up to {percent(allowed.exceeded)}"
        theory = theory if math.isfinite(allowed.epsilon) else "no limit"
        measured = "not measured"
        if attack is not None:
            measured = (
                f"above it in {percent(attack.above_own_limit)} of trials with the record; ε at "
                f"least {number(attack.epsilon_at_least)}{condition(attack.estimator)}"
            )
    more = f"; {limit.trials} trials may decide" if limit.trials is not None else ""
    return Line(
        Cell(NAMES[row.observer]),
        [
            Cell(f"{limit.of} at most {number(limit.limit)}"),
            Cell(theory),
            Cell(f"{measured}{more}"),
            Cell("", mark=own_limit(report, row, limit), style=""),
        ],
    )


def _line(report: Report, row: Row) -> Line:
    limit, attack = row.limit, row.attack
    exceeded = f"; passed in up to {percent(limit.exceeded)}" if limit.exceeded < 1 else ""
    cells = [Cell(DASH), Cell(DASH), Cell(DASH)]
    if attack is not None:
        passed = ""
        if attack.delta_prime is not None and math.isfinite(limit.epsilon):
            passed = f"above ρβ: {percent(attack.delta_prime)}"
            passed += f" ({span(attack.delta_prime_interval, percent)})"
        cells = [
            Cell(number(attack.advantage), span(attack.interval, number), style="value"),
            Cell(percent(attack.belief), passed, style="value"),
            Cell(
                number(attack.epsilon_at_least) if attack.epsilon_at_least else DASH,
                CONDITIONS.get(attack.estimator, "") if attack.epsilon_at_least else "",
                style="value",
            ),
        ]
    predicted = None if row.predicted is None else row.predicted.advantage
    limited = math.isfinite(limit.epsilon)
    return Line(
        Cell(NAMES[row.observer], "audited here" * (row.observer == report.vantage)),
        [
            cells[0],
            Cell("no limit" if limit.rho_alpha >= 1 else number(limit.rho_alpha)),
            Cell(number(predicted)),
            cells[1],
            Cell(f"{percent(limit.rho_beta)}{exceeded}" if limited else "no limit"),
            cells[2],
            Cell(epsilon(row), f"z = {number(limit.noise_multiplier)}"),
        ],
        row.observer == report.vantage,
    )


HEADINGS = (
    *("Observer", "Advantage", "limit ρα", "predicted"),
    *("Highest belief", "limit ρβ", "ε at least", "ε at most"),
)
TRUST = {trust.value: trust.model.words for trust in Trust}


def trust(report: Report) -> str:
    words = TRUST.get(report.trust, "")
    if rounding := report.mechanism.rounding:
        words += (
            f" The messages were integers, {rounding.note}. Because of the rounding, noise and "
            f"sensitivity are {percent(rounding.relative_growth)} larger."
        )
    if report.colluding:
        words += (
            f" {report.colluding} of the {report.clients} clients disclosed their noise to the "
            "adversary, so the bounds leave it out."
        )
    if takes_local_steps(report):
        words += (
            " Clients take several local steps in a round. The bounds assume that every adversary "
            "sees all these steps."
        )
    return words


def game(report: Report) -> str:
    knows = "knows" if report.config["audit.mode"] in INFORMED else "may know"
    return (
        f"The game: every trial trains the federation anew, on D with {challenge_of(report)} or on "
        f"D′, {_neighbour(report)}. The adversary {knows} both, and the mechanism."
    )


def _neighbour(report: Report) -> str:
    replaced, several = report.neighbouring == "replace", report.challenge.records != 1
    if is_client(report):
        if replaced:
            return "where the same number of other records takes their place"
        drawn = "" if is_sampled(report) else " (its participation is no secret)"
        return f"where the client has no records and its update is 0{drawn}"
    if not replaced:
        return f"the same data without {'them' if several else 'it'}"
    other = {"record": "another record", "gradient": "its opposite"}.get(
        report.challenge.kind, "the original record"
    )
    return f"the same data with {other} in {'their' if several else 'its'} place"


def listed(report: Report) -> list[Text]:
    """Return every observer's numbers for a terminal of any width."""
    lines = []
    for row in shown(report):
        line = _line(report, row)
        lines.append(Text(f"{NAMES[row.observer]}: {mark(report, row).text}", "bold"))
        for heading, cell in zip(HEADINGS[1:], line.cells, strict=True):
            lines.append(Text(f"  {heading}: {cell.text}{f' ({cell.detail})' * bool(cell.detail)}"))
        if row.attack is not None and row.attack.chance is not None:
            chance = number(row.attack.chance)
            lines.append(Text(f"  a coin's advantage: −{chance} to {chance}"))
        lines.append(Text(f"  {reading(report, row)}"))
    return lines


def _words(report: Report) -> Iterator[Block]:
    rows = shown(report)
    yield Prose(game(report))
    yield Table(HEADINGS, [Group("", [_line(report, row) for row in rows])], "stacked vantages")
    yield Listing(
        [
            (NAMES[row.observer].capitalize(), f"{mark(report, row).text}. {reading(report, row)}")
            for row in rows
        ]
    )
    if own := [_own(report, row, each) for row in rows for each in row.own_limits]:
        headings = ("Observer", "Limit of the organisation", "Theory allows", "Measured", "Answer")
        yield Table(headings, [Group("", own)])
        yield Prose(WITH_A_CONDITION, small=True)
    yield Prose(
        f"{trust(report)} Advantage: twice the share of right answers, less one. Intervals and "
        f"lower bounds: {confidence_of(report).strip()} confidence; δ = "
        f"{plain(report.bounds.delta)}; z: noise multiplier that the observer cannot remove.",
        small=True,
    )


SECTION = Section("Every observer in numbers", lambda report: [*_words(report)])
