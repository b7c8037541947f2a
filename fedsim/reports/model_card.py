"""The card of a trained model: MODEL_CARD.md to read, model_card.json to compute with."""

import hashlib
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Annotated, Any

from jinja2 import Environment, StrictUndefined
from pydantic import TypeAdapter

import fedsim
from adversaries.errors import InputError
from fedsim.audits.results.numbers import REALS, Real
from fedsim.audits.run import guarantee
from fedsim.common import foreign_text
from fedsim.configuration.federation import OWN, DataConfig, FederationConfig
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.run_directory import CARD, RunDirectory
from fedsim.game import record_display
from fedsim.learning.data.schema import MARK
from fedsim.learning.training import saved_model
from fedsim.privacy import delta, risks
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps
from fedsim.privacy.trust import FEW_MASKS, Vantage
from fedsim.reports.document import wording, worth
from fedsim.reports.document.blocks import Block, Prose, Table
from fedsim.reports.document.worth import ModelUtility
from fedsim.reports.sections import risks as risk_section

PAGE = f"{saved_model.PUBLIC}/MODEL_CARD.md"


@dataclass(frozen=True)
class ReleasedTowards:
    """What the training released to one vantage.

    Attributes:
        vantage: server, participant or released-model.
        sees: what an observer at this vantage sees, in words.
        epsilon: at delta, by accountant; the first is the configured one.
        steps: what epsilon accounts for, local steps and interrupted attempts included; the noise
            multiplier is that of the noise that the vantage does not know.
    """

    vantage: str
    sees: str
    epsilon: Mapping[str, Real]
    steps: list[Annotated[Steps, REALS]] = field(default_factory=list)


@dataclass(frozen=True)
class Privacy:
    """The protection of the records.

    Attributes:
        guaranteed: whether epsilon is a guarantee of differential privacy. If not, it is what the
            same noise would give if it could not be drawn again.
        note: why it is a guarantee, or why not.
        noise_multiplier: standard deviation of the noise over the sensitivity, as configured.
        sampling_rate: probability that a record takes part in a round.
        trust: source of the noise, and how the messages were summed, in words.
        rounds_charged: rounds that released something, interrupted attempts included.
        attempts: how often the training was started or resumed.
    """

    guaranteed: bool
    note: str
    unit: str
    neighbouring: str
    delta: Real
    noise_multiplier: Real
    clipping_norm: Real
    sampling_rate: Real
    trust: str
    towards: list[ReleasedTowards]
    rounds_charged: int
    attempts: int
    local_steps: int = 1

    def mechanism(self, towards: ReleasedTowards) -> Mechanism:
        """Return the mechanism towards a vantage. Raises InputError if its steps are unknown."""
        return Mechanism(tuple(towards.steps), Neighbouring(self.neighbouring))


@dataclass(frozen=True)
class ModelCard:
    """The card of a trained model.

    Attributes:
        fedsim: version that trained the model.
        records: n, the public number by which the sums are divided.
        parameters: number of trained parameters.
        utility: None where no records are held out.
        sha256: of model.safetensors.
        limits: what the guarantee does not cover.
        uncovered: what the reading of the records released without noise, in sentences.
    """

    name: str
    purpose: str
    created: str
    fedsim: str
    data: str
    records: int
    clients: int
    classes: int
    network: str
    parameters: int
    rounds: int
    optimizer: str
    privacy: Privacy
    utility: ModelUtility | None
    sha256: str
    limits: list[str]
    task: str
    uncovered: list[str]

    @property
    def warnings(self) -> list[str]:
        privacy = self.privacy
        count = self.clients if privacy.unit == "client" else self.records
        vague = delta.too_large(privacy.delta, count, privacy.unit)
        return [*filter(None, [vague]), *self.uncovered]


ADAPTER = TypeAdapter(ModelCard)

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


def _uncovered(data: DataConfig, federation: FederationConfig) -> list[str]:
    """Return what depends on the records, or can be seen of them, and that ε does not cover."""
    sentences = []
    if data.name not in (OWN, *record_display.PUBLIC):
        sentences.append(MEASURED if data.public_schema else FROM_A_FILE)
    if f"# {MARK}:" in data.public_schema:
        sentences.append(MARKED)
    if federation.few_masks:
        sentences.append(FEW_MASKS)
    return sentences


def write_card(
    directory: RunDirectory, noise_multiplier: float, parameters: int, public_records: int
) -> ModelCard:
    config, model = directory.config, saved_model.describe(directory.path)
    content = (directory.path / saved_model.PUBLIC / saved_model.VALUES).read_bytes()
    rounds = [event for event, _ in directory.events() if "round" in event]
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
        utility=_utility(
            rounds,
            records=public_records,
            classes=saved_model.class_names(model.input),
            target=model.input.target,
        ),
        sha256=hashlib.sha256(content).hexdigest(),
        limits=[limit.format(unit=config.privacy.unit) for limit in LIMITS],
        task=model.network.task,
        uncovered=_uncovered(config.data, config.federation),
    )
    directory.write_text(PAGE, as_markdown_page(card))
    directory.write_json(CARD, ADAPTER.dump_python(card, mode="json"))
    return card


def read_card(directory: RunDirectory) -> ModelCard:
    """Return the card of a training. Raises InputError if it is damaged or does not add up."""
    values = directory.read_json(CARD)
    with directory.reading(CARD):
        card = ADAPTER.validate_python(values)
        Neighbouring(card.privacy.neighbouring)
        if not card.privacy.towards:
            raise ValueError("no vantage point is listed")
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
        sees = trust.sees(vantage, federation.clients, federation.summed_in_the_clear)
        if vantage is Vantage.RELEASED_MODEL:
            sees = "sees the trained model alone"
        return ReleasedTowards(vantage.value, sees, epsilons, [*mechanism.groups])

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


def _utility(rounds: Sequence[Mapping[str, Any]], **known: Any) -> ModelUtility | None:
    """Return the quality in the event of the last round; None without held-out records."""
    if not known["records"]:
        return None
    names = {each.name for each in fields(ModelUtility)}
    measured = {name: value for name, value in rounds[-1].items() if name in names}
    before = {"loss_before": rounds[0].get("loss")}
    unknown = {"balanced_accuracy": None, "area_under_curve": None}
    return TypeAdapter(ModelUtility).validate_python({**unknown, **measured, **before, **known})


TEMPLATE = """\
{% set privacy, utility = card.privacy, card.utility %}
# {{ card.name | quoted }}

{% if card.purpose %}
{{ card.purpose | quoted }}

{% endif %}
The model ({{ card.network | quoted }}, {{ "{:,}".format(card.parameters) }} trained parameters) \
predicts {{ words.predicts.format(classes=card.classes) }}. {{ card.clients }} clients trained it \
together, on {% if card.data == own %}{{ "{:,}".format(card.records) }} of the clients' own \
records (model.toml has their schema){% else %}{{ "{:,}".format(card.records) }} records of \
{{ card.data | quoted }}{% endif %}, in {{ card.rounds }} rounds ({{ card.optimizer }}).

## Privacy

{% if not privacy.guaranteed %}
**No guarantee of differential privacy.** {{ privacy.note }}

{% endif %}
{% set names = privacy.towards[0].epsilon | list %}
| towards | what it sees |{% for name in names %} ε by {{ name }} |{% endfor %}

|---|---|{{ "---|" * names | length }}
{% for row in privacy.towards %}
| the {{ row.vantage | named }} | {{ row.sees }} |\
{% for name in names %} {{ row.epsilon.get(name) | number }} |{% endfor %}

{% endfor %}

At δ = {{ "%g" % privacy.delta }}, for one {{ privacy.unit }} ({{ privacy.neighbouring }}). \
Gradients were clipped to {{ "%g" % privacy.clipping_norm }}; the noise multiplier was \
{{ "%.4g" % privacy.noise_multiplier }}, the sampling rate {{ "%g" % privacy.sampling_rate }}. \
{{ privacy.trust }} The accounting covers {{ counted(privacy.rounds_charged, "round") }}\
{% if privacy.local_steps > 1 %} of {{ privacy.local_steps }} local steps each{% endif %}\
{% if privacy.attempts > 1 %}, in {{ privacy.attempts }} attempts{% endif %}.

{% if privacy.towards | map(attribute="steps") | select | list %}
ε follows from δ and these Gaussian steps:

{% for row in privacy.towards %}
- towards the {{ row.vantage | named }}: {% for one in row.steps %}{{ one.count }} steps \
with noise multiplier {{ "%.7g" % one.noise_multiplier }} at sampling rate \
{{ "%.7g" % one.sampling_rate }}{% if not loop.last %}; {% endif %}{% endfor %}

{% endfor %}

{% if risks %}
How often any attack on one person (re-identification, attribute inference, reconstruction) is \
right without the model, and how often at most with it:

{{ risks }}
{% endif %}
{% endif %}
{% if utility %}
## Quality

{{ learnt }} The loss is {{ utility.loss | number }}{{ words.unit }}. No client trained on these \
records.

{{ quality }}
{% endif %}
## Limits

{% for text in card.warnings + card.limits %}
- {{ text }}
{% endfor %}

## Use it

```python
import fedsim

model = fedsim.load_model(RUN_DIRECTORY)   # a torch.nn.Module: {{ words.use }}
```

`model.safetensors`: SHA-256 `{{ card.sha256 }}`, written by fedsim {{ card.fedsim }} on \
{{ card.created }}.
"""

MARKUP = re.compile(r"([\\`*_\[\]#|~]|^[-+=])")
"""Characters with a meaning in Markdown."""


def quoted(text: str) -> str:
    """Return the text of others as one line without a meaning in Markdown, which is no HTML."""
    line = html.escape(" ".join(foreign_text.shown(text).split()), quote=False)
    return MARKUP.sub(r"\\\1", line)


def _markdown(blocks: Iterable[Block]) -> str:
    """Return paragraphs and tables, whose texts are already Markdown."""
    lines = []
    for block in blocks:
        if isinstance(block, Table):
            rows = [f"| {' | '.join(map(str, row))} |" for row in [block.headings, *block.rows]]
            lines += [rows[0], "|---" * len(block.headings) + "|", *rows[1:], ""]
        elif isinstance(block, Prose):
            lines += [str(block.text), ""]
    return "\n".join(lines)


ENVIRONMENT = Environment(
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
ENVIRONMENT.filters |= {
    "quoted": quoted,
    "named": lambda vantage: vantage.replace("-", " "),
    "number": wording.number,
}


def as_markdown_page(card: ModelCard) -> str:
    utility, by_vantage = card.utility, _risks(card.privacy)
    return ENVIRONMENT.from_string(TEMPLATE).render(
        card=card,
        own=OWN,
        words=worth.WORDS[card.task],
        counted=wording.counted,
        risks=_markdown([risk_section.table(by_vantage)]) if by_vantage else "",
        learnt=" ".join(filter(None, worth.learning(utility, card.task))) if utility else "",
        quality=_markdown(worth.blocks(utility, quoted)) if utility else "",
    )


def _risks(privacy: Privacy) -> dict[str, risk_section.Risks]:
    """Return the largest success of any attack by its baseline, by the name of the vantage."""
    known: dict[str, risk_section.Risks] = {}
    for row in privacy.towards if privacy.guaranteed else ():
        with suppress(InputError):  # steps that are unknown, or that no accountant covers
            known[row.vantage.replace("-", " ")] = risks.success_by_baseline(privacy.mechanism(row))
    return known
