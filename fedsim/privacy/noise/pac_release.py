"""Rounds of PAC-private training: the secret candidate, the noise, and what a release reveals.

The secret is which of m stated candidates all rounds of a trial train on. The noise is shaped by
how the sums under these differ. Nothing hides directions in which no two candidates differ, so this
is not differential privacy. `fedsim.privacy.pac` has the mathematics.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from adversaries.arrays import Bools, Floats, Ints
from fedsim.common.randomness import StreamRole, generator
from fedsim.privacy import pac
from fedsim.privacy.noise.mechanism import Learnt

Integers = Ints

FLOOR = 0.01
"""Share of the even prior in the weights that shape the noise.

Without it, an almost excluded candidate would get almost no noise, and stand out if it is true.
"""


@dataclass(frozen=True)
class PacRelease:
    """A round's release and what it reveals about the candidates.

    Attributes:
        total: r, [T, P].
        log_posterior: [T, m], of the candidates, given all releases so far.
        information: [T], the log det bound on the nats that this round reveals.
        noise_std: [T], root mean square over the directions with noise.
        spread: [T], the distance between the first two candidates.
    """

    total: Floats
    log_posterior: Floats
    information: Floats
    noise_std: Floats
    spread: Floats


def halves(seed: int, client: int, records: int, draws: int) -> Bools:
    """Return which of a client's records are in each candidate, in every trial: bool [m, n].

    Args:
        seed: of the run.
        client: partition number.
        records: n, number of the client's records.
        draws: m, even; else ValueError.
    """
    if draws % 2:
        raise ValueError(f"{draws} draws are not pairs of complements")
    random = generator(seed, StreamRole.CANDIDATES, partition=client)
    # A random half and its complement, so that each record is in exactly half of the candidates.
    ranks = random.permuted(np.tile(np.arange(records), (draws // 2, 1)), axis=1)
    first = ranks < records // 2
    return np.stack([first, ~first], axis=1).reshape(draws, records)


def pair(records: int, challenge: int, replaced: bool) -> Bools:
    """Return which of a client's records are in D and in D', bool [2, n], or [2, n + 1].

    Args:
        records: n, number of the client's records.
        challenge: the column of x^.
        replaced: whether a column for x^', which is only in D', follows the records.
    """
    masks = np.ones((2, records + replaced), dtype=np.bool_)
    masks[1, challenge] = False
    if replaced:
        masks[0, records] = False
    return masks


def secrets(seed: int, trials: Sequence[int], worlds: Bools, membership: Bools) -> Integers:
    """Return the secret candidate of every trial, int64 [T], uniform over its world's candidates.

    Args:
        seed: of the run.
        trials: number of the random stream of each of the T trials.
        worlds: bool [T], whether the trial uses the challenge record.
        membership: bool [m], whether the candidate has it.
    """
    places = [np.flatnonzero(membership == world) for world in (False, True)]
    chosen = [
        generator(seed, StreamRole.SECRET, trial=trial).choice(places[int(world)])
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
) -> PacRelease:
    """Return the sums under the secret candidates, with noise for an information budget.

    r = mean + sum_j u_j (<c_s - mean, u_j> + sigma_j z_j) along the directions u_j of the
    candidates' covariance. sigma_j^2 is the least noise of linear information v. Rounding errors
    outside these directions are not released.

    Args:
        candidates: c, the clean sums, [T, m, P].
        secret: s, [T].
        log_posterior: [T, m], given the rounds before.
        information: the round's budget v in nats.
        normals: [T, m], independent standard normals.
        fit_posterior: whether to use the covariance under the current posterior, which for m > 2
            may exceed that under even odds, because the candidates depend on earlier releases.
    """
    # The weights to which the noise is fitted contain `FLOOR` of even odds. Cov_w <=
    # Cov_w' / (1 - FLOOR), so that the budget is (1 - FLOOR) v under them.
    posterior = np.exp(log_posterior)
    if fit_posterior:
        weights = (1 - FLOOR) * posterior + FLOOR / posterior.shape[-1]
        budget = (1 - FLOOR) * information
    else:
        weights = np.full_like(posterior, 1 / posterior.shape[-1])
        budget = information
    # The least noise along each direction of the candidates' covariance.
    spectrum = pac.spectrum(candidates, weights)
    variances = pac.anisotropic_variances(spectrum.eigenvalues, budget)
    # A rotation keeps the law of the normals. With it the noise is the same for any signs, or bases
    # of equal eigenvalues, that a library returns.
    noise = np.sqrt(variances) * (normals[:, None, :] @ spectrum.vectors)[:, 0]
    # The noisy coordinates of the secret candidate, and what they say about all m.
    rows = np.arange(len(secret))
    observed = spectrum.coordinates[rows, secret] + noise
    unnormalised = log_posterior + log_likelihoods(observed, spectrum.coordinates, variances)
    # For a pair, even odds bound the information on average, since it is concave in the belief.
    believed = posterior if fit_posterior else weights
    noisy = np.maximum((variances > 0).sum(-1), 1)
    return PacRelease(
        spectrum.point(observed),
        unnormalised - logsumexp(unnormalised, axis=1, keepdims=True),
        pac.posterior_information(spectrum.coordinates, believed, variances),
        np.sqrt(variances.sum(-1) / noisy),
        np.linalg.norm(spectrum.coordinates[:, 0] - spectrum.coordinates[:, 1], axis=-1),
    )


def log_likelihoods(observed: Floats, coordinates: Floats, variances: Floats) -> Floats:
    """Return log N(observed; coordinates_i, variances) up to a term that all m share, [T, m].

    Args:
        observed: [T, r].
        coordinates: [T, m, r], of the candidates.
        variances: [T, r], 0 for a direction that is not released.
    """
    inverse = np.divide(1, variances, out=np.zeros_like(variances), where=variances > 0)
    # (y - a)^2 minus y^2: the shared part would drown the differences between candidates.
    apart = coordinates * (observed[:, None] - coordinates / 2)
    return (apart * inverse[:, None]).sum(-1)


def log_odds(log_posterior: Floats, membership: Bools) -> Floats:
    """Return the log-odds [T] that the secret is a candidate with the challenge record.

    Args:
        log_posterior: [T, m].
        membership: bool [m], whether the candidate has the challenge record.
    """
    sides = [logsumexp(log_posterior[:, membership == world], axis=1) for world in (True, False)]
    return sides[0] - sides[1]


class PacReleases:
    """The rounds of a batch of trials, with the posterior that the server keeps between them.

    Args:
        information: nats for each round.
        prior: "pair" or "halves".
        seed: of the secrets.
        trials: number of the random stream of each of the T trials.
        worlds: bool [T], whether a trial trains on D.
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
        """Return the release of a round, and the adversary's conclusions from it.

        Args:
            candidates: [T, m, P], clean sums over all clients.
            membership: bool [m], whether the candidate has the challenge record.
            present_norm: |g| of the challenge, [T].
            absent_norm: |g'|, [T].
            normals: [T, m], independent standard normals.

        Returns: [T, P], and a `Learnt`. Its `ratios` are the growth of the log-odds that the record
        is in the data; `mutual_information` bounds the nats that the round reveals of the secret.
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
