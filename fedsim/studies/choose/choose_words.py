"""The sentences of the report of `fedsim choose`."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fedsim.common.foreign_text import shown as shown_text
from fedsim.configuration.federation import OWN
from fedsim.learning.data import schema as schemas
from fedsim.learning.training.criterion import AUC, BALANCED, PERPLEXITY, Judged
from fedsim.reports.document import worth
from fedsim.reports.document.wording import number, percent, plain, span
from fedsim.reports.sections.risks import in_cases, of_cases
from fedsim.studies.choose.choose_search import ROUNDS, Result
from fedsim.studies.choose.rule import ADVANTAGE, BELIEF, RISK, Candidate

RECOGNISES_NOTHING = 0.05
"""Recall of a class below which answers at the usual threshold are useless."""

NO_GUARANTEE = (
    "The trainings of this page take their noise from the seed, and read the records many times. "
    "They are a measurement, for which fedsim claims no guarantee. On public, proxy or simulated "
    "records they cost nothing in privacy. They do not protect private records: show the results "
    "only to people who may see these records."
)


def sentences(result: Result) -> list[str]:
    """Return the answer, the most important sentence first and the shortest summary last."""
    return [*_of_noise(result), *_answer(result), *for_a_manager(result)]


def _of_noise(result: Result) -> Iterator[str]:
    if result.config.data.name == OWN:
        yield (
            "The clients' own records were not read: public records stood in for them, with as "
            "much less noise. The models are as good as these as far as the records are alike."
        )
    if result.of_noise:
        yield (
            f"This answers only which ε: {result.config.data.records:,} of {result.records:,} "
            "records were trained on, and models of all records are better. Leave --rehearse out "
            "at fedsim init, or give data.records="
            f"{result.records}, to learn how good the model is."
        )


def _answer(result: Result) -> Iterator[str]:
    choice, least = result.choice, result.request.least
    meeting = [each for each in choice.candidates if each.meets]
    if choice.chosen is not None:
        yield from _chosen(result, choice.chosen)
        return
    if not meeting:
        yield (
            f"None of the given noise levels meets the limit: {limit(result)}. Leave --over "
            "privacy. out, and the search takes the noise that the limit needs."
        )
        return
    if choice.state == "cannot tell" and least is not None:
        near = choice.nearest[0]
        yield (
            f"Cannot tell whether a setting that meets the limit has {_at_least(result)}: with "
            f"{values(near.values)} it is {_measure(near.utility.measures.get(least[0]))}. The "
            "interval is wide because few records are held out; raise data.held-out."
        )
        return
    if least is not None and any(each.utility.has_learnt for each in meeting):
        yield f"No setting meets the limit ({limit(result)}) and has {_at_least(result)}."
    else:
        best = max(meeting, key=lambda each: each.utility.gain)
        yield (
            f"No setting can be chosen: no model that meets the limit ({limit(result)}) is shown "
            f"to be better than a constant answer. The best is {values(best.values)}: "
            f"{criterion(best)}."
        )
    for near in choice.nearest:
        side = "meets the limit" if near.meets else "does not meet the limit"
        yield (
            f"Nearest: {values(near.values)}. It {side} (right in at most "
            f"{percent(near.right_at_most)}); {criterion(near)}."
        )
    yield from advice(result)


def advice(result: Result) -> Iterator[str]:
    """Yield what to change after a failed search, the change of the largest effect first.

    Model, learning rate and clipping norm were searched. More rounds are proposed only if the most
    that were tried are best, so that no advice leads back.
    """
    choice = result.choice
    meeting = [each for each in choice.candidates if each.meets]
    best = max(meeting, key=lambda each: each.utility.gain)
    if ROUNDS not in result.request.common and best.rounds == max(one.rounds for one in meeting):
        option = "--over " if ROUNDS in result.request.over else ""
        yield f"Try more rounds, of which the most are best: {option}{ROUNDS}={2 * best.rounds}."
    looser = [one for one in choice.candidates if not one.meets and one.utility.has_learnt]
    if looser:
        least = min(looser, key=lambda one: one.rho_alpha)
        yield (
            f"With a looser limit, ε = {number(least.epsilon)}, the adversary is right in at most "
            f"{percent(least.right_at_most)} of cases, and {criterion(least)}."
        )
    held = result.config.data.held_out
    yield (
        "More records help most of all: the same noise is divided by their number. Only "
        f"{result.config.data.records:,} train, and {held:,} judge the model."
    )


def _chosen(result: Result, chosen: Candidate) -> Iterator[str]:
    """Yield which setting to take, why, how good and how safe it is."""
    yield (
        f"Take ε = {number(chosen.epsilon)} at δ = {_delta(result)}: {values(chosen.values)} "
        f"(noise multiplier {number(chosen.noise_multiplier)}). It meets the limit: "
        f"{limit(result)}."
    )
    yield from _strictest(result, chosen)
    bound = result.request.limit
    if bound.key == RISK:
        without = of_cases(bound.baseline, bound.baseline)
        yield (
            f"An attacker who is right in {without} cases without the model is right in "
            f"at most {of_cases(chosen.risk, bound.baseline)} with the model."
        )
    if result.of_noise:
        return
    if result.request.least is None:
        alike = [one for one in result.choice.candidates if one.level == chosen.level]
        best = max(one.utility.gain for one in alike) == chosen.utility.gain
        why = "the best" if best else "nearly as good as the best, with fewer rounds,"
        yield f"It is {why} of {result.tried} settings that were tried: {criterion(chosen)}."
    else:
        yield f"It is the strictest setting that has {_at_least(result)}: {criterion(chosen)}."
    least = chosen.utility.least_recall
    if least is not None and least[1] < RECOGNISES_NOTHING:
        yield (
            f"Its likeliest answer is class {_class(result, least[0])} for only "
            f"{percent(least[1])} of that class's records: use its probabilities with a "
            "threshold of your own, or set model.class-priors."
        )


def _strictest(result: Result, chosen: Candidate) -> Iterator[str]:
    strictest = result.choice.strictest
    if strictest is None or strictest is chosen or result.of_noise:
        return
    yield (
        f"A stricter setting is nearly as good: ε = {number(strictest.epsilon)} "
        f"({values(strictest.values)}), the adversary right in at most "
        f"{percent(strictest.right_at_most)}, {criterion(strictest)}."
    )


def for_a_manager(result: Result) -> Iterator[str]:
    """Yield what a manager can be told."""
    chosen = result.choice.chosen
    if chosen is None:
        return
    yield (
        f"With ε = {number(chosen.epsilon)} at δ = {_delta(result)}, an adversary who knows "
        "everything else is right about one person in at most "
        f"{math.ceil(100 * chosen.right_at_most - 1e-6)} of 100 cases (50 is guessing)."
    )
    if not result.of_noise:
        judged = chosen.utility.criterion
        said = number if judged.name == PERPLEXITY else percent
        plain = "" if result.plain is None else f"; without privacy {said(result.plain)}"
        yield f"{SAID.get(judged.name, OTHERWISE).format(said(judged.value))}{plain}."


SAID = {
    AUC: "The model ranks {} of pairs rightly",
    BALANCED: "The model finds {} of the records of a class on average",
    "accuracy": "The model answers {} of the records rightly",
    "mean absolute error": "The model errs by {} of the range on average",
}
OTHERWISE = "The model's perplexity is {}"


def shown(judged: Judged, value: float | None) -> str:
    """Return a value of a criterion as it is printed."""
    return worth.as_text(judged.name, value)


def criterion(each: Candidate) -> str:
    """Return the criterion of a setting with its interval, and what a constant answer reaches."""
    judged = each.utility.criterion
    return f"its {judged.name} is {_measure(judged)}, of a constant answer {_constant(judged)}"


def _constant(judged: Judged) -> str:
    return shown(judged, judged.constant)


def _measure(judged: Judged | None) -> str:
    if judged is None:
        return "not measured"
    ends = span(judged.interval, lambda value: shown(judged, value))
    return shown(judged, judged.value) + (f" ({ends})" if ends else "")


def _at_least(result: Result) -> str:
    assert result.request.least is not None
    name, value = result.request.least
    article = "an" if name[0] in "aA" else "a"
    return f"{article} {name} of at least {worth.as_text(name, value)}"


def _class(result: Result, number: str) -> str:
    """Return the name of a class by its number, if the schema names it."""
    text = result.config.data.public_schema
    names = schemas.parse(text).classes if text else ()
    return shown_text(names[int(number)]) if names else number


def limits_of_the_page(result: Result) -> Iterator[str]:
    """Yield sentences about what the page does not show."""
    yield (
        "“Meets the limit” is a statement of theory, for the worst record and the strongest "
        "adversary at this vantage. Nothing was attacked here: fedsim run measures the adversary."
    )
    yield (
        "An interval holds at 95% for one setting, over other held-out records like these and "
        "other trainings. The best of several settings is a little better by chance."
    )
    yield (
        "The search counts no privacy cost. The held-out records, which judge the models, need "
        "their own protection if they are private."
    )
    vantage = result.config.federation.vantage.value
    yield (
        f"The limit holds for one vantage, the {vantage}. A table has the bounds of theory for the "
        "others; --against sets the limit on one of them."
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


def _delta(result: Result) -> str:
    return f"{result.config.privacy.delta:g}"
