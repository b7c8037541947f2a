"""The set-up of a run in its report: data, model, training, challenge and mechanism."""

from fedsim.audits.measurements import trust_report
from fedsim.audits.results.setting import Challenge, Data, Mechanism, Model, Timing, Training
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.privacy.mechanism import Mechanism as Accounted

MECHANISM_KEYS = {"rounds", "clipping_norm", "clipping", "sampling_rate", "local_steps"}
"""Keys of the training table that the report lists under the mechanism."""


def data(run: AuditedRun) -> Data:
    """Return the data, and which client holds what."""
    config, facts = run.config, run.facts
    return Data(
        name=facts["dataset"],
        records=config.data.records,
        held_out=facts["held_out"],
        partition=config.federation.partition,
        partition_key=config.federation.partition_key or None,
        client_sizes=facts["client_sizes"],
        label_skew=facts["label_skew"],
    )


def model(run: AuditedRun) -> Model:
    """Return the trained model."""
    facts, configured = run.facts, run.config.model
    return Model(
        name=configured.name,
        parameters=facts["parameters"],
        gradient_fallbacks=facts["gradient_fallbacks"],
        frozen=configured.frozen,
        frozen_parameters=facts["frozen_parameters"],
        batch_norm=configured.batch_norm,
    )


def training(run: AuditedRun) -> Training:
    """Return the training's settings."""
    return Training(**run.config.training.model_dump(exclude=MECHANISM_KEYS))


def mechanism(run: AuditedRun) -> Mechanism:
    """Return the mechanism; its guarantee covers only what was released."""
    config, nominal = run.config, run.noise_multiplier
    return Mechanism(
        noise_multiplier=nominal,
        effective_noise_multiplier=_common_noise_multiplier(run.of_one.towards(run.vantage)),
        clipping_norm=config.training.clipping_norm,
        clipping=config.training.clipping,
        sensitivity=config.privacy.sensitivity,
        noise=config.privacy.noise.value,
        steps=run.mechanism.steps,
        mu=run.mechanism.mu,
        local_steps=config.training.local_steps,
        sampling_rate=config.participation.rate,
        joining_rate=config.participation.joining_rate,
        learning_rate=config.training.rate,
        rounding=trust_report.rounding(config.scheme, nominal, run.facts["parameters"], run.rounds),
        dp_guarantee=run.together.given,
        dp_note=run.together.note,
    )


def challenge(run: AuditedRun) -> Challenge:
    """Return the challenge: the target, and what D' has in its place."""
    target = run.facts["challenge"]
    replacement = target["replacement"]
    if run.config.challenge.is_crafted and replacement is not None:
        # Its position is not one of the pool.
        replacement = "the original record"
    return Challenge(
        record=target["record"],
        replacement=replacement,
        client=target["client"],
        adversary=target["adversary"],
        choice="given" if target["measure"] == "given" else run.config.challenge.choice,
        measure=target["measure"],
        distance=target["distance"],
        kind=target["kind"],
        copies=target["copies"],
        label=target["label"],
        records=target_records(run),
    )


def timing(run: AuditedRun) -> Timing:
    """Return the wall-clock times, in seconds."""
    seconds = run.facts["timing"]
    return Timing(seconds["federation"], seconds["clients_computing"], seconds["total"])


def target_records(run: AuditedRun) -> int:
    """Return the number of records in which D and D' differ."""
    if run.config.privacy.unit == "record":
        return run.config.challenge.copies
    return int(run.facts["client_sizes"][run.facts["challenge"]["client"]])


def _common_noise_multiplier(mechanism: Accounted) -> float | None:
    """Return the noise multiplier of all steps: 0 if any step has none, None if they differ."""
    multipliers = {group.noise_multiplier for group in mechanism.groups}
    if mechanism.noiseless:
        return 0.0
    return multipliers.pop() if len(multipliers) == 1 else None
