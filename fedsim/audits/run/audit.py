"""From a transcript to a report: what the adversary achieved, beside what theory allows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fedsim.audits.measurements import (
    check,
    membership_audit,
    one_run_report,
    residual_report,
    trust_report,
    vantage_report,
)
from fedsim.audits.measurements.bayesian_audit import bayesian_report
from fedsim.audits.results.measured import Campaign
from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import Bounds, VantageBounds
from fedsim.audits.run import (
    alarms,
    budget,
    campaign,
    cautions,
    crafted_report,
    empirical,
    lowering,
    one_training,
    pac_report,
    set_up,
    vantage_verdicts,
    yeom,
)
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.config import Config
from fedsim.federation.runs.ledger_row import Row
from fedsim.federation.runs.run_directory import Arrays
from fedsim.privacy import identifiability


def assemble(
    config: Config,
    facts: Mapping[str, Any],
    transcript: Arrays,
    confidence: float,
    delta: float,
    rows: Sequence[Row] = (),
) -> Report:
    """Return the report of a run.

    Args:
        transcript: the run's arrays by name.
        confidence: of every interval and bound, in (0, 1).
        delta: at which epsilons are stated, in (0, 1).
        rows: of the run's ledger, which says what was released; without any it is what was planned.
    """
    run = AuditedRun(config, facts, transcript, confidence, delta, rows)
    report = _measured(run)
    checks = alarms.checks(run, report)
    raised = check.alarms(checks)
    report = replace(
        report,
        contradictions=raised,
        alarms=len(raised),
        chance_alarms=check.chance_alarms(checks),
        warnings=[*raised.values(), *_cautions(run, report)],
    )
    report = replace(report, verdicts=vantage_verdicts.measure(run, report))
    return one_training.without_rates(report) if run.trials == 1 else report


def _measured(run: AuditedRun) -> Report:
    """Return the report without what its checks say."""
    config, facts, transcript = run.config, run.facts, run.transcript
    delta, confidence = run.delta, run.confidence
    return Report(
        name=config.run.name,
        job=config.run.job,
        created=facts["created"],
        seed=config.run.seed,
        versions=facts["versions"],
        runtime=facts["runtime"],
        device=facts["device"],
        noise_source=config.privacy.noise_source,
        trust=config.federation.trust.value,
        vantage=run.vantage.value,
        unit=config.privacy.unit,
        neighbouring=config.privacy.neighbouring.value,
        prior=config.audit.prior,
        trials=run.trials,
        rounds=run.rounds,
        clients=config.federation.clients,
        colluding=config.federation.colluding,
        data=set_up.data(run),
        model=set_up.model(run),
        precision=facts["precision"],
        training=set_up.training(run),
        audit_mode=config.audit.mode,
        verdicts=[],
        lowering=lowering.measure(run),
        challenge=set_up.challenge(run),
        mechanism=set_up.mechanism(run),
        released=run.together.released,
        bounds=_bounds(run),
        dropouts=trust_report.dropouts(config, run.noise_multiplier, run.rows),
        budget=budget.measure(run),
        prediction=replace(run.prediction, distance=empirical.distance(run)),
        empirical=empirical.measure(run),
        membership_inference={
            **yeom.measure(run),
            **membership_audit.attacks(config, transcript, confidence),
        },
        membership_missing=membership_audit.why_none(
            config.challenge.kind, config.audit.attacks, transcript
        ),
        bayesian=bayesian_report(
            config.training,
            config.privacy.neighbouring,
            config.federation.vantage,
            transcript,
            delta,
            run.releases,
        ),
        # A canary is one record, whatever the target group is.
        one_run=one_run_report.report(config, transcript, run.of_one, delta, confidence),
        utility=empirical.utility(run),
        timing=set_up.timing(run),
        vantages=vantage_report.report(
            config, transcript, run.vantage_bounds, run.predictions, delta, confidence
        ),
        pac=pac_report.measure(run),
        crafted=crafted_report.measure(run),
        residuals=residual_report.report(config, transcript, confidence, run.played),
        campaign=_campaign(run),
        contradictions={},
        alarms=0,
        chance_alarms=0,
        warnings=[],
    )


def _campaign(run: AuditedRun) -> Campaign:
    ends, predicted = empirical.advantage_interval(run), run.prediction.advantage
    return campaign.assemble(run.config, run.facts, run.transcript, ends, predicted)


def _bounds(run: AuditedRun) -> Bounds:
    rows = []
    for row in run.vantage_bounds:
        named = {"trust": row.trust.value, "vantage": row.vantage.value}
        rows.append(VantageBounds(**asdict(row) | named))
    return Bounds(
        **asdict(run.bounds),
        tail_limit=identifiability.tail_limit(run.mechanism, run.bounds.epsilon),
        vantages=rows,
    )


def _cautions(run: AuditedRun, report: Report) -> list[str]:
    """Return what a reader must know before the numbers, beside the alarms."""
    config, trials = run.config, run.trials
    return [
        *cautions.cautions(config),
        *([one_training.CAUTION] if trials == 1 else []),
        *campaign.cautions(config.trials, trials),
        *campaign.imprecise(report.campaign),
        *trust_report.cautions(config.federation, report.mechanism.rounding, report.dropouts),
        *one_run_report.cautions(report.one_run),
        *cautions.budget_cautions(report.budget),
    ]
