"""Yeom's membership inference, against all records and against the challenge alone."""

from adversaries.attacks import membership
from adversaries.statistics.intervals import Interval
from adversaries.statistics.trials import two_sided
from fedsim.audits.measurements import membership_audit
from fedsim.audits.results.measured import MembershipAttack
from fedsim.audits.results.numbers import Ends
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.audits.run.set_up import target_records

POPULATION, CHALLENGE = "yeom", "yeom-challenge"
"""Their names in a report."""


def measure(run: AuditedRun) -> dict[str, MembershipAttack]:
    """Return what the attacks achieved; nothing where clients protect their records."""
    config, transcript = run.config, run.transcript
    if membership_audit.withheld(transcript):
        return {}
    found = {POPULATION: _against_all(run)}
    if config.challenge.kind != "gradient":
        challenge = membership.challenge_advantage(
            run.worlds, transcript["challenge_is_member"], run.confidence, run.played
        )
        both = two_sided(run.worlds)
        ends = _ends(challenge.interval) if both else None
        found[CHALLENGE] = MembershipAttack(challenge.point, ends)
    return found


def _against_all(run: AuditedRun) -> MembershipAttack:
    rates = run.transcript["true_positive_rate"], run.transcript["false_positive_rate"]
    if run.played.common:  # pairs are what is independent
        rates = rates[0].reshape(-1, 2).mean(1), rates[1].reshape(-1, 2).mean(1)
    false_positives = float(rates[1].mean())
    # Of random halves, half of the records that the attack takes for members are none.
    if run.config.privacy.pac_prior == "halves":
        return MembershipAttack(None, None, fpr=false_positives)
    level = run.played.level(run.confidence)
    population = membership.membership_advantage(*rates, level)
    members = sum(run.facts["client_sizes"]) - target_records(run)
    fresh = membership.over_records(*rates, members, run.facts["held_out"], level)
    return MembershipAttack(
        advantage=population.point,
        advantage_interval=_ends(fresh),
        advantage_interval_of_these=_ends(population.interval),
        tpr=float(rates[0].mean()),
        fpr=false_positives,
    )


def _ends(interval: Interval | None) -> Ends | None:
    return None if interval is None else (interval.low, interval.high)
