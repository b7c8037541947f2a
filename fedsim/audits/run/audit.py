"""The report of a run, from its transcript: what the adversary achieved and what theory allows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from adversaries.registry import titled
from adversaries.statistics import estimators
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.judgement.report import unclaimed
from fedsim.audits.measurements import (
    membership_audit,
    one_run_report,
    residual_report,
    trade_off_report,
)
from fedsim.audits.results.conditions import RUN
from fedsim.audits.results.measured import Accounted, Budget, Fit, RunBounds
from fedsim.audits.results.rows import Limit, Row
from fedsim.audits.results.verdicts import Checks
from fedsim.audits.run import empirical, guarantee, rows
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.audits.run.report import (
    NO_GUARANTEE,
    ChallengeFacts,
    DataFacts,
    Dropouts,
    MechanismFacts,
    RoundingCost,
    RunDetails,
    RunReport,
    Timing,
)
from fedsim.configuration import Config, to_run_config
from fedsim.configuration.federation import FederationConfig
from fedsim.federation.runs import spending
from fedsim.federation.runs.ledger import LedgerRow
from fedsim.game.mechanisms import fixed_point, privacy
from fedsim.privacy import identifiability
from fedsim.privacy.trust import Vantage

EXCESS = 1 + 1e-4
"""Factor by which the realised mu may exceed the accounted one, since gradients are rounded."""

COMPOSITION = "composition"
"""Check of what the steps compose to, which is known: an honest run never raises its alarm."""

SURE = f"with confidence {ALARM_CONFIDENCE:g}"


ABOVE = (
    f"The advantage at the vantage {{}} is above its bound: it is at least {{:.3f}} {SURE}, but "
    "rho_alpha is {:.3f}. The noise is not the noise that was accounted for, or a clipped {} "
    "exceeds the sensitivity."
)
BELIEVED = (
    f"The belief passes rho_beta too often: in at least {{:.2g}} of the trials on D {SURE}, but "
    "under this noise no pair passes it in more than {:.2g}."
)
COMPOSED = (
    "More was released than was accounted for. The {} rounds of the transcript compose to mu = "
    "{:.3f}, but the accounting of {} steps allows {:.3f}. Not all rounds were composed, or a "
    "difference exceeds the sensitivity."
)
NOT_OF_THEORY = (
    "The log-odds in {} do not follow {} (Kolmogorov-Smirnov p = {:.2g}): the mechanism is not as "
    "claimed."
)
GAUSSIAN = "N(+-s^2/2, s^2), s = LS/sigma, step by step"


def assemble(run: AuditedRun) -> RunReport:
    """Return the report of a run, which makes every check that the run allows.

    Checks use `ALARM_CONFIDENCE`: at the report's 95 % an honest mechanism would raise an alarm in
    one report of twenty. With local steps only checks of counted decisions remain. Their log-odds
    are not a likelihood, so that beliefs cannot contradict theory.
    """
    config, transcript, delta = run.config, run.transcript, run.delta
    measured = empirical.measure(run)
    # A canary is one record, even where the target is a group of records.
    one_run = one_run_report.report(config, transcript, run.releases, delta, run.confidence)
    residuals = residual_report.report(config, transcript, run.confidence)
    views = {vantage: view.arrays for vantage, view in run.views.items()}
    trade_offs = trade_off_report.report(views, run.releases.towards, run.confidence)
    observers = rows.measure(run, measured, one_run, residuals)
    allowed, bounds = observers[run.vantage.value].allowed, _bounds(run)
    parts = [
        _advantage_checks(run, observers),
        _belief_checks(run, bounds.accounted or allowed),
        one_run_report.checks(one_run, config, transcript, delta),
        run.proven.checks(allowed.epsilon),
        empirical.crafted_checks(transcript, allowed.epsilon, delta),
        trade_off_report.checks(trade_offs, run.vantage),
        residual_report.checks(residuals),
    ]
    made = {name: alarm for part in parts for name, alarm in part.items()}
    if len(made) < sum(map(len, parts)):
        raise RuntimeError("two checks have one name, so that the alarm of one is lost")
    alarms = [Finding(_why(text), rule=name) for name, text in made.items() if text]
    details = _details(
        run,
        bounds=bounds,
        empirical=measured,
        one_run=one_run,
        residuals=residuals,
        trade_offs=trade_offs,
        chance_alarms=len(made) - (COMPOSITION in made),
    )
    doubts = [Finding(_why(text), "", "caution", NO_GUARANTEE) for text in run.together.failings]
    doubts += [Finding(_why(text), severity="caution") for text in _cautions(run, details)]
    return unclaimed(
        [*alarms, *doubts],
        kind=RUN,
        name=config.run.name,
        unit=config.privacy.unit,
        delta=delta,
        confidence=run.confidence,
        vantage=run.vantage.value,
        rows=rows.judged(run, observers, [each.rule for each in alarms]),
        details=details,
        versions=run.facts["versions"],
    )


def _why(text: str) -> str:
    return text.removesuffix(".")


def _advantage_checks(run: AuditedRun, observers: Mapping[str, Row]) -> Checks:
    """Return the check of the advantage at every vantage.

    They count decisions, so that they also hold for attacks whose log-odds are not a posterior.
    """
    unit = "gradient" if run.config.privacy.unit == "record" else "update"
    made = {}
    for vantage, view in run.views.items():
        if view.both:
            limit, low = observers[vantage.value].allowed.rho_alpha, view.surely.low
            name = "advantage" if view is run.view else f"advantage_{vantage.value}"
            above = ABOVE.format(vantage.value, low, limit, unit)
            made[name] = above if low > limit else ""
    return made


def _belief_checks(run: AuditedRun, allowed: Limit | Accounted) -> Checks:
    view, mechanism = run.view, run.mechanism
    made = dict[str, str]()
    if not view.exact:
        return made
    if (limit := allowed.exceeded) < 1:
        seen = view.worlds, view.final, allowed.epsilon
        low = estimators.delta_prime(*seen, ALARM_CONFIDENCE).interval.low
        made["delta_prime"] = BELIEVED.format(low, limit) if low > limit else ""
    realised = float(view.trial_mu.max())
    more = COMPOSED.format(run.rounds, realised, mechanism.steps, mechanism.mu)
    made[COMPOSITION] = more if realised > EXCESS * mechanism.mu else ""
    theory = "sampled steps" if run.config.participation.secret else GAUSSIAN
    for world in ("world_d", "world_d_prime"):
        fit: Fit | None = getattr(view.prediction.fit, world)
        if fit is not None:
            off = NOT_OF_THEORY.format(world, theory, fit.p_value)
            made[world] = off if fit.p_value < 1 - ALARM_CONFIDENCE else ""
    return made


def _details(run: AuditedRun, **measured: Any) -> RunDetails:
    """Return what the report of a run has beside its rows; measured: what `assemble` measured."""
    config, facts = run.config, run.facts
    attacked = config.challenge.kind, config.audit.attacks, run.transcript
    return RunDetails(
        config={
            key: value for key, value in to_run_config(config).items() if key not in OF_THE_MACHINE
        },
        job=config.run.job,
        created=facts["created"],
        seed=config.run.seed,
        runtime=facts["runtime"],
        device=facts["device"],
        noise_source=config.privacy.noise_source,
        trust=config.federation.trust.value,
        neighbouring=config.privacy.neighbouring.value,
        trials=run.trials,
        rounds=run.rounds,
        clients=config.federation.clients,
        colluding=config.federation.colluding,
        data=DataFacts(
            name=titled(facts["dataset"]),
            records=config.data.records,
            held_out=facts["held_out"],
            client_sizes=facts["client_sizes"],
            mean_label_skew=facts["mean_label_skew"],
        ),
        parameters=facts["parameters"],
        precision=facts["precision"],
        challenge=_challenge(run),
        mechanism=_mechanism(run),
        released=run.together.released,
        dropouts=dropouts(config, run.noise_multiplier, run.rows),
        budget=_budget(run),
        prediction=run.view.prediction,
        membership_inference={
            **empirical.yeom_attacks(run),
            **membership_audit.attacks(*attacked, run.confidence),
        },
        membership_missing=membership_audit.why_none(*attacked),
        utility=empirical.utility(run),
        timing=Timing(facts["timing"]["federation"], facts["timing"]["total"]),
        crafted=empirical.crafted(run),
        **measured,
    )


def _bounds(run: AuditedRun) -> RunBounds:
    found, accounted = run.bounds, None
    if found.epsilon != found.tight_epsilon:
        exceeded = identifiability.tail_limit(run.mechanism, found.epsilon)
        accounted = Accounted(found.epsilon, found.rho_beta, exceeded)
    return RunBounds(
        accountant=found.accountant,
        accounted=accounted,
        tail_probability=found.tail_probability,
        theorem2_rho_alpha=found.theorem2_rho_alpha,
        yeom_bound=found.yeom_bound,
    )


def _cautions(run: AuditedRun, details: RunDetails) -> list[str]:
    config = run.config
    return [
        *guarantee.cautions(config),
        *([guarantee.ONE_TRAINING] if run.trials == 1 else []),
        *participation_cautions(config.federation, details.dropouts),
        *one_run_report.cautions(details.one_run),
        *guarantee.budget_cautions(details.budget, details.spent),
    ]


def _budget(run: AuditedRun) -> Budget:
    """Return the cost of one training's rounds for the worst-off client of the worst batch.

    Colluding clients are left out: their records are not secret. Where the noise comes from the
    operating system, privacy.stop-at limits the epsilon of everything released.
    """
    config, delta, rows = run.config, run.delta, run.rows
    spent = run.transcript[spending.EPSILON]
    if delta != config.privacy.delta:
        restated = config.privacy.model_copy(update={"delta": delta})
        config_then = config.model_copy(update={"privacy": restated})
        spent = spending.curve(config_then, run.noise_multiplier, rows)
    # The budget protects only clients with a guarantee.
    worst = np.delete(spent, sorted(spending.colluders(rows)), axis=0).max(axis=0)
    vantages, stop_at = list(Vantage), config.privacy.stop_at
    mine = worst[vantages.index(run.vantage)]
    return Budget(
        stop_at=stop_at or None,
        stop_at_delta=config.privacy.delta if stop_at else None,
        delta=delta,
        accountant=config.privacy.accountant,
        vantage=run.vantage.value,
        rounds_planned=config.training.rounds,
        rounds_run=run.rounds,
        stopped=run.rounds < config.training.rounds,
        epsilon={vantage.value: float(worst[place, -1]) for place, vantage in enumerate(vantages)},
        epsilon_by_round=mine.tolist(),
        earlier_attempts=spending.earlier_rounds(config, rows),
    )


IN_THE_CLEAR = "aggregated in the clear: a simulation of secure aggregation"


def _rounding(run: AuditedRun) -> RoundingCost | None:
    grid = fixed_point.grid(run.config, run.noise_multiplier, run.facts["parameters"])
    if grid is None:
        return None
    aggregation = run.config.federation.secure_aggregation
    return RoundingCost(
        secure_aggregation=aggregation,
        note=IN_THE_CLEAR if aggregation == "simulated" else "aggregated by Flower's SecAgg+",
        step=grid.step,
        bits=grid.bits,
        limit=grid.limit,
        sensitivity=grid.sensitivity,
        relative_growth=grid.growth,
        total_variation=grid.total_variation(run.rounds),
    )


def dropouts(config: Config, nominal: float, rows: Sequence[LedgerRow]) -> Dropouts | None:
    """Return the rounds with missing clients, over all batches of trials; None if none may miss."""
    federation = config.federation
    tolerated = federation.tolerated_dropouts
    if not tolerated:
        return None
    settled = [row for row in rows if row.present is not None]
    lacking = [row for row in settled if row.kind.participants != len(row.clients)]
    kinds = tuple(replace(row.kind, count=1) for row in settled) or None
    described = privacy.describe(config, nominal)
    if kinds is not None:
        described = replace(described, rounds=tuple(dict.fromkeys(kinds)))
    multipliers = [group.noise_multiplier for group in described.towards(federation.vantage).groups]
    return Dropouts(
        tolerated=tolerated,
        rounds_with_missing_clients=len({row.place for row in lacking}),
        fewest_shares=min(
            (row.kind.participants or 0 for row in settled), default=federation.clients
        ),
        effective_noise_multiplier=(min(multipliers), max(multipliers)),
    )


def participation_cautions(federation: FederationConfig, missing: Dropouts | None) -> list[str]:
    texts, colluding = [], federation.colluding
    if missing and missing.rounds_with_missing_clients:
        texts.append(
            f"Clients were missing in {missing.rounds_with_missing_clients} rounds of all batches "
            f"of trials and attempts. The worst round had {missing.fewest_shares} of "
            f"{federation.clients} clients. The bounds use the noise that was left."
        )
    if colluding:
        texts.append(
            f"{colluding} of {federation.clients} clients colluded with the adversary. The bounds "
            "are of the others. They hold against that many colluding clients, and not against "
            "more."
        )
    return texts


OF_THE_MACHINE = {
    *("data.root", "data.public-root", "model.weights", "run.out"),
    *("run.device", "run.threads", "run.max-memory"),
}
"""Keys that a report leaves out: paths and limits of one machine."""


def _mechanism(run: AuditedRun) -> MechanismFacts:
    """Return the mechanism; its guarantee covers only what was released."""
    config, nominal = run.config, run.noise_multiplier
    multipliers = {group.noise_multiplier for group in run.mechanism.groups}
    common = multipliers.pop() if len(multipliers) == 1 else None
    return MechanismFacts(
        noise_multiplier=nominal,
        effective_noise_multiplier=0.0 if run.mechanism.noiseless else common,
        clipping=config.training.clipping,
        sensitivity=config.privacy.sensitivity,
        steps=run.mechanism.steps,
        mu=run.mechanism.mu,
        local_steps=config.training.local_steps,
        sampling_rate=config.participation.rate,
        joining_rate=config.participation.joining_rate,
        rounding=_rounding(run),
        dp_guarantee=run.together.given,
        dp_note=run.together.note,
    )


def _challenge(run: AuditedRun) -> ChallengeFacts:
    target = run.facts["challenge"]
    replacement = target["replacement"]
    if run.config.challenge.is_crafted and replacement is not None:
        # Its position is not one of the pool.
        replacement = "the original record"
    return ChallengeFacts(
        record=target["record"],
        replacement=replacement,
        client=target["client"],
        choice="given" if target["measure"] == "given" else "max",
        measure=target["measure"],
        kind=target["kind"],
        label=target["label"],
        records=1
        if run.config.privacy.unit == "record"
        else int(run.facts["client_sizes"][target["client"]]),
    )
