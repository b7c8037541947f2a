"""What a crafted target, or a group of copies, proves about one record.

The same trials have two adversaries: the one of the identification game, and that of Jagielski et
al., which sees only the released model (`fedsim.game.observers.released_model`).
"""

from dataclasses import asdict, replace

import numpy as np
from scipy.special import ndtri

from adversaries.attacks.poisoning import per_record
from adversaries.statistics import gaussian
from adversaries.statistics.design import INDEPENDENT, Design
from adversaries.statistics.forecast import trial_mu
from adversaries.statistics.gaussian_bounds import gaussian_bound, lessened
from adversaries.statistics.intervals import ALARM_CONFIDENCE, LowerBound
from adversaries.statistics.lower_bounds import clopper_pearson_bound, clopper_pearson_split
from fedsim.audits.results import measured
from fedsim.audits.results.measured import Crafted
from fedsim.audits.results.verdicts import Check
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.federation.runs.run_directory import Arrays
from fedsim.privacy.accounting import PLD

WHAT = {
    "record": "a record of D",
    "backdoor": "a record of D with a pattern and another label",
    "clipbkd": "a record along the direction that the data use least, labelled with the class that "
    "the first model likes least (ClipBKD)",
    "mislabelled": "a record of D with another label",
    "blank": "a record of zeros",
    "gradient": "a gradient of the clipping norm, which no record has",
}


def measure(run: AuditedRun) -> Crafted | None:
    """Return the `crafted` of the report; None where the target is one record of D.

    All lower_bounds are about one record, by group privacy, at delta. The released model has one
    only where its score was kept.
    """
    config, delta, confidence = run.config, run.delta, run.confidence
    kind, copies = config.challenge.kind, config.challenge.copies
    if kind == "record" and copies == 1:
        return None
    return Crafted(
        kind=kind,
        copies=copies,
        label=run.facts["challenge"]["label"],
        description=WHAT[kind],
        initialisation=config.model.initialisation,
        delta=delta,
        confidence=confidence,
        epsilon=PLD.epsilon(run.of_one.towards(run.vantage), delta),
        group_epsilon=PLD.epsilon(run.mechanism, delta),
        lower_bounds={
            name: measured.LowerBound(**asdict(bound))
            for name, bound in bounds(
                run.transcript,
                copies,
                delta,
                confidence,
                not_normal=run.proven.not_normal,
                not_gaussian=run.proven.refused.get("mu_gdp"),
                played=run.played,
            ).items()
        },
    )


def bounds(
    transcript: Arrays,
    copies: int,
    delta: float,
    confidence: float,
    *,
    not_normal: str | None = None,
    not_gaussian: str | None = None,
    played: Design = INDEPENDENT,
) -> dict[str, LowerBound]:
    """Return lower bounds on the epsilon of one record, by adversary.

    "identification" uses the log-odds at the threshold 0. "identification_gaussian" uses the same
    by mu_k = k mu, reduced where the trials' mu vary slightly. "released_model" uses the poison's
    score, at a threshold that half of the trials choose. With "_mu_gdp", the counts bound mu of a
    Gaussian mechanism, and the score has the threshold that suits this bound.
    """
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    level = played.level(confidence)
    counted = {"identification": clopper_pearson_bound(worlds, final, delta, level)}
    for_mu = dict(counted)
    if "poison_scores" in transcript:
        scores = np.asarray(transcript["poison_scores"], np.float64)
        counted["released_model"] = clopper_pearson_split(worlds, scores, delta, level)
        for_mu["released_model"] = clopper_pearson_split(worlds, scores, delta, level, for_mu=True)
    proven = {}
    for name, bound in counted.items():
        proven[name] = per_record(bound, copies)
        if not_gaussian is None:
            proven[f"{name}_mu_gdp"] = by_share_of_mu(for_mu[name], copies)
    if not_normal is None and not played.common:
        of_trials = trial_mu(transcript["sensitivities"], transcript["noise_stds"])
        bound = lessened(gaussian_bound(worlds, final, delta, level), of_trials, delta)
        mu = bound.details.get("mu_low", 0.0) / copies
        proven["identification_gaussian"] = replace(
            bound,
            epsilon=gaussian.epsilon(mu, delta),
            method=f"{bound.method}, divided among {copies} records",
        )
    return {name: replace(bound, confidence=confidence) for name, bound in proven.items()}


def by_share_of_mu(bound: LowerBound, copies: int) -> LowerBound:
    """Return what counted rates prove about one of k records whose steps are Gaussian mechanisms.

    If TPR >= t and FPR <= f hold together, the group's mu_k is at least Phi^-1(t) - Phi^-1(f). It
    is at most k times the mu of one record, so that epsilon(mu_k/k, delta) is a bound for one. Mu
    loses nothing when it is divided, unlike (epsilon, delta).
    """
    rates = bound.details
    true, false = rates.get("true_positive_rate_low", 0), rates.get("false_positive_rate_high", 1)
    mu = max(0.0, float(ndtri(true) - ndtri(false))) / copies
    return replace(
        bound,
        epsilon=gaussian.epsilon(mu, bound.delta),
        method=f"mu of Gaussian privacy from {bound.method}, shared by {copies}",
        assumes=f"{bound.assumes}, a mechanism that composes to a Gaussian one",
        details=rates | {"mu_low": mu},
    )


def checks(report: Crafted | None, transcript: Arrays, played: Design) -> list[Check]:
    """Return the check of the released model's bound against the epsilon of one record.

    `bounds_audit` checks the bounds of the log-odds.
    """
    if report is None or "poison_scores" not in transcript:
        return []
    scores = np.asarray(transcript["poison_scores"], np.float64)
    level = played.level(ALARM_CONFIDENCE)
    proven = clopper_pearson_split(transcript["worlds"], scores, report.delta, level)
    bound, epsilon = per_record(proven, report.copies), report.epsilon
    alarm = None
    if bound.epsilon > epsilon:
        alarm = (
            "The released model reveals the target beyond what the noise allows: epsilon of one "
            f"record is at least {bound.epsilon:.3f} with confidence {ALARM_CONFIDENCE:g}, but "
            f"theory allows {epsilon:.3f} at delta {report.delta:g}."
        )
    return [Check("poison_score", alarm)]
