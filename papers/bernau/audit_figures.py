"""Figures 7 to 9 of the core paper: epsilon' by three routes, identification and membership."""

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes

from adversaries.attacks.membership_attacks import ATTACKS
from adversaries.statistics import estimators
from fedsim.audits.results.measured import MembershipAttack
from fedsim.audits.results.rows import Attack
from fedsim.commands.run import Run
from fedsim.privacy import identifiability
from fedsim.reports.document.wording import number, span
from fedsim.reports.figures import canvas
from papers.bernau.experiments import BELIEFS, TITLES, BernauCell, play
from papers.findings import Grid, ItemPicture, Means, Number, Reference, Reproduced, middle, near

FIGURES = {"mnist": 7, "purchase-100": 8, "adult": 9}

Runs = Mapping[float, Mapping[str, Run]]
"""Runs by rho_beta, and by the sensitivity that scales the noise."""

FROM_BELIEF = {
    ("mnist", "local"): (0.04, 1.1, 2.3, 4.1),
    ("mnist", "global"): (0.03, 0.9, 1.6, 3.25),
    ("adult", "local"): (0.05, 0.85, 1.9, 4.4),
    ("adult", "global"): (0.02, 0.45, 0.85, 1.65),
}
"""Epsilon' from the largest belief, read from the published curves."""

ATTACK_TITLES = {"yeom": "Yeom, members and others", "yeom-challenge": "Yeom, the challenge"}

READING = 0.08
"""Largest error of a value that was read from a curve."""

REPEATED = 2000


def audit(means: Means, data: str) -> Reproduced:
    """Return Figure 7, 8 or 9."""
    chosen = BELIEFS[data][1:3] if means.smoke else BELIEFS[data]
    runs = {
        belief: {
            scaled: play(means, BernauCell(data, scaled, "replace", belief))
            for scaled in ("local", "global")
        }
        for belief in chosen
    }
    return Reproduced(
        "ε′ from the sensitivities lies on the diagonal where noise is scaled to local "
        "sensitivity. Elsewhere, global sensitivity wastes the rest of ε. ε′ from the largest "
        "belief and ε′ from the advantage are estimates, with the spread of their trials. "
        "Membership inference by losses is far below identification, and Yeom's bound is far "
        "above both.",
        [
            one
            for belief, by_scale in runs.items()
            for scaled, run in by_scale.items()
            for one in _numbers(data, belief, scaled, run)
        ],
        [
            ItemPicture(
                f"figure-{FIGURES[data]}",
                f"ε′ of {TITLES[data]} against ε: (a) from sensitivities, (b) from the largest "
                "belief, (c) from the advantage; (d) advantage of identification and of "
                "membership inference, with their bounds.",
                _drawn(runs),
            )
        ],
        [_attacks({belief: by_scale["local"] for belief, by_scale in runs.items()})],
    )


def _attacks(runs: Mapping[float, Run]) -> Grid:
    """Return the advantage of every adversary at every rho_beta, noise scaled to LS."""
    columns = []
    for run in runs.values():
        report = run.details
        predicted, measured = report.details.prediction.advantage, report.attack
        cells = {
            "the bound ρα": number(report.row.rho_alpha),
            "predicted of identification": number(predicted),
            "measured of identification (DI)": _worded(measured.advantage, measured.interval),
        }
        for key, row in report.details.membership_inference.items():
            title = ATTACK_TITLES.get(key) or ATTACKS[key.replace("_", "-")].title
            worded = _worded(row.advantage, row.advantage_interval)
            cells[title] = f"{worded} {_mark(row, measured, predicted)}"
        columns.append(cells)
    return Grid(
        "Identification against membership inference (panel d). Each interval is at 95 %. The "
        "prediction of identification is exact, since noise is scaled to the pair's sensitivity. "
        "<: below this prediction, where the measured identification differs from 0. >: above "
        "prediction and measurement. ≈: the two cannot be told apart. The interval of Yeom's "
        "members and others also covers fresh ones.",
        ["advantage of", *(f"ρβ = {belief:g}" for belief in runs)],
        [(name, *(column[name] for column in columns)) for name in columns[0]],
    )


def _worded(advantage: float | None, interval: tuple[float, float] | None) -> str:
    between = span(interval, number)
    return number(advantage) + (f" ({between})" if between else "")


def _mark(row: MembershipAttack, measured: Attack, predicted: float | None) -> str:
    """Return "<" or ">" if an attack is shown to be below or above identification, else "≈"."""
    if row.advantage_interval is None or measured.interval is None or predicted is None:
        return "≈"
    (low, high), (least, most) = row.advantage_interval, measured.interval
    if high < predicted and least > 0:
        return "<"
    return ">" if low > max(most, predicted) else "≈"


def _numbers(data: str, belief: float, scaled: str, run: Run) -> list[Number]:
    report = run.details
    measured, at = report.details.empirical, f"ρβ = {belief:g}, {scaled} sensitivity"
    place = BELIEFS[data].index(belief)
    target = identifiability.epsilon_of_rho_beta(belief)
    numbers = [
        Number(
            f"{at}: ε′ from sensitivities",
            _value(measured.epsilon.sensitivity),
            references=[Reference(target, (0.99 * target, 1.01 * target))] * (scaled == "local"),
        ),
        _from_belief(data, at, scaled, place, run),
        Number(
            f"{at}: ε′ from the advantage",
            _value(measured.epsilon.advantage),
            _epsilons(run, report.attack.interval),
        ),
    ]
    if (
        scaled == "local"
        and (attack := report.details.membership_inference.get("yeom")) is not None
    ):
        assert attack.advantage is not None
        name = f"{at}: advantage of membership inference"
        numbers.append(Number(name, attack.advantage, attack.advantage_interval))
    return numbers


def _from_belief(data: str, at: str, scaled: str, place: int, run: Run) -> Number:
    """Return epsilon' of the largest belief, with an interval for another run."""
    read = FROM_BELIEF.get((data, scaled))
    references = [near(read[place], READING)] if read else []
    estimate = _value(run.details.attack.log_odds)
    name = f"{at}: ε′ from the largest belief (interval that holds 95 % of runs, by theory)"
    return Number(name, estimate, _largest(run), None, references)


def _largest(run: Run) -> tuple[float, float]:
    """Return quantiles of the largest log-odds of the trials on D, which are N(mu^2/2, mu^2)."""
    ratios = run.transcript["sensitivities"] / run.transcript["noise_stds"]
    mu = np.sqrt(np.square(ratios).sum(axis=1))[run.worlds]
    draws = np.random.default_rng(7).standard_normal((REPEATED, len(mu)))
    return middle((mu * draws + mu**2 / 2).max(axis=1))


def _epsilons(run: Run, advantages: tuple[float, float] | None) -> tuple[float, float] | None:
    if advantages is None:
        return None
    low, high = (estimators.epsilon_from_advantage(end, run.details.delta) for end in advantages)
    return low, high


def _value(value: float | None) -> float:
    """Return an estimate; 0 if it is undefined."""
    return 0.0 if value is None else value


def _drawn(runs: Runs) -> str:
    routes: tuple[tuple[str, Callable[[Run], float]], ...] = (
        (
            "(a) from sensitivities",
            lambda run: _value(run.details.details.empirical.epsilon.sensitivity),
        ),
        ("(b) from the largest belief", lambda run: _value(run.details.attack.log_odds)),
        (
            "(c) from the advantage",
            lambda run: _value(run.details.details.empirical.epsilon.advantage),
        ),
    )
    targets = [identifiability.epsilon_of_rho_beta(belief) for belief in runs]
    with canvas.panels(2, 2, height=1.7 * canvas.HEIGHT) as (figure, panels):
        for axes, (title, value) in zip(panels, routes, strict=False):
            axes.plot(targets, targets, color=canvas.GREEN, linestyle="--", label="ε′ = ε")
            for scaled, colour in (("local", canvas.VERMILION), ("global", canvas.BLUE)):
                by_run = [value(by_scale[scaled]) for by_scale in runs.values()]
                axes.plot(targets, by_run, color=colour, marker="o", label=f"{scaled} sensitivity")
            axes.set_title(title, pad=22)
            axes.set_xlabel("ε")
            axes.set_ylabel("ε′")
        canvas.legend_above(panels[0])
        _compared(panels[3], targets, [by_scale["local"] for by_scale in runs.values()])
    return canvas.to_svg(figure)


def _compared(axes: Axes, targets: list[float], runs: list[Run]) -> None:
    rows = [run.details for run in runs]
    identified = [_value(row.attack.advantage) for row in rows]
    inferred = [
        _value(row.details.membership_inference["yeom"].advantage)
        if "yeom" in row.details.membership_inference
        else np.nan
        for row in rows
    ]
    axes.plot(targets, identified, color=canvas.VERMILION, marker="o", label="identification")
    axes.plot(targets, inferred, color=canvas.PURPLE, marker="s", label="membership (Yeom)")
    axes.plot(targets, [row.row.allowed.rho_alpha for row in rows], color=canvas.INK, label="ρα")
    yeom = [min(1.0, row.details.bounds.yeom_bound) for row in rows]
    axes.plot(targets, yeom, color=canvas.MUTED, linestyle=":", label="Yeom's bound")
    axes.set_title("(d) advantage", pad=22)
    axes.set_xlabel("ε")
    axes.legend(fontsize=8)
