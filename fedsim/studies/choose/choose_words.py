"""The sentences of the report of `fedsim choose`."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fedsim.common.foreign_text import shown
from fedsim.privacy.private_selection import SearchCost
from fedsim.report.document.wording import beside_accuracy, number, percent, plain, span
from fedsim.report.sections.risks import in_cases, of_cases
from fedsim.report.sections.vantage_words import WHO
from fedsim.studies.choose.choose import (
    ADVANTAGE,
    BELIEF,
    NEAR,
    RISK,
    Candidate,
    noise_costs_nothing,
    trainings_needed,
)
from fedsim.studies.choose.choose_search import Result

RECOGNISES_NOTHING = 0.05
"""Recall of a class below which the accuracy of a model says little."""

NO_GUARANTEE = (
    "The trials of this page take their noise from the seed. They are a measurement, for which "
    "fedsim claims no guarantee. On public, proxy or simulated records they cost nothing in "
    "privacy. They do not protect private records: show the results only to people who may see "
    "these records."
)


def sentences(result: Result) -> list[str]:
    """Return the answer, the most important sentence first."""
    answer = list(_answer(result))
    return [*answer[:1], *_strictest(result), *answer[1:]]


def _answer(result: Result) -> Iterator[str]:
    choice, least = result.choice, result.request.min_accuracy
    if choice.chosen is not None:
        yield from _chosen(result, choice.chosen)
    elif not any(each.meets for each in choice.candidates):
        yield f"No setting that was tried meets the limit: {limit(result)}. Try more noise."
    elif choice.state == "cannot tell" and least is not None:
        undecided = choice.nearest[0]
        yield (
            f"Cannot tell yet whether a setting that meets the limit ({limit(result)}) has an "
            f"accuracy of at least {percent(least)}: with {_setting(undecided)} it is "
            f"{_accuracy(result, undecided)}. {_more(undecided, least)}"
        )
    elif all(each.left_out for each in choice.candidates if each.meets):
        yield f"No setting can be chosen, though some meet the limit in theory: {limit(result)}."
    elif least is None:
        yield f"None of the settings meets the limit ({limit(result)})."
    else:
        yield (
            f"None of the settings meets the limit ({limit(result)}) and has an accuracy of at "
            f"least {percent(least)}."
        )
    yield from _left_out(result)
    for near in choice.nearest:
        if choice.state == "none" and any(each.meets for each in choice.candidates):
            side = "meets the limit" if near.meets else "does not meet the limit"
            yield (
                f"Nearest: {_setting(near)}. It {side} (right in at most "
                f"{percent(near.right_at_most)}); its accuracy is {_accuracy(result, near)}."
            )


def _chosen(result: Result, chosen: Candidate) -> Iterator[str]:
    """Yield which setting to take, why, and how accurate and how safe it is."""
    least, alternatives = result.request.min_accuracy, len(result.choice.least)
    yield (
        f"Take ε = {number(chosen.epsilon)} at δ = {_delta(result)}: {_setting(chosen)}. It meets "
        f"the limit: {limit(result)}."
    )
    yield _towards(result, chosen)
    if least is not None:
        yield (
            "Of the settings tried, it is the strictest one that meets the limit in theory and "
            f"has an accuracy interval above {percent(least)}."
        )
    elif alternatives > 1:
        yield (
            f"It is the most accurate of {alternatives} settings. Each of them has the least noise "
            "tried that meets the limit in theory, for one combination of the other keys."
        )
    else:
        yield "It has the least noise tried that meets the limit in theory."
    bound = result.request.limit
    if bound.key == RISK and chosen.risk is not None:
        without = of_cases(bound.baseline, bound.baseline)
        yield (
            f"An attacker who is right in {without} cases without the model is right in "
            f"at most {of_cases(chosen.risk, bound.baseline)} with the model."
        )
    yield (
        f"The adversary is right in at most {percent(chosen.right_at_most)} of all cases; a coin "
        "is right in half of them."
    )
    if result.needed is not None:
        yield (
            f"In theory, the limit needs a noise multiplier of at least {number(result.needed)}."
        )
    yield f"The model's accuracy is {_accuracy(result, chosen)}."
    yield from _other_measures(result, chosen)
    yield _measured(result, chosen)
    yield from _not_the_noise(result, chosen)


def _left_out(result: Result) -> Iterator[str]:
    """Yield which settings that meet the limit were left out, and why."""
    for each in result.choice.candidates:
        if each.meets and each.left_out:
            accuracy = ""
            if each.accuracy is not None and not each.alarm:
                accuracy = (
                    f" Its accuracy is {_accuracy(result, each)}; the most frequent class alone "
                    f"gives {percent(each.majority)}."
                )
            page = f"{each.name}/report.html"
            yield f"Left out: {values(each.values)}. {each.left_out}{accuracy} See {page}."
    meeting = [each for each in result.choice.candidates if each.meets]
    unlearnt = [each for each in meeting if each.accuracy is not None and not each.has_learnt]
    if unlearnt and len(unlearnt) == len(meeting):
        rate = result.config.training.rate
        yield (
            "No setting that meets the limit is shown to be more accurate than a model that always "
            f"answers with the most frequent class. training.learning-rate is {rate:g}; try more "
            f"--trials, or --over training.learning-rate={rate / 4:.3g},{rate * 4:.3g}."
        )


def _more(undecided: Candidate, least: float) -> str:
    """Return how many trials would decide whether a setting is accurate enough."""
    if undecided.accuracy_interval is None:
        return (
            "More trainings of each setting may decide: give the same command with more --trials."
        )
    if (trainings := trainings_needed(undecided, least)) is None:
        return "Its mean is not above that accuracy, so more trainings may show that it is too low."
    even = trainings + trainings % 2
    return (
        f"{even} trainings of each setting would decide with 80% probability: give the same "
        f"command with --trials {even}, which adds to the existing trainings."
    )


def _towards(result: Result, each: Candidate) -> str:
    """Return the bounds towards each role; roles with the same bounds stand together."""
    federation = result.config.federation
    roles: dict[str, list[str]] = {}
    for bounds in each.towards:
        text = ""
        if math.isfinite(bounds.epsilon):
            text = (
                f"ε = {number(bounds.epsilon)}, the belief is at most {percent(bounds.rho_beta)} "
                "except in a few trainings, and the adversary is right in at most "
                f"{percent((1 + bounds.rho_alpha) / 2)} of cases"
            )
            if bounds.vantage == "server" and federation.summed_in_the_clear:
                text += ", once sums are securely aggregated"
        roles.setdefault(text, []).append(WHO[bounds.vantage])
    exposed = roles.pop("", [])
    parts = [f"Towards {' and '.join(who)}, {text}." for text, who in roles.items()]
    if exposed:
        why = ", who sees each client's sum" * (exposed == [WHO["server"]])
        parts.append(f"Nothing protects from {' and '.join(exposed)}{why}.")
    return f"Trust is {federation.trust.value}. {' '.join(parts)}"


def _not_the_noise(result: Result, chosen: Candidate) -> Iterator[str]:
    """Yield what to try if noise is not the cause of a low accuracy."""
    alike = [each for each in result.choice.candidates if each.others == chosen.others]
    if not noise_costs_nothing(alike):
        return
    key = "training.learning-rate"
    rate, rounds = result.config.training.rate, result.config.training.rounds
    tried = f"{key}={rate / 3:.3g},{rate:g},{rate * 3:.3g}"
    if key in result.request.over:
        tried = f"training.rounds={rounds},{rounds * 3}"
    yield (
        "The trials show no difference between the loosest and the strictest setting. The noise "
        f"may not be what limits this model's accuracy; try --over {tried}."
    )


def _strictest(result: Result) -> Iterator[str]:
    strictest = result.choice.strictest
    if strictest is None or strictest is result.choice.chosen:
        return
    yield (
        f"Of the settings that meet the limit, the strictest within {100 * NEAR:g} points of the "
        f"best accuracy is {_setting(strictest)}: accuracy {percent(strictest.accuracy)}, the "
        f"adversary right in at most {percent(strictest.right_at_most)}."
    )


def cost(result: Result) -> list[tuple[str, str, str]]:
    """Return rows of the search's privacy cost: how it is done, epsilon, and the assumption."""
    rows = [
        (
            "On public, proxy or simulated records",
            "nothing",
            "noise from the seed, as on this page: a measurement",
        )
    ]
    if result.cost is None:
        why = "the noise is scaled to one challenge, or neighbours differ between the settings"
        return [*rows, ("On the private records", "no guarantee", why)]
    if (chosen := result.choice.chosen) is not None:
        own = ("Only the chosen setting, trained once", number(chosen.epsilon))
        rows.append(
            (*own, f"noise from the operating system; δ = {_delta(result)}, in all rows below too")
        )
    within = result.cost_within
    rows += _cost_among(result.cost, "all settings")
    if within is not None and within.settings < result.cost.settings:
        among = f"only the {within.settings} settings that meet the limit"
        if within.settings == 1:
            among = "only the 1 setting that meets the limit"
        rows += _cost_among(within, among)
    return rows


def _cost_among(spent: SearchCost, among: str) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a search among some of the settings, on the private records."""
    yield (
        f"On the private records, {among}, each trained once",
        number(spent.all_trainings),
        "all results are published, as on this page: the trainings compose, the chosen one too",
    )
    laws = (
        ("Poisson", spent.poisson),
        ("mostly few, seldom many: logarithmic", spent.logarithmic),
    )
    for law, value in laws:
        if value is not None:
            yield (
                f"The same with a random number of trainings, {spent.settings} on average ({law})",
                number(value),
                "the number of trainings and the setting of each are random; only the best result "
                "is published",
            )


def cost_in_short(result: Result) -> str:
    """Return the privacy cost of the search, in one or a few sentences."""
    start = "The search costs nothing in privacy on public, proxy or simulated records."
    if (spent := result.cost) is None:
        return f"{start} On private records, no guarantee can be stated."
    sentences = [
        start,
        f"On the private records, one training with each of the {spent.settings} settings costs "
        f"ε = {number(spent.all_trainings)} at δ = {spent.delta:g}.",
    ]
    if (few := result.cost_within) is not None and few.settings < spent.settings:
        sentences.append(
            f"With only the {few.settings} settings that meet the limit, it costs "
            f"{number(few.all_trainings)}."
        )
    if (chosen := result.choice.chosen) is not None:
        sentences.append(f"The chosen setting alone costs {number(chosen.epsilon)}.")
    if random := [each for each in (spent.poisson, spent.logarithmic) if each is not None]:
        sentences.append(
            f"If you publish only the best of a random number of trainings, the cost is "
            f"{number(min(random))} (Papernot and Steinke, 2022)."
        )
    return " ".join(sentences)


def limits_of_the_page(result: Result) -> Iterator[str]:
    """Yield sentences about what the page does not show."""
    yield (
        "“Meets the limit” is a statement of theory, for the worst record and the strongest "
        "adversary at this vantage. The measured advantage is about one record, in few trials. It "
        "can contradict theory, and cannot prove that a setting is safe."
    )
    yield (
        "An accuracy is a mean over trainings on one set of held-out records. Each training has "
        "its own noise, batches and first model, and its accuracy lies above or below the mean. "
        "Other records have another accuracy."
    )
    yield (
        "The cost of a search counts the records that are trained on. The accuracy is measured on "
        "other records, which need their own protection if they are private."
    )
    if result.config.privacy.sensitivity == "local":
        yield (
            "The noise is scaled to the sensitivity of this challenge alone. The bounds hold for "
            "this pair of data sets and are not a DP guarantee."
        )
    if result.config.federation.summed_in_the_clear:
        yield (
            "With distributed trust, the bounds assume that the server learns only the sum, by "
            "secure aggregation."
        )
    vantage = result.config.federation.vantage.value
    yield (
        f"The limit holds for one vantage, the {vantage}. The answer states the bounds of theory "
        "for the others; --against sets the limit on one of them."
    )


def caption_of_accuracy(result: Result) -> str:
    """Return how accuracies were measured, and the accuracy of the most frequent class."""
    trained = {each.trainings for each in result.choice.candidates}
    count = " or ".join(map(str, sorted(trained)))
    shares = sorted({each.majority for each in result.choice.candidates})
    level = percent(result.config.audit.confidence)
    return (
        f"Accuracy: the mean over {count} trainings of each setting, on the same held-out records; "
        f"its intervals hold for all settings together at {level}. Always answering with the most "
        f"frequent class is right for {' or '.join(map(percent, shares))}."
    )


def tail_limit(result: Result) -> float | None:
    """Return the largest share of trainings in which the belief exceeds the limit.

    Returns:
        The share of the chosen setting; without one, the largest of all settings that meet the
        limit. None if no setting meets it, or if the limit is not on the belief.
    """
    if result.request.limit.key != BELIEF:
        return None
    if result.choice.chosen is not None:
        return result.choice.chosen.tail_limit
    meeting = [each.tail_limit for each in result.choice.candidates if each.meets]
    return max(meeting, default=None)


def limit(result: Result) -> str:
    """Return the limit on the adversary, with the share of trainings that may exceed it."""
    who = result.config.federation.vantage.value.replace("-", " ")
    bound = result.request.limit
    if bound.key == ADVANTAGE:
        return f"the advantage of the {who} is at most {number(bound.value)}"
    if bound.key == RISK:
        return (
            f"any attack of the {who} that succeeds in {in_cases(bound.baseline)} cases without "
            f"the model succeeds in at most {percent(bound.value)} with it"
        )
    tail = tail_limit(result)
    share = "a small share" if tail is None else f"up to {percent(tail)}"
    return (
        f"the belief of the {who} is at most {percent(bound.value)}, except in {share} "
        "of trainings with the record"
    )


def limit_in_short(result: Result) -> str:
    """Return the limit, for a figure's legend."""
    tail = tail_limit(result)
    beside = "" if tail is None else f", exceeded in {percent(tail)}"
    bound = result.request.limit
    if bound.key == RISK:
        beside = f" from {in_cases(bound.baseline)}"
    return f"{bound.kind} at most {bound.value:g}{beside}"


def values(values: Mapping[str, Any]) -> str:
    """Return "key = value" of every key, separated by commas."""
    return ", ".join(f"{key.partition('.')[2]} = {plain(value)}" for key, value in values.items())


def _setting(each: Candidate) -> str:
    return f"{values(each.values)} (noise multiplier {number(each.noise_multiplier)})"


def _delta(result: Result) -> str:
    return f"{result.config.privacy.delta:g}"


def _accuracy(result: Result, each: Candidate) -> str:
    """Return the mean accuracy with its interval."""
    between = each.accuracy_interval
    if between is None:
        return (
            f"{percent(each.accuracy)}, without an interval, since the trainings are too few or "
            "equal"
        )
    ends = span(between.ends, percent)
    return f"{percent(each.accuracy)} on average ({ends}, over {each.trainings} trainings)"


def _other_measures(result: Result, each: Candidate) -> Iterator[str]:
    """Yield what stands beside the accuracy of the chosen setting."""
    beside = beside_accuracy(
        each.majority, each.balanced_accuracy, each.area_under_curve, each.least_recall
    )
    yield f"Beside it: {beside}."
    if each.band:
        yield f"Nine in ten single trainings had an accuracy of {span(each.band, percent)}."
    if each.accuracy_interval is not None:
        yield (
            f"The intervals of all {len(result.outcomes)} settings hold together at "
            f"{percent(result.config.audit.confidence)}."
        )
    if each.least_recall is not None and each.least_recall[1] < RECOGNISES_NOTHING:
        yield (
            f"The model hardly recognises class {shown(each.least_recall[0])}: its accuracy says "
            "little. Try more training.rounds, or another training.learning-rate."
        )


def _measured(result: Result, each: Candidate) -> str:
    if each.advantage is None or each.advantage_interval is None:
        return "The adversary's advantage was not measured."
    trials = next(
        outcome.report.trials
        for outcome in result.outcomes
        if outcome.report and outcome.point.name == each.name
    )
    low, high = each.advantage_interval
    conclusion = (
        "The interval lies above the limit."
        if low > each.rho_alpha
        else "The trials do not contradict theory."
        if low > 0 or high < each.rho_alpha
        else f"{trials} trials are too few: the interval contains the limit and a coin's 0."
    )
    return (
        f"In {trials} trials the {result.config.federation.vantage.value.replace('-', ' ')} had an "
        f"advantage of {number(each.advantage)} "
        f"({span(each.advantage_interval, '{:.2f}'.format)}). Theory allows "
        f"{number(each.rho_alpha)}; a coin has 0. {conclusion}"
    )
