"""The first screen of a run: what it adds to that of every audit."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adversaries.registry import is_code, titled
from fedsim.audits.measurements.one_run_report import LEADING
from fedsim.audits.measurements.one_run_report import NAMES as CANARY_BOUNDS
from fedsim.audits.results.verdicts import TOO_FEW
from fedsim.audits.run.guarantee import SEEDED
from fedsim.audits.run.report import NO_GUARANTEE, RunReport, accounted
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import release
from fedsim.reports.document.first_screen import NOT_STATED, share
from fedsim.reports.document.wording import counted, number, percent, plain
from fedsim.reports.sections import every_audit
from fedsim.reports.sections import section as of_run
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


def question(report: RunReport) -> str:
    what = "record" if report.details.challenge.kind == "record" else "crafted"
    what = "client" if of_run.is_client(report) else what
    return QUESTIONS[what, report.details.neighbouring == "replace"]


ANSWERS = {
    "alarm": "Do not rely on the limits below.",
    "one training": "{who} reached a belief of {belief} in one training; the noise allows "
    "{rho_beta}. One training has no success rate.",
    "too few": "{trials} are too few to tell. {who} was right in {right} of them; guessing is "
    "right in 50%, and {allowed}.",
    "measured": "{who} was right in {right} of {trials}; guessing is right in 50%, and {allowed}.",
}


def answer(report: RunReport) -> str:
    """Return the answer to the question, for the audited observer, in sentences."""
    row, attack, held = report.row, report.attack, accounted(report)
    who, limit = of_run.WHO[report.vantage], row.allowed.rho_alpha
    if report.alarms:
        return ANSWERS["alarm"]
    state = "one training" if attack.advantage is None else "measured"
    if every_audit.state_words(report, row) is TOO_FEW:
        state = "too few"
    rarely = f", except in up to {percent(held.exceeded)} of trainings"
    text = ANSWERS[state].format(
        who=f"{who[:1].upper()}{who[1:]}",
        right=every_audit.cells(report, row)[0],
        belief=percent(attack.belief),
        rho_beta=f"{percent(held.rho_beta)}{rarely * math.isfinite(held.epsilon)}",
        trials=of_run.trials_of(report),
        allowed="theory sets no limit"
        if limit >= 1
        else f"theory allows at most {percent(share(limit))}",
    )
    return f"{' '.join([text, *every_audit.by_chance(report)])}{canaries(report)}"


def canaries(report: RunReport) -> str:
    run = report.details.one_run
    if run is None:
        return ""
    bound, proven = run.bounds[LEADING], "nothing"
    if bound.epsilon:
        proven = f"that ε is at least {number(bound.epsilon)}{of_run.condition('one_run')}"
    return (
        f" The canaries of one trial show {proven} ({percent(bound.confidence)} confidence, "
        f"one-run {CANARY_BOUNDS[LEADING]}). The claim is ε = {number(run.claimed_epsilon)}."
    )


RELEASE_NOTHING = "Release nothing of this run: its noise comes from a seed and protects no one."


def released(report: RunReport) -> str:
    """Return whether something of a run without alarms may be released."""
    if report.details.noise_source == "seed":
        return RELEASE_NOTHING
    if not report.details.mechanism.dp_guarantee:
        return release.UNPROTECTED
    most = report.rows["released-model"].allowed.largest.rho_alpha
    return release.decide("A release of one model", share(most), str(report.unit), "anyone with it")


REHEARSED = (
    "This rehearses the training of the same file: its noise comes from a seed and protects no one."
)
NO_DP = "No DP guarantee: "


def cautions(report: RunReport) -> list[doc.Label]:
    """Return why the run protects no person, or less than it seems to; the gravest first."""
    labels = []
    for each in report.findings:
        if each.rule == NO_GUARANTEE:
            title, _, text = each.sentence.partition(". ")
            labels.append(doc.Label(f"{NO_DP}{title.removesuffix('.')}.", text))
    released = report.details.released
    if released is not None and released.trainings > 1:
        cost = f": together they cost ε = {number(released.epsilon)}" * (not labels)
        labels.append(
            doc.Label(
                f"{released.trainings} models of these people were released{cost}.",
                "Each has its own noise, and their mean has much less. At δ = "
                f"{plain(released.delta)}; every other ε on this page is for one training.",
            )
        )
    if worse := of_run.worst_off(report):
        labels.append(doc.Label(worse))
    return labels


ACCEPTABLE = "Is {} acceptable? If so: fedsim train. If not: fedsim choose."
ONE_TRAINING = "One training has no success rate: rehearse it with many trials."
MEANT = "Limit: theory's bound on right answers, (1 + ρα)/2. ε: the privacy guarantee."
MEANT_OF_A_SEED = "Limit: theory's bound on right answers. ε: what secret noise would guarantee."
"""What the two columns of theory mean; neither is computed from the other."""


def decisions(report: RunReport) -> list[str]:
    details = report.details
    # Under real noise, each further training would cost its own ε.
    seeded, released = details.noise_source == "seed", details.released
    more = f"trials.count={4 * details.trials}" * seeded
    steps = every_audit.decisions(report, untold=lambda _: [ONE_TRAINING], more=lambda _: more)
    if released is not None and released.trainings > 1:
        steps.append("Do not release the models of all trials.")
    if seeded and not report.alarms and (limit := _limit_to_weigh(report)) is not None:
        steps.append(ACCEPTABLE.format(percent(share(limit))))
    return steps


def _limit_to_weigh(report: RunReport) -> float | None:
    """Return the largest advantage that a training with these settings allows; None without one."""
    limit = report.row.allowed
    scaled = of_run.is_clipped(report) and report.details.mechanism.sensitivity == "global"
    return limit.rho_alpha if scaled and math.isfinite(limit.largest.epsilon) else None


def told(
    report: RunReport, about: About, sections: Callable[[], Sequence[doc.Block]] = list
) -> doc.Told:
    details, labels, trials = report.details, cautions(report), of_run.trials_of(report)
    budget, rounds = details.budget, counted(details.rounds, "round")
    if budget.stopped:
        rounds = f"stopped after {budget.rounds_run} of {counted(budget.rounds_planned, 'round')}"
    facts = filter(None, (of_run.released(report), canaries(report).strip()))
    attacks = details.membership_inference.items()
    lead: list[Any] = [f"{question(report)} {answer(report)}"]
    if report.alarms:
        lead = [[doc.Mark("alarm", "Contradicted"), f" {answer(report)}"]]
    version = "their version is not stated, because a digest could disclose a private record"
    if about.data_sha256:
        version = f"their version: SHA-256 {about.data_sha256[:16]}…"
    return every_audit.told(
        report,
        about=of_run.challenge_of(report),
        columns=(0, 1, 2),
        remarks=[
            *([REHEARSED] if details.job == "rehearsal" else []),
            *facts,
            f"Model: {of_run.model_in_short(report)}",
            *(
                f"Your attack {titled(name)} on the final models: AUC {attack.area:.3f}."
                for name, attack in attacks
                if is_code(name) and attack.area is not None
            ),
        ],
        kind="Identifiability report",
        played=f"{trials}, {rounds}, {counted(details.clients, 'client')}",
        note=scope(report),
        release=released(report),
        answer=lead,
        brief=question(report),
        legend=MEANT_OF_A_SEED if details.noise_source == "seed" else MEANT,
        # That the noise has a seed stands in the first line.
        cautions=[
            each.title for each in labels if not SEEDED.startswith(each.title.removeprefix(NO_DP))
        ],
        more=lambda: _in_full(report, labels),
        steps=decisions(report),
        sections=sections,
        purpose=about.purpose or f"{NOT_STATED} (run.purpose)",
        data=f"{details.data.name}, {details.data.records} records; {version}",
        date=details.created[:10],
        limits=f"One target was attacked, in {trials}. {of_run.holds_for(report)}",
        footer=(
            f"fedsim {report.versions['fedsim']}, {details.created}. Repeat the run with ",
            doc.Code("fedsim run config.toml"),
            " in its directory.",
        ),
    )


def _in_full(report: RunReport, labels: Sequence[doc.Label]) -> list[doc.Block]:
    """Return the cautions, and what every observer's state means and its numbers."""
    meant, entries = list[doc.Block](), list[tuple[str, str]]()
    for row in every_audit.shown(report):
        name, words = every_audit.named(row.observer), every_audit.state_words(report, row)
        meant.append(doc.Prose(f"{name}: {words.text}: {words.means}."))
        for heading, (text, detail) in of_run.numbers(row).items():
            entries.append((f"{name}: {heading}", f"{text} {detail}".rstrip()))
    return [*labels, *meant, doc.Listing(entries)]


def scope(report: RunReport) -> str:
    details, one = report.details, "one client's data" if of_run.is_client(report) else "one record"
    mechanism, replaced = details.mechanism, details.neighbouring == "replace"
    facts = {
        of_run.trials_of(report): True,
        f"{details.rounds} rounds": True,
        f"{details.clients} clients": True,
        f"{details.trust} trust": True,
        f"compared: {one} replaced" if replaced else f"compared: with and without {one}": True,
        "unit of privacy: a client's whole data": of_run.is_client(report),
        f"sampling rate {plain(mechanism.sampling_rate)}": of_run.is_sampled(report),
        f"{mechanism.local_steps} local steps": mechanism.local_steps > 1,
    }
    return " · ".join(fact for fact, holds in facts.items() if holds)


def choose(report: RunReport) -> str:
    """Return the command that finds the least noise which halves the limit, and what it costs.

    Returns "" where more noise would not protect from this adversary.
    """
    limit = _limit_to_weigh(report)
    if limit is None:
        return ""
    target = f"--max-advantage {limit / 2:.2g}"
    return f"fedsim choose config.toml {target} --against {report.vantage}"
