"""The report of a live audit: what an auditor of a running federation came to believe.

It words what `fedsim.auditor.live_audit` found, for the terminal while it grows and as a page at
the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy.special import expit, logit

from adversaries.errors import InputError
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.app_audit.configuration import Claim
from fedsim.auditor import live_claim, live_power
from fedsim.auditor.live_audit import Belief, LiveAudit, Look
from fedsim.audits import noise_watch
from fedsim.audits.noise_watch import SUM
from fedsim.audits.verdict import stated
from fedsim.campaign import precision
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
from fedsim.config import Config
from fedsim.figures import belief_figures, training_figures
from fedsim.mechanisms.composition import adds_up
from fedsim.pages import audit_page
from fedsim.pages.pictures import inline
from fedsim.pages.wording import number, percent
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import PLD
from fedsim.transcripts.records import Facts

Report = Mapping[str, Any]
Bools = npt.NDArray[np.bool_]

CANARIES = (
    "The signal of one made-up record of norm C in the sums of one training so far, over all that "
    "hides it, other records included; the claim counts the noise alone, and is an upper bound. "
    "The belief in what is true of a canary starts at 1/2, and takes the claimed noise for granted."
)

NOISE = (
    "How many times the claimed noise there is at most, whatever the records are: found without "
    "them, from the released numbers alone, and valid after every round."
)

SHOWN = 15
"""How many rounds the terminal shows."""


def assemble(
    audit: LiveAudit,
    facts: Facts,
    confidence: float,
    worlds: Bools | None = None,
    claim: Claim | None = None,
    ended: bool = False,
) -> dict[str, Any]:
    """Return the report so far, in which what is infinite is `math.inf`.

    Args:
        audit: of the run.
        facts: of the transcript's header.
        confidence: of every interval.
        worlds: bool [T], which trials trained on D, where whoever ran the federation has told; None
            before that. Without them nobody can say whether the beliefs are right.
        claim: what somebody claims of the run, None if nobody does.
        ended: whether the run did.

    Raises:
        InputError: the confidence is impossible, or the worlds are of another run.
    """
    config = audit.config
    reported = None if worlds is None else len(worlds)
    if config is not None and reported is not None:
        _check_reported(config, reported)
    last = [beliefs[-1] for _, beliefs in sorted(audit.beliefs.items()) if beliefs]
    report: dict[str, Any] = {
        "kind": "live audit",
        "facts": asdict(facts),
        "confidence": confidence,
        "vantage": f"auditor: {_sees(config)} of every round, none of the noise known",
        "trust": None if config is None else config.federation.trust.value,
        "neighbouring": None if config is None else config.privacy.neighbouring.value,
        "unit": None if config is None else config.privacy.unit,
        "delta": None if config is None else config.privacy.delta,
        "rounds_planned": None if config is None else config.training.rounds,
        "rounds": audit.rounds,
        "missed": audit.missed,
        "one_world": config is not None and live_power.one_world(config),
        "trials": sum(len(belief.log_odds) for belief in last),
        "bounds": _bounds(audit),
        "released": _released(audit),
        "belief": _beliefs(audit, last),
        "noise": _noise(audit, confidence),
        "empirical": _empirical(audit, last, confidence, worlds),
        "canaries": _canaries(audit, confidence),
    }
    report["alarms"] = _alarms(audit, last, report, worlds)
    report["claim"] = None
    if claim is not None:
        scored, bounds = _scored(last, worlds), report["bounds"]
        seen, bound = scored and scored[0], bounds and bounds["rho_alpha"]
        unmeasured = live_power.lacking(audit, worlds, seen, bound)
        report["claim"] = live_claim.judge(
            audit, claim, report["alarms"], unmeasured, reported, ended
        )
    return report


def _sees(config: Config | None) -> str:
    if config is not None and config.federation.auditor_sees == "messages":
        return "the aggregate and every client's message"
    return "the aggregate"


def _check_reported(config: Config, reported: int) -> None:
    """Raise InputError where a run has other numbers of trials than the recorded one may have."""
    planned = config.trials.count
    # Who stops early has fewer.
    if reported > planned or (reported < planned and not config.trials.until_halfwidth):
        raise InputError(
            f"the run that --worlds names has {reported} trials, but the one that was recorded "
            f"has {planned}: it is of another run; name the one that the auditor joined"
        )


def write(report: Report, directory: Path, looks: Sequence[Look] = ()) -> Path:
    """Write report.html and report.json.

    Args:
        report: as of `assemble`.
        looks: as of `render_html`.
        directory: that they are written into.

    Returns:
        The page.

    Raises:
        OSError: it cannot be written.
    """
    return report_directory.write_report(directory, report_json(report), render_html(report, looks))


def verdict(report: Report) -> str:
    """Return the answer in a sentence or two."""
    bounds, belief, canaries = report["bounds"], report["belief"], report["canaries"]
    said = stated(report)
    if bounds is not None and belief is not None:
        what = "all data of a client" if report["unit"] == "client" else "the challenge record"
        said.append(
            f"After {report['rounds']} rounds the auditor believes with {percent(belief['mean'])} "
            f"(highest of {report['trials']}: {percent(belief['highest'])}) that {what} was used; "
            f"the noise allows {percent(bounds['rho_beta'])}{_but_for(bounds)}, epsilon "
            f"{number(bounds['epsilon'])} at delta {report['delta']:g}."
        )
    if canaries is not None and canaries["reason"] is not None:
        said.append(f"Canaries measured nothing yet: {canaries['reason']}.")
    elif canaries is not None:
        said.append(
            f"Canaries measured a signal of {number(canaries['mu'])} standard deviations "
            f"({number(canaries['interval'][0])} to {number(canaries['interval'][1])}) in one "
            f"training so far; the noise allows {number(canaries['claimed_mu'])}."
        )
    if (noise := report["noise"]) is not None and not report["alarms"]:
        said.append(
            f"The released sums have at most {number(noise['at_most'][SUM])} times the noise that "
            f"is claimed ({percent(noise['confidence'])}), whatever the records are."
        )
    return " ".join(said) or "No round was seen from its beginning to its end yet."


def table(found: Sequence[Belief | Look]) -> Table:
    """Return the last rounds as the terminal shows them."""
    beliefs = [each for each in found if isinstance(each, Belief)]
    if not beliefs:
        return _table_of_looks([each for each in found if isinstance(each, Look)])
    shown = Table(title="belief that D was used", title_justify="left")
    for heading in ("trials", "round", "mean", "highest", "ρβ", "ε so far", "missed"):
        shown.add_column(heading, justify="right")
    for belief in beliefs[-SHOWN:]:
        chances = expit(belief.log_odds)
        shown.add_row(
            f"{belief.first_trial}-{belief.first_trial + len(chances) - 1}",
            str(belief.round),
            percent(float(chances.mean())),
            percent(float(chances.max())),
            percent(belief.rho_beta),
            number(belief.epsilon),
            str(belief.missed),
        )
    return shown


def _table_of_looks(looks: Sequence[Look]) -> Table:
    """Return the last rounds of a run that is audited without its records."""
    shown = Table(title="noise over what is claimed, at most", title_justify="left")
    series = list(looks[-1].noise_at_most) if looks else []
    for heading in ("round", *series, "canaries' μ", "claimed", "ε so far", "missed"):
        shown.add_column(heading, justify="right")
    for look in looks[-SHOWN:]:
        found = look.canaries or {}
        shown.add_row(
            str(look.round),
            *(number(look.noise_at_most.get(name)) for name in series),
            number(found.get("mu")),
            number(found.get("claimed_mu")),
            number(look.epsilon),
            str(look.missed),
        )
    return shown


def summary(report: Report) -> RenderableType:
    """Return what the terminal shows at the end."""
    rows = Table(show_header=False)
    for name, value in _rows(report):
        rows.add_row(name, value)
    alarms = [Text(f"Alarm: {text}", "bold red") for text in report["alarms"]]
    return Group(Text(verdict(report)), rows, *alarms)


def render_html(report: Report, looks: Sequence[Look] = ()) -> str:
    """Return the report as one HTML page that needs no other file, script or network.

    Args:
        report: as of `assemble`.
        looks: what was found without records, to be drawn.
    """
    drawn = []
    if report["belief"] is not None:
        rounds = np.array(report["belief"]["rounds"])
        series = {"mean": np.array(report["belief"]["mean_by_round"])}
        series["highest trial"] = np.array(report["belief"]["highest_by_round"])
        caption = "The auditor's belief that D was used, after every round of the last trials seen."
        figure = belief_figures.client_beliefs(rounds, series)
        drawn.append((caption, inline(figure, "beliefs", caption)))
    drawn += _drawn_looks(looks)
    return audit_page.render(
        PAGE, report=report, verdict=verdict(report), rows=_rows(report), figures=drawn
    )


def _bounds(audit: LiveAudit) -> dict[str, Any] | None:
    """Return the bounds of the batch of trials that they protect least: no batch's belief is
    beyond."""
    mechanisms = audit.mechanisms()
    if audit.config is None or not mechanisms:
        return None
    delta = audit.config.privacy.delta
    worst = max(mechanisms, key=lambda mechanism: PLD.epsilon(mechanism, delta))
    found = asdict(identifiability.bounds(worst, delta))
    # Of sampled steps, the largest epsilon and the largest advantage need not be of one batch of
    # trials.
    found["rho_alpha"] = max(map(identifiability.rho_alpha, mechanisms))
    return found | {"noise_multiplier": min(one.noise_multiplier for one in worst.groups)}


def _released(audit: LiveAudit) -> dict[str, Any] | None:
    """Return what everything that was released comes to; None where no guarantee speaks of it."""
    mechanism = audit.everything()
    if mechanism is None or audit.config is None or not adds_up(audit.config):
        return None
    epsilon = PLD.epsilon(mechanism, audit.config.privacy.delta)
    return {"epsilon": epsilon, "rho_beta": identifiability.rho_beta_of_epsilon(epsilon)}


def _beliefs(audit: LiveAudit, last: Sequence[Belief]) -> dict[str, Any] | None:
    if not last:
        return None
    final = np.concatenate([expit(belief.log_odds) for belief in last])
    course = audit.beliefs[last[-1].first_trial]
    return {
        "mean": float(final.mean()),
        "highest": float(final.max()),
        "log_odds": np.concatenate([belief.log_odds for belief in last]).tolist(),
        "rounds": [belief.round for belief in course],
        "mean_by_round": [float(expit(belief.log_odds).mean()) for belief in course],
        "highest_by_round": [float(expit(belief.log_odds).max()) for belief in course],
    }


def _empirical(
    audit: LiveAudit, last: Sequence[Belief], confidence: float, worlds: Bools | None
) -> dict[str, Any] | None:
    """Return how right the beliefs were; None until somebody tells the worlds."""
    scored = _scored(last, worlds)
    if scored is None or worlds is None or audit.config is None:
        return None
    bits, final = scored
    # At the look that the campaign stopped at, also where the auditor missed some of its trials.
    played = precision.design(audit.config, len(worlds))
    advantage = estimators.advantage(bits, final, confidence, played)
    loss = final - logit(audit.config.audit.prior)
    allowed = np.repeat(
        [belief.epsilon for belief in last], [len(belief.log_odds) for belief in last]
    )
    exceeded = estimators.delta_prime(bits, loss, allowed, played.level(confidence))
    return {
        "trials": len(bits),
        "advantage": advantage.point,
        "advantage_interval": [advantage.interval.low, advantage.interval.high],
        "delta_prime": exceeded.point,
        "delta_prime_interval": [exceeded.interval.low, exceeded.interval.high],
    }


def _scored(
    last: Sequence[Belief], worlds: Bools | None
) -> tuple[Bools, npt.NDArray[np.float64]] | None:
    """Return worlds and final log-odds of the trials that were seen; None unless both worlds."""
    if worlds is None or not last:
        return None
    bits = [
        worlds[belief.first_trial : belief.first_trial + len(belief.log_odds)] for belief in last
    ]
    found = np.concatenate(bits)
    if len(np.unique(found)) < 2:
        return None
    return found, np.concatenate([belief.log_odds for belief in last])


def _canaries(audit: LiveAudit, confidence: float) -> dict[str, Any] | None:
    found = audit.canary_findings(confidence)
    return None if found is None else found | {"note": CANARIES}


def _alarms(
    audit: LiveAudit, last: Sequence[Belief], report: Report, worlds: Bools | None
) -> list[str]:
    """Return what contradicts the claimed noise beyond chance."""
    alarms, sure = [], f"with confidence {ALARM_CONFIDENCE:g}"
    scored = _scored(last, worlds)
    if scored is not None and worlds is not None and audit.config is not None:
        played = precision.design(audit.config, len(worlds))
        low = estimators.advantage(*scored, ALARM_CONFIDENCE, played).interval.low
        if low > report["bounds"]["rho_alpha"]:
            alarms.append(
                f"The advantage is at least {low:.3f} {sure}, above its bound "
                f"{report['bounds']['rho_alpha']:.3f}: the noise is not what was claimed."
            )
    found = audit.canary_findings(ALARM_CONFIDENCE)
    if found is not None and found["interval"][0] > found["claimed_mu"]:
        alarms.append(
            f"Canaries show a signal of at least {found['interval'][0]:.3f} standard deviations "
            f"{sure}, but the claimed noise allows {found['claimed_mu']:.3f}: there is less noise "
            "than claimed."
        )
    if audit.noise is not None:
        alarms += noise_watch.alarms(
            audit.noise.accused(ALARM_CONFIDENCE), audit.noise.limits(ALARM_CONFIDENCE)
        )
    return alarms


def _noise(audit: LiveAudit, confidence: float) -> dict[str, Any] | None:
    """Return how much noise there is at most; None where that is not judged."""
    if audit.noise is None or not audit.noise.limits(confidence):
        return None
    return {"at_most": audit.noise.limits(confidence), "confidence": confidence, "note": NOISE}


def _rows(report: Report) -> list[tuple[str, str]]:
    bounds, empirical = report["bounds"], report["empirical"]
    rows = [
        ("trust", str(report["trust"])),
        ("vantage", report["vantage"]),
        ("rounds", f"{report['rounds']} of {report['rounds_planned']}, {report['missed']} missed"),
    ]
    if bounds is not None:
        rows += [
            ("noise multiplier", number(bounds["noise_multiplier"])),
            (
                "epsilon of one training",
                f"{number(bounds['epsilon'])} at delta {bounds['delta']:g}",
            ),
            ("ρβ, ρα", f"{percent(bounds['rho_beta'])}, {number(bounds['rho_alpha'])}"),
        ]
    if released := report["released"]:
        together = f"{number(released['epsilon'])} at delta {report['delta']:g}"
        rows.append(("epsilon of everything released", together))
    if empirical is not None:
        low, high = empirical["advantage_interval"]
        rows.append(
            (
                "advantage",
                f"{number(empirical['advantage'])} ({number(low)} to {number(high)}, "
                f"{percent(report['confidence'])})",
            )
        )
    if report["noise"] is not None:
        rows += [
            (f"noise of {_whose(name)}", f"at most {number(limit)} times the claimed")
            for name, limit in report["noise"]["at_most"].items()
        ]
    if (canaries := report["canaries"]) is not None and canaries["reason"] is None:
        rows += _canary_rows(canaries, bounds, report)
    if empirical is None and report["trials"]:
        if report["one_world"]:
            unknown = "not measured: the run's trials are all in one world"
        else:
            unknown = "unknown until the worlds are told (--worlds RUN)"
        rows.append(("advantage", unknown))
    return rows


def _canary_rows(
    canaries: Mapping[str, Any], bounds: Mapping[str, Any] | None, report: Report
) -> list[tuple[str, str]]:
    """Return what canaries show, each number beside what the noise allows."""
    low, high = canaries["advantage_interval"]
    allowed = "" if bounds is None else f"; the noise allows {number(bounds['rho_alpha'])}"
    rows = [
        (
            f"advantage about {canaries['canaries']} canaries",
            f"{number(canaries['advantage'])} ({number(low)} to {number(high)}, "
            f"{percent(report['confidence'])}){allowed}",
        ),
        ("belief in what is true of them", percent(canaries["belief"])),
    ]
    if (proven := canaries["epsilon_at_least"]) is not None:
        rows.append(("epsilon, by guesses of them", f"at least {number(proven)}"))
    return rows


def _whose(series: str) -> str:
    """Word whose noise a series of releases has."""
    return "the sums" if series == SUM else f"{series}'s messages"


def _drawn_looks(looks: Sequence[Look]) -> list[tuple[str, Markup]]:
    """Draw what was found without records after every round, each with its caption."""
    if not looks:
        return []
    rounds = np.array([look.round for look in looks])
    names = list(looks[-1].noise_at_most)
    drawn: list[tuple[str, Markup]] = []
    if names:
        limits = {
            name: np.array([look.noise_at_most.get(name, np.inf) for look in looks])
            for name in names
        }
        caption = "How many times the claimed noise there is at most, after every round."
        figure = training_figures.noise_limits(rounds, limits)
        drawn.append((caption, inline(figure, "noise", caption)))
    if looks[-1].canaries is not None:
        beliefs = np.array([look.canaries["belief"] if look.canaries else 0.5 for look in looks])
        caption = "The auditor's belief in what is true of a canary, after every round."
        figure = belief_figures.client_beliefs(rounds, {"mean of all canaries": beliefs})
        drawn.append((caption, inline(figure, "canaries", caption)))
    return drawn


def _but_for(bounds: Mapping[str, Any]) -> str:
    """Word how often the belief about the worst pair is beyond rho-beta, where that is known."""
    tail = bounds["tail_probability"]
    return f", and of the worst pair more with probability {number(tail)}" if tail else ""


PAGE = """\
{% extends "frame" %}
{% from "parts" import settings, drawn %}
{% block title %}Live audit of run {{ report.facts.run }}{% endblock %}
{% block kind %}Live audit{% endblock %}
{% block heading %}Run {{ report.facts.run }}{% endblock %}
{% block body %}
<section class="verdict{{ ' alarm' if report.alarms else '' }}"><p>{{ verdict }}</p></section>
{% for text in report.alarms %}
<div class="label alarm">{{ text }}</div>
{% endfor %}
{{ drawn(figures) }}
<h2>What was seen</h2>
{{ settings(rows) }}
{% if report.noise %}
<p>{{ report.noise.note }}</p>
{% endif %}
{% if report.canaries %}
<p>{{ report.canaries.note }}</p>
{% endif %}
{% endblock %}
"""
