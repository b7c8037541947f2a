"""An answer as one HTML page, which needs no other file, script or network.

The templates lay out what it says. They are in Python because a Flower bundle carries only
Python. Anchors, the list of contents and the names of regions follow from the order of the page.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from urllib.parse import quote

from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup, escape

import fedsim
from fedsim.reports.document import first_screen, pictures, terms, wording
from fedsim.reports.document.blocks import Block, Code, Figure, Html, Link, Mark, Part, Told, Words
from fedsim.reports.document.style import STYLE

BLOCKS = """\
{% macro heading(level, title, anchor, page, plain=False) %}
{% set id = page.heading(level, title, anchor) %}
<h{{ level }}{% if id %} id="{{ id }}"{% endif %}>{{ title }}\
{% if id and not plain %} <a class="anchor" href="#{{ id }}" aria-label="Link to “{{ title }}”">#\
</a>{% endif %}</h{{ level }}>
{%- endmacro %}
{% macro cells(headings, texts) %}
{% for text in texts %}<td data-label="{{ headings[loop.index] }}">{{ text | worded }}</td>\
{% endfor %}
{% endmacro %}
{% macro row(headings, name, texts) %}
<tr><th scope="row" data-label="{{ headings[0] }}">{{ name | worded }}</th>\
{{ cells(headings, texts) }}</tr>
{% endmacro %}
{% macro grid(headings, page, style="stacked") %}
<div class="table" {{ page.region("Table") }}><table class="{{ style }}">
{% if headings %}
<thead><tr>{% for heading in headings %}\
{% if heading %}<th scope="col">{{ heading }}</th>{% else %}<td></td>{% endif %}\
{% endfor %}</tr></thead>
{% endif %}
<tbody>
{{ caller() }}
</tbody></table></div>
{% endmacro %}
{% macro table(block, page) %}
{% call grid(block.headings, page, block.style) %}
{% for each in block.rows %}
{{ row(block.headings, each[0], each[1:]) }}
{% endfor %}
{% endcall %}
{% endmacro %}
{% macro fact(name, value) %}
<dt{% if value | string | length > 80 %} class="long"{% endif %}>{{ name }}</dt><dd>{{ value }}</dd>
{% endmacro %}
{% macro bullets(items) %}
<ul>
{% for item in items %}
<li>{{ item | worded }}</li>
{% endfor %}
</ul>
{% endmacro %}
{% macro part(block, level, page) %}
{% if not block.folded %}
{{ heading(level, block.title, block.anchor, page) }}
{{ laid_out(block.blocks, level + 1, page) }}
{% else %}
<details{% if block.anchor %} id="{{ page.anchor(block.anchor) }}"{% endif %}>
<summary>\
{% if block.heads %}{{ heading(level, block.title, "", page, True) }}\
{% else %}{{ block.title }}{% endif %}</summary>
{{ laid_out(block.blocks, level + 1 if block.heads else level, page) }}
</details>
{% endif %}
{% endmacro %}
{% macro figure(block, page) %}
<figure>
<figcaption>{% if block.title %}<strong>{{ block.title }}</strong> {% endif %}\
{{ block.caption }}</figcaption>
{{ block | pictured(page) }}
</figure>
{% endmacro %}
{% macro laid_out(blocks, level, page) %}
{% for block in blocks %}
{% if block.kind == "prose" %}
<p{% if block.small %} class="meta"{% endif %}>{{ block.text | worded }}</p>
{% elif block.kind == "heading" %}
{{ heading(level, block.text, block.anchor, page) }}
{% elif block.kind == "listing" %}
<dl{% if block.several %} class="settings"{% endif %}>
{% for name, value in block.entries %}{{ fact(name, value) }}{% endfor %}
</dl>
{% elif block.kind == "table" %}
{{ table(block, page) }}
{% elif block.kind == "bullets" %}
{{ bullets(block.items) }}
{% elif block.kind == "label" %}
<div class="label{{ ' alarm' if block.alarming else '' }}">\
{% if block.title %}<strong>{{ block.title }}</strong> {% endif %}{{ block.text | worded }}</div>
{% elif block.kind == "figure" %}
{{ figure(block, page) }}
{% elif block.kind == "bars" %}
<figure class="bars">
<figcaption>{{ block | captioned }}</figcaption>
{{ block | barred }}
</figure>
{% elif block.kind == "part" %}
{{ part(block, level, page) }}
{% elif block.kind == "html" %}
{{ block | filled(page) }}
{% endif %}
{% endfor %}
{% endmacro %}
"""

BODY = """\
{% from "blocks" import laid_out, heading %}
{% if told.release or told.answer or told.alarms or told.cautions %}
<section class="verdict{{ ' alarm' if told.alarming or told.alarms else '' }}">
{% if told.release %}
<p class="release">{{ told.release }}</p>
{% endif %}
{% for sentence in told.answer[:1] %}
<p>{{ sentence | worded }}</p>
{% endfor %}
{% for alarm in told.alarms %}
<p>ALARM: {{ alarm }}</p>
{% endfor %}
{% for sentence in told.answer[1:] %}
<p>{{ sentence | worded }}</p>
{% endfor %}
{% for caution in told.cautions %}
<p>{{ caution }}</p>
{% endfor %}
</section>
{% endif %}
{% if first %}
<div class="first">
{% for name, blocks in first.items() %}
<section class="first-{{ name }}">
{{ laid_out(blocks, 2, page) }}
</section>
{% endfor %}
</div>
{% endif %}
{{ laid_out(told.sections(), 2, page) }}
{{ laid_out(behind, 2, page) }}
<details class="terms">
<summary>{{ heading(2, "Terms", "", page, True) }}</summary>
<dl>
{% for term, meaning in terms %}
<dt>{{ term }}</dt><dd>{{ meaning }}</dd>
{% endfor %}
</dl>
</details>
"""

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ told.name }} – {{ told.kind }}</title>
{{ style | safe }}
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<p class="kind">{{ told.kind }}</p>
<h1>{{ told.name }}</h1>
{% if told.note %}<p class="meta">{{ told.note }}</p>{% endif %}
</header>
{% if page.headings | length >= 3 %}
<nav class="contents" aria-label="Contents">
<details>
<summary>Contents</summary>
<ul>
{% for level, anchor, title in page.headings if level < 4 %}
<li class="level-{{ level }}"><a href="#{{ anchor }}">{{ title }}</a></li>
{% endfor %}
</ul>
</details>
</nav>
{% endif %}
<main id="content" tabindex="-1">
{{ body }}
</main>
<footer>{{ (told.footer or "fedsim " ~ version) | worded }}</footer>
</body>
</html>
"""


class Outline:
    """The headings of a page, and the names of the regions that the keyboard reaches and scrolls.

    linked: whether headings have anchors; a fragment inside another page has none.
    """

    def __init__(self, linked: bool = True) -> None:
        self.headings: list[tuple[int, str, str]] = []
        self._linked, self._taken = linked, {"content"}
        self._regions = Counter[str]()

    def heading(self, level: int, title: str, anchor: str) -> str:
        """Note a heading, and return its anchor."""
        words = anchor or re.sub(r"[^\w]+", "-", title.lower()).strip("-") or "section"
        unique = self.anchor(words)
        self.headings.append((level, unique, title))
        return unique

    def anchor(self, words: str) -> str:
        """Return an anchor that no other element has; "" without anchors."""
        unique, count = words, 1
        while unique in self._taken:
            count += 1
            unique = f"{words}-{count}"
        self._taken.add(unique)
        return unique if self._linked else ""

    def region(self, kind: str) -> Markup:
        """Return the attributes of a region, which may be wider than the screen."""
        self._regions[kind] += 1
        where = f": {self.headings[-1][2]}" if self.headings else ""
        name = f"{kind} {self._regions[kind]}{where}"
        return Markup('role="region" tabindex="0" aria-label="{}"').format(name)


def page(told: Told) -> str:
    """Return an answer as one page."""
    outline = Outline()
    body = ENVIRONMENT.get_template("body").render(
        told=told,
        page=outline,
        first=first_screen.parts(told),
        behind=first_screen.behind(told),
        terms=terms.TERMS,
    )
    return ENVIRONMENT.get_template("page").render(
        told=told, page=outline, body=Markup(body), style=STYLE, version=fedsim.__version__
    )


def fragment(blocks: Sequence[Block], level: int = 2, page: Outline | None = None) -> Markup:
    # A macro of a template's module is known at run time alone.
    laid_out = vars(ENVIRONMENT.get_template("blocks").module)["laid_out"]
    return Markup(laid_out(blocks, level, page or Outline(linked=False)))


MACROS = '{% from "blocks" import grid, row, table, fact, bullets, figure %}\n'


@cache
def _compiled(source: str) -> Template:
    return ENVIRONMENT.from_string(MACROS + source)


def _filled(block: Html, page: Outline) -> Markup:
    def drawn(name: str) -> Markup:
        """Return a figure, drawn where it is placed; nothing for one that is missing."""
        found = block.figures.get(name)
        return Markup("") if found is None else fragment([found], page=page)

    values = {**block.values, "page": page, "drawn": drawn}
    return Markup(_compiled(block.template).render(values))


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
    path, mark, anchor = to.partition("#")
    return f"{quote(path)}{mark}{anchor}"


def _pictured(figure: Figure, page: Outline) -> Markup:
    """Return a figure with the numbers behind it folded away below."""
    drawn = pictures.embedded(figure.drawing, figure.name, figure.title or figure.caption)
    region = Markup('<div class="scroll" {}>{}</div>\n').format(page.region("Figure"), drawn)
    if not (tables := pictures.tables(figure.drawing)):
        return region
    behind = Part("The numbers behind this figure", tables, folded=True, heads=False)
    return region + fragment([behind], page=page)


ENVIRONMENT = Environment(
    loader=DictLoader({"blocks": BLOCKS, "body": BODY, "page": PAGE}),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {
    "worded": _worded,
    "pictured": _pictured,
    "filled": _filled,
    "captioned": first_screen.caption,
    "barred": first_screen.drawn,
    "ends": lambda ends, worded=wording.number: wording.span(ends, worded),
    "number": wording.number,
    "percent": wording.percent,
    "plain": wording.plain,
}
