"""The set-up of a run in its report: data, model, training, challenge and mechanism."""

from collections.abc import Sequence
from dataclasses import replace

from adversaries.registry import titled
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.audits.run.report import (
    ChallengeFacts,
    DataFacts,
    Dropouts,
    MechanismFacts,
    RoundingCost,
    Timing,
)
from fedsim.configuration import Config, Scalar, to_run_config
from fedsim.configuration.federation import FederationConfig
from fedsim.federation.runs.ledger import LedgerRow
from fedsim.game.mechanisms import fixed_point, privacy
from fedsim.privacy.mechanism import Mechanism as Accounted

IN_THE_CLEAR = "aggregated in the clear: a simulation of secure aggregation"


def rounding(config: Config, nominal: float, parameters: int, rounds: int) -> RoundingCost | None:
    grid = fixed_point.grid(config, nominal, parameters)
    if grid is None:
        return None
    aggregation = config.federation.secure_aggregation
    return RoundingCost(
        secure_aggregation=aggregation,
        note=IN_THE_CLEAR if aggregation == "simulated" else "aggregated by Flower's SecAgg+",
        step=grid.step,
        bits=grid.bits,
        limit=grid.limit,
        sensitivity=grid.sensitivity,
        relative_growth=grid.growth,
        total_variation=grid.total_variation(rounds),
    )


def dropouts(config: Config, nominal: float, rows: Sequence[LedgerRow]) -> Dropouts | None:
    """Return the rounds with missing clients, over all batches of trials; None if none may miss."""
    federation = config.federation
    tolerated = federation.tolerated_dropouts
    if not tolerated:
        return None
    settled = [row for row in rows if row.present is not None]
    lacking = [row for row in settled if row.kind.participants != len(row.clients)]
    kinds = tuple(replace(row.kind, count=1) for row in settled) or None
    described = privacy.describe(config, nominal)
    if kinds is not None:
        described = replace(described, rounds=tuple(dict.fromkeys(kinds)))
    multipliers = [group.noise_multiplier for group in described.towards(federation.vantage).groups]
    return Dropouts(
        tolerated=tolerated,
        rounds_with_missing_clients=len({row.place for row in lacking}),
        fewest_shares=min(
            (row.kind.participants or 0 for row in settled), default=federation.clients
        ),
        effective_noise_multiplier=(min(multipliers), max(multipliers)),
    )


def cautions(federation: FederationConfig, missing: Dropouts | None) -> list[str]:
    texts, colluding = [], federation.colluding
    if missing and missing.rounds_with_missing_clients:
        texts.append(
            f"Clients were missing in {missing.rounds_with_missing_clients} rounds of all batches "
            f"of trials and attempts. The worst round had {missing.fewest_shares} of "
            f"{federation.clients} clients. The bounds use the noise that was left."
        )
    if colluding:
        texts.append(
            f"{colluding} of {federation.clients} clients colluded with the adversary. The bounds "
            "are of the others. They hold against that many colluding clients, and not against "
            "more."
        )
    return texts


OF_THE_MACHINE = {
    *("data.root", "data.public-root", "model.weights", "run.out"),
    *("run.device", "run.threads", "run.max-memory"),
}
"""Keys that a report leaves out: paths and limits of one machine."""


def configuration(run: AuditedRun) -> dict[str, Scalar]:
    values = to_run_config(run.config)
    return {key: value for key, value in values.items() if key not in OF_THE_MACHINE}


def data(run: AuditedRun) -> DataFacts:
    config, facts = run.config, run.facts
    return DataFacts(
        name=titled(facts["dataset"]),
        records=config.data.records,
        held_out=facts["held_out"],
        client_sizes=facts["client_sizes"],
        mean_label_skew=facts["mean_label_skew"],
    )


def mechanism(run: AuditedRun) -> MechanismFacts:
    """Return the mechanism; its guarantee covers only what was released."""
    config, nominal = run.config, run.noise_multiplier
    return MechanismFacts(
        noise_multiplier=nominal,
        effective_noise_multiplier=_common_noise_multiplier(run.releases.towards(run.vantage)),
        clipping=config.training.clipping,
        sensitivity=config.privacy.sensitivity,
        steps=run.mechanism.steps,
        mu=run.mechanism.mu,
        local_steps=config.training.local_steps,
        sampling_rate=config.participation.rate,
        joining_rate=config.participation.joining_rate,
        rounding=rounding(config, nominal, run.facts["parameters"], run.rounds),
        dp_guarantee=run.together.given,
        dp_note=run.together.note,
    )


def challenge(run: AuditedRun) -> ChallengeFacts:
    target = run.facts["challenge"]
    replacement = target["replacement"]
    if run.config.challenge.is_crafted and replacement is not None:
        # Its position is not one of the pool.
        replacement = "the original record"
    return ChallengeFacts(
        record=target["record"],
        replacement=replacement,
        client=target["client"],
        choice="given" if target["measure"] == "given" else "max",
        measure=target["measure"],
        kind=target["kind"],
        label=target["label"],
        records=target_records(run),
    )


def timing(run: AuditedRun) -> Timing:
    return Timing(**run.facts["timing"])


def target_records(run: AuditedRun) -> int:
    if run.config.privacy.unit == "record":
        return 1
    return int(run.facts["client_sizes"][run.facts["challenge"]["client"]])


def _common_noise_multiplier(mechanism: Accounted) -> float | None:
    """Return the noise multiplier of all steps: 0 if any step has none, None if they differ."""
    multipliers = {group.noise_multiplier for group in mechanism.groups}
    if mechanism.noiseless:
        return 0.0
    return multipliers.pop() if len(multipliers) == 1 else None
