"""Settings that would lower what an adversary may achieve, one at a time, by theory alone."""

from collections.abc import Iterator, Mapping

from adversaries.errors import InputError
from fedsim.audits.results.verdicts import Change, Towards
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.config import Config, Scalar, from_run_config, to_run_config
from fedsim.config.targets import KEYS
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import PLD
from fedsim.privacy.group_privacy import of_group
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage

MORE_NOISE, FEWER_ROUNDS, SAMPLED = 2.0, 2, 0.1
"""Factor of the noise, divisor of the rounds, and factor of the sampling rate, for a change."""


ByVantage = Mapping[Vantage, Releases]
"""Releases towards the worst-off client, by vantage."""


def measure(run: AuditedRun) -> list[Change]:
    """Return the run as it is, and what theory allows with each of a few settings changed.

    Empty where theory cannot tell: noise shaped by candidates, no noise, or no clipping.
    """
    config = run.config
    shaped = config.privacy.noise.mechanism.by_candidate
    if shaped or not config.training.clipping or not run.noise_multiplier:
        return []
    # Changes often lead to equal mechanisms, whose composition is slow.
    computed: dict[Mechanism, Towards] = {}
    changes = [Change("", None, None, _towards(run, run.worst_off, computed))]
    for key, was, value in _changes(run):
        if (releases := _changed(run, key, value)) is not None:
            changes.append(Change(key, value, was, _towards(run, releases, computed)))
    return changes


def _changes(run: AuditedRun) -> Iterator[tuple[str, Scalar, Scalar]]:
    """Yield the key of each change, its current value, and its new value."""
    config = run.config
    noise = run.noise_multiplier
    yield "privacy.noise-multiplier", noise, MORE_NOISE * noise
    if run.rounds >= FEWER_ROUNDS:
        yield "training.rounds", run.rounds, run.rounds // FEWER_ROUNDS
    by_client = config.privacy.unit == "client"
    table = "federation" if by_client else "training"
    yield f"{table}.sampling-rate", config.participation.rate, SAMPLED * config.participation.rate
    for trust in Trust:
        if trust is not config.federation.trust and trust.model.summed_securely:
            yield "federation.trust", config.federation.trust.value, trust.value


def _changed(run: AuditedRun, key: str, value: Scalar) -> ByVantage | None:
    """Return what the changed experiment would release; None if the configuration refuses it."""
    noise: dict[str, Scalar] = {
        **dict.fromkeys(KEYS, 0.0),
        "privacy.noise-multiplier": run.noise_multiplier,
        "training.rounds": run.rounds,
    }
    try:
        changed: Config = from_run_config(to_run_config(run.config) | noise | {key: value})
        noise_multiplier, copies = changed.privacy.noise_multiplier, changed.challenge.copies
        return {
            vantage: of_group(privacy.describe(changed.scheme, noise_multiplier, vantage), copies)
            for vantage in Vantage
        }
    except InputError:
        return None


def _towards(
    run: AuditedRun, releases: ByVantage, computed: dict[Mechanism, Towards]
) -> list[Towards]:
    rows = []
    for vantage in Vantage:
        mechanism = releases[vantage].towards(vantage)
        if mechanism not in computed:
            computed[mechanism] = towards(vantage, mechanism, run.delta)
        rows.append(Towards(**vars(computed[mechanism]) | {"vantage": vantage.value}))
    return rows


def towards(vantage: Vantage, mechanism: Mechanism, delta: float) -> Towards:
    """Return what theory allows at a vantage."""
    epsilon = PLD.epsilon(mechanism, delta)
    return Towards(
        vantage.value,
        epsilon,
        identifiability.rho_beta_of_epsilon(epsilon),
        identifiability.rho_alpha(mechanism),
    )
