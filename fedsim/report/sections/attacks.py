"""Sections about single attacks: a crafted target, canaries, and membership inference."""

import math
from collections.abc import Mapping

import numpy as np

from adversaries.attacks.membership_attacks import ATTACKS as LOSS_ATTACKS
from adversaries.bounds.one_run import CanaryEstimate
from adversaries.statistics.intervals import EpsilonBound
from fedsim.audits.measurements.one_run_report import LEADING, NAMES
from fedsim.audits.results.canaries import OneRunResult
from fedsim.audits.results.measured import MembershipAttack
from fedsim.audits.results.report import Report
from fedsim.audits.run import empirical
from fedsim.report.document import blocks as doc
from fedsim.report.document.wording import number, percent, plain, span
from fedsim.report.figures import run_figures
from fedsim.report.sections.section import Section, SectionTranscript, at_delta, is_client

BOUNDS = {
    "identification": "ε of one record at least, by identification",
    "identification_mu_gdp": "ε of one record at least, by identification, for a Gaussian "
    "mechanism",
    "identification_gaussian": "ε of one record at least, by identification, for normal log-odds",
    "released_model": "ε of one record at least, from the released model alone",
    "released_model_mu_gdp": "ε of one record at least, from the released model alone, for a "
    "Gaussian mechanism at its own threshold",
}

MADE = (
    "The target was crafted to be noticed: the bounds say how identifiable a record "
    "can be under this noise, not how identifiable a record of these data is."
)


def _crafted(report: Report) -> list[doc.Block]:
    crafted = report.crafted
    if crafted is None:
        return []
    delta = at_delta(crafted.delta)
    return [
        doc.Prose(MADE),
        doc.Listing(
            [
                ("Target", crafted.description),
                *([] if crafted.label is None else [("Its label", str(crafted.label))]),
                ("First model", crafted.initialisation),
                (f"ε of one record {delta}", number(crafted.epsilon)),
                *(
                    (BOUNDS[name], f"{number(bound.epsilon)} ({bound.reason or bound.method})")
                    for name, bound in crafted.lower_bounds.items()
                ),
            ]
        ),
        doc.Place("poison"),
    ]


def _crafted_figures(report: Report, transcript: SectionTranscript) -> list[doc.Figure]:
    if report.crafted is None or transcript.poison_scores is None:
        return []
    details = report.crafted.lower_bounds["released_model"].details
    threshold = details.get("threshold", math.inf)
    return [
        doc.Figure(
            "poison",
            run_figures.poison_scores(
                transcript.worlds,
                transcript.poison_scores,
                threshold if math.isfinite(threshold) else None,
            ),
            "Score of the released models.",
            "How far each trial's last model moved in the direction of the crafted target. Half of "
            "the trials chose the threshold; the bound counts the other half.",
        )
    ]


CRAFTED = Section("The crafted target", _crafted, _crafted_figures)


def headline(run: OneRunResult) -> EpsilonBound:
    return run.bounds[LEADING]


def headline_name(run: OneRunResult) -> str:
    return f"one-run {NAMES[LEADING]}"


def _estimated(estimate: CanaryEstimate, confidence: float) -> str:
    if estimate.reason:
        return f"none: {estimate.reason}"
    between = span(estimate.epsilon_interval.ends, number)
    return (
        f"{number(estimate.epsilon)} (μ = {number(estimate.mu)}; {between} "
        f"at {percent(confidence)}). Assumes {estimate.assumes}"
    )


SCORED = {
    "sums": "its signal in the aggregates of all rounds",
    "loss": "the fall of its loss from the first model, which never saw it, to the last",
}


def _reading(run: OneRunResult) -> list[str]:
    clients = ", ".join(map(str, run.clients))
    less = ", without the part of the data that the auditor knew" if run.known_data else ""
    return [
        f"{run.count} canaries of kind “{run.kind}” were planted at clients {clients}. A fair "
        "coin decided for each canary whether it took part in the whole training. The score of a "
        f"canary is {SCORED[run.score]}{less}. The headline is trial {run.headline_trial}, as "
        "decided before the run; every other trial is another such audit.",
        run.note,
        *([run.alarm] if run.alarm else []),
    ]


def _one_run(report: Report) -> list[doc.Block]:
    run = report.one_run
    if run is None:
        return []
    limit = number(run.canary_epsilon)
    rows = [
        ("ε claimed, towards a participant", number(run.claimed_epsilon)),
        ("ε of one canary by the claimed noise", f"{limit} (μ = {number(run.canary_mu)})"),
    ]
    for name, bound in run.bounds.items():
        right, guesses = plain(bound.details["right"]), plain(bound.details["guesses"])
        scores = (
            f"{number(bound.epsilon)} with {percent(bound.confidence)} confidence: {right} of "
            f"{guesses} guesses right. Assumes {bound.assumes}."
        )
        rows.append((f"ε at least, {NAMES[name]}", scores))
    estimated = _estimated(run.estimate, run.confidence)
    rows.append(("ε estimated, no confidence statement", estimated))
    for name, spread in (run.spread or {}).items():
        between = f"90% of trials from {number(spread.low)} to {number(spread.high)}"
        above = f"{percent(spread.above)} of trials above {limit}"
        scores = f"median {number(spread.median)}, {between}, {above}"
        rows.append((f"Over {run.trials} trials, {NAMES[name]}", scores))
    return [*map(doc.Prose, _reading(run)), doc.Listing(rows), doc.Place("one-run")]


def _one_run_figures(report: Report, _: SectionTranscript) -> list[doc.Figure]:
    run = report.one_run
    if run is None:
        return []
    scores = run.scores
    return [
        doc.Figure(
            "one-run",
            run_figures.canary_scores(
                np.asarray(scores.edges), np.asarray(scores.included), np.asarray(scores.excluded)
            ),
            "Scores of included and left-out canaries.",
            f"Scores of the canaries of trial {run.headline_trial}. With less overlap, "
            "the auditor guesses more canaries right.",
        )
    ]


ONE_RUN = Section("One-run audit", _one_run, _one_run_figures)


ATTACKS = {
    empirical.POPULATION: ("Yeom", "Yeom: members are the records with at most the mean loss"),
    empirical.CHALLENGE: ("Yeom (loss of the final model)", "Yeom on the target record alone"),
}

CLIENT_ATTACK = (
    "Yeom (loss of the final model)",
    "Yeom on the target client: by the mean loss of its records",
)

MEANING = (
    "Weaker attacks, for comparison: they see losses at the final model, and no sums. All except "
    "Yeom's two learn from one half of the trials and are measured on the other."
)


def drawn(attacks: Mapping[str, MembershipAttack], client: bool) -> dict[str, MembershipAttack]:
    """Return the attack that stands beside the adversary in a figure, by its short name.

    The attack on all records is left out: the bound is not about it.
    """
    attack = attacks.get(empirical.CHALLENGE)
    return {} if attack is None else {names(empirical.CHALLENGE, client)[0]: attack}


def names(name: str, client: bool) -> tuple[str, str]:
    if name == empirical.CHALLENGE and client:
        return CLIENT_ATTACK
    if attack := LOSS_ATTACKS.get(name):
        return attack.title, f"{attack.title}, on the target"
    own = name.rpartition(":")[2].replace("_", " ")
    return ATTACKS.get(name, (own, f"{own}, an attack of your own, on the target"))


def _line(report: Report, name: str, attack: MembershipAttack) -> doc.Line:
    detail = span(attack.advantage_interval, number)
    return doc.Line(
        doc.Cell(names(name, is_client(report))[1]),
        [
            doc.Cell(number(attack.advantage), detail, style="value"),
            # What goes by no threshold has no rates, and what gives no scores no area.
            doc.Cell(percent(attack.tpr)),
            doc.Cell(percent(attack.fpr)),
            doc.Cell(number(attack.area)),
        ],
    )


def _membership(report: Report) -> list[doc.Block]:
    blocks: list[doc.Block] = []
    if report.membership_inference:
        lines = [
            _line(report, name, attack) for name, attack in report.membership_inference.items()
        ]
        headings = "Attack", "Advantage", "True positives", "False positives", "AUC"
        blocks = [doc.Prose(MEANING), doc.Table(headings, [doc.Group("", lines)])]
    if report.membership_missing is not None:
        blocks.append(doc.Prose(report.membership_missing, small=True))
    return blocks


MEMBERSHIP = Section("Membership inference", _membership, specialist=True)
