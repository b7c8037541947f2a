"""The report of `fedsim choose`: a table, a page, report.json, and a configuration to run."""

import shlex
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from fedsim import configuration
from fedsim.common import private_files, report_directory
from fedsim.common.strict_json import strict_json
from fedsim.configuration.jobs import KEYS
from fedsim.federation.runs.run_directory import SUMMARY
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import first_screen, terminal
from fedsim.reports.document.first_screen import FAILED, OPEN, PASSED
from fedsim.reports.document.html import render
from fedsim.reports.document.wording import DASH, number, percent, plain, span
from fedsim.studies.choose import choose_words, rule, sweep
from fedsim.studies.choose.choose_search import KIND, MODEL, NORM, RATE, ROUNDS, Result
from fedsim.studies.choose.rule import Candidate

CONFIG = "config.toml"
"""The configuration of the chosen setting, in the search's directory."""


def table(result: Result) -> RenderableType:
    """Return the table for the terminal."""
    title = f"Settings; the limit: {choose_words.limit(result)}"
    return terminal.table(_settings(result), title, caption(result), dense=True)


def terminal_of(result: Result, directory: Path) -> RenderableType:
    """Return the answer for the terminal: the settings, the bounds, the next commands."""
    last = list(choose_words.for_a_manager(result))
    said = [each for each in choose_words.sentences(result) if each not in last]
    steps = [f"{what}: {command}" for what, command in commands(result, directory)]
    return terminal.shown(table(result), *towards(result), *map(doc.Prose, [*said, *steps, *last]))


def summary(result: Result) -> list[doc.Block]:
    """Return the answer, the settings and the bounds, for a notebook."""
    return [*map(doc.Prose, choose_words.sentences(result)), _settings(result), *towards(result)]


def towards(result: Result) -> list[doc.Block]:
    """Return the bounds of the chosen setting towards every vantage; [] without a setting."""
    if result.choice.chosen is None:
        return []
    federation = result.config.federation
    assumed = ", if sums are securely aggregated" if federation.summed_in_the_clear else ""
    rows = [
        [
            bounds.vantage.replace("-", " ") + assumed * (bounds.vantage == "server"),
            number(bounds.epsilon),
            percent(bounds.rho_beta),
            percent((1 + bounds.rho_alpha) / 2),
        ]
        for bounds in result.choice.chosen.towards
    ]
    vantage = f"vantage, with {federation.trust} trust"
    return [doc.tabulated((vantage, "ε", "belief at most", "right in at most"), rows)]


def document(result: Result) -> dict[str, Any]:
    """Return report.json: the request, the settings and the choice."""
    request, choice, config = result.request, result.choice, result.config
    written: dict[str, Any] = strict_json(
        {
            "kind": KIND,
            "name": config.run.name,
            "question": result.question,
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
            "least": None if request.least is None else dict([request.least]),
            "records": {"trained": config.data.records, "available": result.records},
            "answers_for_noise_alone": result.of_noise,
            "tried": result.tried,
            "without_privacy": result.plain,
            "towards": [asdict(each) for each in choice.chosen.towards] if choice.chosen else [],
            "chosen": choice.chosen and dict(choice.chosen.values),
            "strictest_near_the_best": choice.strictest and dict(choice.strictest.values),
            "nearest": [dict(each.values) for each in choice.nearest],
            "settings": rows(result),
        }
    )
    return written


def rows(result: Result) -> list[dict[str, Any]]:
    """Return a row for each setting that was trained on all records."""
    return [_row(each, each is result.choice.chosen) for each in result.choice.candidates]


def _row(each: Candidate, chosen: bool) -> dict[str, Any]:
    utility, judged = each.utility, each.utility.criterion
    low, high = judged.interval or (None, None)
    measures = {
        name.lower().replace(" ", "_"): utility.measures[name].value
        if name in utility.measures
        else None
        for name in ("accuracy", "balanced accuracy", "AUC")
    }
    return {
        **each.values,
        "noise_multiplier": each.noise_multiplier,
        "epsilon": each.epsilon,
        "rho_beta": each.rho_beta,
        "rho_alpha": each.rho_alpha,
        "right_at_most": each.right_at_most,
        "risk": each.risk,
        "meets_limit": each.meets,
        "chosen": chosen,
        "criterion": judged.name,
        "value": judged.value,
        "low": low,
        "high": high,
        "constant": judged.constant,
        **measures,
        "least_recall": utility.least_recall and utility.least_recall[1],
        "trainings": utility.trainings,
        "spread": utility.spread,
    }


def write_choice(result: Result, directory: Path) -> Path:
    """Write the page, report.json, summary.csv and config.toml; return the path of the page.

    Raises:
        InputError: the directory holds another kind of report.
        OSError: a file cannot be written.
    """
    made, figure, name = document(result), frontier(result), result.config.run.name
    against = (
        "The model against the limit on how often the adversary is right. Each point is the best "
        "setting of a model at a noise level. Vertical lines are intervals at 95%."
    )
    blocks: list[doc.Block] = [
        doc.Heading("The model against the adversary"),
        doc.Figure("frontier", figure, "", against),
        doc.Heading("The settings"),
        _settings(result),
        doc.Prose(caption(result), small=True),
        *towards(result),
        doc.Heading("What the search itself costs in privacy"),
        doc.Prose(choose_words.NO_GUARANTEE),
        doc.Heading("What this does not say"),
        doc.Bullets(list(choose_words.limits_of_the_page(result))),
    ]
    page = render(
        doc.Document(
            f"Choosing ε for {name}", "Choice of noise", name, _first(result, directory), blocks
        )
    )
    files = {SUMMARY: sweep.as_csv(made["settings"]), "figures/frontier.svg": figure.picture}
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


def _first(result: Result, directory: Path) -> doc.FirstScreen:
    mark = {"chosen": PASSED, "cannot tell": OPEN}.get(result.choice.state, FAILED)
    meets = f"A setting that meets the limit can be chosen: {choose_words.limit(result)}."
    checks = [doc.Check(mark, meets)]
    steps: list[doc.Words] = [
        (f"{what}: ", doc.Code(command)) for what, command in commands(result, directory)
    ]
    if result.choice.chosen is None:
        steps = (
            list(choose_words.advice(result))
            if any(each.meets for each in result.choice.candidates)
            else []
        )
    return doc.FirstScreen(
        answer=choose_words.sentences(result),
        checks=checks,
        steps=steps,
        sign_off=first_screen.sign_off(
            data=result.config.data.name,
            date=first_screen.today(),
            limits="Limits are from theory; models were judged on held-out records of one source.",
        ),
    )


def commands(result: Result, directory: Path) -> list[tuple[str, str]]:
    """Return the next steps with the chosen setting: a few words and the command, each."""
    if result.choice.chosen is None:
        return []
    place = shlex.quote(str(directory / CONFIG))
    protecting = "privacy.noise-source=system"
    if result.config.federation.summed_in_the_clear:
        protecting += " federation.secure-aggregation=secagg+"
    train, data = "Train the model with it", result.config.data
    if result.records > data.records:
        train += f", on {data.records:,} of {result.records:,} records "
        train += f"(data.records={result.records} takes all)"
    return [
        ("Measure the adversary", f"fedsim run {place}"),
        (train, f"fedsim train {place} {protecting}"),
    ]


def frontier(result: Result) -> Any:
    """Return the figure of the model's criterion against the adversary."""
    from fedsim.reports.figures import training_figures  # noqa: PLC0415

    request, settings = result.request, result.choice.candidates
    series = []
    for name in dict.fromkeys(_family(each) for each in settings):
        alike = [each for each in settings if _family(each) == name]
        ends = [each.utility.criterion.interval or (nan, nan) for each in alike]
        meeting = [each.right_at_most for each in alike if each.meets]
        series.append(
            training_figures.NoiseSeries(
                label=name,
                right_at_most=[each.right_at_most for each in alike],
                value=[_value(each) for each in alike],
                low=[low for low, _ in ends],
                high=[high for _, high in ends],
                limit=max(meeting, default=None),
            )
        )
    chosen = result.choice.chosen
    judged = settings[0].utility.criterion
    same = request.least is not None and request.least[0] == judged.name
    return training_figures.frontier(
        series,
        f"limit: {choose_words.limit_in_short(result)}",
        None if chosen is None else (chosen.right_at_most, _value(chosen)),
        request.least[1] if request.least is not None and same else None,
        judged.name,
    )


def caption(result: Result) -> str:
    """Return how the models were judged."""
    judged = result.choice.candidates[0].utility.criterion
    without = (
        ""
        if result.plain is None
        else (f" Without privacy, a linear model has {choose_words.shown(judged, result.plain)}.")
    )
    return (
        f"{judged.name[:1].upper()}{judged.name[1:]}: mean over the trainings of a setting on all "
        f"{result.config.data.records:,} records, judged on {result.config.data.held_out:,} "
        f"others, with an interval at 95%. A constant answer has "
        f"{choose_words.shown(judged, judged.constant)}.{without}"
    )


def _settings(result: Result) -> doc.Table:
    judged = result.choice.candidates[0].utility.criterion
    headings = ["setting", "ε", "right in at most", "limit", judged.name, "least recall"]
    cells = [_cells(result, each) for each in result.choice.candidates]
    if all(row[-1] == DASH for row in cells):
        headings, cells = headings[:-1], [row[:-1] for row in cells]
    return doc.tabulated(headings, cells)


def _cells(result: Result, each: Candidate) -> list[str]:
    utility, judged = each.utility, each.utility.criterion
    mark = " ← chosen" if each is result.choice.chosen else ""
    ends = span(judged.interval, lambda value: choose_words.shown(judged, value))
    risk = f"\n(risk {percent(each.risk)})" if result.request.limit.key == rule.RISK else ""
    return [
        f"{_family(each)}, {_numbers(each)}{mark}",
        number(each.epsilon),
        percent(each.right_at_most),
        ("meets" if each.meets else "exceeds") + risk,
        choose_words.shown(judged, judged.value) + (f"\n({ends})" if ends else ""),
        DASH if utility.least_recall is None else percent(utility.least_recall[1]),
    ]


def _family(each: Candidate) -> str:
    """Return what names the model: its keys that are neither noise nor numbers of a trial."""
    own = {key: value for key, value in each.values.items() if key not in (RATE, NORM, *KEYS)}
    model = [str(own.pop(MODEL))] if MODEL in own else []
    own.pop(ROUNDS, None)
    return ", ".join([*model, f"{each.rounds} rounds", *filter(None, [choose_words.values(own)])])


def _numbers(each: Candidate) -> str:
    return f"rate {plain(each.values[RATE])}, norm {plain(each.values[NORM])}"


def _value(each: Candidate) -> float:
    value = each.utility.criterion.value
    return nan if value is None else value
