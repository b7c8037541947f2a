"""What a given amount of noise guarantees, by every accountant."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.audits.measurements.bayesian_audit import bayesian_report
from fedsim.audits.results import report as results
from fedsim.audits.run import guarantee
from fedsim.common import reading
from fedsim.config import Config
from fedsim.config.needs import UNBOUNDED
from fedsim.config.privacy import PrivacyConfig
from fedsim.federation.runs import ledger, run_transcript, spending
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability, pac
from fedsim.privacy import releases as described
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.identifiability import Bounds
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.noise import Noise
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage
from fedsim.studies.guarantees import statements
from fedsim.studies.guarantees.statements import Guarantee, Row, chosen

BELIEFS = np.round(np.arange(0.01, 1.0, 0.01), 2)
"""Where the curve of the worst-case belief is given."""


def account(
    source: Path | str | None = None,
    *,
    noise_multiplier: float | None = None,
    rounds: int | None = None,
    delta: float | None = None,
    local_steps: int | None = None,
    sampling_rate: float | None = None,
    neighbouring: str | None = None,
    trust: str | None = None,
    clients: int | None = None,
    participants: int | None = None,
    colluding: int | None = None,
    vantage: str | None = None,
    prior: float | None = None,
) -> Guarantee:
    """Return what a given amount of noise guarantees any one person, by every accountant.

    Args:
        source: a configuration, a run directory, or a TOML file with [[rounds]] that differ;
            instead of the mechanism by hand.
        noise_multiplier: noise standard deviation over the sensitivity of a sum.
        rounds: k, noisy sums that leave a client or the server.
        delta: probability with which the guarantee may fail; None for that of the configuration,
            or 1e-5 without one.
        local_steps: noisy steps of a client within a round; None for 1.
        sampling_rate: probability that a record joins a step; None for 1, full batches.
        neighbouring: "add-remove" (None) or "replace".
        trust: who adds the noise: "central" (None), "local" or "distributed".
        clients: m; None for 2.
        participants: clients in each round; None for all.
        colluding: other clients that disclose their noise; None for 0.
        vantage: where the adversary sits: "participant" (None), "server" or "released-model".
        prior: the adversary's belief before anything is released; None for even odds.

    Returns:
        The bounds towards the vantage, and everything that `fedsim account --json` prints.

    Raises:
        InputError: values out of range; two descriptions of one mechanism, or none.
    """
    who = None if trust is None else chosen(Trust, trust, Trust.CENTRAL)
    if source is not None:
        given = {
            "noise multiplier": noise_multiplier,
            "rounds": rounds,
            "local steps": local_steps,
            "sampling rate": sampling_rate,
            "neighbouring": neighbouring,
            "clients": clients,
            "participants": participants,
        }
        source = Path(source)
        _refuse_both(source, given)
        subject = _read(source, {"trust": who, "colluders": colluding})
    else:
        by_hand = _by_hand(noise_multiplier, rounds, local_steps, sampling_rate, participants)
        relation = chosen(Neighbouring, neighbouring, Neighbouring.ADD_REMOVE)
        m = 2 if clients is None else clients
        subject = _Subject(
            Releases((by_hand,), relation, who or Trust.CENTRAL, m, colluders=colluding or 0)
        )
    at = subject.delta if delta is None else delta
    return _guarantee(source, subject, at, chosen(Vantage, vantage, subject.vantage), prior)


def _by_hand(
    noise_multiplier: float | None,
    rounds: int | None,
    local_steps: int | None,
    sampling_rate: float | None,
    participants: int | None,
) -> Rounds:
    """Return rounds that are described without a source, where what must be said of them is."""
    if noise_multiplier is None or rounds is None:
        raise InputError(
            "what mechanism? Give noise multiplier and rounds, a configuration, a run "
            "directory, or a file with [[rounds]]"
        )
    return Rounds(
        noise_multiplier,
        rounds,
        1.0 if sampling_rate is None else sampling_rate,
        1 if local_steps is None else local_steps,
        participants,
    )


def _refuse_both(source: Path, by_hand: Mapping[str, object]) -> None:
    """Raise InputError where a source is given, and something that it says."""
    if given := [name for name, value in by_hand.items() if value is not None]:
        raise InputError(f"'{source}' says what {' and '.join(given)} would; give one or the other")


def _guarantee(
    source: Path | None, subject: "_Subject", delta: float, vantage: Vantage, prior: float | None
) -> Guarantee:
    """Put together what is known of a mechanism towards a vantage, at a delta, from a prior."""
    config, releases = subject.config, subject.released
    bounds = identifiability.bounds(releases.towards(vantage), delta)
    document = _document(releases, vantage, bounds)
    noise = None if config is None else config.privacy.noise.mechanism
    by_pac = noise is not None and noise.by_candidate
    if config is not None:
        _label(document, source, config, subject, delta, vantage)
    if prior is not None:
        if by_pac:
            raise InputError(
                "a prior restates bounds of DP, but PAC noise is no DP and is shaped for the prior "
                "that privacy.pac-prior states; leave the prior out"
            )
        rho_beta = identifiability.rho_beta_of_epsilon(document["epsilon"], prior)
        before = max(prior, 1 - prior)
        information = pac.mutual_information(releases.towards(vantage), prior)
        document["from_prior"] = {
            "prior": prior,
            "rho_beta": rho_beta,
            "prior_success": before,
            "mutual_information": information,
            "pac_success_bound": pac.success_bound(information, before),
        }
    document["bayesian"] = _bayesian(source, subject.training, delta, by_pac)
    return Guarantee(releases, vantage, bounds, document, config)


@dataclass(frozen=True)
class _Subject:
    """What is accounted for.

    training: what one training releases; config: None where there is none; everything: what all
    trainings of a run release, None where the noise is the seed's, and no guarantee; trainings: how
    many they are.
    """

    training: Releases
    config: Config | None = None
    everything: Releases | None = None
    trainings: int = 1

    @property
    def released(self) -> Releases:
        """What the bounds are of."""
        return self.everything or self.training

    @property
    def delta(self) -> float:
        """At which delta, where nothing else is asked."""
        return ASSUMED if self.config is None else self.config.privacy.delta

    @property
    def vantage(self) -> Vantage:
        """Towards whom, where nothing else is asked."""
        return Vantage.PARTICIPANT if self.config is None else self.config.federation.vantage


def _read(source: Path, otherwise: Mapping[str, object]) -> _Subject:
    """Return what a run directory, a configuration or a file with [[rounds]] is about.

    otherwise: fields of its releases that are supposed to be otherwise, None for as they are.
    """
    supposed: Row = {name: value for name, value in otherwise.items() if value is not None}
    if source.is_dir():
        directory = RunDirectory.open(source)
        config = directory.config
        training, everything = spending.describe_run(directory)
        trainings = spending.trainings(ledger.read(directory)) or config.trials.count
    else:
        try:
            tree = reading.toml(source)
        except FileNotFoundError:
            raise InputError(f"cannot read '{source}': there is no such file") from None
        if "rounds" in tree:
            return _Subject(replace(described.load(source), **supposed))
        config = configuration.load(source)
        nominal, trainings = privacy.noise_multiplier(config.scheme), config.trials.count
        training = privacy.describe(config.scheme, nominal)
        everything = spending.describe_everything(config.scheme, nominal, [])
    return _Subject(
        replace(training, **supposed),
        config,
        None if everything is None else replace(everything, **supposed),
        trainings,
    )


def _label(
    document: Row,
    source: Path | None,
    config: Config,
    run: _Subject,
    delta: float,
    vantage: Vantage,
) -> None:
    """Say in the document whether it is a DP guarantee, and why not, as the report of a run does.

    Notes that blame a lack of noise are replaced where something else keeps epsilon infinite.
    """
    document["unit"] = config.privacy.unit
    # Noise may be all that it should be, and yet none of it stand before the vantage asked for.
    found = guarantee.of(config, run.training, run.everything, run.trainings, delta, vantage)
    document["dp_guarantee"], document["dp_note"] = found.given, found.note
    document["released"] = None if found.released is None else asdict(found.released)
    reason = unbounded(config.training.clipping, config.privacy.noise)
    if reason is not None:
        document["note"] = reason
        for row in (*document["accountants"].values(), *document["to_whom"]):
            if "refusal" not in row:
                row["note"] = reason
    if config.privacy.noise.mechanism.by_candidate:
        document["pac"] = _pac(source, config.privacy, run, delta)


def unbounded(clipping: bool, noise_kind: Noise) -> str | None:
    """Return why no epsilon is finite whatever the noise, None where it may be."""
    if (noise := noise_kind.mechanism).by_candidate:
        return f"{noise.title} is no multiple of a sensitivity and not DP; epsilon is infinite"
    if not clipping:
        return (
            f"gradients are not clipped, so that {UNBOUNDED} and no noise is a multiple of it; "
            "epsilon is infinite"
        )
    return None


def _pac(source: Path | None, privacy: PrivacyConfig, run: _Subject, delta: float) -> Row:
    """Return what PAC noise allows: a run's own report at this delta, or the budget."""
    information, reported = privacy.mutual_information, {}
    if source is not None and source.is_dir():
        directory = RunDirectory.open(source)
        if directory.has("report.json"):
            found = results.read(directory).pac
            information, reported = found.mutual_information, asdict(found)
    if run.everything is not None:
        information *= run.trainings
    return {
        "prior": privacy.pac_prior,
        **reported,
        **asdict(pac.guarantee(information, delta)),
    }


def _document(releases: Releases, vantage: Vantage, bounds: Bounds) -> Row:
    mechanism, delta = releases.towards(vantage), bounds.delta
    curve = identifiability.belief_curve(mechanism, BELIEFS)
    rows = statements.accounted(mechanism, delta)
    return {
        **statements.asked(releases, vantage),
        **asdict(bounds),
        "tail_limit": statements.tail_limit(mechanism, bounds.epsilon),
        "rho_alpha_by_route": identifiability.rho_alpha_by_route(mechanism, bounds.epsilon, delta),
        "note": rows[bounds.accountant]["note"],
        "accountants": rows,
        "risks": statements.risks_of(mechanism),
        "pac": asdict(pac.guarantee(pac.mutual_information(mechanism), delta)),
        "to_whom": statements.to_whom(releases, delta),
        "belief_curve": None
        if curve is None
        else {name: values.tolist() for name, values in asdict(curve).items()},
    }


def _bayesian(source: Path | None, releases: Releases, delta: float, by_pac: bool) -> Row:
    """Return what the Bayesian accountant says of a run that gathered distances, or its refusal."""
    if by_pac:
        return {
            "refusal": "the Bayesian accountant does not apply: it speaks of noise that is alike "
            "in all directions, and PAC noise is not"
        }
    if source is not None and source.is_dir():
        directory = RunDirectory.open(source)
        if directory.has(run_transcript.FILE):
            found = bayesian_report(
                directory.config.training,
                directory.config.privacy.neighbouring,
                directory.config.federation.vantage,
                run_transcript.read(directory),
                delta,
                releases,
            )
            if found is not None:
                return asdict(found)
    return {
        "refusal": "the Bayesian accountant does not apply: it needs the distances between "
        "gradients that a run gathers; fedsim run CONFIG --set audit.bayesian-pairs=16, then "
        "fedsim account RUN_DIRECTORY"
    }
