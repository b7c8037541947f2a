"""What a report says of PAC privacy: what a run tells of the secret, and what that allows."""

from dataclasses import asdict

from fedsim.audits.results.theory import Pac
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.game.mechanisms.composition import adds_up
from fedsim.privacy import pac


def measure(run: AuditedRun) -> Pac:
    """Return what the run tells of the secret on average over its prior, and what that allows.

    Anybody names the secret one of m random halves from p0 = 1/m on; of a pair the question of the
    audit is which it was.
    """
    config = run.config
    noise, halves = config.privacy.noise.mechanism, config.privacy.pac_prior == "halves"
    realised = None
    if noise.by_candidate:
        information = config.privacy.mutual_information
        realised = float(run.transcript["mutual_information"].sum(1).mean())
    else:
        information = pac.mutual_information(run.mechanism)
    prior = (
        f"{config.candidates} random halves of the records of all clients but the adversary"
        if halves
        else "D and D' at even odds"
    )
    note = (
        "Bounds how often the secret is guessed on average over the stated prior, not for every "
        "person in it. equivalent_epsilon is the epsilon whose bound on success is the same, not "
        "a DP guarantee."
    )
    return Pac(
        **asdict(pac.guarantee(information, run.delta)),
        realised_information=realised,
        # Nats add up, whether the trials' secret was one or each had its own.
        released_information=information * run.trials
        if adds_up(config.privacy.noise_source)
        else None,
        budgeted=config.privacy.mutual_information > 0,
        prior=config.privacy.pac_prior,
        prior_description=prior,
        candidates=config.candidates if noise.by_candidate else 2,
        candidate_success_bound=pac.success_bound(information, 1 / config.candidates)
        if halves
        else None,
        success=(1 + run.advantage.point) / 2,
        note=f"{note} {noise.failing}" if noise.by_candidate else note,
    )
