"""The frame of the pages that audits leave, which need no other file, script or network.

A page extends "frame" and fills its blocks `title`, `head`, `kind`, `heading`, `meta` and `body`;
"parts" has what several pages show alike. It lays out what others have worded; it decides nothing.
"""

from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined

from fedsim.pages.style import STYLE

PARTS = """\
{% macro settings(rows) %}
<dl class="settings">
{% for name, value in rows %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% endmacro %}
{% macro concluded(sentences) %}
<section class="verdict">
{% for sentence in sentences %}
<p>{{ sentence }}</p>
{% endfor %}
</section>
{% endmacro %}
{% macro tabulated(headings, rows) %}
<div class="table"><table>
<thead><tr>{% for heading in headings %}<th scope="col">{{ heading }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr><th scope="row">{{ row[0] }}</th>
{% for value in row[1:] %}<td>{{ value }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% endmacro %}
{% macro drawn(figures) %}
{% for caption, markup in figures %}
<figure>
{{ markup }}
<figcaption>{{ caption }}</figcaption>
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
<title>{% block title %}{% endblock %}</title>
{% block head %}{% endblock %}
{{ style | safe }}
</head>
<body>
<main>
<header>
<p class="kind">{% block kind %}{% endblock %}</p>
<h1>{% block heading %}{% endblock %}</h1>
{% block meta %}{% endblock %}
</header>
{% block body %}{% endblock %}
</main>
</body>
</html>
"""

ENVIRONMENT = Environment(
    loader=DictLoader({"frame": FRAME, "parts": PARTS}),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(page: str, **values: Any) -> str:
    """Return a page, a jinja2 template that extends "frame", as HTML.

    Args:
        page: the template's text.
        values: what it names, all of them; text is escaped, `Markup` is not.
    """
    return ENVIRONMENT.from_string(page).render(style=STYLE, **values)
