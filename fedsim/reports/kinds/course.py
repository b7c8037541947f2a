"""An audit round by round: the figures of its page, and an auditor's results while they arrive."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from scipy.special import expit

from fedsim.audits.judgement.report import AuditReport
from fedsim.audits.live.live_audit import Look
from fedsim.audits.live.live_report import LiveDetails
from fedsim.audits.recorded.audit import RecordedDetails
from fedsim.audits.recorded.releases import ReleaseReport
from fedsim.audits.results.verdicts import (
    CANNOT_TELL,
    CONTRADICTED,
    NOT_MEASURED,
    StateWords,
    words_of,
)
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import terminal
from fedsim.reports.document.wording import number, percent
from fedsim.reports.figures import drawings

SHOWN = 15  # last rounds that a terminal shows


def so_far(each: Look) -> StateWords:
    """Return how the observations up to a round stand to the noise that the server states."""
    if each.log_odds.size:
        # In rare trainings a belief exceeds its limit.
        return CANNOT_TELL if beyond(each) else words_of("agrees")
    if not each.noise_at_most:
        return NOT_MEASURED
    return CONTRADICTED if min(each.noise_at_most.values()) <= 1 else words_of("agrees")


def beyond(belief: Look) -> int:
    """Return in how many trials the belief has exceeded its limit."""
    return int(np.count_nonzero(expit(belief.log_odds) > belief.rho_beta))


def table(rounds: Sequence[Look]) -> doc.Table:
    """Return a line for each round: the beliefs in D, or where there are none the noise."""
    shown = [each for each in rounds if each.log_odds.size] or rounds
    lines = []
    for each in shown:
        cells = {"round": str(each.round), "so far": so_far(each).text}
        if each.log_odds.size:
            chances, trials = expit(each.log_odds), each.trials
            cells = {"trials": f"{trials.start}-{trials.stop - 1}"} | cells
            cells["mean"] = percent(float(chances.mean()))
            cells["highest"] = percent(float(chances.max()))
            cells["above ρβ"] = f"{beyond(each)} of {len(chances)}"
            cells["ρβ"] = percent(each.rho_beta)
        else:
            series = shown[-1].noise_at_most
            cells |= {name: number(each.noise_at_most.get(name)) for name in series}
            signal = each.canaries
            cells["canaries' μ"] = number(None if signal is None else signal.mu)
            cells["claimed"] = number(None if signal is None else signal.claimed_mu)
        lines.append(cells | {"ε so far": number(each.epsilon), "missed": str(each.missed)})
    return doc.tabulated([*lines[0]] if lines else [], [[*line.values()] for line in lines])


def view(rounds: Sequence[Look]) -> RenderableType:
    believes = any(each.log_odds.size for each in rounds)
    title = "belief that D was used" if believes else "noise over the claimed noise, at most"
    return terminal.table(table(rounds[-SHOWN:]), title)


def drawn(report: AuditReport[Any], rounds: Sequence[Look]) -> list[doc.Block]:
    """Return the figures of an audit over its rounds, and tables of its clients or rounds."""
    found, blocks = report.details, list[doc.Block]()
    if isinstance(found, RecordedDetails) and found.release is not None:
        blocks += _of_release(found.release)
    if isinstance(found, LiveDetails):
        blocks += _of_auditor(found, [each for each in rounds if not each.log_odds.size])
    if rounds:
        blocks.append(doc.Part("Every round", [table(rounds)], folded=True))
    return blocks


CLIENTS = ("client", "rounds", "largest weight", "ε at most", "belief")


def _of_release(release: ReleaseReport) -> Iterator[doc.Block]:
    rounds = np.array(release.round_numbers)
    if release.clients:
        beliefs = {f"node {one.node}": np.array(one.belief) for one in release.clients}
        caption = "How sure an adversary who knows all other updates is that a client took part."
        yield doc.Figure("beliefs", drawings.client_beliefs(rounds, beliefs), "", caption)
        lines = [
            [
                *(f"node {one.node}", str(one.rounds)),
                *map(number, (one.largest_weight, one.epsilon)),
                belief(one.belief[-1], release),
            ]
            for one in release.clients
        ]
        yield doc.Part("Every client", [doc.tabulated(CLIENTS, lines)], folded=True)
    claims = release.claimed_std
    claimed = None if None in claims else np.array(claims, float)
    spread = np.array([one.ends for one in release.left_over_interval], float).T
    spread[np.isinf(spread)] = np.nan
    measured = np.array(release.left_over_std)
    caption = "Standard deviation of the aggregate after subtracting all known updates."
    yield doc.Figure(
        "noise", drawings.realised_noise(rounds, measured, spread, claimed), "", caption
    )


def belief(chance: float, release: ReleaseReport) -> str:
    """Return a belief in a client; one under noise is never certain."""
    return ">99.9%" if chance >= 0.9995 and release.noise != "none" else percent(chance)


def _of_auditor(found: LiveDetails, looks: Sequence[Look]) -> Iterator[doc.Figure]:
    if (belief := found.belief) is not None:
        series = {"mean": np.array(belief.mean_by_round)}
        series["highest trial"] = np.array(belief.highest_by_round)
        caption = "The auditor's belief that D was used, after every round of the last trials seen."
        figure = drawings.client_beliefs(np.array(belief.rounds), series)
        yield doc.Figure("beliefs", figure, "", caption)
    if not looks:
        return
    rounds = np.array([look.round for look in looks])
    if names := list(looks[-1].noise_at_most):
        limits = {
            name: np.array([look.noise_at_most.get(name, np.inf) for look in looks])
            for name in names
        }
        caption = "Noise divided by the claimed noise, at most, after every round."
        figure = drawings.noise_limits(rounds, limits)
        yield doc.Figure("noise", figure, "", caption)
    if looks[-1].canaries is not None:
        beliefs = [look.canaries.belief if look.canaries else 0.5 for look in looks]
        caption = "The auditor's belief in the true coin of a canary, after every round."
        right = {"mean of all canaries": np.array(beliefs)}
        yield doc.Figure("canaries", drawings.client_beliefs(rounds, right), "", caption)
