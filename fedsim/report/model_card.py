"""The card of a trained model: MODEL_CARD.md to read, model_card.json to compute with."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.console import RenderableType
from rich.text import Text

import fedsim
from adversaries.errors import InputError
from fedsim.audits.results import report as results
from fedsim.audits.results.numbers import Proportion
from fedsim.audits.run import guarantee
from fedsim.config import Scalar, to_run_config
from fedsim.config.federation import OWN, DataConfig
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.run_directory import CARD, RunDirectory
from fedsim.federation.server import noisy_measures
from fedsim.game import record_display
from fedsim.learning.data.schema import MARK
from fedsim.learning.training import saved_model
from fedsim.privacy import discrete_laplace, risks
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps
from fedsim.privacy.trust.model import Vantage
from fedsim.report import model_quality
from fedsim.report.card_types import (
    Charged,
    ClientMeasures,
    ModelCard,
    ModelUtility,
    Privacy,
    Rehearsal,
    ReleasedTowards,
)
from fedsim.report.document import terminal, worth
from fedsim.report.document.blocks import Block, Bullets, Part, Prose, tabulated
from fedsim.report.document.terminal import quoted
from fedsim.report.document.wording import counted, number, percent, span
from fedsim.report.document.worth import WORDS
from fedsim.report.model_quality import CONFIDENCE, learning, quality_of
from fedsim.report.sections import risks as risk_section

FILE = "rehearsal.json"

OWN_OF_EACH = (
    "privacy.noise-source",
    "federation.partition",
    "federation.partition-key",
    "federation.partition-options",
    "federation.dirichlet-alpha",
    "federation.adversary",
    "federation.auditor-sees",
    "federation.timeout",
)

TABLES = ("training.", "model.", "privacy.", "federation.")


def findings(values: Mapping[str, Scalar], rehearsal: Path) -> Rehearsal:
    played = RunDirectory.open(rehearsal)
    if played.config.run.job == "training":
        raise InputError(f"'{rehearsal}' is a training; rehearse it with fedsim run")
    theirs = to_run_config(played.config)
    for key, value in values.items():
        if key.startswith(TABLES) and key not in OWN_OF_EACH and theirs[key] != value:
            raise InputError(
                f"'{rehearsal}' is a rehearsal of another training: {key} is {theirs[key]!r} there "
                f"and {value!r} here; rehearse the same file, with the same changes"
            )
    report = results.read(played)
    measured, limit = report.attack, report.here.limit
    return Rehearsal(
        name=report.name,
        data=report.data.name,
        records=report.data.records,
        trials=report.trials,
        vantage=report.vantage,
        confidence=measured.confidence,
        advantage=measured.advantage,
        advantage_interval=measured.interval,
        rho_alpha=limit.rho_alpha,
        delta_prime=measured.delta_prime,
        rho_beta=report.accounted.rho_beta,
    )


def attach(directory: RunDirectory, rehearsal: Rehearsal) -> None:
    if directory.has(CARD):
        raise InputError(
            f"'{directory.path}' is finished, so its card no longer changes; give --rehearsal when "
            "you start the training"
        )
    directory.write_json(FILE, TypeAdapter(Rehearsal).dump_python(rehearsal, mode="json"))


def read_rehearsal(directory: RunDirectory) -> Rehearsal | None:
    if not directory.has(FILE):
        return None
    values = directory.read_json(FILE)
    with directory.reading(FILE):
        return TypeAdapter(Rehearsal).validate_python(values)


PAGE = f"{saved_model.PUBLIC}/MODEL_CARD.md"

USE = """\
```python
import fedsim

model = fedsim.load_model(RUN_DIRECTORY)   # a torch.nn.Module: {use}
```"""

LIMITS = (
    "The guarantee is for one {unit} at a time. A person with several has less protection (group "
    "privacy).",
    "An accuracy on records that clients held out for themselves is a further release. If there "
    "was one, the card states it. The model is from the last round; no round was chosen by its "
    "accuracy.",
    "ε covers what the rounds released. The model's statements about people in general may "
    "also be true of people who took no part.",
)

FROM_A_FILE = (
    "The records were read as a whole, by one process. ε covers the rounds alone. It does not "
    "cover what else depends on these records, such as the scale of columns, the names of classes "
    "and categories, and the quality on held-out records. For records of people, use "
    'data.name = "own" with a public schema.'
)

MEASURED = (
    "The quality was measured on held-out records of the same file. ε does not cover it. Share it "
    "only if these records may be known."
)

MARKED = (
    f"The public schema has lines marked {MARK}. The model carries them, and ε does not cover what "
    "they disclose. Replace them by public knowledge."
)

REHEARSED = (
    "The rehearsal's noise can be removed, so ε does not cover its result. Share it only if the "
    "rehearsal's records are public."
)


def _uncovered(data: DataConfig, rehearsal: Rehearsal | None) -> list[str]:
    """Return what depends on records that are not known to be public, and that ε does not cover."""
    sentences = []
    if data.name not in (OWN, *record_display.PUBLIC):
        sentences.append(MEASURED if data.public_schema else FROM_A_FILE)
    if f"# {MARK}:" in data.public_schema:
        sentences.append(MARKED)
    if rehearsal is not None and rehearsal.data not in record_display.PUBLIC:
        sentences.append(REHEARSED)
    return sentences


def write_card(
    directory: RunDirectory, noise_multiplier: float, parameters: int, public_records: int
) -> ModelCard:
    config, model = directory.config, saved_model.describe(directory.path)
    rehearsal = read_rehearsal(directory)
    content = (directory.path / saved_model.PUBLIC / saved_model.VALUES).read_bytes()
    rounds = [event for event, _ in directory.events() if "round" in event]
    requests, answers = noisy_measures.read_measures(directory)
    each_cost = config.federation.measures_epsilon
    cost = requests * each_cost
    classes = saved_model.class_names(model.input)
    sensitivity = discrete_laplace.SENSITIVITY[config.privacy.neighbouring]
    card = ModelCard(
        name=config.run.name,
        purpose=config.run.purpose,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        fedsim=fedsim.__version__,
        data=model.input.data,
        records=config.data.records,
        clients=config.federation.clients,
        classes=model.input.classes,
        network=model.network.name,
        parameters=parameters,
        rounds=rounds[-1]["round"],
        optimizer=config.training.optimizer,
        privacy=replace(privacy_of(directory, noise_multiplier), measures_epsilon=cost),
        utility=_utility(rounds, public_records, classes, model.input.target),
        rehearsal=rehearsal,
        sha256=hashlib.sha256(content).hexdigest(),
        limits=[limit.format(unit=config.privacy.unit) for limit in LIMITS],
        task=model.network.task,
        client_measures=[
            ClientMeasures(
                client,
                cost,
                counts,
                model_quality.of_classes(counts, classes, sensitivity / each_cost, CONFIDENCE),
            )
            for client, counts in sorted(answers.items())
        ],
        uncovered=_uncovered(config.data, rehearsal),
    )
    directory.write_text(PAGE, as_markdown(card))
    directory.write_json(CARD, TypeAdapter(ModelCard).dump_python(card, mode="json"))
    return card


def read_card(directory: RunDirectory) -> ModelCard:
    """Return the card of a training. Raises InputError if it is damaged or does not add up."""
    values = directory.read_json(CARD)
    with directory.reading(CARD):
        card = TypeAdapter(ModelCard).validate_python(values)
        Neighbouring(card.privacy.neighbouring)
        for row in card.privacy.towards:
            if not row.epsilon or row.vantage not in list(Vantage):
                raise ValueError(f"'{row.vantage}' is no vantage point with an epsilon")
        # Every number is shown once, so that none is impossible on a page.
        summary(card)
        as_markdown(card)
    return card


def summary(card: ModelCard) -> RenderableType:
    privacy = card.privacy
    names = list(privacy.towards[0].epsilon)
    rows = [
        [row.vantage.replace("-", " "), *(number(row.epsilon.get(name)) for name in names)]
        for row in privacy.towards
    ]
    by_name = tabulated(["towards", *(f"ε by {name}" for name in names)], rows)
    lines = [Text(f"At δ = {privacy.delta:g}, for one {privacy.unit}.{_besides(privacy)}")]
    if not privacy.guaranteed:
        lines.insert(0, Text(f"No guarantee of differential privacy. {privacy.note}", "bold"))
    lines += [Text(f"Warning: {sentence}") for sentence in card.uncovered or ()]
    if card.utility is not None:
        lines.append(Text(learning(card.utility, card.task)))
    return terminal.shown(terminal.table(by_name, title=card.name), *lines)


def _besides(privacy: Privacy) -> str:
    if not privacy.measures_epsilon:
        return ""
    cost = f"ε = {number(privacy.measures_epsilon)} (δ = 0)"
    if privacy.neighbouring == Neighbouring.ADD_REMOVE:
        return f" A record that its client held back from the rounds costs {cost} instead."
    return (
        f" Records that clients held back from the rounds cost {cost}. If one of a record and its "
        "replacement was in the rounds and the other was held back, add both costs."
    )


def privacy_of(directory: RunDirectory, noise_multiplier: float) -> Privacy:
    config, rows = directory.config, ledger.verified(directory)
    everything = spending.describe_everything(config.scheme, noise_multiplier, rows)
    released = everything or spending.describe(config.scheme, noise_multiplier, rows)
    failings = guarantee.dp_failings(config.game, config.audit)
    privacy, training, federation = config.privacy, config.training, config.federation
    chosen, trust = privacy.accountant, federation.trust.model

    def towards(vantage: Vantage) -> ReleasedTowards:
        """Return epsilon by the configured accountant, and by another one to compare."""
        mechanism = released.towards(vantage)
        epsilons = {}
        for name in (chosen, "pld" if chosen == "rdp" else "rdp"):
            # The other method may not cover such rounds.
            with suppress(InputError):
                epsilons[name] = accountant(name).epsilon(mechanism, privacy.delta)
        sees = (
            "the trained model alone"
            if vantage is Vantage.RELEASED_MODEL
            else trust.sees(vantage, federation.clients, federation.summed_in_the_clear)
        )
        steps = [
            Charged(one.noise_multiplier, one.count, one.sampling_rate) for one in mechanism.groups
        ]
        return ReleasedTowards(vantage.value, sees, epsilons, steps)

    return Privacy(
        guaranteed=not failings,
        note=" ".join(failings) or guarantee.SYSTEM_NOISE,
        unit=privacy.unit,
        neighbouring=privacy.neighbouring.value,
        delta=privacy.delta,
        noise_multiplier=noise_multiplier,
        clipping_norm=training.clipping_norm,
        sampling_rate=training.sampling_rate,
        trust=trust.words,
        towards=[towards(vantage) for vantage in Vantage],
        rounds_charged=released.count,
        attempts=max((row.attempt for row in rows), default=0),
        local_steps=training.local_steps,
    )


def _utility(
    rounds: Sequence[dict[str, Any]], records: int, classes: list[str], target: list[float]
) -> ModelUtility | None:
    if not records:
        return None
    last = rounds[-1]
    return ModelUtility(
        records=records,
        accuracy=last["accuracy"],
        loss=last["loss"],
        majority=last["majority"],
        balanced_accuracy=last.get("balanced_accuracy"),
        area_under_curve=last.get("area_under_curve"),
        loss_before=rounds[0].get("loss"),
        clipped=last.get("clipped"),
        classes=classes,
        confusion=last.get("confusion", []),
        calibration=[tuple(each) for each in last.get("calibration", [])],
        errors={name: tuple(each) for name, each in last.get("errors", {}).items()},
        target=target,
        baseline_loss=last.get("baseline_loss"),
        loss_interval=(between := last.get("loss_interval")) and (between[0], between[1]),
    )


def as_markdown(card: ModelCard) -> str:
    return terminal.as_markdown([Part(quoted(card.name), list(_blocks(card)))])


WIDE = 0.5
"""Length above which an interval is shown as "cannot tell"."""


def _at_clients(card: ModelCard) -> Iterator[Block]:
    def cell(share: Proportion | None) -> str | None:
        if share is None or share.interval is None:
            return None
        low, high = share.interval
        return "cannot tell" if high - low > WIDE else worth.share(share)

    cost = number(card.privacy.measures_epsilon)
    yield Prose(
        "These clients held back a share of their records from the training, and counted the "
        "model's answers for them. Each count has discrete Laplace noise."
    )
    yield Prose(
        f"An answer costs ε = {cost} for a record that was held back (δ = 0, "
        f"{card.privacy.neighbouring}). The client's ledger adds this to the cost of the rounds. "
        "A client that is not listed did not answer, and may have paid the same."
    )
    yield Prose(
        f"Intervals at {percent(CONFIDENCE)} include the noise. “Cannot tell” stands for intervals "
        f"longer than {percent(WIDE)}."
    )
    rows = [
        [f"client {one.client}", quoted(each.name), cell(each.recall), cell(each.precision)]
        for one in card.client_measures
        for each in one.classes
    ]
    yield tabulated(["client", "class", "recall", "precision"], rows)


def _accounted(privacy: Privacy) -> Iterator[Block]:
    if not any(row.steps for row in privacy.towards):
        return
    yield Prose("ε follows from δ and these Gaussian steps:")
    lines = []
    for row in privacy.towards:
        steps = "; ".join(
            f"{one.count} steps with noise multiplier {one.noise_multiplier:.7g} at sampling rate "
            f"{one.sampling_rate:.7g}"
            for one in row.steps
        )
        lines.append(f"towards the {row.vantage.replace('-', ' ')}: {steps}")
    yield Bullets(lines)
    if privacy.guaranteed and (by_vantage := risks_by_vantage(privacy)):
        yield Prose(
            "How often any attack on one person (re-identification, attribute inference, "
            "reconstruction) is right without the model, and how often at most with it:"
        )
        yield risk_section.table(by_vantage)


def mechanism_towards(privacy: Privacy, towards: ReleasedTowards) -> Mechanism:
    groups = [Steps(one.noise_multiplier, one.count, one.sampling_rate) for one in towards.steps]
    return Mechanism(tuple(groups), Neighbouring(privacy.neighbouring))


def risks_by_vantage(privacy: Privacy) -> dict[str, risk_section.Risks]:
    """Return the largest success of any attack by its baseline, by the name of the vantage."""
    by_vantage: dict[str, risk_section.Risks] = {}
    for row in privacy.towards:
        with suppress(InputError):  # steps that are unknown, or that no accountant covers
            mechanism = mechanism_towards(privacy, row)
            by_vantage[row.vantage.replace("-", " ")] = risks.success_by_baseline(mechanism)
    return by_vantage


def _blocks(card: ModelCard) -> Iterator[Block]:
    if card.purpose:
        yield Prose(quoted(card.purpose))
    of = f"{card.records:,} records of {quoted(card.data)}"
    if card.data == OWN:
        of = f"{card.records:,} of the clients' own records (model.toml has their schema)"
    less = ", without records that clients held back," * (card.privacy.measures_epsilon > 0)
    yield Prose(
        f"The model ({quoted(card.network)}, {card.parameters:,} trained parameters) predicts "
        f"{WORDS[card.task].predicts.format(classes=card.classes)}. "
        f"{card.clients} clients trained it together, on {of}{less}, in {card.rounds} rounds "
        f"({card.optimizer})."
    )
    yield Part("Privacy", list(_privacy(card.privacy)))
    if card.utility is not None:
        loss = f"{number(card.utility.loss)}{WORDS[card.task].unit}"
        worth = learning(card.utility, card.task)
        words = Prose(f"{worth} The loss is {loss}. No client trained on these records.")
        yield Part("Quality", [words, *quality_of(card.utility)])
    if card.privacy.measures_epsilon:
        yield Part("At the clients", list(_at_clients(card)))
    if (rehearsal := card.rehearsal) is not None:
        between = span(rehearsal.advantage_interval, number)
        data = "the same schema" if rehearsal.data == OWN else quoted(rehearsal.data)
        text = (
            "Before the training, a rehearsal played the same rounds under the same noise "
            f"{rehearsal.trials} times, on {rehearsal.records:,} records of {data}. The adversary "
            f"at the {rehearsal.vantage.replace('-', ' ')} knew all records but one. Its advantage "
            f"was {number(rehearsal.advantage)} ({between} at {percent(rehearsal.confidence)}), "
            f"and the noise allows {number(rehearsal.rho_alpha)}. In "
            f"{percent(rehearsal.delta_prime)} of the trainings with the record, its belief "
            f"exceeded {percent(rehearsal.rho_beta)}. "
            "These numbers concern the records of the rehearsal, not the training data of this "
            "model."
        )
        yield Part("Rehearsed", [Prose(text)])
    yield Part("Limits", [Bullets([*(card.uncovered or ()), *card.limits])])
    written = (
        f"`model.safetensors`: SHA-256 `{card.sha256}`, written by fedsim {card.fedsim} on "
        f"{card.created}."
    )
    yield Part("Use it", [Prose(USE.format(use=WORDS[card.task].use)), Prose(written)])


def _privacy(privacy: Privacy) -> Iterator[Block]:
    if not privacy.guaranteed:
        yield Prose(f"**No guarantee of differential privacy.** {privacy.note}")
    names = list(privacy.towards[0].epsilon)
    local = f" of {privacy.local_steps} local steps each" * (privacy.local_steps > 1)
    yield tabulated(
        ["towards", "what it sees", *(f"ε by {name}" for name in names)],
        [
            [
                f"the {row.vantage.replace('-', ' ')}",
                row.sees,
                *(number(row.epsilon.get(name)) for name in names),
            ]
            for row in privacy.towards
        ],
    )
    yield Prose(
        f"At δ = {privacy.delta:g}, for one {privacy.unit} ({privacy.neighbouring}). Gradients "
        f"were clipped to {privacy.clipping_norm:g}; the noise multiplier was "
        f"{privacy.noise_multiplier:.4g}, the sampling rate {privacy.sampling_rate:g}. "
        f"{privacy.trust} The accounting covers "
        f"{counted(privacy.rounds_charged, 'round')}{local}"
        + (f", in {privacy.attempts} attempts." if privacy.attempts > 1 else ".")
        + _besides(privacy)
    )
    yield from _accounted(privacy)
