"""The report of `fedsim choose`: a table, a page, report.json, and a configuration to run."""

import csv
import io
import itertools
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.common import private_files, report_directory
from fedsim.common.strict_json import strict_json
from fedsim.configuration import files as configuration_files
from fedsim.configuration.federation import OWN
from fedsim.configuration.jobs import KEYS
from fedsim.federation.runs.run_directory import SUMMARY
from fedsim.learning.training.criterion import Judged
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import html, release, worth
from fedsim.reports.document.wording import DASH, counted, number, percent, plain, span
from fedsim.reports.sections.risks import in_cases, of_cases
from fedsim.studies import page
from fedsim.studies.choose.choose_search import KIND, MODEL, NORM, RATE, ROUNDS, Result
from fedsim.studies.choose.rule import ADVANTAGE, BELIEF, RISK, Candidate, Limit

if TYPE_CHECKING:
    from fedsim.reports.figures.plot import Plot

CONFIG = "config.toml"
"""The configuration of the chosen setting, in the search's directory."""

NO_GUARANTEE = (
    "The trainings of this page take their noise from the seed, and read the records many times. "
    "They are a measurement, for which fedsim claims no guarantee. On public, proxy or simulated "
    "records they cost nothing in privacy. They do not protect private records: show the results "
    "only to people who may see these records, also the held-out ones that judge the models."
)

HARDLY = " Such a limit protects hardly anyone."
MEETS = (
    "“Meets” is a statement of theory, for the worst record and the strongest adversary at this "
    "vantage. "
)
LABEL = (
    "Nothing was attacked here: fedsim run measures the adversary. Belief is of a "
    "single training, right answers are an average. An interval holds at 95% for one setting, over "
    "other held-out records like these and other trainings. The best of several settings is a "
    "little better by chance. ε does not cover the search, which read the records many times."
)


def sentences(result: Result) -> list[str]:
    """Return the answer, the most important sentence first."""
    public = [PUBLIC_RECORDS] if result.config.data.name == OWN else []
    if result.request.limit is None:
        return [*public, LISTED.format(result.tried)]
    return [*public, *_answer(result, result.request.limit)]


PUBLIC_RECORDS = (
    "The clients' own records were not read: public records stood in for them, with as much less "
    "noise. The models are as good as these as far as the records are alike."
)
LISTED = (
    "{} settings were trained, each several times. The limits are from theory. To pick a setting, "
    "give a limit on the adversary, such as --max-belief 0.75."
)


def _answer(result: Result, bound: Limit) -> Iterator[str]:
    choice, least = result.choice, result.request.least
    meeting = [each for each in choice.candidates if each.meets]
    if choice.chosen is not None:
        yield from _chosen(result, bound, choice.chosen)
    elif not meeting:
        yield (
            f"None of the given noise levels meets the limit: {_limit(result, bound)}. Leave "
            "--over privacy. out, and the search takes the noise that the limit needs."
        )
    elif choice.undecided is not None and least is not None:
        near = choice.undecided
        measured = near.utility.among(least[0], choice.compared)
        yield (
            f"Cannot tell whether a setting that meets the limit has {_at_least(least)}: with "
            f"{values(near.values)} it is {DASH if measured is None else _measure(measured)}. The "
            f"intervals of {choice.compared} settings hold together at 95%. They are wide because "
            "few records are held out; raise data.held-out."
        )
    else:
        wanted = "be better than a constant answer" if least is None else f"have {_at_least(least)}"
        best = max(meeting, key=lambda each: each.utility.gain)
        yield (
            f"No setting can be chosen: no model that meets the limit ({_limit(result, bound)}) "
            f"is shown to {wanted}. The best is {values(best.values)}: {_criterion(best)}. More "
            "records help most, since the same noise is divided by their number; more rounds or a "
            "looser limit may help."
        )


def _chosen(result: Result, bound: Limit, chosen: Candidate) -> Iterator[str]:
    """Yield which setting to take, why, how good and how safe it is."""
    delta, unit = result.config.privacy.delta, result.config.privacy.unit
    least = result.request.least
    yield (
        f"Take ε = {number(chosen.epsilon)} at δ = {delta:g}: {_family(chosen)} (noise multiplier "
        f"{number(chosen.noise_multiplier)}). It meets your limit of "
        f"{_limited(bound, bound.value)}: {_limit(result, bound, chosen.allowed(bound.key))}."
    )
    why = (
        "it is the strictest measured at most half a point below the best within your limit"
        if least is None
        else f"it is the strictest that has {_at_least(least)}"
    )
    judged = worth.as_text(chosen.utility.criterion.name, result.plain)
    without = "" if result.plain is None else f"; without privacy, a linear model has {judged}"
    yield f"Of {result.tried} settings, {why}: {_criterion(chosen)}{without}."
    yield (
        f"An adversary who knows everything else is right about one {unit} in at most "
        f"{math.ceil(100 * chosen.right_at_most - 1e-6)} of 100 cases (50 is guessing)."
        f"{HARDLY * (chosen.right_at_most >= release.HIGH)}"
    )


def _criterion(each: Candidate) -> str:
    """Return the criterion of a setting with its interval, and what a constant answer reaches."""
    judged = each.utility.criterion
    constant = worth.as_text(judged.name, judged.constant)
    return f"the {judged.name} is {_measure(judged)}, of a constant answer {constant}"


def _measure(judged: Judged) -> str:
    ends = span(judged.interval, lambda value: worth.as_text(judged.name, value))
    return worth.as_text(judged.name, judged.value) + (f" ({ends})" if ends else "")


def _at_least(least: tuple[str, float]) -> str:
    name, value = least
    return f"{'an' if name[0] in 'aA' else 'a'} {name} of at least {worth.as_text(name, value)}"


def _limited(bound: Limit, value: float) -> str:
    return number(value) if bound.key == ADVANTAGE else percent(value)


def _limit(result: Result, bound: Limit, value: float | None = None) -> str:
    """Return the limit on the adversary, with the share of trainings that may exceed it.

    value: what a setting reaches; None for the limit itself.
    """
    value, before = bound.value if value is None else value, bound.baseline
    most = _limited(bound, value)
    who = result.config.federation.vantage.value.replace("-", " ")
    if bound.key == ADVANTAGE:
        return f"the advantage of the {who} is at most {most}"
    if bound.key == RISK:
        return (
            f"any attack of the {who} that succeeds in {in_cases(before)} cases without "
            f"the model succeeds in at most {of_cases(value, before)} with it"
        )
    tail = _tail_limit(result, bound)
    share = "a small share" if tail is None else f"up to {percent(tail)}"
    return (
        f"the belief of the {who} is at most {most}, except in {share} of trainings with the record"
    )


def _tail_limit(result: Result, bound: Limit) -> float | None:
    """Return in which share of trainings, at most, the belief exceeds the limit.

    It is of the chosen setting, else the largest of all that meet the limit; None for other limits,
    or if no setting meets it.
    """
    if bound.key != BELIEF:
        return None
    if result.choice.chosen is not None:
        return result.choice.chosen.tail_limit
    meeting = [each.tail_limit for each in result.choice.candidates if each.meets]
    return max(meeting, default=None)


def values(values: Mapping[str, Any]) -> str:
    """Return "key = value" of every key, separated by commas."""
    return ", ".join(f"{key.partition('.')[2]} = {plain(value)}" for key, value in values.items())


def document(result: Result) -> dict[str, Any]:
    request, choice, config = result.request, result.choice, result.config
    limited: dict[str, float | None] = {}
    if (bound := request.limit) is not None:
        baseline = {"baseline": bound.baseline} if bound.key == RISK else {}
        limited = {bound.kind: bound.value, **baseline, "tail_limit": _tail_limit(result, bound)}
    written: dict[str, Any] = strict_json(
        {
            "kind": KIND,
            "name": config.run.name,
            "question": result.question,
            "state": choice.state,
            "sentences": sentences(result),
            "limit": {
                **limited,
                "against": config.federation.vantage.value,
                "trust": config.federation.trust.value,
                "delta": config.privacy.delta,
                "accountant": config.privacy.accountant,
            },
            "least": None if request.least is None else dict([request.least]),
            "tried": result.tried,
            "without_privacy": result.plain,
            "towards": [asdict(each) for each in choice.chosen.towards] if choice.chosen else [],
            "chosen": choice.chosen and dict(choice.chosen.values),
            "settings": rows(result),
        }
    )
    return written


def rows(result: Result) -> list[dict[str, Any]]:
    return [_row(each, each is result.choice.chosen) for each in result.choice.candidates]


def _row(each: Candidate, chosen: bool) -> dict[str, Any]:
    utility, judged = each.utility, each.utility.criterion
    low, high = judged.interval or (None, None)
    names = "accuracy", "balanced accuracy", "AUC"
    known = {name: each.value for name, each in utility.measures.items()}
    measures = {name.lower().replace(" ", "_"): known.get(name) for name in names}
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


FRONTIER = (
    "The model against the limit on how often the adversary is right. Each point is the best "
    "setting of a model at a noise level. Vertical lines are intervals at 95%."
)


def told(result: Result, directory: Path) -> doc.Told:
    config, said, chosen = result.config, sentences(result), result.choice.chosen
    place = shlex.quote(str(directory / CONFIG))
    train = f"fedsim train {place} privacy.noise-source=system"
    if config.federation.summed_in_the_clear:
        train += " federation.secure-aggregation=secagg+"

    def sections() -> Iterator[doc.Block]:
        if chosen is not None:
            assumed = ", if sums are securely aggregated" * config.federation.summed_in_the_clear
            rows = [
                [
                    bounds.vantage.replace("-", " ") + assumed * (bounds.vantage == "server"),
                    number(bounds.epsilon) if math.isfinite(bounds.epsilon) else "none",
                    percent(bounds.rho_beta),
                    percent((1 + bounds.rho_alpha) / 2),
                ]
                for bounds in chosen.towards
            ]
            vantage = f"vantage, with {config.federation.trust} trust"
            yield doc.tabulated((vantage, "ε", "belief at most", "right in at most"), rows)
        yield doc.Figure("frontier", frontier(result), "", FRONTIER)
        yield from _numbers(result)
        yield doc.Heading("What the search itself costs in privacy")
        yield doc.Prose(NO_GUARANTEE)

    return page.told(
        config,
        document(result),
        LABEL if result.request.limit is None else f"{MEETS}{LABEL}",
        sections,
        kind="Choice of noise",
        played=counted(result.tried, "setting"),
        release=release.PROPOSED.format(f"ε = {number(chosen.epsilon)}")
        if chosen
        else release.UNDECIDED,
        # The last sentence, which a manager can be told, comes with the first.
        answer=[f"{said[0]} {said[-1]}", *said[1:-1]] if len(said) > 1 else said,
        table=doc.tabulated(_headings(result), [_cells(result, one) for one in _shown(result)]),
        more=lambda: _numbers(result),
        legend=f"The models were trained on all {config.data.records:,} records and judged on "
        f"{config.data.held_out:,} others.",
        steps=[
            (f"Train with ε = {number(chosen.epsilon)}: ", doc.Code(train)),
            ("Measure the adversary first: ", doc.Code(f"fedsim run {place}")),
        ]
        if chosen
        else [],
    )


def write(result: Result, directory: Path) -> Path:
    """Write the page, report.json, summary.csv and config.toml; return the path of the page.

    Raises:
        InputError: the directory holds another kind of report.
        OSError: a file cannot be written.
    """
    shown = told(result, directory)
    summary, settings = io.StringIO(), shown.report["settings"]
    writer = csv.DictWriter(summary, list(settings[0]))
    writer.writeheader()
    writer.writerows(settings)
    private_files.write_private(directory / SUMMARY, summary.getvalue().encode())
    place = report_directory.write_report(directory, shown.report, html.page(shown))
    if result.choice.chosen:
        text = configuration_files.dump(result.config)
        private_files.write_private(directory / CONFIG, text.encode())
    else:  # an earlier search in this directory may have left one
        (directory / CONFIG).unlink(missing_ok=True)
    return place


def frontier(result: Result) -> "Plot":
    from fedsim.reports.figures import canvas  # noqa: PLC0415  (matplotlib is slow)
    from fedsim.reports.figures.plot import Curve, Level, Panel, Plot  # noqa: PLC0415

    settings, bound, chosen = result.choice.candidates, result.request.limit, result.choice.chosen
    name, curves, limits = settings[0].utility.criterion.name, list[Curve](), set[float]()
    colours = itertools.cycle((canvas.BLUE, canvas.PURPLE, canvas.GREEN, canvas.INK))
    for family, colour in zip(dict.fromkeys(map(_family, settings)), colours, strict=False):
        alike = [each for each in settings if _family(each) == family]
        ends = [each.utility.criterion.interval or (nan, nan) for each in alike]
        low, high = (100 * np.array(each) for each in zip(*ends, strict=True))
        at = 100 * np.array([each.right_at_most for each in alike])
        value = 100 * np.array([_value(each) for each in alike])
        curves.append(Curve(family, at, value, colour, "joined", low, high))
        meeting = [100 * each.right_at_most for each in alike if bound and each.meets]
        limits |= {round(max(meeting), 2)} if meeting else set()
    if chosen is not None:
        point = [100 * chosen.right_at_most], [100 * _value(chosen)]
        curves.append(Curve("chosen", *point, canvas.VERMILION, "points"))
    limit = f"limit: {bound.kind} at most {bound.value:g}" if bound else ""
    levels = [Level(limit, each, canvas.VERMILION, "dashed", True) for each in sorted(limits)]
    if (least := result.request.least) is not None and least[0] == name:
        text = f"least {name}, {100 * least[1]:g} %"
        levels.append(Level(text, 100 * least[1], canvas.MUTED, "dotted"))
    across = "the adversary is right in at most … % (a coin: 50 %)"
    return Plot([Panel(curves, f"{name}, %", across, levels=levels)])


def _headings(result: Result) -> list[str]:
    judged = result.choice.candidates[0].utility.criterion
    bound = result.request.limit
    limited = [] if bound is None else [bound.kind]
    return ["setting", "ε", "right at most", *limited, judged.name]


def _shown(result: Result) -> list[Candidate]:
    """Return all settings, or where there is a limit the chosen or the best of each ε."""
    settings, chosen = result.choice.candidates, result.choice.chosen
    if result.request.limit is None:
        return [*settings]
    sign = 1 if settings[0].utility.criterion.rises else -1
    order = sorted(settings, key=lambda each: (each is chosen, sign * _value(each)))
    best = {number(each.epsilon): each for each in order}  # of equal ones the last
    return sorted(best.values(), key=lambda each: each.epsilon)


def _cells(result: Result, each: Candidate) -> list[str]:
    mark = " ←" if each is result.choice.chosen else ""
    bound, meets = result.request.limit, "meets" if each.meets else "exceeds"
    return [
        f"{_family(each)}{mark}",
        number(each.epsilon),
        percent(each.right_at_most),
        *([] if bound is None else [f"{_limited(bound, each.allowed(bound.key))} {meets}"]),
        _measure(each.utility.criterion),
    ]


def _numbers(result: Result) -> list[doc.Block]:
    """Return what else a setting fixes, in the order of the first table."""
    rows = [
        [
            *_cells(result, each),
            plain(each.values[RATE]),
            plain(each.values[NORM]),
            number(each.noise_multiplier),
        ]
        for each in result.choice.candidates
    ]
    headings = [*_headings(result), "learning rate", "clipping norm", "noise multiplier"]
    return [doc.Heading("All settings"), doc.tabulated(headings, rows)]


def _family(each: Candidate) -> str:
    """Return what names the model: its keys that are neither noise nor numbers of a trial."""
    own = {key: value for key, value in each.values.items() if key not in (RATE, NORM, *KEYS)}
    model = [str(own.pop(MODEL))] if MODEL in own else []
    own.pop(ROUNDS, None)
    return ", ".join([*model, f"{each.rounds} rounds", *filter(None, [values(own)])])


def _value(each: Candidate) -> float:
    value = each.utility.criterion.value
    return nan if value is None else value
