"""What a search for a setting says: sentences, a table, one page, and a configuration to run."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedsim import config as configuration
from fedsim.common import private_files, report_directory
from fedsim.common.strict_json import strict_json
from fedsim.pages import audit_page
from fedsim.pages.wording import DASH, number, percent, plain, span
from fedsim.privacy.private_selection import SearchCost
from fedsim.studies import sweep
from fedsim.studies.choose import BELIEF, NEAR, Candidate, trainings_needed
from fedsim.studies.choose_search import KIND, Found

CONFIG = "config.toml"
"""The configuration of the chosen setting, in the search's directory."""

NO_GUARANTEE = (
    "The trials of this page take their noise from the seed: a measurement, for which no guarantee "
    "is claimed. On public, proxy or simulated records that costs nothing in privacy. Of private "
    "records it protects nobody: its results are for those alone who may see the records."
)


def sentences(found: Found) -> list[str]:
    """Return the answer, the first sentence first."""
    return [*_answer(found), *_strictest(found)]


def _answer(found: Found) -> Iterator[str]:
    choice, least = found.choice, found.request.min_accuracy
    if (chosen := choice.chosen) is not None:
        rule = "the least noise" if least is None else "the strictest setting tried"
        beside = "" if least is None else f" whose accuracy is surely at least {percent(least)}"
        yield (
            f"To keep {_limit(found)}, take {_setting(chosen)}: it is {rule} that meets the limit "
            f"in theory{beside}. Then ε = {number(chosen.epsilon)} at δ = {_delta(found)}, and "
            f"the adversary is right in at most {percent(chosen.right_at_most)} of all cases, "
            f"where a coin is right in half of them.{_passed(found, chosen)}"
        )
        yield f"The model's accuracy is {_accuracy(found, chosen)}."
        yield f"{_measured(found, chosen)}."
    elif not any(each.meets for each in choice.candidates):
        yield f"No setting that was tried meets the limit: {_limit(found)}. Try more noise."
    elif choice.state == "cannot tell" and least is not None:
        (open_, *_) = choice.nearest
        yield (
            f"Cannot tell yet whether a setting that keeps {_limit(found)} has an accuracy of at "
            f"least {percent(least)}: with {_setting(open_)} it is {_accuracy(found, open_)}. "
            f"{_more(trainings_needed(open_, least))}"
        )
    else:
        asked = "" if least is None else f" and has an accuracy of at least {percent(least)}"
        yield f"None of the settings keeps {_limit(found)}{asked}."
    for near in choice.nearest:
        if choice.state == "none" and any(each.meets for each in choice.candidates):
            side = "meets the limit" if near.meets else "does not meet the limit"
            yield (
                f"Nearest: {_setting(near)}, which {side} (right in at most "
                f"{percent(near.right_at_most)}); its accuracy is {_accuracy(found, near)}."
            )


def _more(trainings: int | None) -> str:
    if trainings is None:
        return "Its mean is not above that, so that more trainings may well say no."
    even = trainings + trainings % 2
    return f"About {even} trainings of each setting would tell (--trials {even})."


def _passed(found: Found, each: Candidate) -> str:
    """Return how often a belief passes its bound, where that is what is limited."""
    if found.request.limit.key != BELIEF:
        return ""
    return (
        f" Its belief passes {percent(each.rho_beta)} in at most {percent(each.tail_limit)} of all "
        "trainings."
    )


def _strictest(found: Found) -> Iterator[str]:
    strictest = found.choice.strictest
    if strictest is None:
        return
    yield (
        f"Of the settings that meet the limit, the strictest within {100 * NEAR:g} points of the "
        f"best accuracy is {_setting(strictest)}: accuracy {percent(strictest.accuracy)}, the "
        f"adversary right in at most {percent(strictest.right_at_most)}."
    )


def cost(found: Found) -> list[tuple[str, str, str]]:
    """Return what the search costs in privacy: how it is done, epsilon, and what that assumes."""
    rows = [
        (
            "On public, proxy or simulated records",
            "nothing",
            "as here: noise of the seed, a measurement",
        )
    ]
    if found.cost is None:
        why = "the noise is scaled to one challenge, or neighbours differ between the settings"
        return [*rows, ("On the private records", "no guarantee", why)]
    if (chosen := found.choice.chosen) is not None:
        own = ("The chosen setting alone, trained once", number(chosen.epsilon))
        rows.append((*own, f"noise from the operating system; δ = {_delta(found)}, here and below"))
    within = found.cost_within
    rows += _cost_among(found.cost, "all")
    if within is not None and within.settings < found.cost.settings:
        rows += _cost_among(within, "only the")
    return rows


def _cost_among(spent: SearchCost, which: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a search among some of the settings costs on the private records."""
    plural = "settings" if spent.settings > 1 else "setting"
    suffix = (
        ""
        if which == "all"
        else " that meet the limit"
        if spent.settings > 1
        else " that meets the limit"
    )
    among = f"{which} {spent.settings} {plural}{suffix}"
    yield (
        f"On the private records, {among}, each trained once",
        number(spent.all_trainings),
        "every result is seen, as on this page: the trainings compose, the chosen one included",
    )
    for law, value in (("Poisson", spent.poisson), ("logarithmic", spent.logarithmic)):
        if value is not None:
            yield (
                f"The same, a random number of trainings, {law} with mean {spent.settings}",
                number(value),
                "each of a setting drawn evenly; nobody sees more than the best result",
            )


def cost_in_short(found: Found) -> str:
    """Return what the search costs in privacy, in a sentence."""
    start = "The search costs nothing in privacy on public, proxy or simulated records"
    if (spent := found.cost) is None:
        return f"{start}; on private ones no guarantee can be stated."
    chosen = found.choice.chosen
    beside = "" if chosen is None else f", beside {number(chosen.epsilon)} of the chosen one alone"
    known = [each for each in (spent.poisson, spent.logarithmic) if each is not None]
    random = (
        f", and ε = {number(min(known))} where only the best of a random number of trainings is "
        "seen (Papernot and Steinke, 2022)"
        if known
        else ""
    )
    return (
        f"{start}; on the private ones, one training with each of the {spent.settings} settings "
        f"costs ε = {number(spent.all_trainings)} at δ = {spent.delta:g}{beside}{random}."
    )


def table(found: Found) -> Table:
    """Return the settings as the terminal shows them."""
    drawn = Table(
        title=f"Settings; the limit: {_limit(found)}",
        title_justify="left",
        caption=_caption(found),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    for place, heading in enumerate(HEADINGS):
        drawn.add_column(heading, justify="left" if place == 0 else "right")
    for row in _cells(found):
        drawn.add_row(*map(Text, row))
    return drawn


def document(found: Found, name: str) -> dict[str, Any]:
    """Return report.json: the request, the settings, the choice, and what the search costs."""
    request, choice, config = found.request, found.choice, found.config
    kind = "belief" if request.limit.key == BELIEF else "advantage"
    written: dict[str, Any] = strict_json(
        {
            "kind": KIND,
            "name": name,
            "state": choice.state,
            "sentences": sentences(found),
            "limit": {
                kind: request.limit.value,
                "against": config.federation.vantage.value,
                "trust": config.federation.trust.value,
                "delta": config.privacy.delta,
                "accountant": config.privacy.accountant,
            },
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
    """Return a row for each run: those of a sweep, and what the choice goes by."""
    known = {each.name: each for each in found.choice.candidates}
    made = []
    for row in sweep.rows(found.outcomes):
        each = known.get(row["run"])
        ends = each and each.accuracy_interval
        own = {
            "noise_multiplier": each and each.noise_multiplier,
            "right_at_most": each and each.right_at_most,
            "rho_beta": each and each.rho_beta,
            "meets_limit": each and each.meets,
            "chosen": each is not None and each is found.choice.chosen,
            "accuracy_low_together": ends and ends.low,
            "accuracy_high_together": ends and ends.high,
        }
        made.append(row | own)
    return made


def write(found: Found, directory: Path) -> Path:
    """Write what was found, and the configuration of the chosen setting; return the page.

    Args:
        found: as of `choose_search.search`.
        directory: of the search.

    Raises:
        InputError, OSError: as of `report_directory.write_report`.
    """
    from fedsim.figures import canvas  # noqa: PLC0415
    from fedsim.pages.pictures import inline  # noqa: PLC0415  (matplotlib is slow to import)

    name = found.config.run.name
    made, figure = document(found, name), _figure(found)
    caption = (
        "Accuracy of the model against how often the adversary is right at most, a point for each "
        f"setting; upright lines are intervals of the mean accuracy. {_caption(found)}"
    )
    page = audit_page.render(
        PAGE,
        name=name,
        sentences=sentences(found),
        found=found.choice.state == "chosen",
        command=command(directory) if found.choice.chosen else None,
        headings=HEADINGS,
        rows=_cells(found),
        runs=found.outcomes,
        figures=[(caption, inline(figure, "frontier", caption))] if figure else [],
        costs=cost(found),
        no_guarantee=NO_GUARANTEE,
        told=list(_told(found)),
    )
    files = {"summary.csv": sweep.as_csv(made["settings"])}
    if figure:
        files |= {"figures/frontier.svg": canvas.to_svg(figure)}
    private_files.make_directory(directory / "figures")
    for path, content in files.items():
        private_files.write(directory / path, content.encode())
    place = report_directory.write_report(directory, made, page)
    if found.choice.chosen:
        text = configuration.dump(found.config.placed_at(""))
        private_files.write(directory / CONFIG, text.encode())
    else:  # of a search that found one
        (directory / CONFIG).unlink(missing_ok=True)
    return place


def command(directory: Path) -> str:
    """Return the command that runs the chosen setting."""
    return f"fedsim run {shlex.quote(str(directory / CONFIG))}"


def _figure(found: Found) -> Any:
    from fedsim.figures import frontier  # noqa: PLC0415

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
            frontier.Series(
                label=_values(dict(others)) if len(combinations) > 1 else "",
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
    return frontier.frontier(series, f"limit: {_short(found)}", place, found.request.min_accuracy)


HEADINGS = ("setting", "noise z", "ε", "right in at most", "limit", "accuracy", "measured adv.")


def _cells(found: Found) -> list[list[str]]:
    known = {each.name: each for each in found.choice.candidates}
    cells = []
    for outcome in found.outcomes:
        each, name = known.get(outcome.point.name), _values(outcome.point.values)
        if each is None:
            cells.append([name, *[DASH] * 5, "failed"])
            continue
        mark = " ← chosen" if each is found.choice.chosen else ""
        between = each.accuracy_interval
        ends = None if between is None else (between.low, between.high)
        cells.append(
            [
                name + mark,
                number(each.noise_multiplier),
                number(each.epsilon),
                percent(each.right_at_most),
                "meets" if each.meets else "exceeds",
                _with_ends(percent(each.accuracy), span(ends, percent)),
                _with_ends(number(each.advantage), span(each.advantage_interval, "{:.2f}".format))
                + ("\nCONTRADICTS THEORY" if each.alarm else ""),
            ]
        )
    return cells


def _with_ends(point: str, ends: str) -> str:
    return f"{point}\n({ends})" if ends else point


def _caption(found: Found) -> str:
    trained = {each.trainings for each in found.choice.candidates}
    count = " or ".join(map(str, sorted(trained)))
    level = percent(found.config.audit.confidence)
    return (
        f"Accuracy: the mean over {count} trainings of each setting, on the same held-out records; "
        f"its intervals hold for all settings together at {level}. Measured advantage: at {level} "
        "each."
    )


def _told(found: Found) -> Iterator[str]:
    yield (
        "“Meets the limit” is theory's word, for the worst record and the strongest adversary at "
        "this vantage. The measured advantage is of one record and few trials: it can contradict "
        "theory, and cannot prove that a setting is safe."
    )
    yield (
        "An accuracy is a mean over trainings, each with noise, batches and a first model of its "
        "own, on one set of held-out records. A single training lies above or below it, and other "
        "records have another."
    )
    if found.config.privacy.sensitivity == "local":
        yield (
            "The noise is scaled to the sensitivity of this challenge alone: the bounds are those "
            "of this pair of data sets, and no guarantee for anybody else."
        )
    others = [each.value for each in type(found.config.federation.vantage)]
    others.remove(found.config.federation.vantage.value)
    yield f"Of other vantages ({', '.join(others)}) this page says nothing; --against asks for one."


def _limit(found: Found) -> str:
    who = found.config.federation.vantage.value.replace("-", " ")
    percentage = percent(found.request.limit.value)
    if found.request.limit.key == BELIEF:
        return f"the belief of the {who} at {percentage} at most"
    return f"the advantage of the {who} at {number(found.request.limit.value)} at most"


def _short(found: Found) -> str:
    limit = found.request.limit
    kind = "belief" if limit.key == BELIEF else "advantage"
    return f"{kind} at most {limit.value:g}"


def _delta(found: Found) -> str:
    return f"{found.config.privacy.delta:g}"


def _setting(each: Candidate) -> str:
    return f"{_values(each.values)} (noise multiplier {number(each.noise_multiplier)})"


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.partition('.')[2]} = {plain(value)}" for key, value in values.items())


def _named(each: Candidate | None) -> str | None:
    return None if each is None else each.name


def _accuracy(found: Found, each: Candidate) -> str:
    between = each.accuracy_interval
    if between is None:
        return f"{percent(each.accuracy)}, of too few trainings for an interval"
    return (
        f"{percent(each.accuracy)} ({span((between.low, between.high), percent)}, the mean over "
        f"{each.trainings} trainings; all {len(found.outcomes)} settings' intervals hold together "
        f"at {percent(found.config.audit.confidence)})"
    )


def _measured(found: Found, each: Candidate) -> str:
    if each.advantage is None or each.advantage_interval is None:
        return "The adversary's advantage was not measured"
    trials = next(
        outcome.report.trials
        for outcome in found.outcomes
        if outcome.report and outcome.point.name == each.name
    )
    return (
        f"In {trials} trials the {found.config.federation.vantage.value.replace('-', ' ')} had an "
        f"advantage of {number(each.advantage)} "
        f"({span(each.advantage_interval, '{:.2f}'.format)}), where theory allows "
        f"{number(each.rho_alpha)}: not contradicted"
    )


PAGE = """\
{% extends "frame" %}
{% from "parts" import drawn, concluded, tabulated %}
{% block title %}Choosing ε for {{ name }}{% endblock %}
{% block kind %}Choice of noise{% endblock %}
{% block heading %}{{ name }}{% endblock %}
{% block body %}
{{ concluded(sentences) }}
{% if command %}
<p>To run it: <code>{{ command }}</code></p>
{% endif %}
<h2>Accuracy against the adversary</h2>
{{ drawn(figures) }}
<h2>The settings</h2>
{{ tabulated(headings, rows) }}
<ul>
{% for outcome in runs %}
<li>{% if outcome.failure %}{{ outcome.point.name }}: {{ outcome.failure }}\
{% else %}<a href="{{ outcome.point.name | urlencode }}/report.html">{{ outcome.point.name }}</a>\
{% endif %}</li>
{% endfor %}
</ul>
<h2>What the search itself costs in privacy</h2>
<p>{{ no_guarantee }}</p>
{{ tabulated(("How", "ε", "What it assumes"), costs) }}
<h2>What this does not say</h2>
<ul>
{% for sentence in told %}
<li>{{ sentence }}</li>
{% endfor %}
</ul>
{% endblock %}
"""
