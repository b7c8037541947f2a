"""The report of `fedsim choose`: a table, a page, report.json, and a configuration to run."""

import shlex
from dataclasses import asdict, replace
from math import nan
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from fedsim import config as configuration
from fedsim.common import private_files, report_directory
from fedsim.common.foreign_text import shown
from fedsim.common.strict_json import strict_json
from fedsim.federation.runs.run_directory import SUMMARY
from fedsim.learning.data import distribution
from fedsim.report.document import blocks as doc
from fedsim.report.document import terminal
from fedsim.report.document.first_screen import FAILED, OPEN, PASSED
from fedsim.report.document.html import render
from fedsim.report.document.wording import DASH, number, percent, span
from fedsim.studies.choose import choose, choose_words, recommendation, sweep
from fedsim.studies.choose.choose import RISK, Candidate
from fedsim.studies.choose.choose_search import KIND, Result

CONFIG = "config.toml"
"""The configuration of the chosen setting, in the search's directory."""

HEADINGS = (
    *("setting", "noise z", "ε", "right in at most", "limit"),
    *("mean accuracy", "least recall", "one training's", "measured adv."),
)


IN_SHORT = [
    HEADINGS.index(name) for name in ("setting", "ε", "right in at most", "limit", "mean accuracy")
]
"""The columns that a terminal of 80 characters has room for."""


def table(result: Result) -> RenderableType:
    """Return the table for the terminal, with the columns that decide."""
    cells = [[row[place] for place in IN_SHORT] for row in _cells(result)]
    title = f"Settings; the limit: {choose_words.limit(result)}"
    caption = f"{choose_words.caption_of_accuracy(result)} The page has all columns."
    settings = doc.tabulated([HEADINGS[place] for place in IN_SHORT], cells)
    return terminal.table(settings, title, caption, dense=True)


def summary(result: Result) -> list[doc.Block]:
    """Return the answer and the settings, for a notebook."""
    return [
        *map(doc.Prose, choose_words.sentences(result)),
        doc.tabulated(HEADINGS, _cells(result)),
    ]


def document(result: Result) -> dict[str, Any]:
    """Return report.json: the request, the settings, the choice, and what the search costs."""
    request, choice, config = result.request, result.choice, result.config
    written: dict[str, Any] = strict_json(
        {
            "kind": KIND,
            "name": config.run.name,
            "state": choice.state,
            "sentences": choose_words.sentences(result),
            "limit": {
                **request.limit.numbers,
                "tail_limit": choose_words.tail_limit(result),
                "against": config.federation.vantage.value,
                "trust": config.federation.trust.value,
                "delta": config.privacy.delta,
                "accountant": config.privacy.accountant,
            },
            "varied": {
                key: list(tried)
                for key, tried in choose.varied(request.limit, request.over).items()
            },
            "towards": [asdict(each) for each in choice.chosen.towards] if choice.chosen else [],
            "min_accuracy": request.min_accuracy,
            "confidence_of_accuracy_together": config.audit.confidence,
            "chosen": _named(choice.chosen),
            "least_noise": [each.name for each in choice.least],
            "strictest_near_the_best": _named(choice.strictest),
            "nearest": [each.name for each in choice.nearest],
            "search_cost": None if result.cost is None else asdict(result.cost),
            "search_cost_within_limit": result.cost_within and asdict(result.cost_within),
            "settings": rows(result),
        }
    )
    return written


def rows(result: Result) -> list[dict[str, Any]]:
    """Return a row for each run: the columns of a sweep, and those that decide the choice."""
    candidates = {each.name: each for each in result.choice.candidates}
    made = []
    for row in sweep.rows(result.outcomes):
        each = candidates.get(row["run"])
        ends = each and each.accuracy_interval
        own = {
            "noise_multiplier": each and each.noise_multiplier,
            "right_at_most": each and each.right_at_most,
            "rho_beta": each and each.rho_beta,
            "risk": each and each.risk,
            "meets_limit": each and each.meets,
            "chosen": each is not None and each is result.choice.chosen,
            "accuracy_low_together": ends and ends.low,
            "accuracy_high_together": ends and ends.high,
            "single_accuracy_low": each and each.band and each.band[0],
            "single_accuracy_high": each and each.band and each.band[1],
        }
        made.append(row | own)
    return made


def write_choice(result: Result, directory: Path) -> Path:
    """Write the page, report.json, summary.csv and config.toml; return the path of the page.

    Raises:
        InputError: the directory holds another kind of report.
        OSError: a file cannot be written.
    """
    from fedsim.report.figures import canvas  # noqa: PLC0415  (matplotlib is slow to import)

    made, figure = document(result), frontier(result)
    name = result.config.run.name
    caption = (
        "Accuracy of the model against the limit on how often the adversary is right. Each point "
        f"is a setting. Vertical lines are intervals of the mean accuracy. {_caption(result)}"
    )
    blocks: list[doc.Block] = [doc.Heading("Accuracy against the adversary")]
    if figure:
        blocks.append(doc.Figure("frontier", figure, "", caption))
    blocks += [
        doc.Heading("The settings"),
        doc.tabulated(HEADINGS, _cells(result)),
        sweep.runs(result.outcomes),
        doc.Heading("What the search itself costs in privacy"),
        doc.Prose(choose_words.NO_GUARANTEE),
        doc.tabulated(("How", "ε", "What it assumes"), choose_words.cost(result)),
        doc.Heading("What this does not say"),
        doc.Bullets(list(choose_words.limits_of_the_page(result))),
    ]
    sentences = choose_words.sentences(result)
    left_out = [each for each in sentences if each.startswith("Left out: ")]
    if left_out:
        blocks.append(doc.Part("Settings that were left out", [doc.Bullets(left_out)], folded=True))
    answer = [each for each in sentences if each not in left_out]
    first = recommendation.first(result.outcomes, answer, result.config.data.name)
    mark = {"chosen": PASSED, "cannot tell": OPEN}.get(result.choice.state, FAILED)
    meets = f"A setting that meets the limit can be chosen: {choose_words.limit(result)}."
    steps: list[doc.Words] = [
        (f"{what}: ", doc.Code(command)) for what, command in commands(result, directory)
    ]
    if result.choice.chosen is None:
        steps = ["Try more noise, more rounds or more trials. The table below shows all settings."]
    first = replace(first, checks=[doc.Check(mark, meets), *first.checks], steps=steps)
    page = render(doc.Document(f"Choosing ε for {name}", "Choice of noise", name, first, blocks))
    files = {SUMMARY: sweep.as_csv(made["settings"])}
    if figure:
        files |= {"figures/frontier.svg": canvas.to_svg(figure)}
    private_files.make_directory(directory / "figures")
    for path, content in files.items():
        private_files.write_private(directory / path, content.encode())
    place = report_directory.write_report(directory, made, page)
    if result.choice.chosen:
        text = configuration.dump(result.config)
        private_files.write_private(directory / CONFIG, text.encode())
    else:  # an earlier search in this directory may have left one
        (directory / CONFIG).unlink(missing_ok=True)
    return place


def commands(result: Result, directory: Path) -> list[tuple[str, str]]:
    """Return the next steps with the chosen setting: a few words and the command, each."""
    place = shlex.quote(str(directory / CONFIG))
    steps = [("Measure it", f"fedsim run {place}")]
    if result.config.privacy.sensitivity == "local":  # that noise is not a DP guarantee
        return steps
    protecting = "--set privacy.noise-source=system"
    if result.config.federation.summed_in_the_clear:
        protecting += " --set federation.secure-aggregation=secagg+"
    train = "Train the model with it"
    data = result.config.data
    whole = distribution.dataset(data, result.config.model.weights)
    available = len(whole.train.labels) - (data.held_out if whole.test is None else 0)
    if available > data.records:
        train += f", on {data.records:,} of {available:,} records "
        train += f"(--set data.records={available} takes all)"
    return [*steps, (train, f"fedsim train {place} {protecting}")]


def frontier(result: Result) -> Any:
    """Return the figure of accuracy against the adversary; None if every run failed."""
    from fedsim.report.figures import training_figures  # noqa: PLC0415

    if not result.choice.candidates:
        return None
    least = {each.others: each for each in result.choice.least}
    series = []
    combinations = list(dict.fromkeys(each.others for each in result.choice.candidates))
    for others in combinations:
        alike = sorted(
            (each for each in result.choice.candidates if each.others == others),
            key=lambda each: each.rho_alpha,
        )
        ends = [each.accuracy_interval for each in alike]
        series.append(
            training_figures.NoiseSeries(
                label=choose_words.values(dict(others)) if len(combinations) > 1 else "",
                right_at_most=[each.right_at_most for each in alike],
                accuracy=[nan if each.accuracy is None else each.accuracy for each in alike],
                low=[nan if each is None else each.low for each in ends],
                high=[nan if each is None else each.high for each in ends],
                limit=least[others].right_at_most if others in least else None,
            )
        )
    chosen = result.choice.chosen
    place = None
    if chosen is not None and chosen.accuracy is not None:
        place = chosen.right_at_most, chosen.accuracy
    return training_figures.frontier(
        series, f"limit: {choose_words.limit_in_short(result)}", place, result.request.min_accuracy
    )


def _caption(result: Result) -> str:
    level = percent(result.config.audit.confidence)
    return (
        f"{choose_words.caption_of_accuracy(result)} Measured advantage: each interval at {level}. "
        "One training's accuracy: from the 5th to the 95th percentile."
    )


def _cells(result: Result) -> list[list[str]]:
    candidates = {each.name: each for each in result.choice.candidates}
    cells = []
    for outcome in result.outcomes:
        each, name = candidates.get(outcome.point.name), choose_words.values(outcome.point.values)
        if each is None:
            cells.append([name, *[DASH] * 7, "failed"])
            continue
        mark = " ← chosen" if each is result.choice.chosen else ""
        between, least = each.accuracy_interval, each.least_recall
        ends = between and between.ends
        cells.append(
            [
                name + mark,
                number(each.noise_multiplier),
                number(each.epsilon),
                percent(each.right_at_most),
                ("meets" if each.meets else "exceeds")
                + (f"\n(risk {percent(each.risk)})" if result.request.limit.key == RISK else "")
                + ("\nCONTRADICTS THEORY" if each.alarm else ""),
                _with_ends(percent(each.accuracy), span(ends, percent)),
                DASH if least is None else f"{percent(least[1])}\n(class {shown(least[0])})",
                span(each.band, percent) or DASH,
                _with_ends(number(each.advantage), span(each.advantage_interval, "{:.2f}".format)),
            ]
        )
    return cells


def _with_ends(point: str, ends: str) -> str:
    return f"{point}\n({ends})" if ends else point


def _named(each: Candidate | None) -> str | None:
    return None if each is None else each.name
