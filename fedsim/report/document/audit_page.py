"""The one frame of all pages, which need no other file, script or network.

A page extends "frame" and fills its blocks `title`, `head`, `kind`, `heading`, `meta` and `body`;
"parts" has what several pages show alike. It lays out what others have worded; it decides nothing.
Anchors, the list of contents and the glossary follow from what the page says.
"""

from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined

import fedsim
from fedsim.report.document import glossary, outline
from fedsim.report.document.style import STYLE
from fedsim.report.document.wording import DASH

PARTS = """\
{% macro listed(rows, kind="") %}
<dl{% if kind %} class="{{ kind }}"{% endif %}>
{% for name, value in rows %}
<dt{% if value | string | length > 80 %} class="long"{% endif %}>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% endmacro %}
{% macro settings(rows) %}
{{ listed(rows, "settings") }}
{% endmacro %}
{% macro concluded(sentences) %}
<section class="verdict">
{% for sentence in sentences %}
<p>{{ sentence }}</p>
{% endfor %}
</section>
{% endmacro %}
{% macro headed(headings) %}
<thead><tr>{% for heading in headings %}\
{% if heading %}<th scope="col">{{ heading }}</th>{% else %}<td></td>{% endif %}\
{% endfor %}</tr></thead>
{% endmacro %}
{% macro tabulated(headings, rows, kind="stacked") %}
<div class="table"><table class="{{ kind }}">
{{ headed(headings) }}
<tbody>
{% for row in rows %}
<tr>{% for value in row %}\
{% if loop.first %}<th scope="row" data-label="{{ headings[0] }}">{{ value }}</th>{% else %}\
<td data-label="{{ headings[loop.index0] }}">{{ value }}</td>{% endif %}\
{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% endmacro %}
{% macro behind(tables) %}
{% if tables %}
<details class="numbers"><summary>The numbers behind this figure</summary>
{% for table in tables %}
{% if table.title %}<p>{{ table.title }}</p>{% endif %}
{{ tabulated(table.headings, table.rows, "compact") }}
{% endfor %}
</details>
{% endif %}
{% endmacro %}
{% macro drawn(figures) %}
{% for caption, markup in figures %}
<figure>
<figcaption>{{ caption }}</figcaption>
{{ markup }}
</figure>
{% endfor %}
{% endmacro %}
"""

FRAME = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{% block title %}{% endblock %}</title>
{% block head %}{% endblock %}
{{ style | safe }}
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<p class="kind">{% block kind %}{% endblock %}</p>
<h1>{% block heading %}{% endblock %}</h1>
{% block meta %}{% endblock %}
</header>
<!-- contents -->
<main id="content" tabindex="-1">
{% block body %}{% endblock %}
<!-- terms -->
</main>
<footer>{% block footer %}fedsim {{ version }}{% endblock %}</footer>
</body>
</html>
"""

ENVIRONMENT = Environment(
    loader=DictLoader({"frame": FRAME, "parts": PARTS}),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=lambda value: DASH if value is None else value,
    trim_blocks=True,
    lstrip_blocks=True,
)

PARTS_MODULE: Any = ENVIRONMENT.get_template("parts").module
"""The macros of "parts", for those who lay out what is no whole page."""


def render(page: str, **values: Any) -> str:
    """Return a page, a jinja2 template that extends "frame", as HTML.

    Args:
        page: the template's text.
        values: what it names, all of them; text is escaped, `Markup` is not.
    """
    laid_out = ENVIRONMENT.from_string(page).render(
        style=STYLE, version=fedsim.__version__, **values
    )
    return outline.outlined(glossary.explained(laid_out))
