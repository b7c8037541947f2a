"""The report of a run, for the engineer and for the person the engineer forwards it to.

`report` is the content of report.json, `transcript` the arrays behind it: worlds bool [T], and
log_odds, sensitivities, noise_stds float64 [T, k]. A value that is null prints as a dash, or as ∞
with its reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedsim.audits import one_training, residual_report
from fedsim.common import private_files
from fedsim.config import flatten
from fedsim.report import (
    bounds_report,
    crafted_section,
    guarantee_sections,
    one_run_section,
    one_training_section,
    precision_section,
    report_figures,
    residual_section,
    setting_sections,
)
from fedsim.report import report_sections as sections
from fedsim.report.report_figures import Transcript
from fedsim.report.report_rows import against
from fedsim.report.report_template import TEMPLATE
from fedsim.report.report_values import (
    DASH,
    Report,
    advantage_limit,
    at,
    confidence_of,
    epsilon_of,
    first_to_last,
    interval_at,
    is_client,
    is_pac,
    number,
    percent,
    plain,
    span,
    standard_errors_apart,
    yeom_bound,
)


@dataclass(frozen=True)
class Drawn:
    """A figure as it stands in the page."""

    title: str
    caption: str
    markup: Markup


class Pictures:
    """The figures of a run, drawn when they are first asked for and not again."""

    def __init__(self, report: Report, transcript: Mapping[str, Any]) -> None:
        self._report, self._transcript = report, transcript

    @cached_property
    def drawn(self) -> dict[str, tuple[str | bytes, str, str]]:
        """Name -> (SVG or PNG, title, caption)."""
        seen = Transcript.of(self._transcript)
        return {
            name: (report_figures.picture(figure), title, caption)
            for name, (figure, title, caption) in report_figures.drawn_figures(
                self._report, seen
            ).items()
        }


def render_html(report: Report, pictures: Pictures) -> str:
    """Return the report as one HTML page that needs no other file, script or network."""
    drawn = {
        name: Drawn(title, caption, report_figures.embedded(picture, name, f"{title} {caption}"))
        for name, (picture, title, caption) in pictures.drawn.items()
    }
    alone = one_training.is_single(report)
    return ENVIRONMENT.from_string(TEMPLATE).render(
        name=plain(at(report, "name")),
        scope=setting_sections.scope(report),
        verdict=one_training_section.verdict(report) if alone else sections.verdict(report),
        standing="" if alone else sections.standing(report),
        mark=against(
            report,
            sections.advantage_alarm(report),
            interval_at(report, "empirical.advantage_interval"),
            advantage_limit(report),
        ),
        alarm=sections.is_alarming(report),
        labels=guarantee_sections.labels(report),
        questions=sections.questions(report),
        game=sections.game(report),
        to_whom=drawn.pop("to-whom", None),
        utility=drawn.pop("utility", None),
        bayesian_figure=drawn.pop("bayesian", None),
        one_run=one_run_section.entries(report),
        one_run_reading=one_run_section.reading(report),
        one_run_figure=drawn.pop("one-run", None),
        budget=drawn.pop("budget", None),
        poison=drawn.pop("poison", None),
        budget_reading=guarantee_sections.budget(report)
        if report_figures.budget_by_round(report)
        else "",
        bounds_figure=drawn.pop("lower-bounds", None),
        profile_figure=drawn.pop("privacy-profile", None),
        figures=list(drawn.values()),
        trust=setting_sections.trust(report),
        vantages=guarantee_sections.vantages(report),
        training=setting_sections.training(report),
        released=guarantee_sections.released(report),
        bounds=guarantee_sections.bounds(report),
        pac=guarantee_sections.pac(report),
        pac_meaning=guarantee_sections.PAC_MEANING,
        crafted=crafted_section.entries(report),
        crafted_title=crafted_section.title(report),
        crafted_reading=crafted_section.reading(report),
        bayesian=guarantee_sections.bayesian(report),
        bayesian_reading=guarantee_sections.bayesian_reading(report),
        estimates=sections.estimates(report),
        lower_bounds=bounds_report.groups(report),
        agreement=bounds_report.agreement(report),
        confidence=confidence_of(report),
        prediction=sections.prediction(report),
        precision=precision_section.entries(report),
        residuals=residual_section.entries(report),
        residuals_meaning=residual_report.MEANING,
        inference=sections.inference(report),
        inference_missing=at(report, "membership_missing"),
        configuration=setting_sections.configuration(report),
        warnings=report["warnings"],
        everything=[(name, plain(value)) for name, value in flatten(report)],
        version=at(report, "versions.fedsim"),
        created=at(report, "created"),
    )


def write_figures(pictures: Pictures, directory: Path) -> list[Path]:
    """Write every figure into `directory`, as SVG, or as PNG where SVG would be too large.

    Returns the paths.
    """
    private_files.make_directory(directory)
    paths = []
    for name, (picture, _, _) in pictures.drawn.items():
        if isinstance(picture, str):
            path, content = directory / f"{name}.svg", picture.encode()
        else:
            path, content = directory / f"{name}.png", picture
        private_files.write(path, content)
        paths.append(path)
    return paths


def summary(report: Report) -> RenderableType:
    """Return what the terminal shows at the end of a run: every measure beside its limit."""
    level = at(report, "empirical.confidence")
    table = Table(
        title=Text(plain(at(report, "name"))),
        title_justify="left",
        caption=None if level is None else f"intervals and bounds (“at least”) at {percent(level)}",
    )
    for heading in ("", "measured", "interval", "theory"):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    limit = f"{'PAC' if is_pac(report) else 'ρα'} {number(advantage_limit(report))}"
    table.add_row("advantage", *_measured(report, "empirical.advantage"), limit)
    predicted = number(at(report, "prediction.advantage"))
    table.add_row("advantage predicted", predicted, "", standard_errors_apart(report))
    most = f"at most {number(at(report, 'bounds.tail_limit'))}"
    table.add_row("δ′", *_measured(report, "empirical.delta_prime"), most)
    if at(report, "membership_inference"):
        bound = "" if is_client(report) else yeom_bound(report)
        measured = _measured(report, "membership_inference.yeom.advantage")
        table.add_row("Yeom advantage", *measured, bound)
    seen = [place for place in guarantee_sections.vantages(report) if place["measured"] != DASH]
    for place in seen if len(seen) > 1 else ():
        mark = f" ({place['mark'].text.lower()})" if place["mark"] else ""
        table.add_row(
            Text(f"advantage, {place['vantage']}"),
            place["measured"],
            place["interval"],
            f"ρα {place['rho_alpha']}, predicted {place['predicted']}{mark}",
        )
    for row in sections.estimates(report):
        table.add_row(Text(f"ε′ {row.name}"), row.answer, "", f"ε {row.limit}")
    # The others are on the page: what leads, and what assumes least.
    shown = {bounds_report.leading(report), bounds_report.ASSUMES_LEAST}
    for name, row in bounds_report.rows(report).items():
        if name in shown:
            said = f" ({row.mark.text.lower()})" if row.mark and row.mark.kind != "good" else ""
            theory = Text(f"ε {row.limit}{said}")
            table.add_row(Text(f"ε′ at least, {row.name}"), row.answer, "", theory)
    if at(report, "bayesian"):
        answer = number(at(report, "bayesian.epsilon.mean"))
        table.add_row("ε Bayesian DP", answer, "", f"ε {epsilon_of(report, 'tight_epsilon')}")
    for name, value in one_run_section.summary(report):
        table.add_row(Text(name), value, "", f"ε {number(at(report, 'one_run.canary_epsilon'))}")
    table.add_row("accuracy", first_to_last(report, "accuracy", percent), "", "")
    labels = [Text(label.title, "bold") for label in guarantee_sections.labels(report)]
    if guaranteed := guarantee_sections.released(report):
        labels.append(Text(guaranteed))
    warnings = [Text(f"Warning: {text}", "yellow") for text in report["warnings"]]
    return Group(table, *labels, *warnings)


def _measured(report: Report, path: str) -> tuple[str, str]:
    """Return the value at a path and its interval, worded."""
    return number(at(report, path)), span(interval_at(report, f"{path}_interval"), number)


def _typeset(value: Any) -> Any:
    """Escape a value and set its ρα and ρβ in the paper's subscripts."""
    if isinstance(value, Markup):
        return value
    text = str(escape(DASH if value is None else value))
    for letter in "αβ":
        text = text.replace(f"ρ{letter}", f"ρ<sub>{letter}</sub>")
    return Markup(text)


ENVIRONMENT = Environment(
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_typeset,
    trim_blocks=True,
    lstrip_blocks=True,
)
