"""The sections of a run's page, each a template: layout and whole sentences, by what a run was.

A template knows the report, what `KNOWN` and `parts` name, the filters of `html`, and `drawn`, the
figures by their names. A section is a line of SECTIONS.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsim.audits.measurements.one_run_report import NAMES as CANARY_BOUNDS
from fedsim.audits.measurements.residual_report import MEANING as RESIDUALS_MEAN
from fedsim.audits.measurements.residual_report import ratio_text
from fedsim.audits.run.guarantee import UNCLIPPED
from fedsim.audits.run.report import RunReport, accounted
from fedsim.privacy.trust import Trust
from fedsim.reports.document import wording
from fedsim.reports.document.blocks import Block, Figure, Html, Part
from fedsim.reports.document.html import ENVIRONMENT
from fedsim.reports.sections import every_audit, risks, target
from fedsim.reports.sections import section as facts

GAME = """
<p>The game: every trial trains the federation anew, on D with {{ facts.challenge_of(report) }} or
on D′, {{ other_world[report.unit, details.neighbouring].format(
replacements.get(details.challenge.kind, "the original record")) }}. The adversary
{{ "knows" if details.config["audit.mode"] in informed else "may know" }} both, and the
mechanism.</p>
"""

OTHER_WORLD = {
    ("client", "replace"): "where the same number of other records takes their place",
    ("client", "add-remove"): "where the client has no records and its update is 0",
    ("record", "replace"): "the same data with {} in its place",
    ("record", "add-remove"): "the same data without it",
}

OBSERVERS = (
    GAME
    + """
{% set headings = ["Observer"] + facts.numbers(rows[0]) | list %}
{% call grid(headings, page) %}
{% for row in rows %}
{% set here, name = row.observer == report.vantage, named(row.observer) %}
<tr{% if here %} class="here"{% endif %}><th scope="row" data-label="Observer">\
{{ name }}{% if here %}<small>audited here</small>{% endif %}</th>
{% for heading, (text, detail) in facts.numbers(row).items() %}
{% set style = "value" if heading in facts.MEASURED else "limit" %}
<td class="{{ style }}" data-label="{{ heading }}">\
{{ text }}{% if detail %}<small>{{ detail }}</small>{% endif %}</td>
{% endfor %}</tr>
{% endfor %}
{% endcall %}
<dl>
{% for row in rows %}
{{ fact(named(row.observer) | capitalize,
        mark(report, row).text ~ ". " ~ facts.reading(report, row)) }}
{% endfor %}
</dl>
<p class="meta">{{ trust.get(details.trust, "") }}
{% if mechanism.rounding %}
The messages were integers, {{ mechanism.rounding.note }}. Because of the rounding, noise and
sensitivity are {{ mechanism.rounding.relative_growth | percent }} larger.
{% endif %}
{% if details.colluding %}
{{ details.colluding }} of the {{ details.clients }} clients disclosed their noise to the adversary,
so the bounds leave it out.
{% endif %}
{% if facts.takes_local_steps(report) %}
Clients take several local steps in a round. The bounds assume that every adversary sees all these
steps.
{% endif %}
Advantage: twice the share of right answers, less one. Intervals and lower bounds: {{ confidence }}
confidence; δ = {{ report.delta | plain }}; z: noise multiplier that the observer cannot
remove.</p>
"""
)

TARGET = """
<p>{{ target.who(report) }} The measurements are about this target alone.
{{ facts.holds_for(report) }}</p>
{% if not shown %}
<p class="meta">
{% if client %}No record is shown: all data of a client are the target.
{% elif details.challenge.kind != "record" %}
No record is shown: the target is not a person's record.
{% else %}
The record is not shown, because this page may be handed on and the data '{{ details.data.name }}'
are not known to be public.
{% endif %}</p>
{% endif %}
"""

ONE_RUN = """
{% set run = details.one_run %}
<p>{{ run.count }} canaries of kind “{{ details.config["canaries.kind"] }}” were planted at clients
{{ run.clients | join(", ") }}. A fair coin decided for each canary whether it took part in the
whole training. The score of a canary is its signal in the aggregates of all rounds
{%- if details.config["canaries.known-data"] %}, without the part of the data that the auditor
knew{% endif %}.
The headline is the first trial, as decided before the run; every other trial is another such
audit.</p>
<p>The bounds are about one canary, added or left out. A canary adds at most the clipping norm to a
sum, as any record or client may, so that the guarantee of all others is unchanged.</p>
<dl>
{{ fact("ε claimed, towards a participant", run.claimed_epsilon | number ~ "; of one canary " ~
        run.canary_epsilon | number ~ " (μ = " ~ run.canary_mu | number ~ ")") }}
{% for name, bound in run.bounds.items() %}
{{ fact("ε at least, " ~ canary_bounds[name], bound.epsilon | number ~ " with " ~
        bound.confidence | percent ~ " confidence: " ~ bound.details.right | plain ~ " of " ~
        bound.details.guesses | plain ~ " guesses right. Assumes " ~ bound.assumes ~ ".") }}
{% endfor %}
{% set estimate = run.estimate %}
{{ fact("ε estimated, no confidence statement", "none: " ~ estimate.reason if estimate.reason else
        estimate.epsilon | number ~ " (μ = " ~ estimate.mu | number ~ "; " ~
        estimate.epsilon_interval.ends | ends ~ " at " ~ report.confidence | percent ~
        "). Assumes " ~ estimate.assumes) }}
</dl>
{{ drawn("one-run") }}
"""

CRAFTED = """
{% set crafted, delta = details.crafted, report.delta %}
<p>The target was crafted to be noticed: the bounds say how identifiable a record can be under this
noise, not how identifiable a record of these data is.</p>
<dl>
{{ fact("Target", crafted.description) }}
{% set label = details.challenge.label %}
{% if label is not none %}{{ fact("Its label", label) }}{% endif %}
{{ fact("First model", details.config["model.initialisation"]) }}
{{ fact("ε of one record at δ = " ~ delta | plain, report.row.allowed.epsilon | number) }}
{% for name, bound in crafted.lower_bounds.items() %}
{{ fact("ε of one record at least, " ~ crafted_bounds[name],
        bound.epsilon | number ~ " (" ~ (bound.reason or bound.method) ~ ")") }}
{% endfor %}
</dl>
{{ drawn("poison") }}
"""

CRAFTED_BOUNDS = {
    "released_model": "from the released model alone",
    "released_model_mu_gdp": "from the released model alone, for a Gaussian mechanism at its own "
    "threshold",
}

UTILITY = '<p>{{ facts.worths_in_full(report) }}</p>\n{{ drawn("utility") }}'

RISKS = """
<p>{{ risk_sentence }} These limits hold for any attack on one person, such as re-identification or
reconstruction. {{ facts.holds_for(report) }}</p>
{{ table(risk_table, page) }}
"""

OBSERVED = '{{ drawn("log-odds") }}\n{{ drawn("sensitivity") }}'

CURVES = """
{% for name, curve in details.trade_offs.items() if curve.surely_above > 0 %}
<p>ALARM: the band crosses the curve of theory for: {{ name }}.</p>
{% endfor %}
{{ drawn("trade-offs") }}
"""

THEORY = """
{% set guaranteed = facts.released(report) %}
{% if guaranteed %}<p>{{ guaranteed }}</p>{% endif %}
{% if sampled %}
<p>Poisson sampling: the bounds require that it stays secret whether the target took part in a
round. The adversary is assumed to know this of everybody else.</p>
{% endif %}
{% if sampled and client %}
<p>All trials share the coins of the other clients, so measurements are conditional on these
coins.</p>
{% endif %}
{% if mechanism.joining_rate < 1 %}
<p>Which clients joined a round counts as public, and amplifies no privacy. The target is charged
for the rounds that its client joined.</p>
{% endif %}
{% set bounds = details.bounds %}
<dl>
{% if client and mechanism.sensitivity != "local" %}
{{ fact("Unit of privacy", "all data of one client") }}
{% set multiplier = mechanism.effective_noise_multiplier %}
{% set of_a_record = multiplier and multiplier / (1 if replaced else 2) %}
{{ fact("What follows for one record", "replace neighbours at noise multiplier " ~
        of_a_record | number ~ ": any change to one client's records moves its clipped update by "
        ~ "at most 2C, which is " ~ ("the sensitivity" if replaced else "two sensitivities")) }}
{% endif %}
{% set why = " (no noise hides " ~ facts.clients_of(report) ~ " at this vantage)" %}
{% set why = why if clipped else " (" ~ unclipped ~ ")" %}
{{ fact("ε at δ = " ~ report.delta | plain, accounted.epsilon | number ~
        (why if accounted.epsilon == infinite else "") ~ ", accountant " ~
        bounds.accountant) }}
{{ fact("ρβ = 1 / (1 + e^−ε)", accounted.rho_beta | number) }}
{{ fact("How often the belief exceeds ρβ", bounds.tail_probability | percent ~
        " for the record that changes the sums most; at most " ~
        accounted.exceeded | percent ~ " for any record") }}
{% if bounds.accounted %}
{{ fact("ε by exact accounting", report.row.allowed.epsilon | number) }}
{% endif %}
{{ fact("Bernau et al., Theorem 2", bounds.theorem2_rho_alpha | number ~
        " (not a bound, except for the classic noise scale of a single step)") }}
{{ fact("Yeom's bound e^ε − 1, for pure ε", bounds.yeom_bound | number) }}
{% set budget, secret = details.budget, details.noise_source != "seed" %}
{% set earlier = counted(budget.earlier_attempts, "round") %}
{{ fact("Rounds", budget.rounds_run ~ " of " ~ budget.rounds_planned ~ " planned" ~
        (", after " ~ earlier ~ " of interrupted attempts" if budget.earlier_attempts else "")) }}
{{ fact("ε spent towards the " ~ named(budget.vantage) ~ " at δ = " ~ budget.delta | plain,
        details.spent | number ~ (" by everything released" if secret else
        " if the noise were secret" if details.spent < infinite else "")) }}
{% set elsewhere = " at δ = " ~ budget.stop_at_delta | plain %}
{{ fact("Budget", "none" if not budget.stop_at else "privacy.stop-at = " ~ budget.stop_at | number ~
        (elsewhere if budget.stop_at_delta != budget.delta else "") ~
        (", which left no room for another round" if budget.stopped else ", which was kept")) }}
</dl>
{{ drawn("budget") }}
"""

LOWER_BOUNDS = """
<p>ε′ is the privacy loss that the attack shows. An estimate may err on either side. A lower bound
holds with the stated confidence, if its assumption holds; above theory's ε, it means that the
claimed guarantee does not hold.</p>
{% set estimates = details.empirical.epsilon %}
{% set exact, theory = report.row.allowed.epsilon | number, accounted.epsilon | number %}
{% set headings = ("Estimates", "ε′", "Theory", "Remark") %}
{% call grid(headings, page) %}
{{ row(headings, "from sensitivities, exact", [estimates.sensitivity_exact | number, exact,
       "Trusts the claimed noise; composes the trial with the largest sensitivities."]) }}
{{ row(headings, "from sensitivities, classic RDP", [estimates.sensitivity | number,
       theory if details.bounds.accountant == "rdp-classic" else "–",
       "The same in the paper's looser accounting."]) }}
{{ row(headings, "from belief", [report.attack.log_odds | number, theory,
       "The largest log-odds of any trial; grows with their number." ~
       facts.score_caution(report)]) }}
{{ row(headings, "from advantage", [estimates.advantage | number, theory,
       "The paper's Eq. 15 with its missing factor 2, for the classic noise scale."]) }}
{% endcall %}
{% set headings = ("Lower bounds at " ~ confidence ~ " confidence", "ε′ at least", "Theory",
                   "Remark") %}
{% call grid(headings, page) %}
{% for name, bound in details.empirical.lower_bounds.items() %}
{% set leads = ", which leads" if name == details.empirical.leading else "" %}
{% set compared = report.row.allowed.epsilon < infinite and not bound.reason %}
{% set remark = [facts.beside_theory(report, name), " "] if compared else [""] %}
{% set method = "Method: " ~ bound.method ~ ". " if bound.method else "" %}
{% set assumes = "Assumes: " ~ bound.assumes ~ ". " if bound.assumes else "" %}
{% set without = "No bound here: " ~ bound.reason ~ "." if bound.reason else "" %}
{% set value = "–" if bound.reason else bound.epsilon | number %}
{{ row(headings, facts.TITLES[name] ~ leads, [value, exact,
       remark + [method ~ assumes ~ without]]) }}
{% endfor %}
{% endcall %}
"""

MEMBERSHIP = """
{% if details.membership_inference %}
<p>Weaker attacks, for comparison: they see losses at the final model, and no sums. All except
Yeom's two learn from one half of the trials and are measured on the other.</p>
{% set headings = ("Attack", "Advantage", "True positives", "False positives", "AUC") %}
{% call grid(headings, page) %}
{% for name, attack in details.membership_inference.items() %}
{% set advantage = attack.advantage | number ~ " " ~ attack.advantage_interval | ends %}
{{ row(headings, facts.attack_name(name, client),
       [advantage, attack.tpr | percent, attack.fpr | percent, attack.area | number]) }}
{% endfor %}
{% endcall %}
{% endif %}
{% if details.membership_missing %}<p class="meta">{{ details.membership_missing }}</p>{% endif %}
"""

PREDICTION = """
{% set predicted, alike = details.prediction, details.prediction.deterministic %}
<dl>
<dt>μ</dt><dd>{{ predicted.mu | number }} (
{%- if predicted.method == "none" %}no closed form: the log-odds are the score of an attack
{%- elif facts.takes_local_steps(report) %}
of the linearised attack, whose score follows N(±μ²/2, μ²) only roughly
{%- elif predicted.method == "simulation" %}
the signal-to-noise ratio if no step were sampled; Λ is a mixture
{%- elif alike %}the same in every trial: Λ ~ N(±μ²/2, μ²)
{%- else %}differs between trials: Λ is a mixture over them, and μ a summary
{%- endif %})</dd>
<dt>Advantage predicted</dt><dd>{{ predicted.advantage | number }}
{% if predicted.standard_error %}± {{ predicted.standard_error | number }} {% endif %}
{% if predicted.method == "simulation" %}
(by simulation of the game with these gradient norms, noise and sampling rate;
{{ "equal in every trial" if alike else "approximate, since trials differ" }})
{% endif %}</dd>
{{ fact("Advantage measured", report.attack.advantage | number ~ " ± " ~
        report.attack.standard_error | number) }}
{{ fact("It agrees with the prediction",
        {true: "yes", false: "no"}.get(report.attack.near_prediction, "cannot tell")) }}
{% set counts = details.empirical %}
{{ fact("Trials won, lost, tied", [counts.wins, counts.losses, counts.ties] | plain) }}
{% for world, fit in {"D": predicted.fit.world_d, "D′": predicted.fit.world_d_prime}.items() %}
{% set distance = "Kolmogorov–Smirnov distance " ~ fit.statistic | number if fit else "" %}
{{ fact("Fit on " ~ world, distance ~ ", p = " ~ fit.p_value | number if fit else "–") }}
{% endfor %}
</dl>
"""

RESIDUALS = """
{% set found = details.residuals %}
{% set noise = found.noise %}
{% macro tested(name, test, value) %}
{% if test %}{{ fact(name, test[value] | number ~ "; p = " ~ test.p_value | number) }}{% endif %}
{% endmacro %}
<p>{{ residuals_mean }}</p>
<dl>
{{ fact("Noise, divided by the claimed noise", ratio(noise.ratio) ~ ", interval " ~
        noise.interval | ends(ratio) ~ "; p = " ~ noise.p_value | number ~ ", from " ~
        noise.degrees_of_freedom ~ " numbers") }}
{{ tested("Cosine with the noise of the round before, on average", found.repeats, "cosine") }}
{{ tested("Sum, divided by the sum of clipped gradients", found.scale, "factor") }}
{{ tested("Mean size over root mean square (0.798 if normal)", found.shape, "ratio") }}
{{ tested("Variance of batch sizes, divided by the binomial one", found.sampling, "dispersion") }}
</dl>
"""

SETTINGS = """
{% set sizes = details.data.client_sizes %}
<dl>
{{ fact("Data", details.data.name ~ ", " ~ details.data.records ~ " records; of each client " ~
        sizes | min ~ " to " ~ sizes | max) }}
{{ fact("Label skew", details.data.mean_label_skew | plain) }}
{{ fact("Network", details.config["model.name"] | plain ~ ", " ~ details.parameters ~
        " parameters") }}
{{ fact("Noise multiplier", mechanism.noise_multiplier | number ~ ", " ~ mechanism.steps ~
        " steps, " ~ mechanism.sensitivity ~ " sensitivity") }}
{{ fact("Runtime", details.runtime ~ ", " ~ details.device ~ ", " ~ details.precision) }}
{{ fact("Versions", report.versions | plain) }}
{% if mechanism.rounding %}
{{ fact("Rounded messages", mechanism.rounding.bits ~ " bits, secure aggregation: " ~
        mechanism.rounding.secure_aggregation) }}
{% endif %}
{% if details.dropouts %}
{% set missing = details.dropouts %}
{{ fact("Missing clients", "in " ~ missing.rounds_with_missing_clients ~ " rounds; noise " ~
        "multiplier: " ~ missing.effective_noise_multiplier | ends) }}
{% endif %}
</dl>
<p class="meta">Every setting is in <code>config.toml</code> and in <code>report.json</code>.</p>
"""


@dataclass(frozen=True)
class Section:
    """One section of the page of a run.

    Attributes:
        needs: expression of a template that is true for the runs that have the section.
        specialist: whether it stands in the folded part for specialists.
    """

    title: str
    template: str
    needs: str = "true"
    specialist: bool = False


ATTACKED = "details.membership_inference or details.membership_missing"
SECTIONS = (
    Section("Every observer in numbers", OBSERVERS),
    Section("Who is the target?", TARGET),
    Section("What the adversary believed", '{{ drawn("belief") }}', "'belief' in figures"),
    Section("One-run audit", ONE_RUN, "details.one_run"),
    Section("The crafted target", CRAFTED, "details.crafted"),
    Section("What the model is worth", UTILITY),
    Section("How likely is re-identification?", RISKS),
    Section("Log-odds and sensitivity", OBSERVED, specialist=True),
    Section("Measured trade-off curve", CURVES, "details.trade_offs", True),
    Section("Theory and the running budget", THEORY, specialist=True),
    Section("Empirical ε′", LOWER_BOUNDS, specialist=True),
    Section("Membership inference", MEMBERSHIP, ATTACKED, specialist=True),
    Section("Does the run agree with its own prediction?", PREDICTION, specialist=True),
    Section("Is the residual pure noise?", RESIDUALS, "details.residuals", True),
    Section("Settings", SETTINGS, specialist=True),
)
"""In the order of the page; sections for specialists stand in a folded part behind the others."""

KNOWN: Mapping[str, Any] = {
    "named": every_audit.named,
    "mark": every_audit.mark,
    "facts": facts,
    "target": target,
    "wording": wording,
    "counted": wording.counted,
    "ratio": ratio_text,
    "dict": dict,
    "infinite": math.inf,
    "trust": {trust.value: trust.model.words for trust in Trust},
    "informed": ("participant", "oracle"),
    "other_world": OTHER_WORLD,
    "replacements": {"record": "another record", "gradient": "its opposite"},
    "residuals_mean": RESIDUALS_MEAN,
    "unclipped": UNCLIPPED,
    "canary_bounds": CANARY_BOUNDS,
    "crafted_bounds": CRAFTED_BOUNDS,
}
"""What every template knows, beside the run; "informed" has the values of `audit.mode` whose
adversaries know all that the bounds assume."""


def parts(
    report: RunReport,
    figures: Mapping[str, Figure],
    shown: target.Shown | None = None,
    sections: Sequence[Section] = SECTIONS,
) -> list[Part]:
    """Return the sections that a run has, those for specialists folded in the last part."""
    rows, details = every_audit.shown(report), report.details
    values = dict(KNOWN) | {
        "report": report,
        "details": details,
        "accounted": accounted(report),
        "figures": figures,
        "shown": shown,
        "rows": rows,
        "mechanism": details.mechanism,
        "client": facts.is_client(report),
        "clipped": facts.is_clipped(report),
        "sampled": facts.is_sampled(report),
        "replaced": details.neighbouring == "replace",
        "confidence": facts.confidence_of(report).strip(),
        "risk_sentence": risks.sentence({facts.WHO[r.observer]: r.allowed.risks for r in rows}),
        "risk_table": risks.table({every_audit.named(r.observer): r.allowed.risks for r in rows}),
    }
    open_, folded = list[Part](), list[Part]()
    for section in sections:
        if ENVIRONMENT.compile_expression(section.needs)(values):
            blocks: list[Block] = [Html(section.template, values, figures)]
            if section.template is TARGET and shown is not None:
                name = f"Record {details.challenge.record}"
                blocks.append(target.record(shown, name, "The data are public."))
            (folded if section.specialist else open_).append(Part(section.title, blocks))
    return [*open_, Part("For specialists", folded, folded=True, anchor="specialists")]
