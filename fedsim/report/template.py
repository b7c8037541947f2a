"""The jinja2 template of a run's page: a head, every section with its blocks, all values.

It lays out what the sections have worded; it decides nothing. In Python because a Flower bundle
carries only Python.
"""

TEMPLATE = """\
{% extends "frame" %}
{% from "parts" import headed, listed %}
{% macro marked(mark) %}
{% if mark %}<span class="mark {{ mark.kind }}">{{ mark.text }}.</span> {% endif %}
{% endmacro %}
{% macro cell(found, heading) %}
<td{% if found.style %} class="{{ found.style }}"{% endif %} data-label="{{ heading }}">\
{{ marked(found.mark) }}{{ found.text }}\
{% if found.detail %}<small>{{ found.detail }}</small>{% endif %}</td>
{% endmacro %}
{% macro prose(block, level) %}
<p{% if block.small %} class="meta"{% endif %}>{{ block.text }}</p>
{% endmacro %}
{% macro heading(block, level) %}
<h{{ level + 1 }}>{{ block.text }}</h{{ level + 1 }}>
{% endmacro %}
{% macro listing(block, level) %}
{{ listed(block.entries, "settings" if block.several else "") }}
{% endmacro %}
{% macro table(block, level) %}
<div class="table"><table class="stacked{{ ' ' + block.style if block.style else '' }}">
{{ headed(block.headings) }}
<tbody>
{% for group in block.groups %}
{% if group.title %}
<tr><th scope="rowgroup" colspan="{{ block.headings | length }}">{{ group.title }}</th></tr>
{% endif %}
{% for line in group.lines %}
<tr{% if line.here %} class="here"{% endif %}><th scope="row">{{ line.name.text }}\
{% if line.name.detail %}<small>{{ line.name.detail }}</small>{% endif %}</th>
{% for found in line.cells %}
{{ cell(found, block.headings[loop.index]) }}
{% endfor %}
</tr>
{% endfor %}
{% endfor %}
</tbody></table></div>
{% endmacro %}
{% macro figure(block, level) %}
<figure>
<figcaption><strong>{{ block.title }}</strong> {{ block.caption }}</figcaption>
{{ block.markup }}
</figure>
{% endmacro %}
{% set laid_out = {"prose": prose, "heading": heading, "listing": listing, "table": table, \
"figure": figure} %}
{% macro section(title, blocks, level) %}
<h{{ level }}>{{ title }}</h{{ level }}>
{% for block in blocks %}
{{ laid_out[block.kind](block, level) }}
{% endfor %}

{% endmacro %}
{% block title %}{{ name }} – identifiability report{% endblock %}
{% block kind %}Identifiability report{% endblock %}
{% block heading %}{{ name }}{% endblock %}
{% block meta %}
<p class="meta">{{ scope }}\
{% if one_of_several %} <a href="../report.html">All runs of this sweep or search</a>{% endif %}</p>
{% endblock %}
{% block body %}
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

{% for title, blocks in sections %}
{{ section(title, blocks, 2) }}
{% endfor %}
{% if specialist %}
<details id="specialists">
<summary><h2>For specialists</h2></summary>
{% for title, blocks in specialist %}
{{ section(title, blocks, 3) }}
{% endfor %}
</details>
{% endif %}
<details id="values">
<summary>Every value of report.json</summary>
<div class="table"><table class="all">
<tbody>
{% for name, value in everything %}
<tr><th scope="row"><code>{{ name }}</code></th><td><code>{{ value }}</code></td></tr>
{% endfor %}
</tbody></table></div>
</details>
{% endblock %}
{% block footer %}
fedsim {{ written_by }}, {{ created }}. Repeat the run with <code>fedsim run config.toml</code> in
its directory.
{% endblock %}
"""
