"""The report of a training for the operator of the server: what may be shared, and what may not.

The guarantee makes the released model and its card public. The server's own knowledge is
confidential: which client was missing when and why, and properties of each client's messages.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from adversaries.errors import InputError
from fedsim.audits.results import verdicts
from fedsim.audits.results.measured import RoundSeries
from fedsim.audits.results.verdicts import StateWords
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.observers.noise_watch import alarms
from fedsim.learning.training.criterion import judge
from fedsim.privacy.identifiability import advantage_of_epsilon, rho_alpha
from fedsim.reports import model_card, model_quality
from fedsim.reports.card_page import mechanism_towards
from fedsim.reports.card_types import ModelCard, Privacy, ReleasedTowards
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import html, release
from fedsim.reports.document.first_screen import most, share
from fedsim.reports.document.wording import counted, number, percent
from fedsim.reports.figures import training_figures
from fedsim.reports.sections import reading
from fedsim.reports.sections.first import MEANT

KIND = "training"


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


@dataclass(frozen=True)
class TrainingReport:
    """What the server noted about a training. `contradictions`: alarms, in sentences."""

    name: str
    contradictions: Sequence[str]
    rounds: Sequence[NotedRound]
    missing: Sequence[Missing]

    @property
    def alarms(self) -> int:
        return len(self.contradictions)

    def as_json(self) -> dict[str, Any]:
        rounds = [
            {name: value for name, value in vars(each).items() if value is not None}
            for each in self.rounds
        ]
        return {"kind": KIND, **asdict(self), "alarms": self.alarms, "rounds": rounds}


PUBLIC = (
    "You may share the folder public/: the model, its description and its card. All of it is "
    "computed from what the rounds released, so epsilon covers it."
)
PRIVATE = (
    "Everything outside public/, also this report, is for the operator of the server alone: it "
    "says which client answered when, and describes the messages of each client."
)


def write_training_report(directory: RunDirectory) -> TrainingReport:
    card, report = model_card.read_card(directory), assemble(directory)
    page = html.page(told(report, card))
    report_directory.write_report(directory.path, report_json(report.as_json()), page)
    return report


def assemble(directory: RunDirectory) -> TrainingReport:
    rounds: dict[int, NotedRound] = {}
    missing = []
    for event, _ in directory.events():
        if "round" in event:
            rounds[event["round"]] = NotedRound.of(event)  # of a round that was repeated, the last
        if "dropped" in event or "silent" in event:
            who = event.get("dropped", event.get("silent"))
            missing.append(Missing(who, event["of"], event["reason"]))
    course = [one for _, one in sorted(rounds.items())]
    contradictions = []
    if course:  # its last round has all alarms; early runs noted the limits alone
        limits, accused = course[-1].noise_at_most or {}, course[-1].noise_accused
        beyond = [name for name, limit in limits.items() if limit <= 1]
        contradictions = alarms(beyond if accused is None else accused, limits)
    run = directory.config.run
    return TrainingReport(run.name, contradictions, course, missing)


@dataclass(frozen=True)
class Towards:
    """What an observer may learn of a training; `right_at_most` is 1 where nothing is promised."""

    name: str
    words: StateWords
    right_at_most: float
    epsilon: float
    sees: str


def towards(report: TrainingReport, card: ModelCard) -> list[Towards]:
    return [_towards(report, card, one) for one in card.privacy.towards]


def _towards(report: TrainingReport, card: ModelCard, one: ReleasedTowards) -> Towards:
    limit, words = _right_at_most(card.privacy, one), state(report, card)
    if card.privacy.guaranteed and limit >= 1:
        server = one.vantage == "server"
        words = verdicts.MUST_BE_TRUSTED if server else verdicts.NO_PROTECTION
    elif words is verdicts.AGREES:
        words = verdicts.NOT_MEASURED  # the noise was measured, and no adversary
    epsilon = next(iter(one.epsilon.values()), math.inf)
    return Towards(one.vantage.replace("-", " "), words, limit, epsilon, one.sees)


def _right_at_most(privacy: Privacy, one: ReleasedTowards) -> float:
    if not privacy.guaranteed:
        return 1.0
    try:
        return share(rho_alpha(mechanism_towards(privacy, one)))
    except InputError:  # of steps that are unknown, or not covered, epsilon limits the advantage
        epsilon = next(iter(one.epsilon.values()), math.inf)
        return share(advantage_of_epsilon(epsilon, privacy.delta))


def state(report: TrainingReport, card: ModelCard) -> StateWords:
    """Return the state of the training, whichever the observer."""
    if report.alarms:
        return verdicts.CONTRADICTED
    if not card.privacy.guaranteed:
        return verdicts.NO_GUARANTEE
    watched = bool(report.rounds) and bool(report.rounds[-1].noise_at_most)
    return verdicts.AGREES if watched else verdicts.NOT_MEASURED


def told(report: TrainingReport, card: ModelCard) -> doc.Told:
    """Return what a training says, to the operator of the server."""
    privacy, seen = card.privacy, towards(report, card)
    of = "client with all its data" if privacy.unit == "client" else "record"
    return doc.Told(
        kind="Training",
        name=report.name,
        report=report.as_json(),
        played=f"{counted(card.rounds, 'round')}, {counted(card.clients, 'client')}",
        release=_release(report, card, seen),
        answer=[*_answer(card)],
        cautions=[f"Warning: {text}" for text in card.warnings],
        alarms=report.contradictions,
        observers=[_bar(each, card) for each in seen],
        headings=("Observer", "Limit", f"ε (δ = {privacy.delta:.3g})"),
        caption=f"How often an adversary can be right, at most, about whether one {of} was used.",
        legend=MEANT,
        steps=_steps(report, card, seen),
        sections=lambda: [*_sections(report, card, seen)],
        purpose=card.purpose,
        data=f"{card.data}, {card.records} records of {card.clients} clients",
        date=card.created[:10],
        limits=f"The guarantee is for one {privacy.unit} at a time. It covers what the rounds "
        "released. No attack on this training was simulated.",
    )


def _sections(
    report: TrainingReport, card: ModelCard, seen: Sequence[Towards]
) -> Iterator[doc.Block]:
    if card.privacy.guaranteed and not report.alarms and card.uncovered == []:
        yield doc.Prose(PUBLIC)
    yield from _figures(report)
    yield reading.part([each.words for each in seen], attacked=False)
    if card.utility is not None:
        yield from model_quality.quality_of(card.utility, str)
    if report.missing:
        missing = [
            ["unknown" if one.client is None else f"client-{one.client}", one.of, one.reason]
            for one in report.missing
        ]
        yield doc.Heading("Missing clients")
        yield doc.tabulated(["client", "of", "reason"], missing)


TRAINED = (
    "The limits follow from the noise (multiplier {privacy.noise_multiplier:.4g}); no attack was "
    "made."
)
OF_A_RECORD = "They are for one record: of a person with several, an adversary may learn more."


def _cells(one: Towards, card: ModelCard) -> list[str]:
    """Return the limits of an observer: of its right answers, and ε."""
    if not card.privacy.guaranteed or math.isinf(one.epsilon):
        return [percent(one.right_at_most), "none"]
    return [most(2 * one.right_at_most - 1, one.epsilon), number(one.epsilon)]


def _bar(one: Towards, card: ModelCard) -> doc.Bar:
    return doc.Bar(
        one.name,
        doc.Mark(one.words.kind, one.words.text),
        limit=one.right_at_most,
        remark=one.sees,
        cells=_cells(one, card),
    )


def _release(report: TrainingReport, card: ModelCard, observers: Sequence[Towards]) -> str:
    """Return whether the model may be shared."""
    if report.alarms:
        return release.CONTRADICTED
    if not card.privacy.guaranteed:
        return release.UNPROTECTED
    model = next((each for each in observers if each.name == "released model"), observers[-1])
    who, unit = "anyone with the model", card.privacy.unit
    sharing = "Sharing what the rounds released" if card.uncovered else "Sharing public/"
    covered = " ε does not cover all of public/: see the warnings." * bool(card.uncovered)
    return f"{release.decide(sharing, model.right_at_most, unit, who)}{covered}"


def _answer(card: ModelCard) -> Iterator[str]:
    reached = advice = ""
    if card.utility is not None:
        said, fault, advice = model_quality.learning(card.utility, card.task)
        learnt = judge(card.utility.measured(card.task)).has_learnt
        reached = f"{said} {fault}".strip() if learnt else fault  # which has the numbers too
    if not card.privacy.guaranteed:
        yield f"No guarantee of differential privacy. {card.privacy.note}"
    trained = f"{TRAINED.format(**vars(card))} {OF_A_RECORD * (card.privacy.unit == 'record')}"
    yield from filter(None, [reached, trained.rstrip(), advice, PRIVATE])


def _steps(report: TrainingReport, card: ModelCard, observers: Sequence[Towards]) -> list[str]:
    advice, guaranteed = state(report, card).advice, card.privacy.guaranteed
    unlimited = [each.name for each in observers if each.right_at_most >= 1]
    trusted = " and ".join(
        "the operator of the server" if name == "server" else f"every {name}" for name in unlimited
    )
    public = guaranteed and not report.alarms
    steps = {
        advice: bool(advice),
        f"Decide whether you trust {trusted}: no noise protects from them.": guaranteed and trusted,
        "Decide whether you may share what epsilon does not cover.": public and card.uncovered,
        "Decide whether the limit for anyone with the model is acceptable.": public,
    }
    return [step for step, applies in steps.items() if applies]


def _figures(report: TrainingReport) -> Iterator[doc.Figure]:
    rounds = report.rounds
    numbers = np.array([each.round for each in rounds], dtype=np.int64)
    if rounds and rounds[-1].accuracy is not None:
        values = [one.accuracy for one in rounds], [one.loss for one in rounds]
        curves = (RoundSeries(each, each, each) for each in values)
        caption = "Accuracy and loss (nats) on held-out records, after every round."
        figure = training_figures.utility(numbers.tolist(), *curves)
        yield doc.Figure("utility", figure, "", caption)
    if rounds and rounds[-1].noise_at_most:
        limits = {
            name: np.array([(each.noise_at_most or {}).get(name, math.inf) for each in rounds])
            for name in rounds[-1].noise_at_most
        }
        caption = (
            "Largest noise that fits the released sums and messages, divided by the claimed noise."
        )
        yield doc.Figure("noise", training_figures.noise_limits(numbers, limits), "", caption)
