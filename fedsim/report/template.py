"""The jinja2 template of a run's page: a head, every section with its blocks, all values.

It lays out what the sections have worded; it decides nothing. In Python because a Flower bundle
carries only Python.
"""

TEMPLATE = """\
{% macro marked(mark) %}
{% if mark %}<span class="mark {{ mark.kind }}">{{ mark.text }}.</span> {% endif %}
{% endmacro %}
{% macro cell(found) %}
<td{% if found.style %} class="{{ found.style }}"{% endif %}>{{ marked(found.mark) }}\
{{ found.text }}{% if found.detail %}<small>{{ found.detail }}</small>{% endif %}</td>
{% endmacro %}
{% macro prose(block) %}
<p{% if block.small %} class="meta"{% endif %}>{{ block.text }}</p>
{% endmacro %}
{% macro heading(block) %}
<h3>{{ block.text }}</h3>
{% endmacro %}
{% macro listing(block) %}
<dl{% if block.several %} class="settings"{% endif %}>
{% for name, value in block.entries %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% endmacro %}
{% macro table(block) %}
<div class="table"><table{% if block.style %} class="{{ block.style }}"{% endif %}>
<thead><tr>{% for name in block.headings %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for group in block.groups %}
{% if group.title %}
<tr><th scope="rowgroup" colspan="{{ block.headings | length }}">{{ group.title }}</th></tr>
{% endif %}
{% for line in group.lines %}
<tr{% if line.here %} class="here"{% endif %}><th scope="row">{{ line.name.text }}\
{% if line.name.detail %}<small>{{ line.name.detail }}</small>{% endif %}</th>
{% for found in line.cells %}
{{ cell(found) }}
{% endfor %}
</tr>
{% endfor %}
{% endfor %}
</tbody></table></div>
{% endmacro %}
{% macro figure(block) %}
<figure>
{{ block.markup }}
<figcaption><strong>{{ block.title }}</strong> {{ block.caption }}</figcaption>
</figure>
{% endmacro %}
{% set laid_out = {"prose": prose, "heading": heading, "listing": listing, "table": table, \
"figure": figure} %}
{% macro sectioned(sections) %}
{% for title, blocks in sections %}
<h2>{{ title }}</h2>
{% for block in blocks %}
{{ laid_out[block.kind](block) }}
{% endfor %}

{% endfor %}
{% endmacro %}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light">
<title>{{ name | e }} – identifiability report</title>
{{ style }}
</head>
<body>
<main>
<header>
<p class="kind">Identifiability report</p>
<h1>{{ name }}</h1>
<p class="meta">{{ scope }}</p>
</header>

<section class="verdict{{ ' alarm' if alarm else '' }}">
<p>{% for name, mark in states %}{{ name | capitalize }}: \
<span class="mark {{ mark.kind }}">{{ mark.text }}.</span> {% endfor %}</p>
<p>{{ verdict }}</p>
<p>{{ standing }}</p>
</section>
{% for label in labels %}
<div class="label"><strong>{{ label.title }}</strong> {{ label.text }}</div>
{% endfor %}

{% if warnings %}
<div class="label{{ ' alarm' if alarm else '' }}"><strong>Warnings.</strong>
<ul>
{% for warning in warnings %}
<li>{{ warning }}</li>
{% endfor %}
</ul></div>
{% endif %}

{{ sectioned(sections) }}
{% if specialists %}
<details id="specialists">
<summary>For specialists: estimators, further bounds, predictions, precision</summary>
{{ sectioned(specialists) }}
</details>
{% endif %}
<details>
<summary>Every value of report.json</summary>
<div class="table"><table class="all">
<tbody>
{% for name, value in everything %}
<tr><th scope="row"><code>{{ name }}</code></th><td><code>{{ value }}</code></td></tr>
{% endfor %}
</tbody></table></div>
</details>

<footer>fedsim {{ version }}, {{ created }}. Repeat the run with <code>fedsim run config.toml</code>
in its directory.</footer>
</main>
</body>
</html>
"""
