"""The report of a transcript: a page, a table on the terminal, and report.json beside them.

It words the report of `fedsim.audits.recorded.audit`; it computes nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Finding, Verdict
from fedsim.audits.recorded.recorded_report import (
    CanarySignal,
    ClientPrivacy,
    Estimated,
    MeanRelease,
    ReleaseReport,
    StepRelease,
)
from fedsim.audits.recorded.recorded_report import RecordedReport as Report
from fedsim.audits.recorded.server_rounds import TOWARDS
from fedsim.audits.results import verdicts
from fedsim.audits.results.verdicts import StateWords
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
from fedsim.report.document import blocks as doc
from fedsim.report.document import first_screen, terminal
from fedsim.report.document.first_screen import FAILED, OPEN, power, report_check, share
from fedsim.report.document.html import render
from fedsim.report.document.wording import DASH, counted, number, percent, plain, would_have_noticed
from fedsim.report.figures import run_figures, training_figures


def write_recorded(report: Report, directory: Path) -> Path:
    page = render_html(report)
    return report_directory.write_report(directory, report_json(report.as_json()), page)


def state(report: Report) -> StateWords:
    release = report.release
    refuted = report.verdict is Verdict.CONVICTED
    if refuted or any(one.breaks for one in report.findings):
        return verdicts.CONTRADICTED
    if release is None:
        return verdicts.CANNOT_TELL
    if release.noise == "none":
        return verdicts.NO_PROTECTION
    if not release.clipped:
        return verdicts.NO_GUARANTEE
    supported = release.noise in ("as claimed", "more")
    return verdicts.AGREES if supported else verdicts.CANNOT_TELL


def verdict(report: Report) -> str:
    release, canary, delta = report.release, report.canary, report.delta
    words = state(report)
    why = next((f": {one.why}" for one in report.findings if one.breaks), "")
    sentences = [f"{words.text}{why}."]
    if release is not None and release.towards == TOWARDS:
        sentences = [
            f"Server: {verdicts.MUST_BE_TRUSTED.text}.",
            f"Observer of the aggregates: {sentences[0]}",
        ]
    if report.claim is not None:
        sentences.append(report.conclusion)
    if release is not None and release.noise == "none":
        sentences.append(
            "No noise was added to the updates after they were sent, so epsilon is infinite "
            f"towards {release.towards}. Noise that clients add themselves is not visible from "
            "this vantage point."
        )
    elif isinstance(release, StepRelease):
        counts = "includes" if release.amplified else "leaves out"
        sentences.append(
            f"After {release.steps} steps, a {release.unit}'s epsilon is at most "
            f"{number(release.epsilon.point)} at delta {delta:g}, towards {release.towards}. This "
            f"value {counts} the benefit of random batches."
        )
    elif release is not None:
        client = release.least_protected[0]
        # The server itself has a sentence of its own.
        towards = release.towards.partition(" (")[0]
        epsilon = number(client.epsilon.point)
        alike = [one for one in release.clients if number(one.epsilon.point) == epsilon]
        who = f"The least protected client, node {client.node}, has"
        if len(alike) == len(release.clients) > 1:
            who = f"Each of the {len(alike)} clients has"
        sentences.append(
            f"{who} epsilon {epsilon} at delta {delta:g} after "
            f"{counted(client.rounds, 'round')}, towards {towards}. In this recording, the "
            f"observer's belief that a client took part is largest for node {client.node}: "
            f"{_belief(client.belief[-1], release)}."
        )
    if canary is not None:
        low, high = number(canary.mu.low), number(canary.mu.high)
        sentences.append(
            f"Canaries measured a mu of {low} to {high} for one round, towards {canary.towards}."
        )
    if release is not None and state(report) is verdicts.AGREES:
        sentences.append(would_have_noticed(release.seen_below))
    if release is None and canary is None:
        sentences.append("Nothing could be measured from this vantage point.")
    return " ".join(sentences)


def _client_rows(report: Report) -> list[list[str]]:
    release = report.release
    if release is None:
        return []
    return [
        [
            str(client.node),
            str(client.rounds),
            number(client.largest_weight),
            number(client.epsilon.point),
            f"{number(client.epsilon.low)} to {number(client.epsilon.high)}",
            _belief(client.belief[-1], release),
            _belief(client.rho_beta, None if client.unbounded else release),
        ]
        for client in release.clients
    ]


def _belief(value: float, release: ReleaseReport | None) -> str:
    """Return a belief as text; with noise it is below 1, even where it rounds to 1."""
    if value == 1 and release is not None and release.noise != "none":
        return ">99.9%"
    return percent(value)


CLIENT_HEADINGS = ["node", "rounds", "weight", "ε", "interval", "belief", "ρβ"]


def _noise_rows(report: Report) -> list[tuple[str, str]]:
    release = report.release
    if release is None:
        return []
    rows = [("noise", NOISE[release.noise]), ("parameters", plain(release.parameters))]
    if ends := release.noise_multiplier:
        rows.append(("noise multiplier, configured", number(release.claimed_noise_multiplier)))
        rows.append(("noise multiplier, measured", number(ends.point)))
        rows.append(("its interval", f"{number(ends.low)} to {number(ends.high)}"))
    if isinstance(release, StepRelease):
        rows += _step_rows(release)
    if isinstance(release, MeanRelease):
        rows.append(("weights of the mean", f"{release.weighting} ({release.weighting_basis})"))
    if scores := release.empirical:
        rows.append(
            (
                "one release, clients found",
                f"{scores.true_positives} of {scores.members}; false alarms "
                f"{scores.false_positives} of {scores.bystanders}",
            )
        )
        for name, bound in scores.lower_bounds.items():
            title = f"one release, ε at least ({name.replace('_', '-')})"
            rows.append((title, DASH if bound.reason else number(bound.epsilon)))
    return rows


def _step_rows(release: StepRelease) -> list[tuple[str, str]]:
    ends, sampling, accountants = release.epsilon, release.sampling, release.accountants
    rows = [
        ("steps", plain(release.steps)),
        ("ε of all steps", number(ends.point)),
        ("its interval ", f"{number(ends.low)} to {number(ends.high)}"),
    ]
    if sampling is not None:
        rate = f"{sampling.rate:.4g}, declared {sampling.declared:.4g}"
        rows.append(("sampling rate", rate))
        rows.append(("variance of batch sizes", f"{sampling.dispersion:.3g} × Poisson's"))
        rows.append(("sizes as declared, p", number(sampling.p_value)))
    if accountants is not None:
        rows.append(("engines", plain(accountants.engines)))
        rows.append(("ε that the accountant stated last", number(accountants.last_word)))
        rows.append(("ε of all steps that the accountants recorded", number(accountants.all_steps)))
        rows.append(
            ("ε of these steps at the measured noise", number(accountants.at_measured_noise))
        )
    return rows


def _canary_rows(report: Report) -> list[tuple[str, str]]:
    canary = report.canary
    if canary is None:
        return []
    rows = [("rounds scored", f"{canary.rounds}, {canary.loud} of them with the canary")]
    if canary.reason:
        rows.append(("no estimate", canary.reason))
    for title, one in (
        ("μ of one round", canary.mu),
        ("ε of one round", canary.epsilon_one_round),
        ("ε of all rounds", canary.epsilon_all_rounds),
    ):
        stated = DASH if canary.reason else number(one.point)
        rows.append((title, f"{stated} ({number(one.low)} to {number(one.high)})"))
    rows.append(("rank test, p", number(canary.p_value)))
    proven = number(canary.epsilon_proven_one_round)
    guessed = f"{canary.right_guesses} of {canary.guesses} coins guessed right"
    rows.append(("ε of one round, at least", f"{proven}, from {guessed}"))
    return rows


def summary(report: Report) -> RenderableType:
    parts: list[doc.Block | RenderableType] = [doc.Prose(verdict(report))]
    if rows := _client_rows(report):
        title = f"epsilon at delta {report.delta:g}"
        parts.append(terminal.table(doc.tabulated(CLIENT_HEADINGS, rows), title))
    if measured := [*_noise_rows(report), *_canary_rows(report)]:
        level = percent(report.confidence)
        caption = f"intervals and bounds at {level}"
        parts.append(terminal.listing(doc.Listing(measured), caption))
    for finding in report.findings:
        parts.append(Text(_sentence(finding), terminal.COLOURS[finding.severity]))
    return terminal.shown(*parts)


def _sentence(finding: Finding) -> str:
    rounds = finding.rounds
    numbers = ", ".join(map(str, rounds[:8])) + (", ..." if len(rounds) > 8 else "")
    where = f" (round {numbers})" if rounds else ""
    return f"{finding.severity.capitalize()}: {finding.why}{where}."


def render_html(report: Report) -> str:
    facts = report.facts
    noun = "step" if isinstance(report.release, StepRelease) else "round"
    length = counted(report.rounds, noun)
    return render(
        doc.Document(
            title=f"{facts.app or 'Flower app'} – audit of a transcript",
            kind="Audit of a transcript",
            heading=facts.app or "A Flower app",
            note=f"Vantage: {facts.vantage}; {length}. The unit of privacy is a {_unit(report)}.",
            first=first(report),
            blocks=list(_blocks(report)),
        )
    )


MOST = 5


def first(report: Report) -> doc.FirstScreen:
    words, facts = state(report), report.facts
    advice = words.advice
    if words is verdicts.AGREES and report.release is not None:
        noticed = would_have_noticed(report.release.seen_below)
        advice = f"{noticed} A longer recording detects smaller losses."
    mends = [one.mend for one in report.findings if one.mend]
    app = facts.app or "a Flower app"
    versions = "".join(f", {name} {version}" for name, version in facts.versions.items())
    return doc.FirstScreen(
        answer=[verdict(report)],
        alarming=words.kind == "alarm",
        figure=doc.Bars(
            _bars(report),
            "How often an adversary who knows everything else can be right about one "
            f"{_unit(report)}: by the measured noise ({percent(report.confidence)} intervals), and "
            "by the configured noise.",
        ),
        table=_least_protected(report),
        checks=_checks(report),
        steps=[
            *(f"{mend[:1].upper()}{mend[1:]}." for mend in dict.fromkeys(mends[:3])),
            *([advice] if advice else []),
        ],
        sign_off=first_screen.sign_off(
            data=f"what {facts.recorder} recorded of {app}{versions}",
            date="",
            limits=(
                f"The audit covers {counted(report.rounds, 'round')} as recorded at the vantage "
                f"point {facts.vantage}. Rounds that were not recorded add to the cost."
            ),
        ),
    )


def _unit(report: Report) -> str:
    release = report.release
    return release.unit if isinstance(release, StepRelease) else "client's update"


def _bars(report: Report) -> list[doc.Bar]:
    words, release, canary = state(report), report.release, report.canary
    mark, bars = doc.Mark(words.kind, words.text), list[doc.Bar]()
    if release is not None and release.towards == TOWARDS:
        open_ = verdicts.MUST_BE_TRUSTED
        bars.append(doc.Bar("Server", doc.Mark(open_.kind, open_.text), limit=1.0, remark=UNSEEN))
    if release is not None:
        bars += [_client_bar(one, release, mark) for one in release.least_protected[:MOST]]
    if isinstance(release, StepRelease):
        right = release.right_at_most
        ends = right.low, right.high
        bars.append(doc.Bar(f"A {release.unit}", mark, right.point, ends, how=AT_MOST))
    if canary is not None and (mu := canary.mu.point) is not None:
        bars.append(doc.Bar("Canary, one round", mark, _right(mu), _between(canary.mu)))
    return bars or [doc.Bar("From this vantage point", mark)]


def _client_bar(one: ClientPrivacy, release: ReleaseReport, mark: doc.Mark) -> doc.Bar:
    mu, ends = one.mu, release.noise_multiplier
    claimed, limit = release.claimed_noise_multiplier, None
    if claimed and ends and math.isfinite(mu.point):
        # The configured noise would allow the same node this much.
        limit = share(gaussian.advantage(mu.point * ends.point / claimed))
    name = f"Node {one.node}"
    return doc.Bar(name, mark, _right(mu.point), _between(mu), limit, how=AT_MOST, by=CONFIGURED)


def _right(mu: float) -> float:
    return share(gaussian.advantage(mu))


def _between(mu: Estimated | CanarySignal) -> tuple[float, float]:
    return _right(mu.low), _right(mu.high)


UNSEEN = "the server sees every update, and noise that clients add themselves is not recorded"
AT_MOST = "the measured noise allows"
CONFIGURED = "the configured noise"
NOISE = {
    "none": "none",
    "hidden": "hidden by rounding",
    "unclaimed": "not configured",
    "less": "less than configured",
    "more": "more than configured",
    "as claimed": "as configured",
}


def _least_protected(report: Report) -> doc.Table | None:
    release = report.release
    if release is None or not (clients := release.least_protected[:MOST]):
        return None
    rows = [
        [
            f"node {one.node}",
            number(one.epsilon.point),
            _belief(one.belief[-1], release),
            _belief(one.rho_beta, None if one.unbounded else release),
        ]
        for one in clients
    ]
    return doc.tabulated(
        ("Clients", f"ε at δ = {report.delta:g}", "Belief in this recording alone", "ρβ"), rows
    )


def _checks(report: Report) -> list[doc.Check]:
    document = report.as_json()
    alarming = [_sentence(one) for one in report.findings if one.breaks]
    checks = [
        report_check(
            "Nothing in the recording contradicts what was declared.",
            "alarms > 0",
            document,
            failed=alarming[0] if alarming else "",
        ),
        report_check(
            "The noise is at least 90% of the configured noise.",
            "release.realised_over_claimed.low < 0.9",
            document,
            fails="release.realised_over_claimed.high < 0.9",
            unknown="The recording does not show that the noise is at least 90% of the configured "
            "noise.",
            failed="The noise is below 90% of the configured noise.",
        ),
        power(document, "release.seen_below"),
        report_check(
            "The transcript is whole.",
            "transcript.torn_bytes > 0",
            document,
            failed="The end of the transcript is missing, as after a crash.",
            unknown="The transcript is still being written.",
        ),
    ]
    release = report.release
    if release is not None and release.towards == TOWARDS:
        text = "The recording shows no noise that would protect a client's update from the server."
        checks.append(doc.Check(FAILED, text))
    if (claim := report.claim) is None:
        text = "No ε is claimed. To check a claim, give --claimed-epsilon."
        checks.append(doc.Check(OPEN, text))
    else:
        limit = f"{claim.epsilon:g}"
        checks.append(
            report_check(
                f"The claim of ε = {limit} holds.",
                f"epsilon > {claim.epsilon}",
                document,
                fails=f"release.proven.epsilon > {claim.epsilon}",
                failed=f"The claim of ε = {limit} does not hold.",
                unknown=f"The audit neither proves nor disproves the claim of ε = {limit}.",
            )
        )
    return checks


def _blocks(report: Report) -> Iterator[doc.Block]:
    for one in report.findings:
        yield doc.Label("", _sentence(one), alarming=one.severity == "alarm")
    if clients := _client_rows(report):
        yield doc.Heading("How identifiable is each client?")
        yield doc.Prose(
            f"Epsilon of all recorded rounds at delta {report.delta}, under the measured noise. "
            "The belief is the adversary's in this run. Epsilon limits it to ρβ, except in a small "
            "share of trainings."
        )
        yield doc.tabulated(CLIENT_HEADINGS, clients)
    if noise := _noise_rows(report):
        yield doc.Heading("The measured noise")
        confidence = percent(report.confidence)
        yield doc.Prose(f"Intervals and lower bounds hold with {confidence} confidence.")
        yield doc.Listing(noise, several=True)
    if canary := _canary_rows(report):
        yield doc.Heading("Measurements by canaries")
        yield doc.Listing(canary, several=True)
    yield from _figures(report)
    measured = [one for one in (report.release, report.canary) if one is not None]
    if assumptions := [text for one in measured for text in one.assumptions]:
        yield doc.Heading("Assumptions")
        yield doc.Bullets(assumptions)
    yield doc.Heading("The recording")
    for recorded in (asdict(report.facts), report.mechanism):
        yield doc.Listing([(key, plain(value)) for key, value in recorded.items()], several=True)


def _figures(report: Report) -> list[doc.Block]:
    drawn = []
    release, canary = report.release, report.canary
    if release is not None:
        rounds = np.array(release.round_numbers)
        beliefs = {f"node {one.node}": np.array(one.belief) for one in release.clients}
        caption = "How sure an adversary who knows all other updates is that a client took part."
        if beliefs:
            drawn.append((caption, run_figures.client_beliefs(rounds, beliefs)))
        claims = release.claimed_std
        claimed = None if None in claims else np.array(claims, float)
        measured = np.array(release.left_over_std)
        spread = np.array([one.ends for one in release.left_over_interval], float).T
        spread[np.isinf(spread)] = np.nan
        caption = "Standard deviation of the aggregate after subtracting all known updates."
        drawn.append((caption, training_figures.realised_noise(rounds, measured, spread, claimed)))
    if canary is not None:
        rounds, belief = np.array(canary.round_numbers), np.array(canary.belief)
        right = np.where(canary.coins, belief, 1 - belief)
        caption = "Belief in the true coin of the canary, from earlier rounds alone."
        drawn.append((caption, run_figures.client_beliefs(rounds, {"the canary": right})))
    return [
        doc.Figure(f"figure-{place}", figure, "", caption)
        for place, (caption, figure) in enumerate(drawn)
    ]
