"""`account`: the guarantees of a given amount of noise, by every accountant."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.audits.measurements.bayesian_audit import bayesian_report
from fedsim.audits.run import guarantee
from fedsim.common import reading
from fedsim.config import Config
from fedsim.config.needs import UNBOUNDED
from fedsim.federation.runs import ledger, run_transcript, spending
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability, pac
from fedsim.privacy import releases as described
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.identifiability import Bounds
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage
from fedsim.studies.guarantees import statements
from fedsim.studies.guarantees.statements import MechanismGuarantee, Row, chosen

BELIEFS = np.round(np.arange(0.01, 1.0, 0.01), 2)
"""Beliefs at which the document has the curve of the worst-case belief."""


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
) -> "AccountedGuarantees":
    """Return the guarantees of a given amount of noise for any one person, by every accountant.

    Args:
        source: configuration, run directory, or TOML file with different [[rounds]]; it replaces
            noise_multiplier and rounds.
        noise_multiplier: standard deviation of the noise, divided by the sensitivity of a sum.
        rounds: k, noisy sums that a client or the server releases.
        delta: probability that the guarantee fails; None for that of the configuration, or 1e-5.
        local_steps: noisy local steps of each client in each round; None for 1.
        sampling_rate: probability that a record joins a step; None for 1, full batches.
        neighbouring: "add-remove" (None) or "replace".
        trust: party that adds the noise: "central" (None), "local" or "distributed".
        clients: m, number of clients; None for 2.
        participants: number of clients in each round; None for all.
        colluding: number of other clients that disclose their noise; None for 0.
        vantage: vantage point of the adversary: "participant" (None), "server", "released-model".

    Returns:
        The bounds towards the vantage, and the document that `fedsim account --json` prints.

    Raises:
        InputError: a value is out of range, or the mechanism is described twice or not at all.
    """
    who = None if trust is None else chosen(Trust, trust, Trust.CENTRAL)
    if source is not None:
        by_hand = {
            "noise multiplier": noise_multiplier,
            "rounds": rounds,
            "local steps": local_steps,
            "sampling rate": sampling_rate,
            "neighbouring": neighbouring,
            "clients": clients,
            "participants": participants,
        }
        source = Path(source)
        if both := [name for name, value in by_hand.items() if value is not None]:
            raise InputError(f"'{source}' already sets {' and '.join(both)}; drop one of them")
        subject = _read(source, {"trust": who, "colluders": colluding})
    elif noise_multiplier is None or rounds is None:
        raise InputError(
            "the mechanism is missing; give noise multiplier and rounds, a configuration, a run "
            "directory, or a file with [[rounds]]"
        )
    else:
        rate = 1.0 if sampling_rate is None else sampling_rate
        steps = 1 if local_steps is None else local_steps
        alike = Rounds(noise_multiplier, rounds, rate, steps, participants)
        relation = chosen(Neighbouring, neighbouring, Neighbouring.ADD_REMOVE)
        m = 2 if clients is None else clients
        subject = _Subject(
            Releases((alike,), relation, who or Trust.CENTRAL, m, colluders=colluding or 0)
        )
    at = subject.delta if delta is None else delta
    return _guarantee(source, subject, at, chosen(Vantage, vantage, subject.vantage))


def _guarantee(
    source: Path | None, subject: "_Subject", delta: float, vantage: Vantage
) -> "AccountedGuarantees":
    """Return the guarantee of a mechanism towards a vantage, with its document."""
    config, releases = subject.config, subject.released
    bounds = identifiability.bounds(releases.towards(vantage), delta)
    document = _document(releases, vantage, bounds)
    _label(document, source, subject, delta, vantage)
    document["bayesian"] = _bayesian(source, subject.training, delta)
    return AccountedGuarantees(releases, vantage, bounds, document, config)


@dataclass(frozen=True)
class AccountedGuarantees(MechanismGuarantee):
    """The guarantees of a run, of a configuration, or of a mechanism given by hand.

    Attributes:
        config: of the source; None for a mechanism given by hand.
    """

    config: Config | None = field(default=None, repr=False)


@dataclass(frozen=True)
class _Subject:
    """The mechanism to account for.

    Attributes:
        training: releases of one training.
        config: of the source; None if the source has none.
        everything: releases of all trainings of a run; None without a guarantee, since the noise
            comes from the seed.
        trainings: number of trainings.
    """

    training: Releases
    config: Config | None = None
    everything: Releases | None = None
    trainings: int = 1

    @property
    def released(self) -> Releases:
        """The releases that the bounds cover."""
        return self.everything or self.training

    @property
    def delta(self) -> float:
        """The default delta."""
        return ASSUMED if self.config is None else self.config.privacy.delta

    @property
    def vantage(self) -> Vantage:
        """The default vantage."""
        return Vantage.PARTICIPANT if self.config is None else self.config.federation.vantage


def _read(source: Path, otherwise: Mapping[str, object]) -> _Subject:
    """Return the mechanism of a run directory, a configuration or a file with [[rounds]]."""
    changes: Row = {name: value for name, value in otherwise.items() if value is not None}
    if source.is_dir():
        directory = RunDirectory.open(source)
        config = directory.config
        training, everything = spending.describe_run(directory)
        trainings = spending.trainings(ledger.read(directory)) or config.trials.count
    else:
        try:
            tree = reading.toml(source)
        except FileNotFoundError:
            raise InputError(f"cannot read '{source}': the file does not exist") from None
        if "rounds" in tree:
            return _Subject(replace(described.load(source), **changes))
        config = configuration.load(source)
        nominal, trainings = privacy.noise_multiplier(config.scheme), config.trials.count
        training = privacy.describe(config.scheme, nominal)
        everything = spending.describe_everything(config.scheme, nominal, [])
    return _Subject(
        replace(training, **changes),
        config,
        None if everything is None else replace(everything, **changes),
        trainings,
    )


def _label(
    document: Row, source: Path | None, run: _Subject, delta: float, vantage: Vantage
) -> None:
    """Add to a configuration's document whether it is a DP guarantee, and why not.

    Notes that blame a lack of noise are replaced if something else makes epsilon infinite.
    """
    if (config := run.config) is None:
        return
    document["unit"] = config.privacy.unit
    # The noise may be right, and still not protect from this vantage.
    label = guarantee.of(
        config.game, config.audit, run.training, run.everything, run.trainings, delta, vantage
    )
    document["dp_guarantee"], document["dp_note"] = label.given, label.note
    document["released"] = None if label.released is None else asdict(label.released)
    if (reason := unbounded(config.training.clipping)) is not None:
        document["note"] = reason
        for row in (*document["accountants"].values(), *document["to_whom"]):
            if "refusal" not in row:
                row["note"] = reason


def unbounded(clipping: bool) -> str | None:
    """Return why epsilon is infinite for any noise; None if it may be finite."""
    if not clipping:
        return (
            f"gradients are not clipped, so that {UNBOUNDED} and noise cannot be scaled to it; "
            "epsilon is infinite"
        )
    return None


def _document(releases: Releases, vantage: Vantage, bounds: Bounds) -> Row:
    mechanism, delta = releases.towards(vantage), bounds.delta
    curve = identifiability.belief_curve(mechanism, BELIEFS)
    rows = statements.accounted(mechanism, delta)
    return {
        **statements.described(releases, vantage),
        **asdict(bounds),
        "tail_limit": statements.tail_limit(mechanism, bounds.epsilon),
        "note": rows[bounds.accountant]["note"],
        "accountants": rows,
        "risks": statements.risks_of(mechanism),
        "pac": asdict(pac.guarantee(pac.mutual_information(mechanism), delta)),
        "to_whom": statements.to_whom(releases, delta),
        "belief_curve": None
        if curve is None
        else {name: values.tolist() for name, values in asdict(curve).items()},
    }


def _bayesian(source: Path | None, releases: Releases, delta: float) -> Row:
    """Return the result of the Bayesian accountant for a run with distances, or its refusal."""
    if source is not None and source.is_dir():
        directory = RunDirectory.open(source)
        if directory.has(run_transcript.FILE):
            result = bayesian_report(
                directory.config.training,
                directory.config.privacy.neighbouring,
                directory.config.federation.vantage,
                run_transcript.read(directory),
                delta,
                releases,
            )
            if result is not None:
                return asdict(result)
    return {
        "refusal": (
            "the Bayesian accountant does not apply: it needs the distances between gradients of "
            "a run; give fedsim run CONFIG --set audit.bayesian-pairs=16, and then fedsim "
            "account RUN_DIRECTORY"
        )
    }
