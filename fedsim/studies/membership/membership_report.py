"""The report of `fedsim membership`: JSON, terminal, and a page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure as Drawing
from rich.console import RenderableType
from scipy.special import stdtrit

import fedsim
from adversaries.attacks.membership import MeanAdvantage
from adversaries.attacks.membership_attacks import Attack
from adversaries.attacks.roc import Curve, Estimate, performance
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.results import verdicts
from fedsim.audits.results.verdicts import StateWords, standing, words_of
from fedsim.common import report_directory
from fedsim.common.strict_json import strict_json
from fedsim.config.objects import Experiment
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.report.document import first_screen, terminal
from fedsim.report.document.blocks import (
    Bar,
    Bars,
    Check,
    Document,
    Figure,
    FirstScreen,
    Heading,
    Label,
    Listing,
    Mark,
    Part,
    Prose,
    tabulated,
)
from fedsim.report.document.first_screen import FAILED, OPEN, PASSED, settled, share, shares
from fedsim.report.document.html import render
from fedsim.report.document.wording import DASH, number, percent, plain, span
from fedsim.report.figures import training_figures
from fedsim.studies.membership import membership_game
from fedsim.studies.membership.membership_game import (
    Floats,
    Game,
    most_true_positives,
)

Report = Mapping[str, Any]

RATES = (0.001, 0.01, 0.1)
"""False positive rates at which true positive rates are reported, if there are enough pairs."""

DRAWN = np.geomspace(1e-5, 1, 101)
"""False positive rates at which curves are reported and drawn."""

RESAMPLING_SEED = 0x5EED
"""Seed of the bootstrap. It is fixed, so that the same losses give the same report."""

LABEL = (
    "Attacks give lower bounds: another attack may succeed where these fail. Every second model is "
    "a shadow model, and the others are attacked. Intervals are over the attacked models, for "
    "these records and shadow models; others would give somewhat different numbers. "
    "The limit of differential privacy is for one record. It holds against an adversary that knows "
    "all other records and sees every global model, but is not a client."
)


def assemble(
    experiment: Experiment,
    confidence: float,
    game: Game,
    attacks: Mapping[str, Attack],
    seconds: float,
) -> dict[str, Any]:
    """Return the report as strict JSON values."""
    data, run, scheme = experiment.data, experiment.run, experiment.game.scheme
    shadows = membership_game.of_shadows(len(game.observations.losses))
    members = game.observations.inclusion[~shadows]
    most = None if game.mechanism is None else PLD.delta(game.mechanism, 0.0)
    rows, above = _results(confidence, game, attacks, members, most)
    report = {
        "kind": "membership inference",
        "label": LABEL,
        "name": run.name,
        "data": data.name,
        "records": data.records,
        "held_out": data.held_out,
        "population": game.observations.population.shape[1]
        if game.observations.population is not None
        else 0,
        "model": experiment.game.model.name,
        "models": len(shadows),
        "shadow_models": int(shadows.sum()),
        "games": len(members),
        "pairs": members.size,
        "members": int(members.sum()),
        "rounds": scheme.training.rounds,
        "sampling_rate": scheme.participation.rate,
        "clipping": scheme.training.clipping,
        "noise_multiplier": game.noise_multiplier,
        "trust": scheme.federation.trust.value,
        "clients": scheme.federation.clients,
        "seed": run.seed,
        "confidence": confidence,
        "accuracy": float(game.accuracy.mean()),
        "trajectory_rounds": game.rounds,
        "bounds": _limits(scheme.privacy.delta, game.mechanism, most),
        "attacks": rows,
        "alarms": above,
        "seconds": seconds,
        "versions": {"fedsim": fedsim.__version__},
    }
    return strict_json(report)


def _results(
    confidence: float,
    game: Game,
    attacks: Mapping[str, Attack],
    members: npt.NDArray[np.bool_],
    most: float | None,
) -> tuple[dict[str, Any], list[str]]:
    """Return the result of every attack, and the names of those that exceed the limit.

    Args:
        most: largest advantage that theory allows; None without a limit.
    """
    generator = np.random.default_rng(RESAMPLING_SEED)
    allowed_at: dict[float, float] = {}
    if game.mechanism is not None:
        rates = most_true_positives(game.mechanism, np.array(RATES))
        allowed_at = dict(zip(RATES, rates, strict=True))
    rows, above = {}, []
    for name, attack in attacks.items():
        scores, threshold = membership_game.attacked(attack, game.observations)
        measured = performance(scores, members, confidence, RATES, generator, threshold)
        threshold_is = "chosen on the shadow models"
        if attack.randomised:
            threshold_is = "at random, with the score as probability"
        elif attack.threshold is not None:
            threshold_is = "fixed in advance"
        advantage, interval = measured.advantage, measured.advantage.interval
        rows[name] = {
            "title": attack.title,
            "source": attack.source,
            "advantage": advantage.point,
            "advantage_interval": interval and [interval.low, interval.high],
            "threshold": threshold_is,
            "area": _estimate(measured.area),
            "true_positive_at": [
                {"false_positive_rate": rate, "allowed": allowed_at.get(rate)} | _estimate(estimate)
                for rate, estimate in measured.true_positive.items()
            ],
            "roc": _points(measured.curve),
        }
        # Any of the attacks can raise a false alarm, so that they divide its probability.
        if most is not None and least_advantage(advantage, len(attacks)) > most:
            above.append(name)
    return rows, above


def _limits(delta: float, bound: Mechanism | None, most: float | None) -> dict[str, Any]:
    """Return the limits of theory; None stands for no limit."""
    roc = None
    if bound is not None:
        true_positive = most_true_positives(bound, DRAWN).tolist()
        roc = {"false_positive": DRAWN.tolist(), "true_positive": true_positive}
    epsilon = None if bound is None else PLD.epsilon(bound, delta)
    return {"delta": delta, "epsilon": epsilon, "advantage": most, "roc": roc}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    interval = estimate.interval
    return {
        "point": estimate.point,
        "interval": None if interval is None else [interval.low, interval.high],
    }


def _points(curve: Curve) -> dict[str, list[float]]:
    least = curve.false_positive[curve.false_positive > 0][0]
    false: Floats = np.append(DRAWN[least <= DRAWN], 1.0)
    true = [curve.true_positive_at(rate) for rate in false]
    return {"false_positive": false.tolist(), "true_positive": true}


def verdict(report: Report) -> list[str]:
    """Return sentences about the strongest attack and the limit of theory."""
    attacks: Mapping[str, Report] = report["attacks"]
    best = max(attacks.values(), key=lambda row: float(row["advantage"]))
    between = best["advantage_interval"]
    chance = "" if between is None or between[0] > 0 else ", which may be chance"
    sentences = [
        f"Of {len(attacks)} attacks on {report['games']} models of {report['records']} records, "
        f"{best['title']} has the largest advantage: {_span(best['advantage'], best)}"
        f"{chance}. It was selected on the same models, which flatters it.",
    ]
    bounds = report["bounds"]
    if bounds["advantage"] is None:
        return [*sentences, "Gradients are not clipped: differential privacy sets no limit."]
    epsilon = "∞" if bounds["epsilon"] is None else number(bounds["epsilon"])
    sentences.append(
        f"Differential privacy (ε = {epsilon} at δ = {bounds['delta']:g}, one record added or "
        f"removed) allows an advantage of {number(bounds['advantage'])}."
    )
    if above := [attacks[name]["title"] for name in report["alarms"]]:
        sentences.append(
            f"ALARM: {', '.join(above)}: more advantage than differential privacy allows, with "
            f"confidence {ALARM_CONFIDENCE:g} for all attacks together. The noise may be too small."
        )
    return sentences


def least_advantage(advantage: MeanAdvantage, attacks: int) -> float:
    """Return a lower bound on an advantage, at `ALARM_CONFIDENCE` for all attacks together.

    Returns:
        The bound; -1 if the advantage has no standard error.
    """
    if advantage.standard_error is None:
        return -1.0
    quantile = stdtrit(advantage.trials - 1, 1 - (1 - ALARM_CONFIDENCE) / attacks)
    return float(advantage.point - quantile * advantage.standard_error)


def _span(value: float, row: Report) -> str:
    interval = row["advantage_interval"]
    return number(value) if interval is None else f"{number(value)} ({span(interval, number)})"


def headings(report: Report) -> list[str]:
    row: Report = next(iter(report["attacks"].values()), {"true_positive_at": []})
    rates = [at["false_positive_rate"] for at in row["true_positive_at"]]
    return ["attack", "advantage", "AUC", *(f"TPR at FPR {percent(rate)}" for rate in rates)]


def rows(report: Report, attacks: Sequence[Report] = ()) -> list[list[str]]:
    """Return a row of text for each attack, and a last row with the limit of theory.

    Args:
        attacks: the attacks to show; () for all.
    """
    cells = [
        [
            row["title"],
            _span(row["advantage"], row),
            _with(row["area"], number),
            *(_with(at, percent) for at in row["true_positive_at"]),
        ]
        for row in attacks or report["attacks"].values()
    ]
    if report["bounds"]["advantage"] is None or not report["attacks"]:
        return cells
    first = next(iter(report["attacks"].values()))
    allowed = [percent(at["allowed"]) for at in first["true_positive_at"]]
    return [*cells, ["allowed", number(report["bounds"]["advantage"]), DASH, *allowed]]


def _with(estimate: Report, wording: Any) -> str:
    interval, point = estimate["interval"], wording(estimate["point"])
    return point if interval is None else f"{point} ({span(interval, wording)})"


def summary(report: Report) -> RenderableType:
    table = terminal.table(tabulated(headings(report), rows(report)), dense=True)
    return terminal.shown(*map(Prose, verdict(report)), table, Prose(LABEL))


def write(report: Report, directory: Path) -> Path:
    """Write report.html and report.json into a directory; return the path of the page."""
    return report_directory.write_report(directory, report, render_html(report))


def render_html(report: Report) -> str:
    """Return the page, which needs no other file, script or network."""
    caption = (
        "True positive rate at each false positive rate, on log scales. The left side matters: "
        "there, an attacker names few records and is right about them."
    )
    sources = [
        (row["title"], f"{row['source']}; threshold {row['threshold']}")
        for row in report["attacks"].values()
    ]
    how = (
        f"Intervals of {100 * report['confidence']:g}%: Student's t across {report['games']} "
        "attacked models for the advantage, a bootstrap over them for the rest. A fair coin puts "
        "each record of D into a model's training data. The other "
        f"{report['shadow_models']} models are shadow models; they also choose the thresholds."
    )
    best, *more = roc(report)
    others = [
        Figure(f"roc-{place}", drawing, "", caption) for place, drawing in enumerate(more, start=2)
    ]
    return render(
        Document(
            title=f"Membership inference on {report['name']}",
            kind="Membership inference",
            heading=report["name"],
            first=first(report),
            blocks=[
                Label("An attack, not a guarantee.", report["label"]),
                Heading("Results of the attacks"),
                tabulated(headings(report), rows(report)),
                Prose(how, small=True),
                Figure("roc", best, "", caption),
                *([Part("The curves of all other attacks", others, folded=True, heads=False)])
                * bool(others),
                Heading("The attacks"),
                Listing(sources, several=True),
                Heading("Settings"),
                Listing(_settings(report), several=True),
            ],
        )
    )


def roc(report: Report) -> list[Drawing]:
    """Return the figures of all curves; the first has the attacks with the largest advantage."""
    curves = {
        row["title"]: (row["roc"]["false_positive"], row["roc"]["true_positive"])
        for row in _best_first(report)
    }
    allowed = report["bounds"]["roc"]
    bound = None if allowed is None else (allowed["false_positive"], allowed["true_positive"])
    listed, size = list(curves.items()), training_figures.MOST_CURVES
    starts = range(0, max(1, len(listed)), size)
    return [training_figures.roc(dict(listed[start : start + size]), bound) for start in starts]


def _best_first(report: Report) -> list[Report]:
    return sorted(report["attacks"].values(), key=lambda row: -float(row["advantage"]))


MOST = 4
"""Number of attacks on the first screen, those with the largest advantage."""


def first(report: Report) -> FirstScreen:
    """Return the first screen of the page: the strongest attacks beside the limit of theory."""
    best, most = _best_first(report)[:MOST], report["bounds"]["advantage"]
    words = _state(report, best[0])
    return FirstScreen(
        answer=verdict(report),
        alarming=bool(report["alarms"]),
        figure=Bars(
            [_bar(report, row) for row in best],
            "How often an attack is right about whether a record was used "
            f"({percent(report['confidence'])} intervals).",
        ),
        table=tabulated(("Attack", "Advantage", "AUC"), [row[:3] for row in rows(report, best)]),
        checks=_checks(report, best[0], most),
        steps=[f"{words.advice.capitalize()}."],
        sign_off=first_screen.sign_off(
            data=f"{report['data']}, {report['records']} records",
            date=first_screen.today(),
            limits=(
                f"{report['games']} models were attacked, with {report['shadow_models']} shadow "
                "models. Another attack may succeed where these fail."
            ),
        ),
    )


def _state(report: Report, row: Report) -> StateWords:
    """Return how an attack compares with the limit of differential privacy."""
    most = report["bounds"]["advantage"]
    alarmed = row["title"] in (report["attacks"][name]["title"] for name in report["alarms"])
    between = row["advantage_interval"]
    state = standing(
        None if between is None else (between[0], between[1]),
        1.0 if most is None else most,
        exact=False,
        alarmed=alarmed,
    )
    unlimited = verdicts.NO_GUARANTEE if most is None else verdicts.NO_LIMIT
    return words_of(state, over=alarmed, measured=True, unlimited=unlimited)


def _bar(report: Report, row: Report) -> Bar:
    words, most = _state(report, row), report["bounds"]["advantage"]
    limit = 1.0 if most is None else share(most)
    mark, ends = Mark(words.kind, words.text), shares(row["advantage_interval"])
    return Bar(row["title"], mark, share(row["advantage"]), ends, limit)


def _checks(report: Report, best: Report, most: float | None) -> list[Check]:
    allowed = settled(
        not report["alarms"],
        "No attack has more advantage than differential privacy allows.",
        "An attack has more advantage than differential privacy allows.",
    )
    if most is None:
        return [allowed, Check(FAILED, "Gradients are not clipped: nothing limits an attack.")]
    between = best["advantage_interval"]
    below = between is not None and between[1] < most
    text = "The interval of the strongest attack lies below the limit."
    return [allowed, Check(PASSED if below else OPEN, text)]


def _settings(report: Report) -> list[tuple[str, str]]:
    keys = ["data", "records", "held_out", "population", "model", "models", "shadow_models"]
    keys += ["games", "pairs", "rounds", "sampling_rate", "clipping", "noise_multiplier"]
    keys += ["trust", "clients", "seed"]
    settings = [(key.replace("_", " "), plain(report[key])) for key in keys]
    settings.append(("accuracy on held-out records", percent(report["accuracy"])))
    return [*settings, ("seconds", number(report["seconds"]))]
