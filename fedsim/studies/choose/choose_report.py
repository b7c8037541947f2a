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
from fedsim.report.document import terminal
from fedsim.report.document.blocks import (
    Block,
    Bullets,
    Check,
    Code,
    Document,
    Figure,
    Heading,
    Part,
    Prose,
    Words,
    tabulated,
)
from fedsim.report.document.first_screen import FAILED, OPEN, PASSED
from fedsim.report.document.html import render
from fedsim.report.document.wording import DASH, number, percent, span
from fedsim.studies.choose import choose, choose_words, recommendation, sweep
from fedsim.studies.choose.choose import Candidate
from fedsim.studies.choose.choose_search import KIND, Found

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


def table(found: Found) -> RenderableType:
    """Return the table for the terminal, with the columns that decide."""
    cells = [[row[place] for place in IN_SHORT] for row in _cells(found)]
    title = f"Settings; the limit: {choose_words.limit(found)}"
    caption = f"{choose_words.caption_of_accuracy(found)} The page has all columns."
    settings = tabulated([HEADINGS[place] for place in IN_SHORT], cells)
    return terminal.table(settings, title, caption, dense=True)


def summary(found: Found) -> list[Block]:
    """Return the answer and the settings, for a notebook."""
    return [*map(Prose, choose_words.sentences(found)), tabulated(HEADINGS, _cells(found))]


def document(found: Found) -> dict[str, Any]:
    """Return report.json: the request, the settings, the choice, and what the search costs."""
    request, choice, config = found.request, found.choice, found.config
    written: dict[str, Any] = strict_json(
        {
            "kind": KIND,
            "name": config.run.name,
            "state": choice.state,
            "sentences": choose_words.sentences(found),
            "limit": {
                request.limit.kind: request.limit.value,
                "tail_limit": choose_words.tail_limit(found),
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
            "search_cost": None if found.cost is None else asdict(found.cost),
            "search_cost_within_limit": found.cost_within and asdict(found.cost_within),
            "settings": rows(found),
        }
    )
    return written


def rows(found: Found) -> list[dict[str, Any]]:
    """Return a row for each run: the columns of a sweep, and those that decide the choice."""
    candidates = {each.name: each for each in found.choice.candidates}
    made = []
    for row in sweep.rows(found.outcomes):
        each = candidates.get(row["run"])
        ends = each and each.accuracy_interval
        own = {
            "noise_multiplier": each and each.noise_multiplier,
            "right_at_most": each and each.right_at_most,
            "rho_beta": each and each.rho_beta,
            "meets_limit": each and each.meets,
            "chosen": each is not None and each is found.choice.chosen,
            "accuracy_low_together": ends and ends.low,
            "accuracy_high_together": ends and ends.high,
            "single_accuracy_low": each and each.band and each.band[0],
            "single_accuracy_high": each and each.band and each.band[1],
        }
        made.append(row | own)
    return made


def write(found: Found, directory: Path) -> Path:
    """Write the page, report.json, summary.csv and config.toml; return the path of the page.

    Raises:
        InputError: the directory holds another kind of report.
        OSError: a file cannot be written.
    """
    from fedsim.report.figures import canvas  # noqa: PLC0415  (matplotlib is slow to import)

    made, figure = document(found), frontier(found)
    name = found.config.run.name
    caption = (
        "Accuracy of the model against the limit on how often the adversary is right. Each point "
        f"is a setting. Vertical lines are intervals of the mean accuracy. {_caption(found)}"
    )
    blocks: list[Block] = [Heading("Accuracy against the adversary")]
    if figure:
        blocks.append(Figure("frontier", figure, "", caption))
    blocks += [
        Heading("The settings"),
        tabulated(HEADINGS, _cells(found)),
        sweep.runs(found.outcomes),
        Heading("What the search itself costs in privacy"),
        Prose(choose_words.NO_GUARANTEE),
        tabulated(("How", "ε", "What it assumes"), choose_words.cost(found)),
        Heading("What this does not say"),
        Bullets(list(choose_words.limits_of_the_page(found))),
    ]
    sentences = choose_words.sentences(found)
    left_out = [each for each in sentences if each.startswith("Left out: ")]
    if left_out:
        blocks.append(Part("Settings that were left out", [Bullets(left_out)], folded=True))
    answer = [each for each in sentences if each not in left_out]
    first = recommendation.first(found.outcomes, answer, found.config.data.name)
    mark = {"chosen": PASSED, "cannot tell": OPEN}.get(found.choice.state, FAILED)
    meets = f"A setting that meets the limit can be chosen: {choose_words.limit(found)}."
    steps: list[Words] = [
        (f"{what}: ", Code(command)) for what, command in commands(found, directory)
    ]
    if found.choice.chosen is None:
        steps = ["Try more noise, more rounds or more trials. The table below shows all settings."]
    first = replace(first, checks=[Check(mark, meets), *first.checks], steps=steps)
    page = render(Document(f"Choosing ε for {name}", "Choice of noise", name, first, blocks))
    files = {SUMMARY: sweep.as_csv(made["settings"])}
    if figure:
        files |= {"figures/frontier.svg": canvas.to_svg(figure)}
    private_files.make_directory(directory / "figures")
    for path, content in files.items():
        private_files.write(directory / path, content.encode())
    place = report_directory.write_report(directory, made, page)
    if found.choice.chosen:
        text = configuration.dump(found.config)
        private_files.write(directory / CONFIG, text.encode())
    else:  # an earlier search in this directory may have left one
        (directory / CONFIG).unlink(missing_ok=True)
    return place


def commands(found: Found, directory: Path) -> list[tuple[str, str]]:
    """Return the next steps with the chosen setting: a few words and the command, each."""
    place = shlex.quote(str(directory / CONFIG))
    steps = [("Measure it", f"fedsim run {place}")]
    if found.config.privacy.sensitivity == "local":  # that noise is not a DP guarantee
        return steps
    protecting = "--set privacy.noise-source=system"
    if found.config.federation.summed_in_the_clear:
        protecting += " --set federation.secure-aggregation=secagg+"
    train = "Train the model with it"
    data, whole = found.config.data, distribution.dataset(found.config)
    available = len(whole.train.labels) - (data.held_out if whole.test is None else 0)
    if available > data.records:
        train += f", on {data.records:,} of {available:,} records "
        train += f"(--set data.records={available} takes all)"
    return [*steps, (train, f"fedsim train {place} {protecting}")]


def frontier(found: Found) -> Any:
    """Return the figure of accuracy against the adversary; None if every run failed."""
    from fedsim.report.figures import study_figures  # noqa: PLC0415

    if not found.choice.candidates:
        return None
    least = {each.others: each for each in found.choice.least}
    series = []
    combinations = list(dict.fromkeys(each.others for each in found.choice.candidates))
    for others in combinations:
        alike = sorted(
            (each for each in found.choice.candidates if each.others == others),
            key=lambda each: each.rho_alpha,
        )
        ends = [each.accuracy_interval for each in alike]
        series.append(
            study_figures.Series(
                label=choose_words.values(dict(others)) if len(combinations) > 1 else "",
                right_at_most=[each.right_at_most for each in alike],
                accuracy=[nan if each.accuracy is None else each.accuracy for each in alike],
                low=[nan if each is None else each.low for each in ends],
                high=[nan if each is None else each.high for each in ends],
                limit=least[others].right_at_most if others in least else None,
            )
        )
    chosen = found.choice.chosen
    place = None
    if chosen is not None and chosen.accuracy is not None:
        place = chosen.right_at_most, chosen.accuracy
    return study_figures.frontier(
        series, f"limit: {choose_words.limit_in_short(found)}", place, found.request.min_accuracy
    )


def _caption(found: Found) -> str:
    level = percent(found.config.audit.confidence)
    return (
        f"{choose_words.caption_of_accuracy(found)} Measured advantage: each interval at {level}. "
        "One training's accuracy: from the 5th to the 95th percentile."
    )


def _cells(found: Found) -> list[list[str]]:
    candidates = {each.name: each for each in found.choice.candidates}
    cells = []
    for outcome in found.outcomes:
        each, name = candidates.get(outcome.point.name), choose_words.values(outcome.point.values)
        if each is None:
            cells.append([name, *[DASH] * 7, "failed"])
            continue
        mark = " ← chosen" if each is found.choice.chosen else ""
        between, least = each.accuracy_interval, each.least_recall
        ends = None if between is None else (between.low, between.high)
        cells.append(
            [
                name + mark,
                number(each.noise_multiplier),
                number(each.epsilon),
                percent(each.right_at_most),
                ("meets" if each.meets else "exceeds")
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
