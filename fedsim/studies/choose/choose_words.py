"""What a search for a setting says, in words."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fedsim.privacy.private_selection import SearchCost
from fedsim.report.document.wording import beside_accuracy, number, percent, plain, span
from fedsim.report.sections.vantage_words import WHO
from fedsim.studies.choose.choose import (
    BELIEF,
    NEAR,
    Candidate,
    noise_costs_nothing,
    trainings_needed,
)
from fedsim.studies.choose.choose_search import Found

NO_GUARANTEE = (
    "The trials of this page take their noise from the seed: a measurement, for which no guarantee "
    "is claimed. On public, proxy or simulated records that costs nothing in privacy. Of private "
    "records it protects nobody: its results are for those alone who may see the records."
)


def sentences(found: Found) -> list[str]:
    """Return the answer, the first sentence first; a much stricter setting comes right after it."""
    answer = list(_answer(found))
    return [*answer[:1], *_strictest(found), *answer[1:]]


def _answer(found: Found) -> Iterator[str]:
    choice, least = found.choice, found.request.min_accuracy
    if (chosen := choice.chosen) is not None:
        yield (
            f"Take ε = {number(chosen.epsilon)} at δ = {_delta(found)} ({limit(found)}): "
            f"{_setting(chosen)}."
        )
        yield _towards(found, chosen)
        rule = "the least noise tried" if least is None else "the strictest setting tried"
        beside = (
            "" if least is None else f" and whose accuracy's interval lies above {percent(least)}"
        )
        if least is None and len(choice.least) > 1:
            rule = f"the most accurate of {len(choice.least)} with the least noise tried, one for "
            rule += "each combination of the other keys,"
        yield (
            f"It is {rule} that meets the limit in theory{beside}. The adversary is right in at "
            f"most {percent(chosen.right_at_most)} of all cases, where a coin is right in half of "
            "them."
        )
        if found.needed is not None:
            yield (
                "The least noise of all that meets the limit in theory is a multiplier of "
                f"{number(found.needed)}."
            )
        yield f"The model's accuracy is {_accuracy(found, chosen)}."
        yield f"{_measured(found, chosen)}."
        yield from _not_the_noise(found, chosen)
    elif not any(each.meets for each in choice.candidates):
        yield f"No setting that was tried meets the limit: {limit(found)}. Try more noise."
    elif choice.state == "cannot tell" and least is not None:
        (open_, *_) = choice.nearest
        yield (
            f"Cannot tell yet whether a setting that meets the limit ({limit(found)}) has an "
            f"accuracy of at least {percent(least)}: with {_setting(open_)} it is "
            f"{_accuracy(found, open_)}. {_more(open_, least)}"
        )
    elif all(each.left_out for each in choice.candidates if each.meets):
        yield f"No setting can be chosen, though some meet the limit in theory: {limit(found)}."
    else:
        asked = "" if least is None else f" and has an accuracy of at least {percent(least)}"
        yield f"None of the settings meets the limit ({limit(found)}){asked}."
    yield from _left_out(found)
    for near in choice.nearest:
        if choice.state == "none" and any(each.meets for each in choice.candidates):
            side = "meets the limit" if near.meets else "does not meet the limit"
            yield (
                f"Nearest: {_setting(near)}, which {side} (right in at most "
                f"{percent(near.right_at_most)}); its accuracy is {_accuracy(found, near)}."
            )


def _left_out(found: Found) -> Iterator[str]:
    """Say which settings that meet the limit were left out, and why."""
    for each in found.choice.candidates:
        if each.meets and each.left_out:
            why = each.left_out
            if each.accuracy is not None and not each.has_learnt and not each.alarm:
                why += f": its accuracy is {_accuracy(found, each)}"
            yield f"Left out: {values(each.values)}, {why} ({each.name}/report.html)."
    meeting = [each for each in found.choice.candidates if each.meets]
    unlearnt = [each for each in meeting if each.accuracy is not None and not each.has_learnt]
    if unlearnt and len(unlearnt) == len(meeting):
        rate = found.config.training.rate
        yield (
            "No setting that meets the limit is shown to be more accurate than a model that always "
            f"answers with the most frequent class. training.learning-rate is {rate:g}; try more "
            f"--trials, or --over training.learning-rate={rate / 4:.3g},{rate * 4:.3g}."
        )


def _more(open_: Candidate, least: float) -> str:
    if open_.accuracy_interval is None:
        return "More trainings of each setting may tell: give the same command with more --trials."
    if (trainings := trainings_needed(open_, least)) is None:
        return "Its mean is not above that, so that more trainings may well say no."
    even = trainings + trainings % 2
    return (
        f"With {even} trainings of each setting, four in five searches would tell: give the same "
        f"command with --trials {even}, which adds to those that are there."
    )


def _towards(found: Found, each: Candidate) -> str:
    """Return towards whom the bounds hold, and which they are, the same ones together."""
    federation = found.config.federation
    alike: dict[str, list[str]] = {}
    for bounds in each.towards:
        said = ""
        if math.isfinite(bounds.epsilon):
            said = (
                f"ε = {number(bounds.epsilon)}, belief at most {percent(bounds.rho_beta)} except "
                f"in a tail, right in at most {percent((1 + bounds.rho_alpha) / 2)} of cases"
            )
            if bounds.vantage == "server" and federation.summed_in_the_clear:
                said += ", once sums are securely aggregated"
        alike.setdefault(said, []).append(WHO[bounds.vantage])
    exposed = alike.pop("", [])
    parts = [f"towards {' and '.join(who)} {said}" for said, who in alike.items()]
    if exposed:
        why = ", who sees each client's sum" * (exposed == [WHO["server"]])
        parts.append(f"no protection from {' and '.join(exposed)}{why}")
    return f"Under {federation.trust.value} trust: {'; '.join(parts)}."


def _not_the_noise(found: Found, chosen: Candidate) -> Iterator[str]:
    """Say where noise is not what costs accuracy, and what to try."""
    alike = [each for each in found.choice.candidates if each.others == chosen.others]
    if not noise_costs_nothing(alike):
        return
    key = "training.learning-rate"
    rate = found.config.training.rate
    tried = f"{key}={rate / 3:.3g},{rate:g},{rate * 3:.3g}"
    if key in found.request.over:
        tried = f"training.rounds={found.config.training.rounds},{found.config.training.rounds * 3}"
    yield (
        "The trials show no difference between the loosest and the strictest setting: noise is not "
        f"what limits this model's accuracy; try --over {tried}."
    )


def _strictest(found: Found) -> Iterator[str]:
    strictest = found.choice.strictest
    if strictest is None or strictest is found.choice.chosen:
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
    laws = (
        ("Poisson", spent.poisson),
        ("mostly few, seldom many: logarithmic", spent.logarithmic),
    )
    for law, value in laws:
        if value is not None:
            yield (
                f"The same, a random number of trainings, {spent.settings} on average ({law})",
                number(value),
                "chance draws how many, and the setting of each; only the best result is seen",
            )


def cost_in_short(found: Found) -> str:
    """Return what the search costs in privacy, in a sentence."""
    start = "The search costs nothing in privacy on public, proxy or simulated records"
    if (spent := found.cost) is None:
        return f"{start}; on private ones no guarantee can be stated."
    chosen = found.choice.chosen
    beside = "" if chosen is None else f", beside {number(chosen.epsilon)} of the chosen one alone"
    known = [each for each in (spent.poisson, spent.logarithmic) if each is not None]
    within = ""
    if (few := found.cost_within) is not None and few.settings < spent.settings:
        within = f" (of the {few.settings} that meet the limit alone, {number(few.all_trainings)})"
    random = (
        f", and ε = {number(min(known))} where only the best of a random number of trainings is "
        "seen (Papernot and Steinke, 2022)"
        if known
        else ""
    )
    return (
        f"{start}; on the private ones, one training with each of the {spent.settings} settings "
        f"costs ε = {number(spent.all_trainings)}{within} at δ = {spent.delta:g}{beside}{random}."
    )


def told(found: Found) -> Iterator[str]:
    """Return what the page does not say, in sentences."""
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
    yield (
        "What a search costs counts the records that are trained on. Those that accuracy is "
        "measured on are others, and take protection of their own where they need it."
    )
    if found.config.privacy.sensitivity == "local":
        yield (
            "The noise is scaled to the sensitivity of this challenge alone: the bounds are those "
            "of this pair of data sets, and no guarantee for anybody else."
        )
    if found.config.federation.summed_in_the_clear:
        yield (
            "Under distributed trust the bounds are those of a server that learns the sum alone, "
            "as secure aggregation has it."
        )
    yield (
        f"The limit is kept from one vantage, the {found.config.federation.vantage.value}. What "
        "theory allows the others stands in the answer; --against sets the limit on one of these."
    )


def caption(found: Found) -> str:
    """Return how the numbers of the page's table were taken."""
    level = percent(found.config.audit.confidence)
    return (
        f"{caption_of_accuracy(found)} Measured advantage: at {level} each. One training's "
        "accuracy: from the 5th to the 95th percentile of these."
    )


def caption_of_accuracy(found: Found) -> str:
    """Return how accuracies were taken, and what a model reaches that has learnt nothing."""
    trained = {each.trainings for each in found.choice.candidates}
    count = " or ".join(map(str, sorted(trained)))
    shares = sorted({each.majority for each in found.choice.candidates})
    level = percent(found.config.audit.confidence)
    return (
        f"Accuracy: the mean over {count} trainings of each setting, on the same held-out records; "
        f"its intervals hold for all settings together at {level}. Always answering with the most "
        f"frequent class is right for {' or '.join(map(percent, shares))}."
    )


def tail_limit(found: Found) -> float | None:
    """Return in what share of trainings the belief passes the limit at most.

    Returns:
        Of the chosen setting; where there is none, of every setting that meets the limit. None
        where none does, and for a limit on the advantage, which has no tail.
    """
    if found.request.limit.key != BELIEF:
        return None
    if found.choice.chosen is not None:
        return found.choice.chosen.tail_limit
    meeting = [each.tail_limit for each in found.choice.candidates if each.meets]
    return max(meeting, default=None)


def limit(found: Found) -> str:
    """Return the limit on the adversary, and in what tail it is passed."""
    who = found.config.federation.vantage.value.replace("-", " ")
    if found.request.limit.key != BELIEF:
        return f"the advantage of the {who} at most {number(found.request.limit.value)}"
    tail = tail_limit(found)
    share = "a small share" if tail is None else f"up to {percent(tail)}"
    return (
        f"the belief of the {who} at most {percent(found.request.limit.value)}, except in {share} "
        "of trainings with the record"
    )


def limit_in_short(found: Found) -> str:
    """Return the limit as a figure's legend has it."""
    tail = tail_limit(found)
    beside = "" if tail is None else f", but in {percent(tail)}"
    return f"{found.request.limit.kind} at most {found.request.limit.value:g}{beside}"


def values(values: Mapping[str, Any]) -> str:
    """Return the values of keys."""
    return ", ".join(f"{key.partition('.')[2]} = {plain(value)}" for key, value in values.items())


def _setting(each: Candidate) -> str:
    return f"{values(each.values)} (noise multiplier {number(each.noise_multiplier)})"


def _delta(found: Found) -> str:
    return f"{found.config.privacy.delta:g}"


def _accuracy(found: Found, each: Candidate) -> str:
    between = each.accuracy_interval
    beside = beside_accuracy(
        each.majority, each.balanced_accuracy, each.area_under_curve, each.least_recall
    )
    if between is None:
        return (
            f"{percent(each.accuracy)} ({beside}), of too few or equal trainings, without an "
            "interval"
        )
    band = f"; nine in ten single trainings had {span(each.band, percent)}" if each.band else ""
    return (
        f"{percent(each.accuracy)} on average, {beside}{band} (interval of the mean: "
        f"{span((between.low, between.high), percent)}, over {each.trainings} trainings; all "
        f"{len(found.outcomes)} settings' intervals hold together at "
        f"{percent(found.config.audit.confidence)})"
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
