"""The first screen of a run: the answer, the figure, the table, and what to decide."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from adversaries.statistics.intervals import clopper_pearson
from fedsim.audits.results.numbers import Ends
from fedsim.audits.results.report import Report, encode
from fedsim.audits.results.rows import RunRow as Row
from fedsim.audits.results.verdicts import MUST_BE_TRUSTED, NO_PROTECTION, TOO_FEW, VAGUE
from fedsim.report.document import blocks as doc
from fedsim.report.document import first_screen, worth
from fedsim.report.document.first_screen import (
    FAILED,
    HALF,
    NOT_STATED,
    OPEN,
    PASSED,
    power,
    report_check,
    share,
    shares,
)
from fedsim.report.document.wording import number, percent, plain
from fedsim.report.sections import attacks, observers
from fedsim.report.sections.observers import NAMES
from fedsim.report.sections.section import (
    challenge_of,
    clients_of,
    confidence_of,
    is_alarming,
    is_client,
    is_clipped,
    trials_of,
)
from fedsim.report.sections.target import Shown


@dataclass(frozen=True)
class About:
    """Facts about a run that its report does not hold.

    Attributes:
        purpose: as configured; "" where none is stated.
        author: as configured; "" where none is stated.
        data_sha256: of D, where the data are public; "" otherwise.
        target: the target's record, where the data are public; None otherwise.
    """

    purpose: str = ""
    author: str = ""
    data_sha256: str = ""
    target: Shown | None = None


def question(report: Report) -> str:
    """Return the question that the run answers."""
    replaced = report.neighbouring == "replace"
    if is_client(report):
        what = f"one client's data{' or their replacement' * replaced} were"
    elif report.challenge.kind != "record":
        what = f"the crafted target{' or its replacement' * replaced} was"
    else:
        what = f"one person's record{' or its replacement' * replaced} was"
    return f"Could an adversary tell whether {what} used?"


def answer(report: Report) -> str:
    """Return the answer to the question, for the audited observer, in sentences."""
    row, attack = report.here, report.attack
    who, limit = observers.WHO[row.observer], row.limit.rho_alpha
    who = f"{who[:1].upper()}{who[1:]}"
    if is_alarming(report):
        rate = "" if attack.advantage is None else f" {who} was right in {observers.right(row)}."
        return f"Do not rely on the limits below.{rate}"
    at_most = f"theory allows at most {percent(share(limit))}"
    allowed = "theory sets no limit" if limit >= 1 else at_most
    if attack.advantage is None:
        rarely = ""
        if math.isfinite(report.accounted.epsilon):
            rarely = f", except in up to {percent(report.accounted.exceeded)} of trainings"
        return (
            f"{who} reached a belief of {percent(attack.belief)} in one training; the noise "
            f"allows {percent(report.accounted.rho_beta)}{rarely}. One training has no "
            f"success rate.{canaries(report)}"
        )
    between = _between(report)
    if between is not None and between[1] - between[0] >= VAGUE:
        return (
            f"{trials_of(report).capitalize()} are too few to tell. {who} is right in between "
            f"{percent(between[0])} and {percent(between[1])} of cases; guessing is right in "
            f"50%, and {allowed}.{canaries(report)}"
        )
    chance = ""
    if between is not None and share(attack.advantage) > share(limit):
        chance = " Chance can explain that it is above the limit." * (between[0] <= share(limit))
    return (
        f"{who} was right in {percent(share(attack.advantage))} of {trials_of(report)}; guessing "
        f"is right in 50%, and {allowed}.{chance}{canaries(report)}"
    )


def _between(report: Report) -> Ends | None:
    """Return the interval of how often the adversary is right; of one world, of its trials."""
    if ends := shares(report.attack.interval):
        return ends
    wins, ties = report.empirical.wins, report.empirical.ties
    if wins is None or ties is None:
        return None
    trials, confidence = report.trials, report.attack.confidence
    high = clopper_pearson(wins + ties, trials, confidence).high
    return clopper_pearson(wins, trials, confidence).low, high


def canaries(report: Report) -> str:
    if report.one_run is None:
        return ""
    bound, name = attacks.headline(report.one_run), attacks.headline_name(report.one_run)
    proven = "nothing"
    if bound.epsilon:
        proven = f"that ε is at least {number(bound.epsilon)}{observers.condition('one_run')}"
    return (
        f" The canaries of one trial show {proven} ({percent(bound.confidence)} confidence, "
        f"{name}). The claim is ε = {number(report.one_run.claimed_epsilon)}."
    )


def cautions(report: Report) -> list[doc.Label]:
    """Return why the run protects no person, or less than it seems to; the gravest first."""
    released, mechanism, rounding = report.released, report.mechanism, report.mechanism.rounding
    labels: list[doc.Label] = []
    if not is_clipped(report):
        labels.append(doc.Label(*UNCLIPPED))
    if mechanism.sensitivity == "local":
        labels.append(doc.Label(*LOCAL))
    if report.config["audit.mode"] == "oracle":
        labels.append(doc.Label(*ORACLE))
    if rounding is not None and rounding.secure_aggregation == "simulated":
        labels.append(doc.Label(*SIMULATED))
    if report.bayesian is not None:
        labels.append(doc.Label(*DISTANCES))
    if report.noise_source == "seed":
        title = REHEARSED if report.job == "rehearsal" else SEEDED
        text = OF_THE_SEED if labels else f"{OF_THE_SEED} {OTHERWISE}"
        labels.append(doc.Label(title, text))
    if not labels and not mechanism.dp_guarantee:
        labels.append(doc.Label("Not a DP guarantee.", mechanism.dp_note))
    if released is not None and released.trainings > 1:
        cost = f": together they cost ε = {number(released.epsilon)}" * mechanism.dp_guarantee
        labels.append(
            doc.Label(
                f"{released.trainings} models of these people were released{cost}.",
                "Each has its own noise, and their mean has much less. At δ = "
                f"{plain(released.delta)}; every other ε on this page is for one training.",
            )
        )
    if worse := observers.worst_off(report):
        labels.append(doc.Label(worse))
    return labels


SEEDED = "This is a measurement: its noise comes from a seed and protects no one."
REHEARSED = (
    "This rehearses the training of the same file: its noise comes from a seed and protects no one."
)
OF_THE_SEED = "Anyone who knows the seed can remove the noise."
OTHERWISE = (
    "A training with the same settings has these limits if its noise is secret, drawn by the "
    "operating system. To protect: fedsim train."
)
UNCLIPPED = (
    "Gradients are not clipped: no DP guarantee.",
    "Nothing bounds what one record can change, so no amount of noise gives a guarantee.",
)
LOCAL = (
    "The noise was scaled to the attacked target: no DP guarantee.",
    "Such a run measures how tight the theory is; the local sensitivity depends on the data.",
)
ORACLE = (
    "This is an oracle audit: it protects no one.",
    "The auditor computed the beliefs from the noise, which the clients disclosed. The numbers "
    "equal the adversary's own.",
)
SIMULATED = (
    "Secure aggregation was simulated: no DP guarantee.",
    "The server saw every message, each with one client's share of the noise. The limits for the "
    "server assume that secure aggregation hides the single messages.",
)
DISTANCES = (
    "Gradient distances were released: no DP guarantee.",
    "For the Bayesian accountant, the clients disclosed norms or distances of their records' "
    "gradients without noise.",
)


def decisions(report: Report) -> list[str]:
    """Return what the reader has to decide, in sentences, each once."""
    advice: dict[str, None] = {}
    for row in observers.shown(report):
        words = observers.state_words(report, row)
        if words.kind in ("alarm", "caution") or words is TOO_FEW:
            advice[words.advice] = None
    advice |= dict.fromkeys(text for text, met in own_limits(report) if not met)
    if (detects := report.here.detects) is not None and detects < HALF and not report.alarms:
        advice[WEAK] = None
    if report.released is not None and report.released.trainings > 1:
        advice["Do not release the models of all trials."] = None
    return [each for each in advice if each]


WEAK = "The audit might miss a loss of half of the noise. Do you need a stronger one?"


def own_limits(report: Report) -> list[tuple[str, bool]]:
    """Return each limit of the organisation with its answers, and whether all observers meet it."""
    rows, answers = observers.shown(report), []
    for place, own in enumerate(rows[0].own_limits):
        marks = ", ".join(
            f"{NAMES[row.observer]} "
            f"{observers.own_limit(report, row, row.own_limits[place]).text.lower()}"
            for row in rows
        )
        met = all(row.own_limits[place].answer == "meets" for row in rows)
        answers.append((f"Your limit, {own.of} at most {number(own.limit)}: {marks}.", met))
    return answers


def first(report: Report, about: About) -> doc.FirstScreen:
    rows = observers.shown(report)
    own = [each.limit for each in rows[0].own_limits if each.of == "advantage"]
    told = [label.title for label in cautions(report)]
    steps: list[doc.Words] = [*decisions(report)]
    if (command := choose(report)) and not is_alarming(report):
        steps.append(["For lower limits: ", doc.Code(command)])
    return doc.FirstScreen(
        answer=[
            [doc.Mark("alarm", "Contradicted"), f" {answer(report)}"]
            if is_alarming(report)
            else f"{question(report)} {answer(report)}",
            *report.contradictions.values(),
            *([" ".join(told)] if told else []),
            *(text for text, met in own_limits(report) if met),
        ],
        alarming=is_alarming(report),
        figure=doc.Bars(
            [bar(NAMES[row.observer].capitalize(), report, row) for row in rows],
            f"Right answers about {challenge_of(report)} ({confidence_of(report)}intervals).",
            share(own[0]) if own else None,
        ),
        table=doc.Table(
            ("Observer", "Right answers", "Limit", f"ε (δ = {report.bounds.delta:.3g})"),
            [doc.Group("", [_line(row) for row in rows])],
        ),
        checks=[*checks(report), *_own_limits(report)],
        steps=steps,
        sign_off=_sign_off(report, about),
    )


def _line(row: Row) -> doc.Line:
    cells = observers.right(row), observers.right_at_most(row), observers.epsilon(row)
    return doc.Line(doc.Cell(NAMES[row.observer].capitalize()), [doc.Cell(each) for each in cells])


def bar(name: str, report: Report, row: Row) -> doc.Bar:
    attack = row.attack
    measured = attack is not None and attack.advantage is not None
    return doc.Bar(
        name,
        observers.mark(report, row),
        share(attack.advantage) if attack and attack.advantage is not None else None,
        shares(attack.interval) if attack and measured else None,
        share(row.limit.rho_alpha),
        tells=False,
    )


def _sign_off(report: Report, about: About) -> list[tuple[str, str]]:
    version = "their version is not stated, because a digest could disclose a private record"
    if about.data_sha256:
        version = f"their version: SHA-256 {about.data_sha256[:16]}…"
    return first_screen.sign_off(
        purpose=about.purpose or f"{NOT_STATED} (run.purpose)",
        data=f"{report.data.name}, {report.data.records} records; {version}",
        author=about.author or f"{NOT_STATED} (run.author)",
        date=report.created[:10],
        limits=f"One target was attacked, in {trials_of(report)}. {observers.holds_for(report)}",
    )


def checks(report: Report) -> list[doc.Check]:
    """Return what a release gate would check, each with its condition."""
    values = encode(report)
    row, limit = report.here, report.here.limit.rho_alpha
    checked = [
        report_check(
            "No measurement contradicts theory.",
            "alarms > 0",
            values,
            failed="A measurement contradicts theory.",
        ),
        power(values, f"rows.{row.observer}.detects"),
    ]
    hidden = [_hidden(report, values, each) for each in observers.shown(report)]
    checked += [each for each in hidden if each.mark is not PASSED] or hidden[:1]
    if limit < 1:
        unknown = "The trials do not show that the adversary stays below the limit of theory."
        if observers.reaches_limit(row):
            unknown += " Theory predicts that it reaches the limit: more trials will not show it."
        shuts = f"advantage.high > {limit}"
        text = "The measured advantage lies below the limit of theory."
        checked.append(report_check(text, shuts, values, fails="", unknown=unknown))
    if math.isfinite(row.limit.epsilon):
        text = "Everything that was released has no more ε than one training."
        total = report.released
        failed = ""
        if total is not None:
            failed = (
                f"If all {total.trainings} models are released, ε is {number(total.epsilon)} in "
                f"total, instead of {number(row.limit.epsilon)} for one."
            )
        unknown = "The total ε of everything that was released is not known."
        if report.noise_source == "seed":
            unknown = (
                "This run guarantees no ε: anyone who knows its seed can remove the noise. The ε "
                "above is for one training with secret noise."
            )
        one = 1.001 * max(row.limit.epsilon, report.accounted.epsilon)  # of either accountant
        shuts = f"released.epsilon > {one}"
        checked.append(report_check(text, shuts, values, failed=failed, unknown=unknown))
    return [*checked, worth.check(report.utility.measured)]


def _hidden(report: Report, values: Mapping[str, object], row: Row) -> doc.Check:
    """Return the check that noise limits how often an observer is right.

    A trust model that protects from others is a decision, and no failure.
    """
    who, limit = observers.WHO[row.observer], row.limit
    text = f"By theory, noise limits how often {who} is right."
    trusted = f"Theory sets no limit for {who}."
    if observers.state_words(report, row) in (MUST_BE_TRUSTED, NO_PROTECTION):
        trusted = f"No noise hides {clients_of(report)} from {who}: a question of trust."
    shuts = f"rows.{row.observer}.rho_alpha >= 1"
    if limit.rho_alpha < 1 and math.isinf(limit.epsilon):
        shuts = f"rows.{row.observer}.epsilon > 1e300"
    return report_check(text, shuts, values, fails="", unknown=trusted)


KINDS = {"good": PASSED, "alarm": FAILED, "open": OPEN}
ALLOWED = {"advantage": "rho_alpha", "belief": "rho_beta"}


def _own_limits(report: Report) -> list[doc.Check]:
    limits = []
    for row in observers.shown(report):
        for limit in row.own_limits:
            mark = observers.own_limit(report, row, limit)
            text = (
                f"Own limit for the {NAMES[row.observer]}, {limit.of} at most "
                f"{number(limit.limit)}: {mark.text[:1].lower()}{mark.text[1:]}."
            )
            condition = f"rows.{row.observer}.{ALLOWED[limit.of]} > {limit.limit:.12g}"
            limits.append(doc.Check(KINDS[mark.kind], text, condition))
    return limits


def choose(report: Report) -> str:
    """Return the command that finds the least noise which meets a limit, and what it costs.

    The limit is the organisation's own where theory does not keep it yet, and half of what theory
    allows elsewhere. Returns "" where more noise would not protect from this adversary.
    """
    here = report.here
    scaled = is_clipped(report) and report.mechanism.sensitivity == "global"
    if not scaled or not math.isfinite(here.limit.largest.epsilon):
        return ""
    now = here.limit.rho_alpha
    own = [each.limit for each in here.own_limits if each.of == "advantage" and each.limit < now]
    target = f"{own[0]:.12g}" if own else f"{now / 2:.2g}"
    return f"fedsim choose config.toml --max-advantage {target} --against {report.vantage}"
