"""The target of a run in words, and a record for those who may see it."""

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from fedsim.audits.run.report import RunReport
from fedsim.reports.document.blocks import Html, Mark
from fedsim.reports.sections.section import is_client

Shown = Mapping[str, Any]
"""A record of public data, as `fedsim.game.record_display.shown`."""

CHOSEN = {
    "max": "the most unusual record (measure: {})",
    "min": "the least unusual record (measure: {})",
    "given": "the record that the configuration names",
}
CRAFTED = "The target was crafted to be noticed, and is no person's record."
OF_A_RECORD = "Record {record}, of client {client}, is the target: {how}."
OF_A_CLIENT = "Client {client}, with all its {records} records, is the target: {how}."

UNUSUAL = 0.05

RECORD = """
{% if png %}
<figure><figcaption>{{ name }}, a picture labelled {{ record.label }}. {{ why }}</figcaption>
<div class="target"><img src="data:image/png;base64,{{ png }}" \
alt="{{ name }}, a picture labelled {{ record.label }}, {{ shape[0] }} by {{ shape[1] }} pixels">\
</div></figure>
{% else %}
<p>{{ name }}, labelled {{ record.label }}: the columns that differ most from typical values.
{{ why }}</p>
{% set headings = "Column", "Record", "Typical value", "Records at least as unusual" %}
{% call grid(headings, page) %}
{% for one in record.attributes %}
{% set value = [unusual, " ", one.value] if one.share <= least else one.value %}
{{ row(headings, one.name, [value, one.other, one.share | percent]) }}
{% endfor %}
{% endcall %}
{% endif %}
"""


def who(report: RunReport) -> str:
    challenge = report.details.challenge
    if challenge.kind != "record":
        return CRAFTED
    how = CHOSEN[challenge.choice].format(challenge.measure)
    return (OF_A_CLIENT if is_client(report) else OF_A_RECORD).format(
        record=challenge.record, client=challenge.client, records=challenge.records, how=how
    )


def record(shown: Shown, name: str, why: str) -> Html:
    """Return a record as a picture, or its most unusual columns."""
    values: dict[str, Any] = {"record": shown, "name": name, "why": why, "least": UNUSUAL}
    values |= {"unusual": Mark("caution", "Unusual"), "png": "", "shape": ()}
    if shown.get("pixels") is not None:
        pixels = np.array(shown["pixels"], dtype=np.uint8)
        values |= {"png": _png(pixels), "shape": pixels.shape}
    return Html(RECORD, values)


def _png(pixels: np.ndarray) -> str:
    """Return pixels [H, W] or [H, W, 3] as a PNG, dark where a grey value is high, in base64."""
    buffer = io.BytesIO()
    Image.fromarray(255 - pixels if pixels.ndim == 2 else pixels).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
