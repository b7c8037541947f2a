"""What an app's honest runs show about one record of a client that trains with Opacus.

The steps of all rounds compose, whatever engine took them. The observer is the server, which sees
every reply. Neighbours are a record in a client's data, or nothing in its place, so that the number
of a client's records counts as public.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedsim.audits.app.process import ClientRun
from fedsim.audits.judgement.claim import Claim, Evidence, Finding, alarms
from fedsim.audits.loop import guarantee, rules, support
from fedsim.audits.loop.guarantee import LoopObservation
from fedsim.audits.loop.support import MeasuredNoise
from fedsim.privacy.mechanism import Neighbouring

BARE = (
    "client {}: its reply differs from the model that it received in {} of {} rounds without a "
    "step of Opacus's optimizer: nothing adds noise to that training"
)
MEND = "train with the optimizer that make_private returned, in every client and round"
SAMPLED = (
    "client {} trained in {} of {} rounds. Another run may draw it more often; audit the app with "
    "every client in every round"
)
MORE = (
    "client {}: its reply differs from the model that it received by more than the steps of "
    "Opacus's optimizer made; train and send these parameters alone"
)
SUPPORTED = (
    "{0.clients} clients took up to {0.steps} steps of Opacus's optimizer each, and all steps of a "
    "client compose. The number of a client's records counts as public. Each step's noise agrees "
    "with the configured noise, and at least {0.noise.at_least:.1%} of it was measured"
)
UNMOVED = (
    "the audit changes no record, and does not show how far one moves a step. A client that holds "
    "a record twice, or mixes records, gives less privacy; fedsim audit measures it"
)


@dataclass(frozen=True)
class RecordAudit:
    """The protection of one record of the least protected client.

    Attributes:
        epsilon: by theory, of all steps of all rounds; None where theory does not know them.
        steps: largest number of steps of one client.
        noise: measured noise of all clients together.
        unknown: why theory has no epsilon.
        unsure: what theory takes for granted, and the audit cannot check.
    """

    epsilon: float | None
    clients: int
    steps: int
    noise: MeasuredNoise | None
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]
    unsure: tuple[str, ...]

    def evidence(self, claim: Claim) -> Evidence:
        return Evidence(
            broken=alarms(self.findings) > 0,
            unknown=self.unknown,
            exceeded=self.epsilon is not None and not claim.allows(self.epsilon),
            unsure=self.unsure,
            in_favour=[SUPPORTED.format(self), UNMOVED] if self.noise else [],
        )


def judged(
    runs: Sequence[Mapping[int, ClientRun]],
    rounds: int,
    neighbouring: Neighbouring,
    delta: float,
    confidence: float,
) -> RecordAudit | None:
    """Return what honest runs with different seeds show; None if no client took a step of Opacus.

    Args:
        runs: runs of the clients by partition.
        rounds: number of rounds of the app.
    """
    if not any(client.run.steps for run in runs for client in run.values()):
        return None
    epsilons, unsure, unknown = list[float | None](), list[str](), list[str]()
    everyone = [client.run for run in runs for client in run.values() if client.run.steps]
    together = _observation(everyone, runs[0][min(runs[0])].echo, neighbouring)
    findings = {each.rule: each for each in rules.findings(together) if each.rule == "seeded-noise"}
    for partition in sorted(set().union(*runs)):
        clients = [run[partition] for run in runs if partition in run]
        if bare := max(client.bare for client in clients):
            text = BARE.format(partition, bare, rounds)
            findings.setdefault("untold-steps", Finding(text, MEND, rule="untold-steps"))
            epsilons.append(math.inf)
        if not (clients := [client for client in clients if client.run.steps]):
            continue
        # Bonferroni: an equal share of the error for each run.
        echo = min(1.0, len(clients) * min(client.echo for client in clients))
        seen = _observation([client.run for client in clients], echo, neighbouring)
        for found in rules.findings(seen):
            # Accountants of one round are right about that round; all steps are composed here.
            severity = "caution" if found.rule == "rebuilt-accountant" else found.severity
            named = replace(found, why=f"client {partition}: {found.why}", severity=severity)
            findings.setdefault(found.rule, named)
        epsilons.append(guarantee.epsilon(seen, delta))
        stray = not seen.beside and not seen.explained
        unknown += [MORE.format(partition)] if stray else support.unknown(seen, epsilons[-1])
        unsure += support.doubts(seen)
        if (most := max(client.rounds for client in clients)) < rounds:
            unsure.append(SAMPLED.format(partition, most, rounds))
    known = [each for each in epsilons if each is not None]
    return RecordAudit(
        epsilon=max(known, default=None) if len(known) == len(epsilons) else None,
        clients=len(set().union(*runs)),
        steps=max(len(run.steps) for run in everyone),
        noise=support.measured(together, delta, confidence),
        findings=tuple(findings.values()),
        unknown=tuple(dict.fromkeys(unknown)),
        unsure=tuple(dict.fromkeys(unsure)),
    )


def _observation(runs: Sequence[Any], echo: float, neighbouring: Neighbouring) -> LoopObservation:
    size = max(run.size for run in runs)
    return LoopObservation(tuple(runs), (), (), size, neighbouring, echo=echo)
