"""How a run was set up: the sections of the page about the federation and its training."""

from fedsim.report.report_rows import Entries
from fedsim.report.report_values import (
    Report,
    at,
    is_client,
    is_clipped,
    is_halves,
    is_sampled,
    local_steps,
    percent,
    plain,
    setting,
    trials_of,
)
from fedsim.trust import Trust

ROUNDING = {
    "Secure aggregation": "mechanism.rounding.note",
    "Grid step g": "mechanism.rounding.step",
    "Sensitivity more by rounding, relative": "mechanism.rounding.relative_growth",
    "Total variation by rounding, at most": "mechanism.rounding.total_variation",
}

DROPOUTS = {
    "Missing clients tolerated": "dropouts.tolerated",
    "Rounds with missing clients": "dropouts.rounds_with_missing_clients",
    "Fewest shares of noise": "dropouts.fewest_shares",
    "Effective noise multiplier, from and to": "dropouts.effective_noise_multiplier",
}
"""What the mechanism's settings list where it applies."""

TRUST = {trust.value: trust.model.words for trust in Trust}

OPTIMIZER_SETTINGS = {
    "sgd": {"momentum": "momentum"},
    "adam": {"β₁": "beta1", "β₂": "beta2", "ε": "adam_epsilon"},
}

AUDIT_MODES = {
    "participant": "The beliefs were computed by the adversary itself, from what a client receives "
    "and the background knowledge of the threat model.",
    "oracle": "The beliefs were computed by the auditor, from the noise that was drawn; they "
    "are the adversary's, which it would have computed at greater cost.",
}


def scope(report: Report) -> str:
    """Return the size and the setting of the run in one line."""
    sampled = is_sampled(report)
    return " · ".join(
        (
            trials_of(report),
            f"{plain(at(report, 'rounds'))} rounds",
            f"{plain(at(report, 'clients'))} clients",
            f"{plain(at(report, 'trust'))} trust",
            f"vantage: {plain(at(report, 'vantage'))}",
            f"neighbouring: {plain(at(report, 'neighbouring'))}",
            *(["unit of privacy: a client's whole data"] * is_client(report)),
            *([f"sampling rate {plain(at(report, 'mechanism.sampling_rate'))}"] * sampled),
            *([f"{local_steps(report)} local steps"] * (local_steps(report) > 1)),
        )
    )


def trust(report: Report) -> str:
    """Say who added the noise, how the messages were summed, and what the bounds count on."""
    words = TRUST.get(str(at(report, "trust")), "")
    if at(report, "mechanism.rounding"):
        words += (
            f" They were {at(report, 'mechanism.rounding.note')}, as integers: for the rounding "
            "the noise, like the sensitivity, is "
            f"{percent(at(report, 'mechanism.rounding.relative_growth'))} larger."
        )
    if colluding := at(report, "colluding"):
        words += (
            f" {colluding} of the {at(report, 'clients')} clients told the adversary their noise, "
            "and the bounds count on none of it."
        )
    if local_steps(report) > 1:
        words += (
            " Clients take several steps of their own in a round, each at a model that only their "
            "own noise hides; so the bounds grant every vantage all of these steps."
        )
    return words


def training(report: Report) -> list[str]:
    """Return, in whole sentences, what a step is, how the model takes it, and who audited it."""
    rounds, local = at(report, "rounds"), local_steps(report)
    rate = plain(at(report, "mechanism.sampling_rate"))
    if is_sampled(report):
        step = (
            f"In each of {plain(rounds)} rounds every record took part with probability "
            f"{rate}, by itself (Poisson sampling). The bounds count on it that nobody learns "
            "whether the challenge record did; the adversary is taken to know of all others."
        )
    elif local > 1:
        step = (
            f"In each of {plain(rounds)} rounds every client took {local} noisy steps on a model "
            f"of its own: {plain(at(report, 'mechanism.steps'))} noisy steps are accounted. The "
            "adversary sees only their sum, and decides by a linearised attack's score."
        )
    elif is_halves(report):
        step = (
            f"In each of {plain(rounds)} rounds the records of the trial's secret candidate took "
            "part, one of several random halves of the records of all clients but the adversary."
        )
    elif is_client(report):
        epochs, size = (at(report, f"training.{key}") for key in ("local_epochs", "batch_size"))
        step = (
            f"In each of {plain(rounds)} rounds every client trained a copy of the model on its "
            f"own records, without noise, for {plain(epochs)} epoch{'s' * (epochs != 1)} in "
            f"{f'batches of {plain(size)}' if size else 'one batch'}, and sent how far it came, "
            "clipped as a whole. Only that is accounted for, whatever the client did in between."
        )
    else:
        step = f"In each of {plain(rounds)} rounds every record took part, in one step."
    sentences = [step, _optimisation(report), _audited(report), _gradients(report)]
    return [sentence for sentence in sentences if sentence]


def _optimisation(report: Report) -> str:
    optimizer, schedule, rate, local_rate, warmup = (
        at(report, f"training.{key}")
        for key in (
            "optimizer",
            "schedule",
            "learning_rate",
            "local_learning_rate",
            "warmup_rounds",
        )
    )
    settings = ", ".join(
        f"{name} {plain(value)}"
        for name, key in OPTIMIZER_SETTINGS.get(optimizer, {}).items()
        if (value := at(report, f"training.{key}"))
    )
    return (
        f"The server's optimiser was {plain(optimizer)}{f' ({settings})' if settings else ''}, "
        f"its learning rate {plain(rate)} on the schedule {plain(schedule)}"
        f"{f' after {plain(warmup)} rounds of warm-up' if warmup else ''}"
        f"{f', that of the clients {plain(local_rate)}' if local_rate else ''}. It works on what "
        "is released anyway and costs no privacy."
    )


def _audited(report: Report) -> str:
    return AUDIT_MODES.get(str(at(report, "audit_mode")), "")


def _gradients(report: Report) -> str:
    """Say in which precision and by which rules per-example gradients were clipped."""
    sentence = f"Forward and backward passes ran in {plain(at(report, 'precision'))}"
    fallbacks = report["model"]["gradient_fallbacks"]
    if not fallbacks:
        clipped = is_clipped(report) and not is_client(report)
        what = "was clipped" if clipped else "gave its gradients"
        return f"{sentence}; every layer {what} by its own rule."
    layers = "; ".join(f"{name} ({plain(reason)})" for name, reason in fallbacks.items())
    return f"{sentence}; layers whose gradients went through torch.func: {layers}."


def configuration(report: Report) -> list[tuple[str, Entries]]:
    """Return the settings of the run by section."""
    sections: dict[str, dict[str, str]] = {
        "Federation": {
            "Clients": "clients",
            "Clients colluding with the adversary": "colluding",
            "Rounds": "rounds",
            "Trials": "trials",
            "Trust": "trust",
            "Vantage": "vantage",
            "Unit of privacy": "unit",
            "Neighbouring": "neighbouring",
            "Runtime": "runtime",
            "Device": "device",
        },
        "Data and model": {
            "Dataset": "data.name",
            "Records": "data.records",
            "Held out": "data.held_out",
            "Partition": "data.partition",
            **({"Never split": "data.partition_key"} if at(report, "data.partition_key") else {}),
            "Records per client": "data.client_sizes",
            **({"Label skew": "data.label_skew"} if at(report, "data.label_skew") else {}),
            "Model": "model.name",
            "Parameters": "model.parameters",
            "Frozen": "model.frozen",
            "Frozen parameters": "model.frozen_parameters",
            "Batch norm": "model.batch_norm",
            "Precision": "precision",
            "Layers through torch.func": "model.gradient_fallbacks",
        },
        "Challenge": {
            "Record": "challenge.record",
            "Records in question": "challenge.records",
            "Replacement": "challenge.replacement",
            "Client": "challenge.client",
            "Adversary": "challenge.adversary",
            "Dissimilarity": "challenge.measure",
            "Distance": "challenge.distance",
        },
        "Mechanism": {
            "Noise multiplier": "mechanism.noise_multiplier",
            "Effective noise multiplier": "mechanism.effective_noise_multiplier",
            "Clipping norm C": "mechanism.clipping_norm",
            "Clipping": "mechanism.clipping",
            "Sensitivity": "mechanism.sensitivity",
            "Noise": "mechanism.noise",
            "Noisy steps accounted": "mechanism.steps",
            "Local steps in a round": "mechanism.local_steps",
            "Sampling rate": "mechanism.sampling_rate",
            **(ROUNDING if at(report, "mechanism.rounding") else {}),
            **(DROPOUTS if at(report, "dropouts") else {}),
            "DP guarantee": "mechanism.dp_guarantee",
            "Note": "mechanism.dp_note",
        },
        "Training": {
            "Learning rate": "mechanism.learning_rate",
            **{
                key.replace("_", " ").capitalize(): f"training.{key}"
                for key in report["training"]
                if key not in _without_effect(report)
            },
            "Audit mode": "audit_mode",
        },
        "Randomness and versions": {
            "Seed": "seed",
            "Noise from": "noise_source",
            **{name: f"versions.{name}" for name in report["versions"]},
        },
        "Seconds": {name: f"timing.{name}" for name in report["timing"]},
    }
    return [
        (title, [(name, setting(at(report, path))) for name, path in entries.items()])
        for title, entries in sections.items()
        if entries
    ]


def _without_effect(report: Report) -> set[str]:
    """Return the keys of the training that did not matter, or stand elsewhere."""
    optimizer, schedule = at(report, "training.optimizer"), at(report, "training.schedule")
    idle = {"learning_rate"}
    for name, settings in OPTIMIZER_SETTINGS.items():
        idle |= set(settings.values()) if name != optimizer else set()
    idle |= {"decay_every", "decay_factor"} if schedule != "step" else set()
    if is_client(report):
        return idle
    idle |= {"local_epochs", "batch_size"}
    return idle | ({"local_learning_rate"} if local_steps(report) == 1 else set())
