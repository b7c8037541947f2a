"""A round of PAC-private training: which candidate it is on, the noise, and what it gives away.

The secret is which of m stated candidates all rounds of a trial train on. The clients send their
clean sums under every candidate; the trusted server adds noise that is shaped by how these differ,
and releases the sum under the secret one. Nothing hides directions in which no two candidates
differ: not differential privacy. The mathematics is that of `fedsim.privacy.pac`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from fedsim.common.randomness import Role, generator
from fedsim.privacy import pac
from fedsim.privacy.noise.mechanism import Bools, Floats, Learnt

Integers = npt.NDArray[np.int64]

FLOOR = 0.01
"""The share of the even prior in the weights that noise is shaped by.

A candidate that is all but ruled out would else get next to no noise, and stand out if it is true.
"""


@dataclass(frozen=True)
class Released:
    """What a round makes of the candidates: the release and what it says.

    Attributes:
        total: r, [T, P].
        log_posterior: [T, m], of the candidates, given all releases so far.
        information: [T], the log det bound on the nats that this round told.
        noise_std: [T], root mean square over the directions that have noise.
        spread: [T], the distance of the first two candidates.
    """

    total: Floats
    log_posterior: Floats
    information: Floats
    noise_std: Floats
    spread: Floats


def halves(seed: int, client: int, records: int, draws: int) -> Bools:
    """Return which of a client's records are in each candidate, the same in every trial.

    Random halves, each followed by its complement, so that every record is in exactly half of the
    candidates; of an odd number the first of a pair has the smaller part.

    Raises ValueError if draws are odd.

    Args:
        seed: of the run.
        client: the partition.
        records: n, how many it has.
        draws: m, even.

    Returns:
        bool [m, n].
    """
    if draws % 2:
        raise ValueError(f"{draws} draws are not pairs of complements")
    random = generator(seed, Role.CANDIDATES, partition=client)
    ranks = random.permuted(np.tile(np.arange(records), (draws // 2, 1)), axis=1)
    first = ranks < records // 2
    return np.stack([first, ~first], axis=1).reshape(draws, records)


def pair(records: int, challenge: int, replaced: bool) -> Bools:
    """Return which of a client's records are in D and in D'.

    Args:
        records: n, how many it has.
        challenge: the column of x^.
        replaced: whether x^' stands behind the records, in D' alone.

    Returns:
        bool [2, n], or [2, n + 1].
    """
    masks = np.ones((2, records + replaced), dtype=np.bool_)
    masks[1, challenge] = False
    if replaced:
        masks[0, records] = False
    return masks


def secrets(seed: int, trials: Sequence[int], worlds: Bools, membership: Bools) -> Integers:
    """Return the secret candidate of every trial: uniform among those of the trial's world.

    Half of the candidates and half of the trials have the challenge record, so the secret is
    uniform over all m.

    Args:
        seed: of the run.
        trials: whose random numbers each of the T trials draws.
        worlds: bool [T], whether the challenge record is used.
        membership: bool [m], in which candidates it is.

    Returns:
        int64 [T].
    """
    places = [np.flatnonzero(membership == world) for world in (False, True)]
    chosen = [
        generator(seed, Role.SECRET, trial=trial).choice(places[int(world)])
        for trial, world in zip(trials, worlds, strict=True)
    ]
    return np.asarray(chosen, dtype=np.int64)


def release(
    candidates: Floats,
    secret: Integers,
    log_posterior: Floats,
    information: float,
    normals: Floats,
    fit_posterior: bool,
) -> Released:
    """Return the sums under the secret candidates with noise for a budget of information.

    r = mean + sum_j u_j (<c_s - mean, u_j> + sigma_j z_j) along the directions u_j of the
    candidates' covariance, sigma_j^2 the least noise of linear information v. What rounding makes
    of differences outside these directions is not released. The noise is the same whatever signs
    and order the directions have: z = V^T normals.

    Args:
        candidates: c, the clean sums, [T, m, P].
        secret: s, [T].
        log_posterior: [T, m], given the rounds before.
        information: the round's budget v in nats.
        normals: [T, m], independent standard normals.
        fit_posterior: whether the covariance is that under what is known of the secret by now. With
            m > 2 that may exceed the covariance under even odds, because the candidates depend on
            earlier releases. For two candidates no odds give a larger covariance than even ones.
    """
    # The weights that the noise is fitted to. They hold `FLOOR` of even odds, Cov_w <=
    # Cov_w' / (1 - FLOOR), so that the budget is (1 - FLOOR) v under them.
    posterior = np.exp(log_posterior)
    if fit_posterior:
        weights = (1 - FLOOR) * posterior + FLOOR / posterior.shape[-1]
        budget = (1 - FLOOR) * information
    else:
        weights = np.full_like(posterior, 1 / posterior.shape[-1])
        budget = information
    # The candidates along the directions of their covariance, and the least noise along each.
    seen = pac.spectrum(candidates, weights)
    variances = pac.anisotropic_variances(seen.eigenvalues, budget)
    noise = np.sqrt(variances) * (normals[:, None, :] @ seen.vectors)[:, 0]
    # What is seen of the secret candidate, and what that says of all m.
    rows = np.arange(len(secret))
    observed = seen.coordinates[rows, secret] + noise
    unnormalised = log_posterior + log_likelihoods(observed, seen.coordinates, variances)
    believed = posterior if fit_posterior else weights
    noisy = np.maximum((variances > 0).sum(-1), 1)
    return Released(
        seen.point(observed),
        unnormalised - logsumexp(unnormalised, axis=1, keepdims=True),
        pac.posterior_information(seen.coordinates, believed, variances),
        np.sqrt(variances.sum(-1) / noisy),
        np.linalg.norm(seen.coordinates[:, 0] - seen.coordinates[:, 1], axis=-1),
    )


def log_likelihoods(observed: Floats, coordinates: Floats, variances: Floats) -> Floats:
    """Return log N(observed; coordinates_i, variances) up to a term that all m share.

    Args:
        observed: [T, r].
        coordinates: [T, m, r], of the candidates.
        variances: [T, r], 0 where there is nothing to see.

    Returns:
        [T, m].
    """
    inverse = np.divide(1, variances, out=np.zeros_like(variances), where=variances > 0)
    # (y - a)^2 less y^2: what the candidates share would drown what sets them apart.
    apart = coordinates * (observed[:, None] - coordinates / 2)
    return (apart * inverse[:, None]).sum(-1)


def log_odds(log_posterior: Floats, membership: Bools) -> Floats:
    """Return the log-odds [T] that the secret is a candidate with the challenge record.

    Args:
        log_posterior: [T, m].
        membership: bool [m], which candidates have it.
    """
    sides = [logsumexp(log_posterior[:, membership == world], axis=1) for world in (True, False)]
    return sides[0] - sides[1]


class Releases:
    """The rounds of a batch of trials: what the server remembers between them.

    Args:
        information: nats for each round.
        prior: "pair" or "halves".
        seed: of the secrets.
        trials: whose random numbers each of the T trials draws.
        worlds: bool [T], which train on D.
    """

    def __init__(
        self, information: float, prior: str, seed: int, trials: Sequence[int], worlds: Bools
    ) -> None:
        self._information = information
        self._prior = prior
        self._seed = seed
        self._trials = trials
        self._worlds = worlds
        self._log_posterior: Floats | None = None

    def step(
        self,
        candidates: Floats,
        membership: Bools,
        present_norm: Floats,
        absent_norm: Floats,
        normals: Floats,
    ) -> tuple[Floats, Learnt]:
        """Return the release of a round and what the adversary concludes from it.

        Args:
            candidates: [T, m, P], clean sums of all clients together.
            membership: bool [m], which of them have the challenge record.
            present_norm: |g| of the challenge, [T].
            absent_norm: |g'|, [T].
            normals: [T, m], independent standard normals.

        Returns:
            [T, P], and by name, [T] each: `ratios`, by how much the log-odds of the record's being
            there have grown; `mutual_information`, the bound on the nats that the round told of the
            secret; and what else a `Step` has.
        """
        if self._log_posterior is None:
            self._log_posterior = np.full(candidates.shape[:2], -np.log(candidates.shape[1]))
        before = self._log_posterior
        chosen = secrets(self._seed, self._trials, self._worlds, membership)
        released = release(
            candidates, chosen, before, self._information, normals, self._prior != "pair"
        )
        self._log_posterior = released.log_posterior
        ratios = log_odds(released.log_posterior, membership) - log_odds(before, membership)
        spread = released.spread if self._prior == "pair" else present_norm
        return released.total, {
            "ratios": ratios,
            "sensitivities": spread,
            "noise_stds": released.noise_std,
            "present_norms": present_norm,
            "absent_norms": absent_norm,
            "mutual_information": released.information,
        }
