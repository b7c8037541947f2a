"""The report of a run, for the engineer and for the person the engineer forwards it to.

`report` is the content of report.json, `transcript` the arrays behind it: worlds bool [T], and
log_odds, sensitivities, noise_stds float64 [T, k]. A value that is null or absent prints as a dash,
or as ∞ with its reason.
"""

import base64
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy.special import expit, logit

from adversaries.estimators import trial_mu
from fedsim import figures
from fedsim.config import flatten
from fedsim.errors import InputError
from fedsim.figures import Bools, Floats, Measured
from fedsim.report_template import TEMPLATE

Report = Mapping[str, Any]
Interval = tuple[float, float]
Entries = list[tuple[str, str]]

DASH, INFINITE = "–", "∞"

LARGEST_SVG = 500_000
"""Characters above which a figure is a PNG instead."""

CLASSIC = "rdp-classic"
"""The accountant of the paper, which the empirical epsilon from sensitivities uses too."""

WHO = {
    "participant": "An adversary who took part in this federation and knew everything",
    "server": "An adversary who ran the server of this federation and knew everything",
    "released-model": "An adversary who saw only the released model and knew everything",
}
TRUST = {
    "central": "Here the server is trusted to add the noise to the sum of the owners' messages.",
    "local": "Here every owner adds the whole noise to its own message.",
    "distributed": "Here every owner adds a share of the noise, and the messages are summed "
    "under secure aggregation.",
}
LOWER_BOUNDS = {
    "clopper_pearson": "Clopper–Pearson",
    "gaussian": "Gaussian",
}
OPTIMIZER_SETTINGS = {
    "sgd": {"momentum": "momentum"},
    "adam": {"β₁": "beta1", "β₂": "beta2", "ε": "adam_epsilon"},
}
AUDIT_MODES = {
    "participant": "The beliefs were computed by the adversary itself, from what an owner receives "
    "and the background knowledge of the threat model.",
    "instrumented": "The beliefs were computed by the auditor, from the noise that was drawn; they "
    "are the adversary's, which it would have computed at greater cost.",
}
PROOF = "clopper_pearson"
"""The lower bound that answers how much is proven: fixed in advance, and the one assuming least."""
ATTACKS = {
    "yeom": ("Yeom", "Yeom: members are those with at most the mean loss"),
    "yeom_challenge": ("Yeom on the\nchallenge record", "Yeom on the challenge record alone"),
}


@dataclass(frozen=True)
class Transcript:
    """What the adversary saw: worlds [T]; log_odds, sensitivities and noise_stds [T, k]."""

    worlds: Bools
    log_odds: Floats
    sensitivities: Floats
    noise_stds: Floats

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> "Transcript":
        """Take the arrays of a run. Raises InputError if one is missing or of another shape."""
        names = ("log_odds", "sensitivities", "noise_stds")
        missing = [name for name in ("worlds", *names) if name not in arrays]
        if missing:
            raise InputError(
                f"the transcript has no array '{missing[0]}'; give the one that the run wrote"
            )
        worlds = np.asarray(arrays["worlds"], bool)
        steps = [np.asarray(arrays[name], np.float64) for name in names]
        shape = steps[0].shape
        if len(shape) != 2 or 0 in shape or worlds.shape != shape[:1]:
            raise InputError(
                f"the transcript's log_odds are {shape} for worlds {worlds.shape}, not [T, k] for "
                "[T]; give the one that the run wrote"
            )
        for name, array in zip(names, steps, strict=True):
            if array.shape != shape:
                raise InputError(
                    f"the transcript's {name} are {array.shape}, its log_odds {shape}; "
                    "give the one that the run wrote"
                )
        return cls(worlds, *steps)


@dataclass(frozen=True)
class Label:
    """What every reader must know before the numbers."""

    title: str
    text: str


@dataclass(frozen=True)
class Mark:
    """How a measurement stands to its limit; kind is good, caution or alarm."""

    kind: str
    text: str


@dataclass(frozen=True)
class Row:
    """One measured thing, its limit, and what both mean."""

    name: str
    answer: str
    limit: str
    reading: str
    detail: str = ""
    mark: Mark | None = None


@dataclass(frozen=True)
class Drawn:
    """A figure as it stands in the page."""

    title: str
    caption: str
    markup: Markup


def render_html(report: Report, transcript: Mapping[str, Any]) -> str:
    """Return the report as one HTML page that needs no other file, script or network.

    Raises InputError if the transcript's arrays are missing or do not fit together.
    """
    seen = Transcript.of(transcript)
    drawn = {
        name: Drawn(title, caption, _inline(figure, name, f"{title} {caption}"))
        for name, (figure, title, caption) in _figures(report, seen).items()
    }
    return ENVIRONMENT.from_string(TEMPLATE).render(
        name=_plain(_at(report, "name")),
        scope=_scope(report),
        verdict=_verdict(report),
        standing=_standing(report),
        mark=_against(
            report,
            "advantage",
            _interval(report, "empirical.advantage_interval"),
            _rho_alpha(report),
        ),
        alarm=_alarm(report),
        labels=_labels(report),
        questions=_questions(report),
        utility=drawn.pop("utility", None),
        figures=list(drawn.values()),
        trust=_trust(report),
        vantages=_vantages(report),
        training=_training(report),
        bounds=_bounds(report),
        estimates=_estimates(report),
        lower_bounds=_lower_bounds(report),
        confidence=_confidence(report),
        prediction=_prediction(report),
        inference=_inference(report),
        configuration=_configuration(report),
        warnings=_at(report, "warnings") or [],
        everything=[(name, _plain(value)) for name, value in flatten(report)],
        version=_at(report, "versions.fedsim"),
        created=_at(report, "created"),
    )


def write_figures(report: Report, transcript: Mapping[str, Any], directory: Path) -> list[Path]:
    """Write every figure into `directory`, as SVG, or as PNG where SVG would be too large.

    Returns the paths. Raises InputError as `render_html` does.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, (figure, _, _) in _figures(report, Transcript.of(transcript)).items():
        svg = figures.to_svg(figure)
        if len(svg) <= LARGEST_SVG:
            path, content = directory / f"{name}.svg", svg.encode()
        else:
            path, content = directory / f"{name}.png", figures.to_png(figure)
        path.write_bytes(content)
        paths.append(path)
    return paths


def summary(report: Report) -> RenderableType:
    """Return what the terminal shows at the end of a run: every measure beside its limit."""
    level = _at(report, "empirical.confidence")
    table = Table(
        title=Text(_plain(_at(report, "name"))),
        title_justify="left",
        caption=None
        if level is None
        else f"intervals and bounds (“at least”) at {_percent(level)}",
    )
    for heading in ("", "measured", "interval", "theory"):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    for name, path, theory in (
        ("advantage", "empirical.advantage", f"ρα {_number(_rho_alpha(report))}"),
        ("advantage predicted", "prediction.advantage", _standard_errors(report)),
        ("δ′", "empirical.delta_prime", f"tail {_number(_at(report, 'bounds.tail_probability'))}"),
        (
            "Yeom advantage",
            "membership_inference.yeom.advantage",
            f"e^ε − 1 = {_number(_at(report, 'bounds.yeom_bound'))}",
        ),
    ):
        between = _between(_interval(report, f"{path}_interval"), _number)
        table.add_row(name, _number(_at(report, path)), between, theory)
    for row in _estimates(report):
        table.add_row(Text(f"ε′ {row.name}"), row.answer, "", f"ε {row.limit}")
    for row in _lower_bounds(report):
        table.add_row(Text(f"ε′ at least, {row.name}"), row.answer, "", f"ε {row.limit}")
    table.add_row("accuracy", _first_to_last(report, "accuracy", _percent), "", "")
    labels = [Text(label.title, "bold") for label in _labels(report)]
    warnings = [Text(f"Warning: {text}", "yellow") for text in _at(report, "warnings") or []]
    return Group(table, *labels, *warnings)


# What the report says.


def _verdict(report: Report) -> str:
    vantage, trials = (_plain(_at(report, name)) for name in ("vantage", "trials"))
    who = WHO.get(vantage, f"An adversary at the vantage “{vantage}” who knew everything")
    if _at(report, "challenge.record") is None:
        secret = "whether this one owner took part"
    elif _at(report, "neighbouring") == "replace":
        secret = "which of two people's records was used"
    else:
        secret = "whether this one person's record was used"
    limit = _rho_alpha(report)
    if limit is None:
        allowed = "For this vantage theory states no limit."
    elif limit >= 1:
        allowed = "Theory sets no limit below 100%: the adversary may always be right."
    else:
        allowed = f"Theory allows at most {_percent((1 + limit) / 2)}."
    return (
        f"{who} except {secret} answered that question correctly in {_percent(_success(report))} "
        f"of {trials} trials, where tossing a coin is right in 50%. {allowed}"
    )


def _standing(report: Report) -> str:
    interval = _interval(report, "empirical.advantage_interval")
    between = f" ({_confidence(report)}interval {_between(interval, _number)})" if interval else ""
    return (
        f"On the scale of advantage, from 0 (a coin) to 1 (certainty), that is "
        f"{_number(_at(report, 'empirical.advantage'))}{between}; the limit ρα is "
        f"{_number(_rho_alpha(report))}."
    )


def _labels(report: Report) -> list[Label]:
    labels = []
    local, seeded = (
        _at(report, "mechanism.sensitivity") == "local",
        _at(report, "noise_source") == "seed",
    )
    if local:
        text = (
            "The noise was scaled to the local sensitivity of the challenge record, which depends "
            "on the data: an instrument that measures how tight the theory is."
        )
        labels.append(Label("Measurement, not a DP guarantee.", text))
    if seeded:
        text = (
            f"It comes from seed {_plain(_at(report, 'seed'))}, and whoever knows the seed can "
            "take it away again: fit for measuring, not for protecting people."
        )
        labels.append(Label("Experiment: noise is reproducible, not a DP guarantee.", text))
    instrumented = _at(report, "audit_mode") == "instrumented"
    if instrumented:
        text = (
            "The auditor computed the beliefs from the noise, which the owners handed over: the "
            "same numbers as the adversary's own, at less cost, in a federation that protects "
            "nobody."
        )
        labels.append(Label("Instrumented audit, not a DP guarantee.", text))
    if _at(report, "mechanism.dp_guarantee") is False and not (local or seeded or instrumented):
        labels.append(Label("Not a DP guarantee.", _at(report, "mechanism.dp_note") or ""))
    return labels


def _trust(report: Report) -> str:
    words = TRUST.get(str(_at(report, "trust")), "")
    if _locally(report) > 1:
        words += (
            " Owners take several steps of their own in a round, each at a model that only their "
            "own noise hides; so the bounds grant every vantage all of these steps."
        )
    return words


def _training(report: Report) -> list[str]:
    """Return, in whole sentences, what a step is, how the model takes it, and who audited it."""
    rounds, local = _at(report, "rounds"), _locally(report)
    rate = _plain(_at(report, "mechanism.sampling_rate"))
    if _sampled(report):
        step = (
            f"In each of {_plain(rounds)} rounds every record took part with probability "
            f"{rate}, by itself (Poisson sampling). The bounds count on it that nobody learns "
            "whether the challenge record did; the adversary is taken to know of all others."
        )
    elif local > 1:
        step = (
            f"In each of {_plain(rounds)} rounds every owner took {local} noisy steps on a model "
            f"of its own: {_plain(_at(report, 'mechanism.steps'))} noisy steps are accounted. The "
            "adversary sees only their sum, and decides by a linearised attack's score."
        )
    else:
        step = f"In each of {_plain(rounds)} rounds every record took part, in one step."
    sentences = [step, _optimisation(report), _audited(report), _gradients(report)]
    return [sentence for sentence in sentences if sentence]


def _optimisation(report: Report) -> str:
    if _at(report, "training.optimizer") is None:
        return ""
    optimizer, schedule, rate, local_rate, warmup = (
        _at(report, f"training.{key}")
        for key in (
            "optimizer",
            "schedule",
            "learning_rate",
            "local_learning_rate",
            "warmup_rounds",
        )
    )
    settings = ", ".join(
        f"{name} {_plain(value)}"
        for name, key in OPTIMIZER_SETTINGS.get(optimizer, {}).items()
        if (value := _at(report, f"training.{key}"))
    )
    return (
        f"The server's optimiser was {_plain(optimizer)}{f' ({settings})' if settings else ''}, "
        f"its learning rate {_plain(rate)} on the schedule {_plain(schedule)}"
        f"{f' after {_plain(warmup)} rounds of warm-up' if warmup else ''}"
        f"{f', that of the owners {_plain(local_rate)}' if local_rate else ''}. It works on what "
        "is released anyway and costs no privacy."
    )


def _audited(report: Report) -> str:
    return AUDIT_MODES.get(str(_at(report, "audit_mode")), "")


def _gradients(report: Report) -> str:
    """Say in which precision and by which rules per-example gradients were clipped."""
    precision, fallbacks = _at(report, "precision"), _at(report, "model.gradient_fallbacks")
    if precision is None:
        return ""
    sentence = f"Forward and backward passes ran in {_plain(precision)}"
    if fallbacks is None:
        return f"{sentence}."
    if not isinstance(fallbacks, Mapping) or not fallbacks:
        return f"{sentence}; every layer was clipped by its own rule."
    layers = "; ".join(f"{name} ({_plain(reason)})" for name, reason in fallbacks.items())
    return f"{sentence}; layers whose gradients went through torch.func: {layers}."


def _alarm(report: Report) -> bool:
    """Whether a measurement contradicts theory beyond chance, which the audit decides."""
    return bool(_at(report, "alarms"))


def _questions(report: Report) -> list[Row]:
    rho_alpha, advantage = _rho_alpha(report), _interval(report, "empirical.advantage_interval")
    success = ((1 + advantage[0]) / 2, (1 + advantage[1]) / 2) if advantage else None
    predicted = _at(report, "prediction.advantage")
    largest = _at(report, "empirical.epsilon.belief")
    surer = _interval(report, "empirical.delta_prime_interval")
    tail = _at(report, "bounds.tail_probability")
    yeom_bound = _at(report, "bounds.yeom_bound")
    rows = [
        Row(
            "How often was the adversary right?",
            _percent(_success(report)),
            _percent(None if rho_alpha is None else (1 + rho_alpha) / 2),
            "A coin is right in 50%."
            + ("" if predicted is None else f" Predicted: {_percent((1 + predicted) / 2)}."),
            f"{_confidence(report)}interval {_between(success, _percent)}" if success else "",
            _against(report, "advantage", advantage, rho_alpha),
        ),
        Row(
            "How sure did it become at most?",
            _percent(None if largest is None else float(expit(largest))),
            _percent(_rho_beta(report)),
            "The belief of the most extreme trial. The limit ρβ may be passed, but no more often "
            f"than the next row allows.{_score_caution(report)}",
        ),
        Row(
            "How often was it surer than ρβ?",
            _percent(_at(report, "empirical.delta_prime")),
            _percent(tail),
            "Of the trials with the record (δ′). The limit is the tail of the privacy loss, which "
            f"is not δ.{_score_caution(report)}",
            f"{_confidence(report)}interval {_between(surer, _percent)}" if surer else "",
            None if _locally(report) > 1 else _against(report, "delta_prime", surer, tail),
        ),
    ]
    if proven := _proven(report):
        above = proven.mark is not None and proven.mark.kind == "alarm"
        gap = (
            "Chance does this rarely: repeat with another seed, then doubt the noise."
            if above
            else "What it lacks of the limit is slack, or too few trials to tell."
        )
        rows.append(
            Row(
                "How much privacy loss is proven?",
                f"ε ≥ {proven.answer}",
                f"ε ≤ {proven.limit}",
                f"By {proven.name}, which assumes only independent trials. {gap}",
                mark=proven.mark,
            )
        )
    rows += [
        Row(
            "Does the final model betray its members?",
            _number(_at(report, "membership_inference.yeom.advantage")),
            f"none (e^ε − 1 = {_number(yeom_bound)})"
            if yeom_bound is not None and yeom_bound >= 1
            else _number(yeom_bound),
            "Advantage of membership inference (Yeom), which knows far less than the adversary.",
        ),
        Row(
            "What is the model worth?",
            _first_to_last(report, "accuracy", _percent),
            DASH,
            "Accuracy before the first and after the last round.",
        ),
    ]
    return rows


def _vantages(report: Report) -> list[dict[str, Any]]:
    rows = []
    for row in _at(report, "bounds.vantages") or []:
        infinite = row.get("noise_multiplier") == 0
        rows.append(
            {
                "vantage": row.get("vantage"),
                "audited": row.get("vantage") == _at(report, "vantage"),
                "noise_multiplier": _number(row.get("noise_multiplier")),
                "epsilon": _number(math.inf if infinite else row.get("epsilon")),
                "rho_beta": _percent(1.0 if infinite else row.get("rho_beta")),
                "rho_alpha": _number(1.0 if infinite else row.get("rho_alpha")),
                "note": row.get("note") or ("nothing hides the record here" if infinite else ""),
            }
        )
    return rows


def _bounds(report: Report) -> Entries:
    bounds = _at(report, "bounds") or {}
    epsilon = _epsilon(report, "epsilon")
    reason = " (no noise hides the record at this vantage)" if epsilon == INFINITE else ""
    accountant = _plain(bounds.get("accountant"))
    return [
        (f"ε at δ = {_plain(bounds.get('delta'))}", f"{epsilon}{reason}, accountant {accountant}"),
        ("ε by exact accounting", _epsilon(report, "tight_epsilon")),
        ("ρβ, limit of the belief", f"{_number(_rho_beta(report))} (from the ε above)"),
        ("ρβ by exact accounting", _number(bounds.get("tight_rho_beta"))),
        ("ρα, limit of the advantage", f"{_number(_rho_alpha(report))} (from the noise used)"),
        ("Tail: how often ρβ may be passed", _number(bounds.get("tail_probability"))),
        (
            "paper (Theorem 2), not a bound",
            f"{_number(bounds.get('theorem2_rho_alpha'))}: presumes the classic noise scale",
        ),
        ("Yeom's bound e^ε − 1", _number(bounds.get("yeom_bound"))),
    ]


def _estimates(report: Report) -> list[Row]:
    epsilon = _epsilon(report, "epsilon")
    comparable = _at(report, "bounds.accountant") == CLASSIC
    return [
        Row(
            "from sensitivities, exact",
            _measured_epsilon(report, "sensitivity_exact"),
            _epsilon(report, "tight_epsilon"),
            _worth_of_sensitivities(report),
        ),
        Row(
            "from sensitivities, classic RDP",
            _measured_epsilon(report, "sensitivity"),
            epsilon if comparable else DASH,
            "The same in the paper's accounting, which is looser: compares only with an ε of "
            f"the accountant {CLASSIC}.",
        ),
        Row(
            "from belief",
            _measured_epsilon(report, "belief"),
            epsilon,
            "The largest log-odds of any trial (paper's estimator). An extreme value: it grows "
            f"with the number of trials and may pass ε.{_score_caution(report)}",
        ),
        Row(
            "from advantage",
            _measured_epsilon(report, "advantage"),
            epsilon,
            "The paper's Eq. 15 with its missing factor 2. Presumes the classic noise scale: no "
            "statement about tightly calibrated noise.",
        ),
    ]


def _worth_of_sensitivities(report: Report) -> str:
    """Say what the estimator from sensitivities is worth for these steps."""
    sampled = _sampled(report)
    if sampled and _at(report, "neighbouring") == "replace":
        return (
            "None: where replaced records are sampled, the loss depends on both gradients and not "
            "only on how far they lie apart."
        )
    if _at(report, "mechanism.sensitivity") == "local":
        return (
            "A tautology here: noise scaled to these very sensitivities gives the theory's own ε "
            "back."
        )
    how = ", each sampled step at the trial's root mean square ratio to the noise" * sampled
    return (
        f"Composes the steps with the sensitivities that occurred, largest trial{how}. Trusts the "
        f"claimed noise.{_score_caution(report)}"
    )


def _score_caution(report: Report) -> str:
    """Say where log-odds are no likelihood, of whatever takes them for one."""
    if _locally(report) == 1:
        return ""
    return " With local steps it describes the score of a linearised attack and is not bounded."


def _lower_bounds(report: Report) -> list[Row]:
    limit = _at(report, "bounds.tight_epsilon")
    rows = []
    for name in _at(report, "empirical.lower_bounds") or {}:
        bound = f"empirical.lower_bounds.{name}"
        value, trusts = _at(report, f"{bound}.epsilon"), _at(report, f"{bound}.trusts_noise")
        mark = None
        if value is not None and limit is not None:
            if name in (_at(report, "alarms") or {}):
                mark = Mark("alarm", "Above theory")
            elif value > limit:
                mark = Mark("caution", "Above theory, within chance")
            else:
                mark = Mark("good", "Consistent")
        method, assumes, reason = (
            _at(report, f"{bound}.{entry}") for entry in ("method", "assumes", "reason")
        )
        worth = [
            f"Method: {method}." if method else "",
            f"Assumes: {assumes}." if assumes else "",
            f"Says nothing here: {reason}." if reason else "",
            ""
            if trusts is None
            else f"{'Trusts' if trusts else 'Does not trust'} the noise claimed.",
        ]
        rows.append(
            Row(
                LOWER_BOUNDS.get(name, str(name)),
                _number(value),
                _epsilon(report, "tight_epsilon"),
                " ".join(filter(None, worth)),
                mark=mark,
            )
        )
    return rows


def _prediction(report: Report) -> Entries:
    alike = _at(report, "prediction.deterministic")
    simulated = _at(report, "prediction.method") == "simulation"
    error = _at(report, "prediction.standard_error")
    if simulated:
        kind = "the signal-to-noise ratio were every step unsampled: not that of Λ, a mixture"
        how = " (the game played again with these gradient norms, this noise and sampling rate"
        how += "; alike in every trial)" if alike else "; approximate: they differ between trials)"
    else:
        how = ""
        if alike:
            kind = "the same in every trial: Λ ~ N(±μ²/2, μ²)"
        else:
            kind = "differs between trials: Λ is a mixture over them, and μ a summary"
    if _locally(report) > 1:
        kind = "of the linearised attack; its score follows N(±μ²/2, μ²) at best roughly"
    entries = [
        ("μ", f"{_number(_at(report, 'prediction.mu'))} ({kind})"),
        (
            "Advantage predicted",
            f"{_number(_at(report, 'prediction.advantage'))}"
            f"{f' ± {_number(error)}' if error else ''}{how}",
        ),
        (
            "Advantage measured",
            f"{_number(_at(report, 'empirical.advantage'))} ± "
            f"{_number(_at(report, 'empirical.standard_error'))} {_standard_errors(report)}",
        ),
        (
            "Trials won, lost, tied",
            ", ".join(_plain(_at(report, f"empirical.{n}")) for n in ("wins", "losses", "ties")),
        ),
    ]
    for world, key in (("D", "world_d"), ("D′", "world_d_prime")):
        statistic = _at(report, f"prediction.fit.{key}.statistic")
        p_value = _at(report, f"prediction.fit.{key}.p_value")
        fit = f"Kolmogorov–Smirnov distance {_number(statistic)}, p = {_number(p_value)}"
        entries.append((f"Fit on {world}", DASH if statistic is None else fit))
    return entries


def _inference(report: Report) -> list[dict[str, str]]:
    rows = []
    for name in _at(report, "membership_inference") or {}:
        attack = f"membership_inference.{name}"
        interval = _interval(report, f"{attack}.advantage_interval")
        rows.append(
            {
                "attack": ATTACKS.get(name, (name, name))[1],
                "advantage": _number(_at(report, f"{attack}.advantage")),
                "detail": _between(interval, _number),
                "tpr": _percent(_at(report, f"{attack}.tpr")),
                "fpr": _percent(_at(report, f"{attack}.fpr")),
            }
        )
    return rows


def _configuration(report: Report) -> list[tuple[str, Entries]]:
    sections: dict[str, dict[str, str]] = {
        "Federation": {
            "Owners": "owners",
            "Rounds": "rounds",
            "Trials": "trials",
            "Trust": "trust",
            "Vantage": "vantage",
            "Neighbouring": "neighbouring",
            "Runtime": "runtime",
            "Device": "device",
        },
        "Data and model": {
            "Dataset": "data.name",
            "Records": "data.records",
            "Held out": "data.held_out",
            "Partition": "data.partition",
            "Records per owner": "data.owner_sizes",
            "Model": "model.name",
            "Parameters": "model.parameters",
            "Precision": "precision",
            "Layers through torch.func": "model.gradient_fallbacks",
        },
        "Challenge": {
            "Record": "challenge.record",
            "Replacement": "challenge.replacement",
            "Owner": "challenge.owner",
            "Adversary": "challenge.adversary",
            "Dissimilarity": "challenge.measure",
            "Distance": "challenge.distance",
        },
        "Mechanism": {
            "Noise multiplier": "mechanism.noise_multiplier",
            "Effective noise multiplier": "mechanism.effective_noise_multiplier",
            "Clipping norm C": "mechanism.clipping_norm",
            "Sensitivity": "mechanism.sensitivity",
            "Noisy steps accounted": "mechanism.steps",
            "Local steps in a round": "mechanism.local_steps",
            "Sampling rate": "mechanism.sampling_rate",
            "DP guarantee": "mechanism.dp_guarantee",
            "Note": "mechanism.dp_note",
        },
        "Training": {
            "Learning rate": "mechanism.learning_rate",
            **{
                key.replace("_", " ").capitalize(): f"training.{key}"
                for key in _at(report, "training") or {}
                if key != "learning_rate"
            },
            "Audit mode": "audit_mode",
        },
        "Randomness and versions": {
            "Seed": "seed",
            "Noise from": "noise_source",
            **{name: f"versions.{name}" for name in _at(report, "versions") or {}},
        },
        "Seconds": {name: f"timing.{name}" for name in _at(report, "timing") or {}},
    }
    return [
        (title, [(name, _setting(_at(report, path))) for name, path in entries.items()])
        for title, entries in sections.items()
        if entries
    ]


def _scope(report: Report) -> str:
    sampled = _sampled(report)
    return " · ".join(
        (
            f"{_plain(_at(report, 'trials'))} trials",
            f"{_plain(_at(report, 'rounds'))} rounds",
            f"{_plain(_at(report, 'owners'))} owners",
            f"{_plain(_at(report, 'trust'))} trust",
            f"vantage: {_plain(_at(report, 'vantage'))}",
            f"neighbouring: {_plain(_at(report, 'neighbouring'))}",
            *([f"sampling rate {_plain(_at(report, 'mechanism.sampling_rate'))}"] * sampled),
            *([f"{_locally(report)} local steps"] * (_locally(report) > 1)),
        )
    )


# Figures.


def _figures(report: Report, seen: Transcript) -> dict[str, tuple[Figure, str, str]]:
    """Return name -> (figure, title, caption)."""
    rho_beta = _rho_beta(report)
    # Subsampled steps mix the two hypotheses, and the Gaussian prediction does not hold.
    subsampled, density = _sampled(report), _density(report)
    mu, prior = _at(report, "prediction.mu"), _at(report, "prior") or 0.5
    per_trial = trial_mu(seen.sensitivities, seen.noise_stds)
    if _at(report, "prediction.deterministic") and mu is not None:
        per_trial = np.full(len(seen.worlds), float(mu))
    rms, largest = (_number(_at(report, f"empirical.sensitivity_{n}")) for n in ("rms", "max"))
    bound = _at(report, "empirical.sensitivity_bound")
    drawn = {
        "belief": (
            figures.belief_trajectories(seen.worlds, seen.log_odds - logit(prior), rho_beta),
            "Belief, round by round.",
            "The adversary's posterior belief, from even odds, that D was used: single trials, "
            f"their median, and the band of 90% of them. Theory's limit ρβ is {_number(rho_beta)}.",
        ),
        "log-odds": (
            figures.log_odds_histogram(
                seen.worlds,
                seen.log_odds[:, -1],
                None if subsampled else per_trial,
                _at(report, "bounds.epsilon"),
                prior=prior,
                density=density if subsampled else None,
            ),
            "Final log-odds.",
            f"How far the two worlds lie apart after the last round. {_curves(report)}",
        ),
        "advantage": (
            figures.advantages(
                _measured(report),
                bound=_rho_alpha(report),
                prediction=_at(report, "prediction.advantage"),
                theorem2=_at(report, "bounds.theorem2_rho_alpha"),
            ),
            "Advantage of every attack.",
            f"Against the bound ρα = {_number(_rho_alpha(report))}; bars are measured, whiskers "
            f"their {_confidence(report)}intervals.",
        ),
        "sensitivity": (
            figures.sensitivities(seen.sensitivities, bound),
            "Local sensitivity of the challenge.",
            f"How much the two worlds really differ in a round, over all trials: root mean square "
            f"{rms}, largest {largest}, of {_number(bound)} that clipping allows.",
        ),
    }
    utility = _at(report, "utility")
    if utility and _at(utility, "accuracy.mean") and _at(utility, "loss.mean"):
        accuracy = _first_to_last(report, "accuracy", _percent)
        drawn["utility"] = (
            figures.utility(utility["rounds"], utility["accuracy"], utility["loss"]),
            "Utility of the global model.",
            f"Mean and 5–95% band of {_plain(utility.get('trials'))} trials on "
            f"{_plain(utility.get('records'))} records: accuracy {accuracy}, loss "
            f"{_first_to_last(report, 'loss', _number)}.",
        )
    return drawn


def _density(report: Report) -> Mapping[str, Any] | None:
    """Return the simulated densities, None unless all of them are there."""
    density = {
        name: _at(report, f"prediction.density.{name}")
        for name in ("edges", "world_d", "world_d_prime")
    }
    whole = all(isinstance(numbers, list) and None not in numbers for numbers in density.values())
    return density if whole else None


def _curves(report: Report) -> str:
    """Say what the curves in the histogram of log-odds are."""
    mu = _number(_at(report, "prediction.mu"))
    if not _sampled(report):
        if _locally(report) > 1:
            return (
                f"The curves are the normal prediction of the linearised attack (μ = {mu}), which "
                "its score follows at best roughly."
            )
        return f"The curves are theory's, not a fit (μ = {mu})."
    if _density(report) is None:
        return "Sampled steps have no Gaussian prediction."
    return (
        "The outlines are theory's, not a fit: the game of sampled steps, which is not Gaussian, "
        "played again with the recorded gradient norms and noise."
    )


def _measured(report: Report) -> list[Measured]:
    attacks = {"empirical": "DI adversary"}
    for name in _at(report, "membership_inference") or {}:
        attacks[f"membership_inference.{name}"] = ATTACKS.get(name, (name, name))[0]
    return [
        Measured(label, value, _interval(report, f"{path}.advantage_interval"))
        for path, label in attacks.items()
        if (value := _at(report, f"{path}.advantage")) is not None
    ]


def _inline(figure: Figure, name: str, alternative: str) -> Markup:
    """Return the figure as HTML: inline SVG with ids of its own, or an embedded PNG."""
    svg = figures.to_svg(figure)
    if len(svg) > LARGEST_SVG:
        data = base64.b64encode(figures.to_png(figure)).decode()
        return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, alternative)
    # HTML needs no namespaces, and ids and styles must not reach other figures or the page.
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg[svg.index("<svg") :])
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(">*{", ">svg *{")
    label = Markup('<svg role="img" aria-label="{}"').format(alternative)
    return Markup(svg.replace("<svg", label, 1))


# Values and their wording.


def _at(tree: Report, path: str) -> Any:
    """Return the value at a dotted path, None where it is absent, null or not a number."""
    value: Any = tree
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if isinstance(value, float) and math.isnan(value) else value


def _interval(report: Report, path: str) -> Interval | None:
    ends = _at(report, path)
    if not ends or any(end is None or math.isnan(end) for end in ends):
        return None
    return float(ends[0]), float(ends[1])


def _unprotected(report: Report) -> bool:
    return bool(_at(report, "mechanism.effective_noise_multiplier") == 0)


def _sampled(report: Report) -> bool:
    return bool((_at(report, "mechanism.sampling_rate") or 1) < 1)


def _locally(report: Report) -> int:
    """Return how many steps owners took on their own in a round; 1 in older reports."""
    return int(_at(report, "mechanism.local_steps") or 1)


def _rho_alpha(report: Report) -> float | None:
    value: float | None = _at(report, "bounds.rho_alpha")
    return 1.0 if value is None and _unprotected(report) else value


def _rho_beta(report: Report) -> float | None:
    value: float | None = _at(report, "bounds.rho_beta")
    return 1.0 if value is None and _unprotected(report) else value


def _epsilon(report: Report, name: str) -> str:
    value = _at(report, f"bounds.{name}")
    return INFINITE if value is None and _unprotected(report) else _number(value)


def _measured_epsilon(report: Report, name: str) -> str:
    value = _at(report, f"empirical.epsilon.{name}")
    if value is not None:
        return _number(value)
    if _unprotected(report):
        return f"{INFINITE} (no noise)"
    if name == "advantage" and _at(report, "empirical.advantage") == 1:
        return f"{INFINITE} (every trial won)"
    return DASH


def _proven(report: Report) -> Row | None:
    """Return the bound that assumes least; to take the largest of several would cost confidence."""
    names = list(_at(report, "empirical.lower_bounds") or {})
    if PROOF not in names or _at(report, f"empirical.lower_bounds.{PROOF}.epsilon") is None:
        return None
    return _lower_bounds(report)[names.index(PROOF)]


def _success(report: Report) -> float | None:
    """Return the share of trials that the adversary won; ties are not won."""
    wins, trials = _at(report, "empirical.wins"), _at(report, "trials")
    return wins / trials if wins is not None and trials else None


def _against(
    report: Report, name: str, interval: Interval | None, limit: float | None
) -> Mark | None:
    if interval is None or limit is None:
        return None
    if limit >= 1:
        return Mark("caution", "No protection")
    if name in (_at(report, "alarms") or {}):
        return Mark("alarm", "Above the limit")
    if interval[0] > limit:
        return Mark("caution", "Above the limit, within chance")
    if interval[1] < limit:
        return Mark("good", "Below the limit")
    return Mark("good", "Compatible with the limit")


def _standard_errors(report: Report) -> str:
    measured, predicted = _at(report, "empirical.advantage"), _at(report, "prediction.advantage")
    error = _at(report, "empirical.standard_error")
    if measured is None or predicted is None or not error:
        return ""
    error = math.hypot(error, _at(report, "prediction.standard_error") or 0.0)
    return f"({abs(measured - predicted) / error:.1f} standard errors apart)"


def _confidence(report: Report) -> str:
    confidence = _at(report, "empirical.confidence")
    return "" if confidence is None else f"{100 * confidence:g}% "


def _first_to_last(report: Report, series: str, wording: Callable[[Any], str]) -> str:
    means = _at(report, f"utility.{series}.mean")
    return f"{wording(means[0])} → {wording(means[-1])}" if means else DASH


def _between(interval: Interval | None, wording: Callable[[Any], str]) -> str:
    return f"{wording(interval[0])} to {wording(interval[1])}" if interval else ""


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return INFINITE if value > 0 else f"−{INFINITE}"
    if value == round(value) and abs(value) < 1e5:
        return f"{value:.0f}"
    return f"{value:.3f}" if 1e-2 <= abs(value) < 1e5 else f"{value:.3g}"


def _percent(value: float | None) -> str:
    if value is None or math.isnan(value):
        return DASH
    if value in (0, 1):
        return f"{100 * value:.0f}%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return f"{100 * value:.1f}%" if value >= 1e-2 else f"{100 * value:.2g}%"


def _setting(value: Any) -> str:
    if value is None:
        return DASH
    return ("yes" if value else "no") if isinstance(value, bool) else _plain(value)


def _plain(value: Any) -> str:
    """Return a value of report.json as text, floats with ten digits."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(entry)}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        separator = "; " if value and isinstance(value[0], Mapping) else ", "
        return separator.join(map(_plain, value))
    if isinstance(value, float):
        return f"{value:.10g}" if math.isfinite(value) else _number(value)
    return str(value)


def _typeset(value: Any) -> Any:
    """Escape a value and set its ρα and ρβ in the paper's subscripts."""
    if isinstance(value, Markup):
        return value
    text = str(escape(DASH if value is None else value))
    for letter in "αβ":
        text = text.replace(f"ρ{letter}", f"ρ<sub>{letter}</sub>")
    return Markup(text)


ENVIRONMENT = Environment(
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_typeset,
    trim_blocks=True,
    lstrip_blocks=True,
)
