"""The first screen of a run: the answer, the figure, the table, and what to decide."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from adversaries.registry import is_code, titled
from adversaries.statistics.intervals import clopper_pearson
from fedsim.audits.measurements.one_run_report import LEADING
from fedsim.audits.measurements.one_run_report import NAMES as CANARY_BOUNDS
from fedsim.audits.results.numbers import Ends
from fedsim.audits.results.report import Report, encode
from fedsim.audits.results.rows import RunRow as Row
from fedsim.audits.results.verdicts import TOO_FEW, VAGUE
from fedsim.audits.run.detectable import HALF
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import release
from fedsim.reports.document.first_screen import NOT_STATED, WEAK, share, shares
from fedsim.reports.document.wording import (
    LEAST_SHARE,
    counted,
    least_loss,
    number,
    percent,
    plain,
)
from fedsim.reports.sections import observers
from fedsim.reports.sections.observers import NAMES, WHO
from fedsim.reports.sections.section import (
    challenge_of,
    confidence_of,
    is_alarming,
    is_client,
    is_clipped,
    is_sampled,
    model_in_short,
    trials_of,
)
from fedsim.reports.sections.section import released as everything
from fedsim.reports.sections.target import Shown


@dataclass(frozen=True)
class About:
    """Facts about a run that its report does not hold.

    Attributes:
        purpose: as configured; "" where none is stated.
        data_sha256: of D, where the data are public; "" otherwise.
        target: the target's record, where the data are public; None otherwise.
    """

    purpose: str = ""
    data_sha256: str = ""
    target: Shown | None = None


QUESTIONS = {
    ("client", False): "Could an adversary tell whether one client's data were used?",
    ("client", True): "Could an adversary tell whether one client's data or their replacement were "
    "used?",
    ("crafted", False): "Could an adversary tell whether the crafted target was used?",
    ("crafted", True): "Could an adversary tell whether the crafted target or its replacement was "
    "used?",
    ("record", False): "Could an adversary tell whether one person's record was used?",
    ("record", True): "Could an adversary tell whether one person's record or its replacement was "
    "used?",
}
"""By what is attacked, and whether something takes its place."""


def question(report: Report) -> str:
    """Return the question that the run answers."""
    what = "record" if report.challenge.kind == "record" else "crafted"
    what = "client" if is_client(report) else what
    return QUESTIONS[what, report.neighbouring == "replace"]


ANSWERS = {
    "alarm": "Do not rely on the limits below. {who} was right in {right}.",
    "alarm in one training": "Do not rely on the limits below.",
    "one training": "{who} reached a belief of {belief} in one training; the noise allows "
    "{rho_beta}. One training has no success rate.",
    "too few": "{trials} are too few to tell. {who} was right in {rate} of them ({low} to {high}); "
    "guessing is right in 50%, and {allowed}.",
    "above by chance": "{who} was right in {rate} of {trials}; guessing is right in 50%, and "
    "{allowed}. Chance can explain that it is above the limit.",
    "measured": "{who} was right in {rate} of {trials}; guessing is right in 50%, and {allowed}.",
}


def answer(report: Report) -> str:
    """Return the answer to the question, for the audited observer, in sentences."""
    row, attack = report.here, report.attack
    who, limit, between = WHO[row.observer], row.limit.rho_alpha, _between(report)
    if is_alarming(report):
        state = "alarm in one training" if attack.advantage is None else "alarm"
    elif attack.advantage is None:
        state = "one training"
    elif between is not None and _says_little(report, between):
        state = "too few"
    else:
        above = between is not None and between[0] <= share(limit) < share(attack.advantage)
        state = "above by chance" if above else "measured"
    low, high = between or (0.0, 1.0)
    rarely = ""
    if math.isfinite(report.accounted.epsilon):
        rarely = f", except in up to {percent(report.accounted.exceeded)} of trainings"
    text = ANSWERS[state].format(
        who=f"{who[:1].upper()}{who[1:]}",
        right=observers.right(row),
        belief=percent(attack.belief),
        rho_beta=f"{percent(report.accounted.rho_beta)}{rarely}",
        trials=trials_of(report),
        low=percent(low),
        high=percent(high),
        rate=percent(share(attack.advantage or 0.0)),
        allowed="theory sets no limit"
        if limit >= 1
        else f"theory allows at most {percent(share(limit))}",
    )
    return text if is_alarming(report) else f"{text}{canaries(report)}"


def _says_little(report: Report, between: Ends) -> bool:
    wide = between[1] - between[0] >= VAGUE
    return wide or observers.state_words(report, report.here) is TOO_FEW


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
    run = report.one_run
    if run is None:
        return ""
    bound, proven = run.bounds[LEADING], "nothing"
    if bound.epsilon:
        proven = f"that ε is at least {number(bound.epsilon)}{observers.condition('one_run')}"
    return (
        f" The canaries of one trial show {proven} ({percent(bound.confidence)} confidence, "
        f"one-run {CANARY_BOUNDS[LEADING]}). The claim is ε = {number(run.claimed_epsilon)}."
    )


RELEASE_NOTHING = "Release nothing of this run: its noise comes from a seed and protects no one."


def released(report: Report) -> str:
    """Return whether something of a run may be released."""
    if is_alarming(report):
        return release.CONTRADICTED
    if report.noise_source == "seed":
        return RELEASE_NOTHING
    if not report.mechanism.dp_guarantee:
        return release.UNPROTECTED
    most = report.rows["released-model"].limit.largest.rho_alpha
    unit = "client" if is_client(report) else "record"
    return release.decide("A release of one model", share(most), unit, "anyone with it")


UNCLIPPED = "Gradients are not clipped: no DP guarantee."
SEEDED = "This is a measurement: its noise comes from a seed and protects no one."
REHEARSED = (
    "This rehearses the training of the same file: its noise comes from a seed and protects no one."
)
SIMULATED = SEEDED, REHEARSED
OF_THE_SEED = "Anyone who knows the seed can remove the noise."
OTHERWISE = (
    "A training with the same settings has these limits if its noise is secret, drawn by the "
    "operating system. To protect: fedsim train."
)


def _is_simulated(report: Report) -> bool:
    rounding = report.mechanism.rounding
    return rounding is not None and rounding.secure_aggregation == "simulated"


CAUTIONS: tuple[tuple[Callable[[Report], bool], str, str], ...] = (
    (
        lambda report: not is_clipped(report),
        UNCLIPPED,
        "Nothing bounds what one record can change, so no amount of noise gives a guarantee.",
    ),
    (
        lambda report: report.mechanism.sensitivity == "local",
        "The noise was scaled to the attacked target: no DP guarantee.",
        "Such a run measures how tight the theory is; the local sensitivity depends on the data.",
    ),
    (
        lambda report: report.config["audit.mode"] == "oracle",
        "This is an oracle audit: it protects no one.",
        "The auditor computed the beliefs from the noise, which the clients disclosed. The numbers "
        "equal the adversary's own.",
    ),
    (
        _is_simulated,
        "Secure aggregation was simulated: no DP guarantee.",
        "The server saw every message, each with one client's share of the noise. The limits for "
        "the server assume that secure aggregation hides the single messages.",
    ),
)
"""When a run protects no person, or less than it seems to; title and text. The gravest first."""


def cautions(report: Report) -> list[doc.Label]:
    """Return why the run protects no person, or less than it seems to; the gravest first."""
    released, mechanism = report.released, report.mechanism
    labels = [doc.Label(title, text) for applies, title, text in CAUTIONS if applies(report)]
    if report.noise_source == "seed":
        title = REHEARSED if report.job == "rehearsal" else SEEDED
        labels.append(doc.Label(title, OF_THE_SEED if labels else f"{OF_THE_SEED} {OTHERWISE}"))
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


def decisions(report: Report) -> list[str]:
    """Return what the reader has to decide, in sentences, each once."""
    advice: dict[str, None] = {}
    for row in observers.shown(report):
        words = observers.state_words(report, row)
        if words.kind in ("alarm", "caution") or words is TOO_FEW:
            # Under real noise, each further training would cost its own ε.
            again = words is TOO_FEW and report.noise_source == "seed"
            more = f" For example, trials.count={4 * report.trials}." * again
            advice[f"{words.advice}{more}"] = None
    if (detects := report.here.detects) is not None and detects < HALF and not report.alarms:
        advice[WEAK] = None
    if report.released is not None and report.released.trainings > 1:
        advice["Do not release the models of all trials."] = None
    return [each for each in advice if each]


def told(
    report: Report, about: About, sections: Callable[[], Sequence[doc.Block]] = list
) -> doc.Told:
    """Return what a run says; sections: of its page."""
    rows, alarming = observers.shown(report), is_alarming(report)
    labels, facts = cautions(report), filter(None, (everything(report), canaries(report).strip()))
    lead: doc.Words = f"{question(report)} {answer(report)}"
    if alarming:
        lead = [doc.Mark("alarm", "Contradicted"), f" {answer(report)}"]
    version = "their version is not stated, because a digest could disclose a private record"
    if about.data_sha256:
        version = f"their version: SHA-256 {about.data_sha256[:16]}…"
    return doc.Told(
        kind="Identifiability report",
        name=report.name,
        report=encode(report),
        played=_played(report),
        note=scope(report),
        release=released(report),
        answer=[lead],
        brief=question(report),
        alarms=[*report.contradictions.values()],
        observers=[_bar(report, row) for row in rows],
        headings=[*observers.short(report, rows[0])],
        caption=f"Right answers about {challenge_of(report)} ({confidence_of(report)}intervals).",
        legend=observers.meant(report),
        cautions=[each.title for each in labels if each.title not in SIMULATED],
        remarks=[
            _what_it_shows(report),
            *(each.title for each in labels if each.title == REHEARSED),
            *facts,
            f"Model: {model_in_short(report)}",
            *_own_attacks(report),
        ],
        more=lambda: [*_in_full(report)],
        steps=decisions(report),
        sections=sections,
        purpose=about.purpose or f"{NOT_STATED} (run.purpose)",
        data=f"{report.data.name}, {report.data.records} records; {version}",
        date=report.created[:10],
        limits=f"One target was attacked, in {trials_of(report)}. {observers.holds_for(report)}",
        footer=(
            f"fedsim {report.versions['fedsim']}, {report.created}. Repeat the run with ",
            doc.Code("fedsim run config.toml"),
            " in its directory.",
        ),
    )


def _own_attacks(report: Report) -> Iterator[str]:
    """Yield what attacks of the user's own code achieved on the final models."""
    for name, attack in report.membership_inference.items():
        if is_code(name) and attack.area is not None:
            yield f"Your attack {titled(name)} on the final models: AUC {attack.area:.3f}."


def _played(report: Report) -> str:
    budget, rounds = report.budget, counted(report.rounds, "round")
    if budget.stopped:
        rounds = f"stopped after {budget.rounds_run} of {counted(budget.rounds_planned, 'round')}"
    return f"{trials_of(report)}, {rounds}, {counted(report.clients, 'client')}"


def scope(report: Report) -> str:
    """Return what was run, in a line."""
    mechanism, one = report.mechanism, "one client's data" if is_client(report) else "one record"
    replaced = report.neighbouring == "replace"
    facts = {
        trials_of(report): True,
        f"{report.rounds} rounds": True,
        f"{report.clients} clients": True,
        f"{report.trust} trust": True,
        f"compared: {one} replaced" if replaced else f"compared: with and without {one}": True,
        "unit of privacy: a client's whole data": is_client(report),
        f"sampling rate {plain(mechanism.sampling_rate)}": is_sampled(report),
        f"{mechanism.local_steps} local steps": mechanism.local_steps > 1,
    }
    return " · ".join(fact for fact, holds in facts.items() if holds)


SHOWS_NOTHING = "Without a limit of theory, the noise cannot be checked."
SHOWS_LITTLE = "Even if nearly all noise were missing, the audit might not see it."
SHOWS = "The audit sees a loss of {} of the noise with 95% probability."
TESTED = f"The noise was tested too: {SHOWS[0].lower()}{SHOWS[1:]}"


def _what_it_shows(report: Report) -> str:
    share, sentences = report.here.detects, ["Guessing is right in 50%."]
    if report.attack.interval is not None:
        sentences.append(f"Intervals: {confidence_of(report).strip()}.")
    if report.contradictions:
        return " ".join(sentences)  # noise may be missing
    if share is None:
        sentences.append(SHOWS_NOTHING)
    elif share < LEAST_SHARE:
        sentences.append(SHOWS_LITTLE)
    else:
        shows = TESTED if report.residuals is not None else SHOWS
        sentences.append(shows.format(least_loss(share)))
    return " ".join(sentences)


def _in_full(report: Report) -> Iterator[doc.Block]:
    """Yield every observer's numbers, for a terminal."""
    for row in observers.shown(report):
        yield doc.Heading(f"{NAMES[row.observer]}: {observers.mark(report, row).text}")
        for heading, (text, detail) in observers.numbers(report, row).items():
            yield doc.Prose(f"  {heading}: {text}{f' ({detail})' * bool(detail)}")
        yield doc.Prose(f"  {observers.reading(report, row)}")
    yield from (doc.Prose(label.text) for label in cautions(report) if label.text)
    took = report.timing
    yield doc.Prose(
        f"{report.mechanism.dp_note} Time: {took.total:.1f} s, of which {took.federation:.1f} s "
        f"for the rounds (clients computing: {took.clients_computing:.1f} s)."
    )


def _bar(report: Report, row: Row) -> doc.Bar:
    attack = row.attack
    measured = attack is not None and attack.advantage is not None
    _, *cells = observers.short(report, row).values()
    return doc.Bar(
        NAMES[row.observer],
        observers.mark(report, row),
        share(attack.advantage) if attack and attack.advantage is not None else None,
        shares(attack.interval) if attack and measured else None,
        share(row.limit.rho_alpha),
        tells=False,
        cells=cells,
    )


def choose(report: Report) -> str:
    """Return the command that finds the least noise which halves the limit, and what it costs.

    Returns "" where more noise would not protect from this adversary.
    """
    here = report.here
    scaled = is_clipped(report) and report.mechanism.sensitivity == "global"
    if not scaled or not math.isfinite(here.limit.largest.epsilon):
        return ""
    target = f"--max-advantage {here.limit.rho_alpha / 2:.2g}"
    return f"fedsim choose config.toml {target} --against {report.vantage}"
