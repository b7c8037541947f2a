"""What the model is worth."""

from dataclasses import asdict

from fedsim.figures import training_figures
from fedsim.pages.blocks import Figure
from fedsim.pages.wording import number
from fedsim.report.sections.facts import accuracies
from fedsim.report.sections.section import Section, Transcript
from fedsim.results.report import Report


def _figures(report: Report, _: Transcript) -> list[Figure]:
    found = report.utility
    losses = found.loss.mean
    return [
        Figure(
            "utility",
            training_figures.utility(found.rounds, asdict(found.accuracy), asdict(found.loss)),
            "Utility of the global model.",
            f"Mean and 5–95% band of {found.trials} trials on "
            f"{found.records} records: accuracy {accuracies(report)}, loss "
            f"{number(losses[0])} → {number(losses[-1])}.",
        )
    ]


SECTION = Section("What the model is worth", figures=_figures)
