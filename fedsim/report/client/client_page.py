"""A client's own report: on its terminal, and as a page for its owner alone."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType

from fedsim.audits.results import verdicts
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
from fedsim.privacy.identifiability import advantage_of_epsilon
from fedsim.report.client.report import ClientReport, ClientTraining, Exposure, Signal
from fedsim.report.document import blocks as doc
from fedsim.report.document import first_screen, terminal
from fedsim.report.document.first_screen import OPEN, settled, share
from fedsim.report.document.html import render
from fedsim.report.document.wording import counted, number, percent
from fedsim.report.figures import training_figures
from fedsim.report.sections import risks as risk_section
from fedsim.report.sections import target

CONFIDENTIAL = (
    "Keep this report on this machine. Its numbers about single records have no noise, and they "
    "are not a guarantee."
)

EXPOSED = (
    "The numbers are for the adversary with the best view of this client's messages. They follow "
    "from the length of each record's clipped gradients in all rounds that were answered. "
    "“Allowed” is for a record whose gradient is clipped in all of these rounds."
)

Rows = list[list[str]]


def write_client_page(report: ClientReport, directory: Path) -> Path:
    report_directory.create(directory)
    page = render_html(report)
    return report_directory.write_report(directory, report_json(report.as_json()), page)


def verdict(report: ClientReport) -> str:
    budget = report.budget
    together = ""
    if budget.client_epsilon is not None:
        together = f" For all its records together, it is {number(budget.client_epsilon)}."
    return (
        f"In {counted(len(report.runs), 'run')}, this client answered "
        f"{counted(budget.answers, 'message')}. This cost each of its records epsilon "
        f"{number(budget.epsilon)}, of a budget of {number(budget.epsilon_limit)}, at delta "
        f"{budget.delta:g}.{together}"
    )


def summary(report: ClientReport) -> RenderableType:
    parts: list[doc.Block | RenderableType] = [
        doc.Prose(verdict(report)),
        doc.tabulated(RUNS, _run_rows(report)),
    ]
    for training in report.trainings:
        if exposure := _exposure(training):
            table = doc.tabulated(["", *HOW], _exposures(exposure))
            parts.append(terminal.table(table, training.name))
        parts += map(doc.Prose, _said(training))
    return terminal.shown(*parts, doc.Label(CONFIDENTIAL))


def render_html(report: ClientReport) -> str:
    blocks: list[doc.Block] = [
        doc.Label("", CONFIDENTIAL, alarming=True),
        doc.Heading("Releases"),
        doc.tabulated(RUNS, _run_rows(report)),
    ]
    for training in report.trainings:
        blocks.append(doc.Heading(f"{training.name}: exposure of single records"))
        if exposure := _exposure(training):
            most = [[str(place), *_how(one)] for place, one in exposure.most_exposed.items()]
            blocks += [doc.Prose(EXPOSED), doc.tabulated(["", *HOW], _exposures(exposure))]
            blocks.append(doc.tabulated(["record", *HOW], most))
            if training.measured and training.measured.shown is not None:
                record = f"Record {most[0][0]}, the most exposed"
                why = "This page is for its owner alone."
                blocks.append(target.record(training.measured.shown, record, why))
        blocks += map(doc.Prose, _said(training))
    for training in report.trainings:
        if (exposure := _exposure(training)) and len(exposure.rounds):
            caption = (
                f"{training.name}: share of this client's gradients that were clipped, by round."
            )
            figure = training_figures.clipped_share(exposure.rounds, exposure.clipped)
            blocks.append(doc.Figure("clipped", figure, "", caption))
    return render(
        doc.Document(
            title=f"Client {report.client}: exposure of its records",
            kind="Client's own report",
            heading=f"Client {report.client}",
            first=_first(report),
            blocks=blocks,
        )
    )


def _exposure(training: ClientTraining) -> Exposure | None:
    return None if training.measured is None else training.measured.exposure


MOST = 5


def _first(report: ClientReport) -> doc.FirstScreen:
    budget = report.budget
    limit = advantage_of_epsilon(budget.epsilon_limit, budget.delta)
    runs = [
        [f"{run.name} ({run.run})", number(run.epsilon), number(run.epsilon_after)]
        for run in report.runs[-MOST:]
    ]
    bars = [bar for training in report.trainings[-MOST:] for bar in _bars(training)]
    caption = "Largest share of right answers about one of this client's records."
    return doc.FirstScreen(
        answer=[verdict(report)],
        alarming=budget.epsilon > budget.epsilon_limit,
        figure=doc.Bars(bars, caption, share(limit)) if bars else None,
        table=doc.tabulated(("Run", "Its ε", "ε so far"), runs) if runs else None,
        checks=_checks(report),
        steps=_steps(report),
        sign_off=first_screen.sign_off(
            data=f"the records of client {report.client}",
            date=report.created[:10],
            limits="This page is about what left this machine. It is not a guarantee.",
        ),
    )


def _bars(training: ClientTraining) -> Iterator[doc.Bar]:
    measured = training.measured
    if measured is None:
        return
    limit = None if measured.advantage_bound is None else share(measured.advantage_bound)
    if measured.exposure is not None:
        right, words = share(measured.exposure.highest.advantage), verdicts.NOT_MEASURED
        mark, how = doc.Mark(words.kind, words.text), "its gradients allow"
        yield doc.Bar(f"{training.name}: most exposed record", mark, right, None, limit, how=how)
    if measured.attack is not None:
        right, words = share(measured.attack.advantage), verdicts.CANNOT_TELL
        mark = doc.Mark(words.kind, words.text)
        yield doc.Bar(f"{training.name}: attack by losses", mark, right, None, limit)


def _checks(report: ClientReport) -> list[doc.Check]:
    checks = [
        settled(
            report.budget.epsilon <= report.budget.epsilon_limit,
            "What was released is within the client's budget.",
            "What was released exceeds the client's budget.",
        )
    ]
    for training in report.trainings:
        if training.measured is None:
            text = "the records that took part are gone, so nothing was measured."
        elif training.measured.attack is None:
            text = "no attack on the model was run."
        else:  # a best threshold, chosen afterwards, has no interval
            text = "the attack by losses has no interval to compare with the limit."
        checks.append(doc.Check(OPEN, f"{training.name}: {text}"))
    return checks


def _steps(report: ClientReport) -> list[str]:
    left = report.budget.epsilon_limit - report.budget.epsilon
    budget_left = f"About ε = {number(left)} of the budget is left for further trainings."
    if left <= 0:
        budget_left = "The budget is spent: join no further training, or agree to a larger budget."
    if any(each.measured and each.measured.attack is None for each in report.trainings):
        return [budget_left, "To run an attack, give records that took no part with --others."]
    return [budget_left]


RUNS = [
    *("run", "first", "last", "rounds", "models kept", "trials", "noise multiplier", "its ε"),
    "ε so far",
]
HOW = ["μ", "ε", "advantage"]


def _run_rows(report: ClientReport) -> Rows:
    return [
        [
            f"{run.name} ({run.run})",
            run.first,
            run.last,
            str(run.rounds),
            str(run.models_kept),
            str(run.trials),
            number(run.noise_multiplier),
            number(run.epsilon) if run.charged else "not charged",
            number(run.epsilon_after),
        ]
        for run in report.runs
    ]


def _exposures(exposure: Exposure) -> Rows:
    return [
        ["half of the records, at most", *_how(exposure.median)],
        ["the most exposed record", *_how(exposure.highest)],
        ["allowed", *_how(exposure.allowed)],
    ]


def _how(one: Signal) -> list[str]:
    return [number(one.mu), number(one.epsilon), number(one.advantage)]


def _said(training: ClientTraining) -> Iterator[str]:
    measured = training.measured
    if measured is None:
        yield (
            f"{training.name}: data-path no longer holds the records that took part, so their "
            "exposure is not measured."
        )
        return
    exposure, attack = measured.exposure, measured.attack
    if sentence := risk_section.sentence({"any other party": measured.risks}):
        yield f"{sentence} This holds for each record, by the noise that was charged."
    if exposure is None:
        yield (
            "The noise of this training protects the client as a whole, so the exposure of single "
            "records is not measured."
        )
    else:
        kept = len(exposure.rounds)
        if kept:
            yield (
                f"Of the gradients of {measured.records} records in {counted(kept, 'round')}, "
                f"{percent(float(exposure.clipped.mean()))} were clipped."
            )
        if kept < exposure.answered:
            yield (
                f"Of {counted(exposure.answered, 'answered round')}, the models of "
                f"{exposure.answered - kept} were not kept. There every record counts as clipped, "
                "so these numbers are upper limits."
            )
        if measured.sampling_rate < 1:
            yield (
                "Records took part at random. These numbers assume a record that took part in "
                "every round, so they are upper limits."
            )
    if attack is None:
        yield (
            "No attack on a model was run. Give at least 20 records that took no part with "
            "--others."
        )
    else:
        yield (
            f"An attack by the losses of {attack.model} compared {attack.members} own records with "
            f"{attack.others} others: area under the curve {number(attack.area)}, advantage "
            f"{number(attack.advantage)} at the best threshold (chosen afterwards). The noise "
            f"allows {number(measured.advantage_bound)}."
        )
