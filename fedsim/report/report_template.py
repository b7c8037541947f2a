"""The jinja2 template of the HTML report, in Python because a Flower bundle carries only Python.

It lays out what `fedsim.report.page` has put together; it decides nothing.
"""

TEMPLATE = """\
{% macro drawn(figure) %}
<figure>
{{ figure.markup }}
<figcaption><strong>{{ figure.title }}</strong> {{ figure.caption }}</figcaption>
</figure>
{% endmacro %}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light">
<title>{{ name | e }} – identifiability report</title>
<style>
:root { --ink: #1f2933; --muted: #5b6770; --line: #dfe4e8; --wash: #f5f7f9; --blue: #005a8f;
  --good: #00684e; --alarm: #a63a00; --caution: #7a5900; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink); line-height: 1.55; font-size: 16px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 58rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
header .kind { color: var(--muted); font-size: .85rem; letter-spacing: .06em;
  text-transform: uppercase; margin: 0; }
h1 { font-size: 2rem; line-height: 1.2; margin: .1rem 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .6rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; }
p { margin: .6rem 0; max-width: 46rem; }
.meta { color: var(--muted); font-size: .9rem; }
.verdict { margin: 1.6rem 0 1rem; padding: 1.2rem 1.4rem; background: var(--wash);
  border-left: 5px solid var(--blue); border-radius: 0 6px 6px 0; }
.verdict.alarm { border-color: var(--alarm); }
.verdict p { font-size: 1.16rem; line-height: 1.5; margin: 0; }
.verdict p + p { margin-top: .7rem; font-size: 1rem; }
.label { margin: .6rem 0; padding: .7rem 1rem; border-radius: 6px; border: 1px solid #e3c873;
  background: #fdf7e3; }
.label strong { color: var(--caution); }
.label.alarm { border-color: #e5a98a; background: #fdf0e9; }
.label.alarm strong { color: var(--alarm); }
.label ul { margin: .2rem 0 0; padding-left: 1.2rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0 1rem; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .5rem .9rem .5rem 0;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
thead th { color: var(--muted); font-size: .82rem; border-bottom: 2px solid var(--line); }
td.value { font-variant-numeric: tabular-nums; font-weight: 600; min-width: 6.5rem; }
td.limit { font-variant-numeric: tabular-nums; min-width: 6.5rem; }
.vantages td.limit, .vantages td.value { min-width: 3.5rem; }
.vantages td:last-child { min-width: 15rem; }
sub { line-height: 0; }
td small, th small { display: block; font-weight: 400; color: var(--muted); }
tr.here { background: #eaf3f9; }
tr.here th { padding-left: .5rem; }
.mark { font-weight: 600; }
.mark.good { color: var(--good); }
.mark.alarm { color: var(--alarm); }
.mark.caution { color: var(--caution); }
dl { display: grid; grid-template-columns: minmax(9rem, 13rem) 1fr; margin: .4rem 0 1rem;
  font-size: .93rem; }
dt, dd { margin: 0; padding: .3rem 0; border-bottom: 1px solid var(--line); }
dt { color: var(--muted); padding-right: .8rem; }
.settings { grid-template-columns: repeat(2, minmax(8rem, 11rem) 1fr); }
dd { overflow-wrap: anywhere; padding-right: .8rem; }
figure { margin: 1.6rem 0; }
figure svg, figure img { display: block; width: 100%; height: auto; }
figure svg text { font-family: inherit !important; }
figcaption { color: var(--muted); font-size: .92rem; max-width: 46rem; margin-top: .4rem; }
figcaption strong { color: var(--ink); }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--blue); }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .88em;
  overflow-wrap: anywhere; }
.all td, .all th { padding: .2rem .9rem .2rem 0; font-weight: 400; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line);
  color: var(--muted); font-size: .88rem; }
@media (max-width: 40rem) {
  main { padding: 1.2rem 1rem 3rem; }
  h1 { font-size: 1.5rem; }
  .questions thead { display: none; }
  .questions tr { display: block; border-bottom: 1px solid var(--line); padding: .6rem 0; }
  .questions th, .questions td { display: block; border: 0; padding: .15rem 0; }
  .questions td.limit::before { content: "Limit from theory: "; color: var(--muted); }
  dl, .settings { grid-template-columns: 1fr; }
  dt { border: 0; padding-bottom: 0; }
  dd { padding-top: 0; }
}
@media print {
  @page { margin: 16mm; }
  body { font-size: 9.5pt; }
  figure { max-width: 15cm; }
  main { max-width: none; padding: 0; }
  .verdict, .label, tr.here { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h2, h3 { break-after: avoid; }
  figure, tr, .verdict, .label { break-inside: avoid; }
  details { display: none; }
}
</style>
</head>
<body>
<main>
<header>
<p class="kind">Identifiability report</p>
<h1>{{ name }}</h1>
<p class="meta">{{ scope }}</p>
</header>

<section class="verdict{{ ' alarm' if alarm else '' }}">
<p>{{ verdict }}</p>
<p>{{ standing }}{% if mark %} <span class="mark {{ mark.kind }}">\
{{ mark.text }}.</span>{% endif %}</p>
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

<h2>In short</h2>
<div class="table"><table class="questions">
<thead><tr><th scope="col">Question</th><th scope="col">Answer</th>
<th scope="col">Limit from theory</th><th scope="col">Reading</th></tr></thead>
<tbody>
{% for row in questions %}
<tr><th scope="row">{{ row.name }}</th>
<td class="value">{{ row.answer }}{% if row.detail %}<small>{{ row.detail }}</small>{% endif %}</td>
<td class="limit">{{ row.limit }}</td>
<td>{% if row.mark %}<span class="mark {{ row.mark.kind }}">{{ row.mark.text }}.</span> \
{% endif %}{{ row.reading }}</td></tr>
{% endfor %}
</tbody></table></div>
<p class="meta">{{ game }}</p>

<h2>To whom</h2>
<p>The same noise protects differently depending on who looks. {{ trust }} The audited vantage
is highlighted.</p>
{% if to_whom %}
{{ drawn(to_whom) }}
{% endif %}
<div class="table"><table class="vantages">
<thead><tr><th scope="col">Vantage</th><th scope="col">Noise multiplier</th>
<th scope="col">ε</th><th scope="col">Belief at most (ρ<sub>β</sub>)</th>
<th scope="col">Advantage at most (ρ<sub>α</sub>)</th><th scope="col">Predicted</th>
<th scope="col">Measured</th><th scope="col">Note</th></tr></thead>
<tbody>
{% for row in vantages %}
<tr{% if row.audited %} class="here"{% endif %}><th scope="row">{{ row.vantage }}\
{% if row.audited %}<small>audited here</small>{% endif %}</th>
<td class="limit">{{ row.noise_multiplier }}</td><td class="limit">{{ row.epsilon }}</td>
<td class="limit">{{ row.rho_beta }}</td><td class="limit">{{ row.rho_alpha }}</td>
<td class="limit">{{ row.predicted }}</td>
<td class="value">{{ row.measured }}{% if row.interval %}<small>{{ row.interval }}</small>\
{% endif %}</td>
<td>{% if row.mark %}<span class="mark {{ row.mark.kind }}">{{ row.mark.text }}.</span> \
{% endif %}{{ row.note }}</td></tr>
{% endfor %}
</tbody></table></div>

<h2>What the adversary saw and believed</h2>
{% for figure in figures %}
{{ drawn(figure) }}
{% endfor %}

{% if training %}
<h2>What was trained, and how it was audited</h2>
{% for sentence in training %}
<p>{{ sentence }}</p>
{% endfor %}
{% endif %}

<h2>The bounds from theory</h2>
{% if released %}
<p>{{ released }}</p>
{% endif %}
<dl>
{% for name, value in bounds %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% if budget %}
{{ drawn(budget) }}
{% elif budget_reading %}
<p>{{ budget_reading }}</p>
{% endif %}

{% if pac %}
<h2>PAC privacy</h2>
<p>{{ pac_meaning }}</p>
<dl>
{% for name, value in pac %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% endif %}

{% if crafted %}
<h2>{{ crafted_title }}</h2>
{% for sentence in crafted_reading %}
<p>{{ sentence }}</p>
{% endfor %}
<dl>
{% for name, value in crafted %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% if poison %}
{{ drawn(poison) }}
{% endif %}
{% endif %}

{% if bayesian %}
<h2>Bayesian DP</h2>
{% for sentence in bayesian_reading %}
<p>{{ sentence }}</p>
{% endfor %}
<dl>
{% for name, value in bayesian %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% if bayesian_figure %}
{{ drawn(bayesian_figure) }}
{% endif %}
{% endif %}

{% if one_run %}
<h2>One-run audit</h2>
{% for sentence in one_run_reading %}
<p>{{ sentence }}</p>
{% endfor %}
<dl>
{% for name, value in one_run %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% if one_run_figure %}
{{ drawn(one_run_figure) }}
{% endif %}
{% endif %}

<h2>Empirical ε′</h2>
<p>The privacy loss that the attack demonstrates. An <em>estimate</em> may err on either side; a
<em>lower bound</em> holds with the stated confidence, and one above the theory's ε means that the
claimed guarantee does not hold.</p>
<div class="table"><table>
<thead><tr><th scope="col">Estimates</th><th scope="col">ε′</th><th scope="col">Theory</th>
<th scope="col">What it is worth</th></tr></thead>
<tbody>
{% for row in estimates %}
<tr><th scope="row">{{ row.name }}</th><td class="value">{{ row.answer }}</td>
<td class="limit">{{ row.limit }}</td><td>{{ row.reading }}</td></tr>
{% endfor %}
</tbody></table></div>
<div class="table"><table>
<thead><tr><th scope="col">Lower bounds{% if confidence %} at {{ confidence }}\
confidence{% endif %}</th>
<th scope="col">ε′ at least</th><th scope="col">Theory</th>
<th scope="col">What it is worth</th></tr></thead>
<tbody>
{% for title, rows in lower_bounds %}
<tr><th scope="rowgroup" colspan="4">{{ title }}</th></tr>
{% for row in rows %}
<tr><th scope="row">{{ row.name }}</th>
<td class="value">{{ row.answer }}</td>
<td class="limit">{{ row.limit }}</td>
<td>{% if row.mark %}<span class="mark {{ row.mark.kind }}">{{ row.mark.text }}.</span> \
{% endif %}{{ row.reading }}</td></tr>
{% endfor %}
{% else %}
<tr><td colspan="4">None was computed.</td></tr>
{% endfor %}
</tbody></table></div>
{% if agreement %}
<p>{{ agreement }}</p>
{% endif %}
{% if bounds_figure %}
{{ drawn(bounds_figure) }}
{% endif %}
{% if profile_figure %}
{{ drawn(profile_figure) }}
{% endif %}

<h2>Does the run agree with its own prediction?</h2>
<dl>
{% for name, value in prediction %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>

{% if precision %}
<h2>How precise is it?</h2>
<dl>
{% for name, value in precision %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% endif %}

{% if residuals %}
<h2>Is what is left noise?</h2>
<p>{{ residuals_meaning }}</p>
<dl>
{% for name, value in residuals %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% endif %}

{% if inference %}
<h2>Membership inference</h2>
<p>Weaker attacks, for comparison: they see losses of models and no aggregates. Yeom's compares a
record's loss with the mean loss of the training data. Those on the challenge play the adversary's
own game; all but Yeom's first two learn from one half of the trials, as shadow models, and are
judged on the other half.</p>
<div class="table"><table>
<thead><tr><th scope="col">Attack</th><th scope="col">Advantage</th>
<th scope="col">True positives</th><th scope="col">False positives</th>
<th scope="col">AUC</th></tr></thead>
<tbody>
{% for row in inference %}
<tr><th scope="row">{{ row.attack }}</th>
<td class="value">{{ row.advantage }}{% if row.detail %}<small>{{ row.detail }}</small>{% endif %}\
</td><td class="limit">{{ row.tpr }}</td><td class="limit">{{ row.fpr }}</td>
<td class="limit">{{ row.area }}</td></tr>
{% endfor %}
</tbody></table></div>
{% endif %}
{% if inference_missing %}
<p class="meta">{{ inference_missing }}</p>
{% endif %}

{% if utility %}
<h2>What the model is worth</h2>
{{ drawn(utility) }}
{% endif %}

<h2>Configuration</h2>
{% for title, entries in configuration %}
<h3>{{ title }}</h3>
<dl class="settings">
{% for name, value in entries %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
{% endfor %}

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

STYLE = TEMPLATE[TEMPLATE.index("<style>") : TEMPLATE.index("</style>") + len("</style>")]
"""The look of the page, for the pages of other reports."""
