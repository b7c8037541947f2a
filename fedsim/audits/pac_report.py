"""What a report says of PAC privacy: what a run tells of the secret, and what that allows."""

from dataclasses import asdict
from typing import Any

from fedsim.campaign.run_directory import Arrays
from fedsim.config import Config
from fedsim.mechanisms.composition import adds_up
from fedsim.privacy import pac
from fedsim.privacy.mechanism import Mechanism


def report(
    config: Config, mechanism: Mechanism, transcript: Arrays, advantage: float, delta: float
) -> dict[str, Any]:
    """Return what the run tells of the secret on average over its prior, and what that allows.

    mutual_information: nats that all rounds tell at most; realised_information: the mean over the
    trials of what noise shaped by candidates came to, None for other noise; released_information:
    of all trials together, None where the noise is the seed's. candidate_success_bound: how often
    anybody names the secret one of m random halves, from p0 = 1/m; None for a pair, whose candidate
    the question of the audit is about.
    """
    noise, halves = config.privacy.noise.mechanism, config.privacy.pac_prior == "halves"
    realised, trials = None, len(transcript["worlds"])
    if noise.by_candidate:
        information = config.privacy.mutual_information
        realised = float(transcript["mutual_information"].sum(1).mean())
    else:
        information = pac.mutual_information(mechanism)
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
    return {
        **asdict(pac.guarantee(information, delta)),
        "realised_information": realised,
        # Nats add up, whether the trials' secret was one or each had its own.
        "released_information": information * trials if adds_up(config) else None,
        "prior": config.privacy.pac_prior,
        "prior_description": prior,
        "candidates": config.candidates if noise.by_candidate else 2,
        "candidate_success_bound": pac.success_bound(information, 1 / config.candidates)
        if halves
        else None,
        "success": (1 + advantage) / 2,
        "note": f"{note} {noise.failing}" if noise.by_candidate else note,
    }
