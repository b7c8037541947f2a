"""A document as one HTML page, which needs no other file, script or network.

The template lays out what others have worded; it decides nothing. It is in Python because a Flower
bundle carries only Python. Anchors, the list of contents and the glossary follow from what the page
says.
"""

from collections.abc import Sequence
from urllib.parse import quote

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

import fedsim
from fedsim.report.document import bars, first_screen, outline, pictures
from fedsim.report.document.blocks import (
    Block,
    Code,
    Document,
    Figure,
    Link,
    Mark,
    Part,
    Picture,
    Words,
)
from fedsim.report.document.style import STYLE

BLOCKS = """\
{% macro cell(found, heading) %}
<td{% if found.style %} class="{{ found.style }}"{% endif %} data-label="{{ heading }}">\
{% if found.mark %}{{ found.mark | worded }} {% endif %}{{ found.text | worded }}\
{% if found.detail %}<small>{{ found.detail }}</small>{% endif %}</td>
{% endmacro %}
{% macro table(block) %}
<div class="table"><table class="{{ block.style }}">
{% if block.headings %}
<thead><tr>{% for heading in block.headings %}\
{% if heading %}<th scope="col">{{ heading }}</th>{% else %}<td></td>{% endif %}\
{% endfor %}</tr></thead>
{% endif %}
<tbody>
{% for group in block.groups %}
{% if group.title %}
<tr><th scope="rowgroup" colspan="{{ block.headings | length }}">{{ group.title }}</th></tr>
{% endif %}
{% for line in group.lines %}
<tr{% if line.here %} class="here"{% endif %}>\
<th scope="row"{% if block.headings %} data-label="{{ block.headings[0] }}"{% endif %}>\
{{ line.name.text | worded }}\
{% if line.name.detail %}<small>{{ line.name.detail }}</small>{% endif %}</th>\
{% for found in line.cells %}\
{{ cell(found, block.headings[loop.index] if block.headings else "") | trim }}\
{% endfor %}</tr>
{% endfor %}
{% endfor %}
</tbody></table></div>
{% endmacro %}
{% macro bullets(items, numbered) %}
<{{ "ol" if numbered else "ul" }}>
{% for item in items %}
<li>{{ item | worded }}</li>
{% endfor %}
</{{ "ol" if numbered else "ul" }}>
{% endmacro %}
{% macro part(block, level) %}
{% set heading = "h%d" % level %}
{% if not block.folded %}
<{{ heading }}{{ block.anchor | anchored }}>{{ block.title }}</{{ heading }}>
{{ laid_out(block.blocks, level + 1) }}
{% else %}
<details{{ block.anchor | anchored }}>
<summary>\
{% if block.heads %}<{{ heading }}>{{ block.title }}</{{ heading }}>{% else %}{{ block.title }}\
{% endif %}</summary>
{{ laid_out(block.blocks, level + 1 if block.heads else level) }}
</details>
{% endif %}
{% endmacro %}
{% macro laid_out(blocks, level) %}
{% for block in blocks %}
{% if block.kind == "prose" %}
<p{% if block.small %} class="meta"{% endif %}>{{ block.text | worded }}</p>
{% elif block.kind == "heading" %}
<h{{ level }}{{ block.anchor | anchored }}>{{ block.text }}</h{{ level }}>
{% elif block.kind == "listing" %}
<dl{% if block.several %} class="settings"{% endif %}>
{% for name, value in block.entries %}
<dt{% if value | string | length > 80 %} class="long"{% endif %}>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% elif block.kind == "table" %}
{{ table(block) }}
{% elif block.kind == "bullets" %}
{{ bullets(block.items, block.numbered) }}
{% elif block.kind == "label" %}
<div class="label{{ ' alarm' if block.alarming else '' }}">\
{% if block.title %}<strong>{{ block.title }}</strong> {% endif %}{{ block.text | worded }}
{% if block.items %}{{ bullets(block.items, False) }}{% endif %}</div>
{% elif block.kind == "progress" %}
<p><progress style="width: 100%" value="{{ block.share }}" max="1"
aria-label="{{ block.text }}"></progress></p>
{% elif block.kind == "figure" %}
<figure>
<figcaption>{% if block.title %}<strong>{{ block.title }}</strong> {% endif %}\
{{ block.caption }}</figcaption>
{{ block | pictured }}
</figure>
{% elif block.kind == "bars" %}
<figure class="bars">
<figcaption>{{ block | captioned }}</figcaption>
{{ block | barred }}
</figure>
{% elif block.kind == "part" %}
{{ part(block, level) }}
{% endif %}
{% endfor %}
{% endmacro %}
"""

PAGE = """\
{% from "blocks" import laid_out %}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ document.title }}</title>
{% if document.refresh %}<meta http-equiv="refresh" content="{{ document.refresh }}">{% endif %}
{{ style | safe }}
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<p class="kind">{{ document.kind }}</p>
<h1>{{ document.heading }}</h1>
{% if document.note %}<p class="meta">{{ document.note | worded }}</p>{% endif %}
</header>
<!-- contents -->
<main id="content" tabindex="-1">
{% if document.first.answer %}
<section class="verdict{{ ' alarm' if document.first.alarming else '' }}">
{% for sentence in document.first.answer %}
<p>{{ sentence | worded }}</p>
{% endfor %}
</section>
{% endif %}
{% if first %}
<div class="first">
{% for name, blocks in first.items() %}
<section class="first-{{ name }}">
{{ laid_out(blocks, 2) }}
</section>
{% endfor %}
</div>
{% endif %}
{{ laid_out(document.blocks, 2) }}
<!-- terms -->
</main>
<footer>{{ (document.footer or "fedsim " ~ version) | worded }}</footer>
</body>
</html>
"""


def render(document: Document) -> str:
    """Return a document as one HTML page."""
    page = ENVIRONMENT.get_template("page").render(
        document=document,
        first=first_screen.parts(document.first),
        style=STYLE,
        version=fedsim.__version__,
    )
    return outline.outlined(outline.explained(page))


def fragment(blocks: Sequence[Block], level: int = 2) -> Markup:
    """Return blocks as a piece of a page."""
    # A macro of a template's module is known at run time alone.
    return Markup(vars(ENVIRONMENT.get_template("blocks").module)["laid_out"](blocks, level))


def _worded(text: Words) -> Markup:
    match text:
        case str():
            return escape(text)
        case Code():
            return Markup("<code>{}</code>").format(text.text)
        case Link():
            return Markup('<a href="{}">{}</a>').format(_address(text.to), text.text)
        case Mark():
            return Markup('<span class="mark {}">{}.</span>').format(text.kind, text.text)
    return Markup("").join(map(_worded, text))


def _address(to: str) -> str:
    """Return the address of a path, or of an anchor of the same page."""
    path, mark, anchor = to.partition("#")
    return f"{quote(path)}{mark}{anchor}"


def _anchored(anchor: str) -> Markup:
    return Markup(' id="{}"').format(anchor) if anchor else Markup("")


def _pictured(figure: Figure | Picture) -> Markup:
    """Return a figure with the numbers behind it folded away below; a sentence if nothing varies.

    What is seen in it follows its title or caption for readers who see no pictures.
    """
    drawn = figure.drawn if isinstance(figure, Picture) else pictures.picture(figure.drawing)
    if isinstance(drawn, Markup):
        return drawn
    numbers = pictures.numbers(drawn)
    if numbers.flat:
        sentence = pictures.unvarying(numbers)
        return Markup('<p class="unvarying">{}</p>').format(sentence)
    told = f"{figure.title or figure.caption} {pictures.seen(numbers)}".strip()
    shown = Markup('<div class="scroll">{}</div>\n').format(
        pictures.embedded(drawn, figure.name, told)
    )
    if not (tables := pictures.tables(numbers)):
        return shown
    behind = Part("The numbers behind this figure", tables, folded=True, heads=False)
    return shown + fragment([behind])


ENVIRONMENT = Environment(
    loader=DictLoader({"blocks": BLOCKS, "page": PAGE}),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {
    "worded": _worded,
    "anchored": _anchored,
    "pictured": _pictured,
    "captioned": bars.caption,
    "barred": bars.drawn,
}
