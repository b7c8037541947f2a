"""The card of a trained model: MODEL_CARD.md to read, model_card.json to compute with."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

import fedsim
from adversaries.errors import InputError
from fedsim.audits.run import guarantee
from fedsim.configuration.federation import OWN, DataConfig
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.run_directory import CARD, RunDirectory
from fedsim.game import record_display
from fedsim.learning.data.schema import MARK
from fedsim.learning.training import saved_model
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Vantage
from fedsim.reports.card_page import as_markdown_page
from fedsim.reports.card_types import Charged, ModelCard, ModelUtility, Privacy, ReleasedTowards

PAGE = f"{saved_model.PUBLIC}/MODEL_CARD.md"

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
    "The quality in the card is of held-out records of the same file, and ε does not cover it. "
    "Share the card only if these records may be known."
)

MARKED = (
    f"The schema has lines marked {MARK}. The model carries them, and ε does not cover what they "
    "disclose. Replace them by public knowledge, and train again."
)


def _uncovered(data: DataConfig) -> list[str]:
    """Return what depends on records that are not known to be public, and that ε does not cover."""
    sentences = []
    if data.name not in (OWN, *record_display.PUBLIC):
        sentences.append(MEASURED if data.public_schema else FROM_A_FILE)
    if f"# {MARK}:" in data.public_schema:
        sentences.append(MARKED)
    return sentences


def write_card(
    directory: RunDirectory, noise_multiplier: float, parameters: int, public_records: int
) -> ModelCard:
    config, model = directory.config, saved_model.describe(directory.path)
    content = (directory.path / saved_model.PUBLIC / saved_model.VALUES).read_bytes()
    rounds = [event for event, _ in directory.events() if "round" in event]
    classes = saved_model.class_names(model.input)
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
        privacy=privacy_of(directory, noise_multiplier),
        utility=_utility(rounds, public_records, classes, model.input.target),
        sha256=hashlib.sha256(content).hexdigest(),
        limits=[limit.format(unit=config.privacy.unit) for limit in LIMITS],
        task=model.network.task,
        uncovered=_uncovered(config.data),
    )
    directory.write_text(PAGE, as_markdown_page(card))
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
        as_markdown_page(card)
    return card


def privacy_of(directory: RunDirectory, noise_multiplier: float) -> Privacy:
    config, rows = directory.config, ledger.verified(directory)
    everything = spending.describe_everything(config, noise_multiplier, rows)
    released = everything or spending.describe(config, noise_multiplier, rows)
    failings = guarantee.dp_failings(config)
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
            "sees the trained model alone"
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
        errors={name: tuple(each) for name, each in last.get("errors", {}).items()},
        target=target,
        baseline_loss=last.get("baseline_loss"),
        loss_interval=(between := last.get("loss_interval")) and (between[0], between[1]),
    )
