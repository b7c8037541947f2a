"""What would lower what an adversary may achieve: one setting at a time, by theory alone."""

from collections.abc import Iterator, Mapping

from adversaries.errors import InputError
from fedsim.audits.results.verdicts import Change, Towards
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.config import Config, Scalar, from_run_config, to_run_config
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import PLD
from fedsim.privacy.group_privacy import of_group
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage

MORE_NOISE, FEWER_ROUNDS, SAMPLED = 2.0, 2, 0.1
"""By what the noise is multiplied and the rounds divided, and the sampling rate where there is
none; a rate that there is is multiplied by it."""


ByVantage = Mapping[Vantage, Releases]
"""Of the client who is worst off towards each vantage."""


def measure(run: AuditedRun) -> list[Change]:
    """Return the run as it is, and what theory allows with each of a few settings changed.

    Nothing where theory has no say: noise that candidates shaped, gradients that are not clipped.
    """
    config = run.config
    if config.privacy.noise.mechanism.by_candidate or not config.training.clipping:
        return []
    if not run.noise_multiplier:
        return []
    known: dict[Mechanism, Towards] = {}
    found = [Change("", None, None, _towards(run, run.worst_off, known))]
    for key, was, value in _changes(run):
        if (releases := _changed(run, key, value)) is not None:
            found.append(Change(key, value, was, _towards(run, releases, known)))
    return found


def _changes(run: AuditedRun) -> Iterator[tuple[str, Scalar, Scalar]]:
    """Yield the key of each change, the value that it has, and the one that it would have."""
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
    """Return what the changed experiment would release; None where it is refused."""
    noise: dict[str, Scalar] = {
        "privacy.noise-multiplier": run.noise_multiplier,
        "privacy.rho-beta": 0.0,
        "privacy.rho-alpha": 0.0,
        "privacy.epsilon": 0.0,
        "privacy.mutual-information": 0.0,
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
    run: AuditedRun, releases: ByVantage, known: dict[Mechanism, Towards]
) -> list[Towards]:
    found = []
    for vantage in Vantage:
        mechanism = releases[vantage].towards(vantage)
        if mechanism not in known:
            known[mechanism] = towards(vantage, mechanism, run.delta)
        found.append(Towards(**vars(known[mechanism]) | {"vantage": vantage.value}))
    return found


def towards(vantage: Vantage, mechanism: Mechanism, delta: float) -> Towards:
    """Return what theory allows at a vantage."""
    epsilon = PLD.epsilon(mechanism, delta)
    return Towards(
        vantage.value,
        epsilon,
        identifiability.rho_beta_of_epsilon(epsilon),
        identifiability.rho_alpha(mechanism),
    )
