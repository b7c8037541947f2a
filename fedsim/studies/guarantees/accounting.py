"""`account`: what an amount of noise guarantees, or the least noise for a limit."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from adversaries.bounds import sample_size
from adversaries.errors import InputError
from fedsim import configuration
from fedsim.audits.measurements.bayesian_audit import bayesian_report
from fedsim.audits.results import report as results
from fedsim.audits.run import guarantee
from fedsim.common import reading
from fedsim.configuration import Config
from fedsim.configuration.needs import UNBOUNDED
from fedsim.federation.runs import ledger, run_transcript, spending
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability, pac, risks
from fedsim.privacy import releases as described
from fedsim.privacy.accounting import ACCOUNTANTS
from fedsim.privacy.accounting import accountant as find_accountant
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.identifiability import Bounds
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage
from fedsim.studies.guarantees import statements
from fedsim.studies.guarantees.by_hand import ACCOUNTANT, ByHand, Target, Unknown, chosen
from fedsim.studies.guarantees.statements import Row

BELIEFS = np.round(np.arange(0.01, 1.0, 0.01), 2)
"""Beliefs at which the document has the curve of the worst-case belief."""


def account(
    source: Path | None,
    hand: ByHand,
    target: Target,
    *,
    delta: float | None,
    vantage: str | None,
    halfwidth: float | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> "AccountedGuarantees":
    """Return what noise guarantees any one person, or the least noise for a limit.

    Args:
        source: configuration, run directory, or TOML file with different [[rounds]].
        hand: the mechanism by hand, or what is supposed of the source.
        target: a limit, which decides the number that the mechanism leaves out.
        delta: probability that the guarantee fails; None for that of the configuration, or 1e-5.
        vantage: vantage point of the adversary; None as configured.
        halfwidth: of an interval of the advantage, to say how many trials it needs.
        changes: keys of the configuration that change.

    Raises:
        InputError: a value is out of range, the mechanism is described twice or not at all, or no
            mechanism meets the limit.
    """
    if target.limits:
        if source is not None:
            raise InputError(
                f"'{source}' already sets the noise, and {target.limits[0]} would decide it; drop "
                "one of them, or set the limit in the configuration"
            )
        at = ASSUMED if delta is None else delta
        return _solved(hand, target, at, chosen(Vantage, vantage, Vantage.PARTICIPANT), halfwidth)
    if source is not None:
        if both := hand.named():
            raise InputError(f"'{source}' already sets {' and '.join(both)}; drop one of them")
        who = None if hand.trust is None else chosen(Trust, hand.trust, Trust.CENTRAL)
        subject = _read(source, {"trust": who, "colluders": hand.colluding}, changes)
    elif hand.noise_multiplier is None or hand.rounds is None:
        raise InputError(
            "the mechanism is missing; give noise multiplier and rounds, a configuration, a run "
            "directory, or a file with [[rounds]]; or rounds and a limit, such as rho-beta 0.9"
        )
    else:
        subject = _Subject(hand.releases())
    at = subject.delta if delta is None else delta
    return _guarantee(source, subject, at, chosen(Vantage, vantage, subject.vantage), halfwidth)


def _guarantee(
    source: Path | None,
    subject: "_Subject",
    delta: float,
    vantage: Vantage,
    halfwidth: float | None,
) -> "AccountedGuarantees":
    """Return the guarantee of a mechanism towards a vantage, with its document."""
    releases = subject.released
    bounds = identifiability.bounds(releases.towards(vantage), delta)
    document = _document(releases, vantage, bounds)
    _label(document, source, subject, delta, vantage)
    document["bayesian"] = _bayesian(source, subject.training, delta)
    if halfwidth is not None:
        document["precision"] = _precision(source, subject, vantage, halfwidth)
    return AccountedGuarantees(releases, vantage, bounds, document, subject.config)


def _solved(
    hand: ByHand, target: Target, delta: float, vantage: Vantage, halfwidth: float | None
) -> "AccountedGuarantees":
    """Return the mechanism that just meets a limit, with its document."""
    releases, unknown = hand.solved(target.requirement(delta), vantage), hand.unknown
    name = target.accountant or ACCOUNTANT
    bounds, limit = (
        identifiability.bounds(releases.towards(vantage), delta, name),
        target.of_epsilon,
    )
    # State the limit itself if the result of the search differs only in its last digits.
    if limit is not None and math.isclose(bounds.epsilon, limit, rel_tol=1e-6):
        rho_beta = identifiability.rho_beta_of_epsilon(limit)
        bounds = replace(bounds, epsilon=limit, rho_beta=rho_beta)

    def row(name: str) -> Row:
        solution = hand.solved(target.requirement(delta, name), vantage)
        values = statements.described(solution, vantage)
        return {
            unknown: values[unknown],
            "effective_noise_multiplier": values["effective_noise_multiplier"],
            "rho_alpha": identifiability.rho_alpha(solution.towards(vantage)),
            "covers": find_accountant(name).covers,
            "note": find_accountant(name).note(solution.towards(vantage), delta),
        }

    names = () if limit is None else dict.fromkeys([*ACCOUNTANTS, name])
    document = _document(releases, vantage, bounds, target.baseline) | {
        "found": unknown,
        "solutions": {each: statements.or_refusal(row, each) for each in names},
    }
    if halfwidth is not None:
        document["precision"] = _precision(None, _Subject(releases), vantage, halfwidth)
    return AccountedGuarantees(releases, vantage, bounds, document, found=unknown)


def _precision(source: Path | None, subject: "_Subject", vantage: Vantage, halfwidth: float) -> Row:
    """Return how many trials an interval of the advantage needs.

    The expected advantage is the prediction of a finished run, or the largest that one training
    allows. Raises InputError without an expected advantage, or if it is 1.
    """
    advantage: float | None = identifiability.rho_alpha(subject.training.towards(vantage))
    origin = "the largest that the noise allows"
    if source is not None and source.is_dir():
        advantage = results.read(RunDirectory.open(source)).prediction.advantage
        origin = "the run's own prediction"
    if advantage is None:
        raise InputError(f"halfwidth: '{source}' predicts no advantage; give its configuration")
    if not -1 < advantage < 1:
        raise InputError(
            f"halfwidth: the expected advantage is {advantage:g} ({origin}), for which a single "
            "trial is enough"
        )
    config = subject.config
    confidence = (Config() if config is None else config).audit.confidence
    return {
        "advantage": advantage,
        "advantage_from": origin,
        "halfwidth": halfwidth,
        "confidence": confidence,
        "trials": sample_size.trials_needed(advantage, halfwidth, confidence),
        "trials_at_zero": sample_size.trials_needed(0.0, halfwidth, confidence),
    }


@dataclass(frozen=True)
class AccountedGuarantees:
    """The guarantees of a run, of a configuration, or of a mechanism given by hand.

    Attributes:
        releases: of all rounds, with the party that adds the noise.
        vantage: of the adversary.
        bounds: at one delta: epsilon (may be `math.inf`), rho_beta, rho_alpha and others.
        document: as in the command's --json, with every accountant.
        config: of the source; None for a mechanism given by hand.
        found: the number that a limit decided; None without a limit.
    """

    releases: Releases
    vantage: Vantage
    bounds: Bounds
    document: Mapping[str, Any] = field(repr=False)
    config: Config | None = field(default=None, repr=False)
    found: Unknown | None = None

    @property
    def value(self) -> float:
        """The number that a limit decided: the least noise multiplier, or the largest of others."""
        if self.found is None:
            raise InputError("no number was computed, because no limit was given")
        return float(self.document[self.found])


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


def _read(source: Path, otherwise: Mapping[str, object], keys: Mapping[str, Any]) -> _Subject:
    """Return the mechanism of a run directory, a configuration or a file with [[rounds]]."""
    changes: Row = {name: value for name, value in otherwise.items() if value is not None}
    if keys and source.is_dir():
        raise InputError(
            f"'{source}' is a run, whose configuration is fixed; leave {next(iter(keys))} out"
        )
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
        if "rounds" in tree and keys:
            raise InputError(
                f"'{source}' is no configuration; leave {next(iter(keys))} out, or use the options "
                "of fedsim account"
            )
        if "rounds" in tree:
            return _Subject(replace(described.load(source), **changes))
        config = configuration.load(source, keys)
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


def _document(
    releases: Releases, vantage: Vantage, bounds: Bounds, baseline: float = risks.BASELINE
) -> Row:
    mechanism, delta = releases.towards(vantage), bounds.delta
    curve = identifiability.belief_curve(mechanism, BELIEFS)
    rows = statements.accounted(mechanism, delta)
    note = find_accountant(bounds.accountant).note(mechanism, delta)
    return {
        **statements.described(releases, vantage),
        **asdict(bounds),
        "tail_limit": statements.tail_limit(mechanism, bounds.epsilon),
        "note": rows.get(bounds.accountant, {"note": note})["note"],
        "accountants": rows,
        "risks": statements.risks_of(mechanism, baseline),
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
            "a run; give fedsim run CONFIG audit.bayesian-pairs=16, and then fedsim account "
            "RUN_DIRECTORY"
        )
    }
