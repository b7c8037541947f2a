"""`account`: what an amount of noise guarantees, or the least noise for a limit."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adversaries.bounds import sample_size
from adversaries.errors import InputError
from fedsim.audits.run import guarantee
from fedsim.audits.run import report as results
from fedsim.common import reading
from fedsim.configuration import Config
from fedsim.configuration import files as configuration_files
from fedsim.configuration.needs import UNBOUNDED
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability, pac, risks
from fedsim.privacy import releases_file as described
from fedsim.privacy.accounting import ACCOUNTANTS, accountant
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.identifiability import Bounds
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Trust, Vantage
from fedsim.studies.guarantees.by_hand import ACCOUNTANT, ByHand, Target, Unknown, chosen

UNCLIPPED = (
    f"gradients are not clipped, so that {UNBOUNDED} and noise cannot be scaled to it; epsilon is "
    "infinite"
)

Row = dict[str, Any]


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
    def releases(self) -> Releases:
        return self.everything or self.training


def account(
    source: Path | None,
    hand: ByHand,
    target: Target,
    *,
    delta: float | None,
    vantage: str | None,
    halfwidth: float | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> AccountedGuarantees:
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
    if target.limits and source is not None:
        raise InputError(
            f"'{source}' already sets the noise, and {target.limits[0]} would decide it; drop one "
            "of them, or set the limit in the configuration"
        )
    found = hand.unknown if target.limits else None
    given = None if found else _subject(source, hand, changes)
    config = None if given is None else given.config
    at = delta if delta is not None else config.privacy.delta if config else ASSUMED
    usual = config.federation.vantage if config else Vantage.PARTICIPANT
    towards = chosen(Vantage, vantage, usual)
    subject = given or _Subject(hand.solved(target.requirement(at), towards))
    mechanism = subject.releases.towards(towards)
    if found:
        bounds, also = _met(mechanism, at, target), _solutions(hand, target, at, towards)
    else:
        bounds, also = identifiability.bounds(mechanism, at), _label(subject, at, towards)
    document = _document(subject.releases, towards, bounds, target.baseline) | also
    if config is not None and not config.training.clipping:
        document["note"] = UNCLIPPED  # something else than a lack of noise makes epsilon infinite
        for row in (*document["accountants"].values(), *document["to_whom"]):
            if "refusal" not in row:
                row["note"] = UNCLIPPED
    if halfwidth is not None:
        document["precision"] = _precision(source, subject, towards, halfwidth)
    return AccountedGuarantees(subject.releases, towards, bounds, document, config, found)


def _met(mechanism: Mechanism, delta: float, target: Target) -> Bounds:
    """Return the bounds of a mechanism that just meets a limit, by the limit's accountant."""
    bounds = identifiability.bounds(mechanism, delta, target.accountant or ACCOUNTANT)
    limit = target.of_epsilon
    # State the limit itself if the result of the search differs only in its last digits.
    if limit is not None and math.isclose(bounds.epsilon, limit, rel_tol=1e-6):
        rho_beta = identifiability.rho_beta_of_epsilon(limit)
        bounds = replace(bounds, epsilon=limit, rho_beta=rho_beta)
    return bounds


def _solutions(hand: ByHand, target: Target, delta: float, vantage: Vantage) -> Row:
    """Return the number that a limit decides by its name, and as every accountant finds it."""
    unknown = hand.unknown

    def row(name: str) -> Row:
        solution = hand.solved(target.requirement(delta, name), vantage)
        values, mechanism = _described(solution, vantage), solution.towards(vantage)
        return {
            unknown: values[unknown],
            "effective_noise_multiplier": values["effective_noise_multiplier"],
            "rho_alpha": identifiability.rho_alpha(mechanism),
            "note": accountant(name).note(mechanism, delta),
        }

    own = target.accountant or ""
    solved = {} if target.of_epsilon is None else _by_accountant(row, own)
    return {"found": unknown, "solutions": solved}


def _by_accountant(row: Callable[[str], Row], own: str = "") -> dict[str, Row]:
    """Return a row of every accountant with what it covers, or its reason for refusing.

    own: name of one of the user's own, which has a row too.
    """
    rows = {}
    for name in dict.fromkeys((*ACCOUNTANTS, *([own] if own else []))):
        each = accountant(name)
        try:
            rows[name] = {**row(name), "covers": each.covers}
        except InputError as reason:
            rows[name] = {"refusal": str(reason), "covers": each.covers}
    return rows


def _precision(source: Path | None, subject: _Subject, vantage: Vantage, halfwidth: float) -> Row:
    """Return how many trials an interval of the advantage needs.

    The expected advantage is the prediction of a finished run, or the largest that one training
    allows. Raises InputError without an expected advantage, or if it is 1.
    """
    advantage: float | None = identifiability.rho_alpha(subject.training.towards(vantage))
    origin = "the largest that the noise allows"
    if source is not None and source.is_dir():
        advantage = results.read(RunDirectory.open(source)).details.prediction.advantage
        origin = "the run's own prediction"
    if advantage is None:
        raise InputError(f"halfwidth: '{source}' predicts no advantage; give its configuration")
    if not -1 < advantage < 1:
        raise InputError(
            f"halfwidth: the expected advantage is {advantage:g} ({origin}), for which a single "
            "trial is enough"
        )
    confidence = (subject.config or Config()).audit.confidence
    return {
        "advantage": advantage,
        "advantage_from": origin,
        "halfwidth": halfwidth,
        "confidence": confidence,
        "trials": sample_size.trials_needed(advantage, halfwidth, confidence),
        "trials_at_zero": sample_size.trials_needed(0.0, halfwidth, confidence),
    }


def _subject(source: Path | None, hand: ByHand, keys: Mapping[str, Any]) -> _Subject:
    """Return the mechanism of a run, a configuration or a file with [[rounds]], or by hand."""
    if source is None:
        if hand.noise_multiplier is None or hand.rounds is None:
            raise InputError(
                "the mechanism is missing; give noise multiplier and rounds, a configuration, a "
                "run directory, or a file with [[rounds]]; or rounds and a limit, such as rho-beta "
                "0.9"
            )
        return _Subject(hand.releases())
    if both := hand.named():
        raise InputError(f"'{source}' already sets {' and '.join(both)}; drop one of them")
    if not source.exists():
        raise InputError(f"cannot read '{source}': the file does not exist")
    by_rounds = not source.is_dir() and "rounds" in reading.toml(source)
    if keys and (source.is_dir() or by_rounds):
        raise InputError(
            f"'{source}' is no configuration that could change; leave {next(iter(keys))} out"
        )
    if by_rounds:
        subject = _Subject(described.load(source))
    elif source.is_dir():
        directory = RunDirectory.open(source)
        training, everything = spending.describe_run(directory)
        trainings = spending.trainings(ledger.read(directory)) or directory.config.trials.count
        subject = _Subject(training, directory.config, everything, trainings)
    else:
        config = configuration_files.load(source, keys)
        nominal = privacy.noise_multiplier(config)
        everything = spending.describe_everything(config, nominal, [])
        training = privacy.describe(config, nominal)
        subject = _Subject(training, config, everything, config.trials.count)
    changes: Row = {} if hand.colluding is None else {"colluders": hand.colluding}
    if hand.trust is not None:
        changes["trust"] = chosen(Trust, hand.trust, Trust.CENTRAL)
    supposed = subject.everything and replace(subject.everything, **changes)
    return replace(subject, training=replace(subject.training, **changes), everything=supposed)


def _label(subject: _Subject, delta: float, vantage: Vantage) -> Row:
    if (config := subject.config) is None:
        return {}
    # The noise may be right, and still not protect from this vantage.
    label = guarantee.of(
        config, subject.training, subject.everything, subject.trainings, delta, vantage
    )
    return {
        "unit": config.privacy.unit,
        "dp_guarantee": label.given,
        "dp_note": label.note,
        "released": label.released and asdict(label.released),
    }


def _document(releases: Releases, vantage: Vantage, bounds: Bounds, baseline: float) -> Row:
    mechanism, delta = releases.towards(vantage), bounds.delta

    def row(name: str) -> Row:
        bound = identifiability.bounds(mechanism, delta, name)
        note = accountant(name).note(mechanism, delta)
        if note is None and math.isinf(bound.epsilon):
            note = "epsilon is larger than any float, so that it has no value"
        return {
            "epsilon": bound.epsilon,
            "rho_beta": bound.rho_beta,
            "tail_probability": bound.tail_probability,
            "tail_limit": tail_limit(mechanism, bound.epsilon),
            "theorem2_rho_alpha": bound.theorem2_rho_alpha,
            "note": note,
        }

    rows = _by_accountant(row, bounds.accountant)
    baselines = sorted({*risks.BASELINES, baseline}, reverse=True)
    return {
        **_described(releases, vantage),
        **asdict(bounds),
        "tail_limit": tail_limit(mechanism, bounds.epsilon),
        "note": rows[bounds.accountant]["note"],
        "accountants": rows,
        "risks": [
            {"baseline": each, "at_most": at_most}
            for each, at_most in risks.success_by_baseline(mechanism, baselines)
        ],
        "pac": asdict(pac.guarantee(pac.mutual_information(mechanism), delta)),
        "to_whom": [*_to_whom(releases, delta)],
    }


def _described(releases: Releases, vantage: Vantage) -> Row:
    """Return the mechanism, for JSON; a value that differs between rounds is None."""
    rounds = releases.rounds

    def common(name: str) -> Any:
        values = {getattr(alike, name) for alike in rounds}
        return values.pop() if len(values) == 1 else None

    multipliers = {group.noise_multiplier for group in releases.towards(vantage).groups}
    return {
        "noise_multiplier": common("noise_multiplier"),
        "effective_noise_multiplier": multipliers.pop() if len(multipliers) == 1 else None,
        "rounds": releases.count,
        "local_steps": common("local_steps"),
        "sampling_rate": common("sampling_rate"),
        "sampling": "full batch" if common("sampling_rate") == 1 else "Poisson",
        "participants": common("participants"),
        "clipping_norm": releases.clipping_norm,
        "neighbouring": releases.neighbouring.value,
        "trust": releases.trust.value,
        "vantage": vantage.value,
        "clients": releases.clients,
        "colluding": releases.colluders,
        "round_groups": [asdict(alike) for alike in rounds],
    }


def tail_limit(mechanism: Mechanism, epsilon: float) -> float:
    """Return the largest share of trainings in which a belief exceeds rho_beta(epsilon)."""
    # The worst pair's tail is larger only far out, where its mass is truncated and counts as tail.
    worst = identifiability.tail_probability(mechanism, epsilon) or 0.0
    return max(identifiability.tail_limit(mechanism, epsilon), worst)


def _to_whom(releases: Releases, delta: float) -> Iterator[Row]:
    """Yield the bounds for every trust and vantage with the same rounds, or why there are none."""
    for trust in Trust:
        try:
            bounds = identifiability.vantage_bounds(releases, delta, trust)
        except InputError as reason:
            yield {"trust": trust.value, "refusal": str(reason)}
            continue
        under = releases.under(trust)
        for row in bounds:
            tail = tail_limit(under.towards(row.vantage), row.epsilon)
            yield asdict(row) | {"tail_limit": tail}
