"""The report of a training for the operator of the server: what may be shared, and what may not.

The guarantee makes the released model and its card public. The server's own knowledge is
confidential: which client was missing when and why, and properties of each client's messages.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

import fedsim
from adversaries.errors import InputError
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.judgement.report import AuditReport, unclaimed
from fedsim.audits.results.conditions import TRAINING
from fedsim.audits.results.measured import RoundSeries
from fedsim.audits.results.rows import Limit, Row, judged
from fedsim.common import report_directory
from fedsim.configuration import Config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.observers.noise_watch import alarms
from fedsim.learning.training.criterion import judge
from fedsim.privacy.identifiability import advantage_of_epsilon, rho_alpha
from fedsim.reports import model_card
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import html, release, worth
from fedsim.reports.document.first_screen import share
from fedsim.reports.document.wording import counted, percent
from fedsim.reports.figures import drawings
from fedsim.reports.model_card import ModelCard, Privacy, ReleasedTowards
from fedsim.reports.sections import every_audit, reading
from fedsim.reports.sections.first import MEANT


@dataclass(frozen=True)
class NotedRound:
    """One round as the server noted it; None for a number that it did not compute.

    Attributes:
        time: seconds since the training began.
        epsilon: of all rounds so far.
        noise_at_most: largest noise over the claimed, of the sums and of each client's messages.
        noise_accused: names of those with surely less noise than claimed.
    """

    round: int
    time: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    epsilon: float | None = None
    noise_at_most: Mapping[str, float] | None = None
    noise_accused: Sequence[str] | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        kept = {each.name: event[each.name] for each in fields(cls) if each.name in event}
        if limits := kept.get("noise_at_most"):
            # An event has null for infinity.
            kept["noise_at_most"] = {
                name: math.inf if limit is None else limit for name, limit in limits.items()
            }
        return cls(**kept)


@dataclass(frozen=True)
class Missing:
    """A client that did not answer. `client`: its number; None if unknown. `of`: the messages."""

    client: int | None
    of: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TrainingDetails:
    rounds: Sequence[NotedRound]
    missing: Sequence[Missing]
    guaranteed: bool
    """Whether the card promises differential privacy."""

    @property
    def unguaranteed(self) -> bool:
        return not self.guaranteed


TrainingReport = AuditReport[TrainingDetails]

PUBLIC = (
    "You may share the folder public/: the model, its description and its card. All of it is "
    "computed from what the rounds released, so epsilon covers it."
)
PRIVATE = (
    "Everything outside public/, also this report, is for the operator of the server alone: it "
    "says which client answered when, and describes the messages of each client."
)


def write_training_report(directory: RunDirectory) -> TrainingReport:
    card = model_card.read_card(directory)
    report = assemble(directory, card)
    report_directory.write_report(directory.path, report.report, html.page(told(report, card)))
    return report


def assemble(directory: RunDirectory, card: ModelCard) -> TrainingReport:
    rounds, missing = dict[int, NotedRound](), list[Missing]()
    for event, _ in directory.events():
        if "round" in event:
            rounds[event["round"]] = NotedRound.of(event)  # of a round that was repeated, the last
        if "dropped" in event or "silent" in event:
            who = event.get("dropped", event.get("silent"))
            missing.append(Missing(who, event["of"], event["reason"]))
    last = max(rounds, default=0)
    if not rounds or card.rounds != last:
        raise InputError(
            f"'{directory.path}' is damaged: its events end with round {last}, but its model is of "
            f"round {card.rounds}; restore it from a copy"
        )
    noted = rounds[last]  # it has all alarms
    raised = alarms(noted.noise_accused or (), noted.noise_at_most or {})
    course = [one for _, one in sorted(rounds.items())]
    return report_of(directory.config, card, course, missing, raised)


def report_of(
    config: Config,
    card: ModelCard,
    course: Sequence[NotedRound],
    missing: Sequence[Missing],
    raised: Sequence[str],
) -> TrainingReport:
    """Return the report of a training; raised: alarms, in sentences."""
    rows = [
        Row(one.vantage, "not-measured", _limit(card.privacy, one), None, None, None, one.sees)
        for one in card.privacy.towards
    ]
    return unclaimed(
        [Finding(text.removesuffix("."), rule="noise") for text in raised],
        kind=TRAINING,
        name=config.run.name,
        unit=card.privacy.unit,
        delta=card.privacy.delta,
        confidence=ALARM_CONFIDENCE,
        vantage=config.federation.vantage.value,
        rows=judged(rows, [row.observer for row in rows] if raised else []),
        details=TrainingDetails(rounds=course, missing=missing, guaranteed=card.privacy.guaranteed),
        versions={"fedsim": fedsim.__version__},
    )


def _limit(privacy: Privacy, one: ReleasedTowards) -> Limit:
    epsilon = next(iter(one.epsilon.values()), math.inf)
    if not privacy.guaranteed:
        return Limit.of_epsilon(math.inf, 1.0, "theory")
    try:
        most = rho_alpha(privacy.mechanism(one))
    except InputError:  # of steps that are unknown, or not covered, epsilon limits the advantage
        most = advantage_of_epsilon(epsilon, privacy.delta)
    return Limit.of_epsilon(epsilon, most, "theory")


def told(report: TrainingReport, card: ModelCard) -> doc.Told:
    unit = card.privacy.unit
    of = "client with all its data" if unit == "client" else "record"
    return every_audit.told(
        report,
        about=f"one {of}, at most",
        columns=(1, 2),
        tells=True,
        kind="Training",
        played=f"{counted(card.rounds, 'round')}, {counted(card.clients, 'client')}",
        release=_release(report, card),
        answer=[*_answer(card)],
        cautions=[f"Warning: {text}" for text in card.warnings],
        legend=MEANT,
        steps=_steps(report, card),
        sections=lambda: [*_sections(report, card)],
        purpose=card.purpose,
        data=f"{card.data}, {card.records} records of {card.clients} clients",
        date=card.created[:10],
        limits=f"The guarantee is for one {unit} at a time. It covers what the rounds "
        "released. No attack on this training was simulated.",
    )


def _sections(report: TrainingReport, card: ModelCard) -> Iterator[doc.Block]:
    if card.privacy.guaranteed and not report.alarms and not card.uncovered:
        yield doc.Prose(PUBLIC)
    yield from _figures(report.details.rounds)
    yield reading.part(report, attacked=False)
    if card.utility is not None:
        yield from worth.blocks(card.utility)
    if report.details.missing:
        missing = [
            ["unknown" if one.client is None else f"client-{one.client}", one.of, one.reason]
            for one in report.details.missing
        ]
        yield doc.Heading("Missing clients")
        yield doc.tabulated(["client", "of", "reason"], missing)


TRAINED = (
    "The limits follow from the noise (multiplier {privacy.noise_multiplier:.4g}), without an "
    "attack."
)
OF_A_RECORD = "They are for one record: of a person with several, an adversary may learn more."


def _release(report: TrainingReport, card: ModelCard) -> str:
    """Return whether the model of a training without alarms may be shared."""
    if not card.privacy.guaranteed:
        return release.UNPROTECTED
    most, unit = _most(report), card.privacy.unit
    if not card.uncovered:
        return release.decide("Sharing public/", most, unit, "anyone with the model")
    told = release.decide("Sharing it", most, unit, "anyone with what the rounds released")
    return f"{told} Part of public/ is not protected by this: see the warnings."


def _most(report: TrainingReport) -> float:
    """Return the largest share of right answers of those with the released model."""
    row = report.rows.get("released-model", [*report.rows.values()][-1])
    return share(row.allowed.rho_alpha)


def _answer(card: ModelCard) -> Iterator[str]:
    reached = advice = ""
    if card.utility is not None:
        said, fault, advice = worth.learning(card.utility, card.task)
        learnt = judge(card.utility.measured(card.task)).has_learnt
        reached = f"{said} {fault}".strip() if learnt else fault  # which has the numbers too
    if not card.privacy.guaranteed:
        yield f"No guarantee of differential privacy. {card.privacy.note}"
    trained = f"{TRAINED.format(**vars(card))} {OF_A_RECORD * (card.privacy.unit == 'record')}"
    yield from filter(None, [reached, trained.rstrip(), advice, PRIVATE])


def _steps(report: TrainingReport, card: ModelCard) -> list[str]:
    public = card.privacy.guaranteed and not report.alarms
    decided = every_audit.decisions(report, untold=lambda _: [], more=lambda _: "")
    if public and card.uncovered:
        decided.append("Decide whether you may share what epsilon does not cover.")
    if public:
        most = percent(_most(report))
        decided.append(f"Decide whether {most} is acceptable; fedsim choose searches for less.")
    return decided


def _figures(rounds: Sequence[NotedRound]) -> Iterator[doc.Figure]:
    numbers = np.array([each.round for each in rounds], dtype=np.int64)
    if rounds and rounds[-1].accuracy is not None:
        values = [one.accuracy for one in rounds], [one.loss for one in rounds]
        curves = (RoundSeries(each, each, each) for each in values)
        caption = "Accuracy and loss (nats) on held-out records, after every round."
        figure = drawings.utility(numbers.tolist(), *curves)
        yield doc.Figure("utility", figure, "", caption)
    if rounds and rounds[-1].noise_at_most:
        limits = {
            name: np.array([(each.noise_at_most or {}).get(name, math.inf) for each in rounds])
            for name in rounds[-1].noise_at_most
        }
        caption = (
            "Largest noise that fits the released sums and messages, divided by the claimed noise."
        )
        yield doc.Figure("noise", drawings.noise_limits(numbers, limits), "", caption)
