"""The card of a trained model as Markdown: a template, whose sentences are whole."""

from collections.abc import Iterator
from contextlib import suppress

from jinja2 import Environment, StrictUndefined

from adversaries.errors import InputError
from fedsim.configuration.federation import OWN
from fedsim.privacy import risks
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps
from fedsim.reports.card_types import ModelCard, Privacy, ReleasedTowards
from fedsim.reports.document import wording, worth
from fedsim.reports.document.blocks import Block, tabulated
from fedsim.reports.document.terminal import as_markdown, quoted
from fedsim.reports.model_quality import learning, quality_of
from fedsim.reports.sections import risks as risk_section

CARD = """\
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
{{ towards }}
At δ = {{ "%g" % privacy.delta }}, for one {{ privacy.unit }} ({{ privacy.neighbouring }}). \
Gradients were clipped to {{ "%g" % privacy.clipping_norm }}; the noise multiplier was \
{{ "%.4g" % privacy.noise_multiplier }}, the sampling rate {{ "%g" % privacy.sampling_rate }}. \
{{ privacy.trust }} The accounting covers {{ rounds }}{% if privacy.local_steps > 1 %} of \
{{ privacy.local_steps }} local steps each{% endif %}{% if privacy.attempts > 1 %}, in \
{{ privacy.attempts }} attempts{% endif %}.

{% if steps %}
ε follows from δ and these Gaussian steps:

{% for row in privacy.towards %}
- towards the {{ row.vantage.replace("-", " ") }}: {% for one in row.steps %}{{ one.count }} steps \
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

ENVIRONMENT = Environment(
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
ENVIRONMENT.filters |= {
    "quoted": quoted,
    "number": wording.number,
    "percent": wording.percent,
    "ends": lambda ends: wording.span(ends, wording.number),
}
"""Markdown is no HTML: `quoted` makes text of others harmless."""


def as_markdown_page(card: ModelCard) -> str:
    privacy, utility = card.privacy, card.utility
    by_vantage = risks_by_vantage(privacy) if privacy.guaranteed else {}
    return ENVIRONMENT.from_string(CARD).render(
        card=card,
        own=OWN,
        words=worth.WORDS[card.task],
        towards=as_markdown([_towards(privacy)]),
        rounds=wording.counted(privacy.rounds_charged, "round"),
        steps=any(row.steps for row in privacy.towards),
        risks=as_markdown([risk_section.table(by_vantage)]) if by_vantage else "",
        learnt=" ".join(filter(None, learning(utility, card.task))) if utility else "",
        quality=as_markdown(quality_of(utility)) if utility else "",
    )


def _towards(privacy: Privacy) -> Block:
    names = list(privacy.towards[0].epsilon)
    rows = [
        [
            f"the {row.vantage.replace('-', ' ')}",
            row.sees,
            *(wording.number(row.epsilon.get(name)) for name in names),
        ]
        for row in privacy.towards
    ]
    return tabulated(["towards", "what it sees", *(f"ε by {name}" for name in names)], rows)


def mechanism_towards(privacy: Privacy, towards: ReleasedTowards) -> Mechanism:
    groups = [Steps(one.noise_multiplier, one.count, one.sampling_rate) for one in towards.steps]
    return Mechanism(tuple(groups), Neighbouring(privacy.neighbouring))


def risks_by_vantage(privacy: Privacy) -> dict[str, risk_section.Risks]:
    """Return the largest success of any attack by its baseline, by the name of the vantage."""

    def known() -> Iterator[tuple[str, risk_section.Risks]]:
        for row in privacy.towards:
            with suppress(InputError):  # steps that are unknown, or that no accountant covers
                mechanism = mechanism_towards(privacy, row)
                yield row.vantage.replace("-", " "), risks.success_by_baseline(mechanism)

    return dict(known())
