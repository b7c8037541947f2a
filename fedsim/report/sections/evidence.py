"""The sections of a run's page, each a template: layout and whole sentences, by what a run was.

A template knows the report, its facts by short names (`values`), the filters of `html`, and
`drawn`, the figures by their names. A section is a line of SECTIONS.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from adversaries.attacks.membership_attacks import ATTACKS as LOSS_ATTACKS
from fedsim.audits.measurements.one_run_report import NAMES as CANARY_BOUNDS
from fedsim.audits.measurements.residual_report import MEANING as RESIDUALS_MEAN
from fedsim.audits.measurements.residual_report import ratio_text
from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import Fit, OverTrials
from fedsim.audits.run import empirical
from fedsim.audits.run.guarantee import UNCLIPPED
from fedsim.privacy.trust import Trust
from fedsim.report.document import wording
from fedsim.report.document.blocks import Block, Figure, Html, Mark, Part
from fedsim.report.document.wording import number
from fedsim.report.sections import observers, risks, target
from fedsim.report.sections import section as facts

GAME = """
<p>The game: every trial trains the federation anew, on D with {{ challenge }} or on D′,
{% if client and replaced %}where the same number of other records takes their place
{%- elif client %}where the client has no records and its update is 0
{%- if not sampled %} (its participation is no secret){% endif %}
{%- elif not replaced %}the same data without {{ "them" if several else "it" }}
{%- else %}the same data with {{ replacement }} in {{ "their" if several else "its" }} place
{%- endif %}. The adversary {{ "knows" if informed else "may know" }} both, and the mechanism.</p>
"""

OBSERVERS = (
    GAME
    + """
{% set headings = ["Observer"] + numbers[0][1] | list %}
{% call grid(headings, page, "stacked vantages") %}
{% for row, cells in numbers %}
{% set here = row.observer == report.vantage %}
<tr{% if here %} class="here"{% endif %}><th scope="row" data-label="Observer">\
{{ names[row.observer] }}{% if here %}<small>audited here</small>{% endif %}</th>
{% for heading, (text, detail) in cells.items() %}
{% set style = "value" if heading in measured else "limit" %}
<td class="{{ style }}" data-label="{{ heading }}">\
{{ text }}{% if detail %}<small>{{ detail }}</small>{% endif %}</td>
{% endfor %}</tr>
{% endfor %}
{% endcall %}
<dl>
{% for row, _ in numbers %}
{% set reading = marks[row.observer].text ~ ". " ~ readings[row.observer] %}
{{ fact(names[row.observer] | capitalize, reading) }}
{% endfor %}
</dl>
{% if own %}
{% set headings = ("Observer", "Limit of the organisation", "Theory allows", "Measured",
                   "Answer") %}
{% call grid(headings, page) %}
{% for name, cells in own %}{{ row(headings, name, cells) }}{% endfor %}
{% endcall %}
<p class="meta">“With a condition” means: for the attacked target alone, except in rare trainings,
or once aggregation is secure.</p>
{% endif %}
<p class="meta">{{ trust }}
{% if mechanism.rounding %}
The messages were integers, {{ mechanism.rounding.note }}. Because of the rounding, noise and
sensitivity are {{ mechanism.rounding.relative_growth | percent }} larger.
{% endif %}
{% if report.colluding %}
{{ report.colluding }} of the {{ report.clients }} clients disclosed their noise to the adversary,
so the bounds leave it out.
{% endif %}
{% if local_steps %}
Clients take several local steps in a round. The bounds assume that every adversary sees all these
steps.
{% endif %}
Advantage: twice the share of right answers, less one. Intervals and lower bounds: {{ confidence }}
confidence; δ = {{ report.bounds.delta | plain }}; z: noise multiplier that the observer cannot
remove.</p>
"""
)

TARGET = """
<p>{{ who }} The measurements are about this target alone. {{ holds_for }}</p>
{% if not shown %}
<p class="meta">
{% if client %}No record is shown: all data of a client are the target.
{% elif report.challenge.kind != "record" %}
No record is shown: the target is not a person's record.
{% else %}
The record is not shown, because this page may be handed on and the data '{{ report.data.name }}'
are not known to be public.
{% endif %}</p>
{% endif %}
"""

BELIEFS = "{{ drawn.belief }}"

ONE_RUN = """
{% set run = report.one_run %}
<p>{{ run.count }} canaries of kind “{{ run.kind }}” were planted at clients
{{ run.clients | join(", ") }}. A fair coin decided for each canary whether it took part in the
whole training. The score of a canary is
{% if run.score == "sums" %}its signal in the aggregates of all rounds
{%- else %}the fall of its loss from the first model, which never saw it, to the last
{%- endif %}
{%- if run.known_data %}, without the part of the data that the auditor knew{% endif %}.
The headline is trial {{ run.headline_trial }}, as decided before the run; every other trial is
another such audit.</p>
{% if run.note %}<p>{{ run.note }}</p>{% endif %}
{% if run.alarm %}<p>{{ run.alarm }}</p>{% endif %}
<dl>
{{ fact("ε claimed, towards a participant", run.claimed_epsilon | number) }}
{{ fact("ε of one canary by the claimed noise",
        run.canary_epsilon | number ~ " (μ = " ~ run.canary_mu | number ~ ")") }}
{% for name, bound in run.bounds.items() %}
{{ fact("ε at least, " ~ canary_bounds[name], bound.epsilon | number ~ " with " ~
        bound.confidence | percent ~ " confidence: " ~ bound.details.right | plain ~ " of " ~
        bound.details.guesses | plain ~ " guesses right. Assumes " ~ bound.assumes ~ ".") }}
{% endfor %}
{% set estimate = run.estimate %}
{{ fact("ε estimated, no confidence statement", "none: " ~ estimate.reason if estimate.reason else
        estimate.epsilon | number ~ " (μ = " ~ estimate.mu | number ~ "; " ~
        estimate.epsilon_interval.ends | ends ~ " at " ~ run.confidence | percent ~
        "). Assumes " ~ estimate.assumes) }}
{% for name, spread in (run.spread or {}).items() %}
{{ fact("Over " ~ run.trials ~ " trials, " ~ canary_bounds[name], "median " ~
        spread.median | number ~ ", 90% of trials from " ~ spread.low | number ~ " to " ~
        spread.high | number ~ ", " ~ spread.above | percent ~ " of trials above " ~
        run.canary_epsilon | number) }}
{% endfor %}
</dl>
{{ drawn["one-run"] }}
"""

CRAFTED = """
{% set crafted = report.crafted %}
<p>The target was crafted to be noticed: the bounds say how identifiable a record can be under this
noise, not how identifiable a record of these data is.</p>
<dl>
{{ fact("Target", crafted.description) }}
{% if crafted.label is not none %}{{ fact("Its label", crafted.label) }}{% endif %}
{{ fact("First model", crafted.initialisation) }}
{{ fact("ε of one record at δ = " ~ crafted.delta | plain, crafted.epsilon | number) }}
{% for name, bound in crafted.lower_bounds.items() %}
{{ fact("ε of one record at least, " ~ crafted_bounds[name],
        bound.epsilon | number ~ " (" ~ (bound.reason or bound.method) ~ ")") }}
{% endfor %}
</dl>
{{ drawn.poison }}
"""

CRAFTED_BOUNDS = {
    "identification": "by identification",
    "identification_mu_gdp": "by identification, for a Gaussian mechanism",
    "identification_gaussian": "by identification, for normal log-odds",
    "released_model": "from the released model alone",
    "released_model_mu_gdp": "from the released model alone, for a Gaussian mechanism at its own "
    "threshold",
}

UTILITY = "<p>{{ worths }}</p>\n{{ drawn.utility }}"

RISKS = """
<p>{{ risk }} These limits hold for any attack on one person, such as re-identification or
reconstruction. {{ holds_for }}</p>
{{ table(risk_table, page) }}
{% if report.empirical.true_positives %}
<p>Membership inference about the target, measured; all intervals hold together at {{ confidence }}
confidence.</p>
{% set headings = ("False positives", "True positives, measured", "Theory allows at most") %}
{% call grid(headings, page) %}
{% for one in report.empirical.true_positives %}
{% set measured = one.interval | ends(percent) if one.interval else
   "cannot tell, needs {:,} trials".format(2 * one.needed) %}
{{ row(headings, one.rate | percent, [measured, allowed.get(one.rate) | percent]) }}
{% endfor %}
{% endcall %}
{% endif %}
"""

OBSERVED = '{{ drawn["log-odds"] }}\n{{ drawn.advantage }}\n{{ drawn.sensitivity }}'

CURVES = """
{% if crossed %}
<p>ALARM: the band crosses the curve of theory for: {{ crossed | join(", ") }}.</p>
{% endif %}
{{ drawn["trade-offs"] }}
"""

AT_CLIENTS = "{{ drawn.clients }}"

THEORY = """
{% if guaranteed %}<p>{{ guaranteed }} {{ report.released.game }}</p>{% endif %}
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
{% set bounds = report.bounds %}
<dl>
{% if client and mechanism.sensitivity != "local" %}
{{ fact("Unit of privacy", "all data of one client") }}
{{ fact("What follows for one record", "replace neighbours at noise multiplier " ~
        of_a_record | number ~ ": any change to one client's records moves its clipped update by "
        ~ "at most 2C, which is " ~ ("the sensitivity" if replaced else "two sensitivities")) }}
{% endif %}
{{ fact("ε at δ = " ~ bounds.delta | plain, report.accounted.epsilon | number ~ why_infinite ~
        ", accountant " ~ bounds.accountant) }}
{{ fact("ρβ = 1 / (1 + e^−ε)", report.accounted.rho_beta | number) }}
{{ fact("How often the belief exceeds ρβ", bounds.tail_probability | percent ~
        " for the record that changes the sums most; at most " ~
        report.accounted.exceeded | percent ~ " for any record") }}
{% if bounds.accounted %}
{{ fact("ε by exact accounting", report.here.limit.epsilon | number) }}
{% endif %}
{{ fact("Bernau et al., Theorem 2", bounds.theorem2_rho_alpha | number ~
        " (not a bound, except for the classic noise scale of a single step)") }}
{{ fact("Yeom's bound e^ε − 1, for pure ε", bounds.yeom_bound | number) }}
</dl>
{% set budget = drawn.budget %}
{% if budget %}{{ budget }}{% else %}<p>{{ spent }}</p>{% endif %}
"""

BAYESIAN = """
{% set spent = report.bayesian %}
<p>This statement is for a person whose record comes from the distribution of the training data. It
is no guarantee for outliers. The gradient distances that it rests on were released without
protection.</p>
{% if spent.epsilon %}
<p>With probability 1 − δ over the noise and over the choice of that person, the privacy loss stays
below the first ε. For each of {{ "%g" % (100 * spent.percentile) }}% of such people, it stays below
the second ε with that probability over the noise alone.</p>
{% if spent.dp_epsilon <= spent.epsilon.mean %}
<p>Here it adds nothing to DP, whose ε is no larger and holds for every person. Either the gradients
are nearly as long as clipping allows, or too few were compared, or this accountant's bound is
looser than the privacy loss distribution of DP. (The bound is Chernoff's, and one by convexity
under sampled replacement.)</p>
{% endif %}
{% endif %}
<dl>
{{ fact("Bayesian ε at δ = " ~ spent.delta | plain, over_trials(spent.epsilon)) }}
{{ fact("Bayesian ε, each of " ~ "%g" % (100 * spent.percentile) ~ "% of people",
        over_trials(spent.epsilon_at_percentile)) }}
{{ fact("ε of DP, for every person", spent.dp_epsilon | number ~
        ("" if clipped else " (" ~ unclipped ~ ")")) }}
{{ fact("Bayesian ε if all gradients reached the bound", spent.worst_case_epsilon | number ~
        ("" if clipped else " (" ~ unclipped ~ ")")) }}
{{ fact("Estimated from", spent.pairs ~ (" pairs of records" if replaced else " records") ~
        " in every round; γ = " ~ spent.gamma | number ~
        " of δ covers a failure of the estimate") }}
{{ fact("Orders λ that decided", spent.orders | ends or "–") }}
{% if spent.note %}{{ fact("Note", spent.note) }}{% endif %}
</dl>
{{ drawn.bayesian }}
"""

LOWER_BOUNDS = """
<p>ε′ is the privacy loss that the attack shows. An estimate may err on either side. A lower bound
holds with the stated confidence, if its assumption holds; above theory's ε, it means that the
claimed guarantee does not hold.</p>
{% set estimates = report.empirical.epsilon %}
{% set exact, theory = report.here.limit.epsilon | number, report.accounted.epsilon | number %}
{% set headings = ("Estimates", "ε′", "Theory", "Remark") %}
{% call grid(headings, page) %}
{{ row(headings, "from sensitivities, exact", [estimates.sensitivity_exact | number, exact,
       "Trusts the claimed noise; composes the trial with the largest sensitivities."]) }}
{{ row(headings, "from sensitivities, classic RDP", [estimates.sensitivity | number,
       theory if report.bounds.accountant == "rdp-classic" else "–",
       "The same in the paper's looser accounting."]) }}
{{ row(headings, "from belief", [report.attack.log_odds | number, theory,
       "The largest log-odds of any trial; grows with their number." ~ score_caution]) }}
{{ row(headings, "from advantage", [estimates.advantage | number, theory,
       "The paper's Eq. 15 with its missing factor 2, for the classic noise scale."]) }}
{% endcall %}
{% set headings = ("Lower bounds at " ~ confidence ~ " confidence", "ε′ at least", "Theory",
                   "Remark") %}
{% call grid(headings, page) %}
{% for name, bound in report.empirical.lower_bounds.items() %}
{% set leads = ", which leads" if name == report.empirical.leading else "" %}
{% set remark = [bound_marks[name], " "] if name in bound_marks else [""] %}
{% set method = "Method: " ~ bound.method ~ ". " if bound.method else "" %}
{% set assumes = "Assumes: " ~ bound.assumes ~ ". " if bound.assumes else "" %}
{% set without = "No bound here: " ~ bound.reason ~ "." if bound.reason else "" %}
{{ row(headings, titles[name] ~ leads, ["–" if bound.reason else bound.epsilon | number, exact,
       remark + [method ~ assumes ~ without]]) }}
{% endfor %}
{% endcall %}
"""

MEMBERSHIP = """
{% if report.membership_inference %}
<p>Weaker attacks, for comparison: they see losses at the final model, and no sums. All except
Yeom's two learn from one half of the trials and are measured on the other.</p>
{% set headings = ("Attack", "Advantage", "True positives", "False positives", "AUC") %}
{% call grid(headings, page) %}
{% for name, attack in report.membership_inference.items() %}
{% set advantage = attack.advantage | number ~ " " ~ attack.advantage_interval | ends %}
{{ row(headings, attack_name(name),
       [advantage, attack.tpr | percent, attack.fpr | percent, attack.area | number]) }}
{% endfor %}
{% endcall %}
{% endif %}
{% if report.membership_missing %}<p class="meta">{{ report.membership_missing }}</p>{% endif %}
"""

PREDICTION = """
{% set predicted = report.prediction %}
<dl>
{{ fact("μ", predicted.mu | number ~ " (" ~ law ~ ")") }}
{{ fact("Advantage predicted", predicted.advantage | number ~
        (" ± " ~ predicted.standard_error | number if predicted.standard_error else "") ~
        how_predicted) }}
{{ fact("Advantage measured", report.attack.advantage | number ~ " ± " ~
        report.attack.standard_error | number ~ " " ~ apart) }}
{% set counts = report.empirical %}
{{ fact("Trials won, lost, tied",
        [counts.wins, counts.losses, counts.ties] | plain) }}
{{ fact("Fit on D", fitted(predicted.fit.world_d)) }}
{{ fact("Fit on D′", fitted(predicted.fit.world_d_prime)) }}
</dl>
"""

LAWS = {
    "simulation": "the signal-to-noise ratio if no step were sampled; Λ is a mixture",
    "alike": "the same in every trial: Λ ~ N(±μ²/2, μ²)",
    "different": "differs between trials: Λ is a mixture over them, and μ a summary",
    "local": "of the linearised attack, whose score follows N(±μ²/2, μ²) only roughly",
    "none": "no closed form: the log-odds are the score of an attack",
}
SIMULATED = {
    True: " (by simulation of the game with these gradient norms, noise and sampling rate; equal "
    "in every trial)",
    False: " (by simulation of the game with these gradient norms, noise and sampling rate; "
    "approximate, since trials differ)",
}

RESIDUALS = """
{% set found = report.residuals %}
{% set noise, rounds = found.noise, found.noise.by_step | reject("none") | list %}
<p>{{ residuals_mean }}</p>
<dl>
{{ fact("Noise, divided by the claimed noise", ratio(noise.ratio) ~ ", interval " ~
        noise.interval | ends(ratio) ~ "; p = " ~ noise.p_value | number ~ ", from " ~
        noise.degrees_of_freedom ~ " numbers") }}
{% if rounds | length > 1 %}
{{ fact("Noise of single rounds, divided by the claimed noise",
        (rounds | min, rounds | max) | ends(ratio)) }}
{% endif %}
{% if found.repeats %}
{{ fact("Noise of a round, compared with the round before", "cosine " ~
        found.repeats.cosine | number ~ " on average; p = " ~ found.repeats.p_value | number) }}
{% endif %}
{% if found.scale %}
{{ fact("Sum, divided by the sum of clipped gradients",
        found.scale.factor | number ~ "; p = " ~ found.scale.p_value | number) }}
{% endif %}
{% if found.shape %}
{{ fact("Mean size of a coordinate, divided by its root mean square",
        found.shape.ratio | number ~ "; " ~ found.shape.normal | number ~ " if normal, p = " ~
        found.shape.p_value | number) }}
{% endif %}
{% if found.sampling %}
{{ fact("Variance of batch sizes, divided by the binomial variance",
        found.sampling.dispersion | number ~ ", from " ~ found.sampling.batches ~
        " batches with a share of " ~ found.sampling.rate | number ~ " of the records; p = " ~
        found.sampling.p_value | number) }}
{% endif %}
</dl>
"""

SETTINGS = """
{% set sizes = report.data.client_sizes %}
<dl>
{{ fact("Data", report.data.name ~ ", " ~ report.data.records ~ " records") }}
{{ fact("Records of each client",
        sizes | min ~ " to " ~ sizes | max ~ ", median " ~ "%g" % median(sizes)) }}
{{ fact("Label skew", report.data.label_skew | plain) }}
{{ fact("Network", report.config["model.name"] | plain ~ ", " ~ report.model.parameters ~
        " parameters") }}
{{ fact("Noise multiplier",
        mechanism.noise_multiplier | number ~ ", " ~ mechanism.steps ~ " steps") }}
{{ fact("Sensitivity", mechanism.sensitivity) }}
{{ fact("Runtime", report.runtime ~ ", " ~ report.device ~ ", " ~ report.precision) }}
{{ fact("Versions", report.versions | plain) }}
{% if mechanism.rounding %}
{{ fact("Rounded messages", "grid of " ~ mechanism.rounding.step | number ~ ", " ~
        mechanism.rounding.bits ~ " bits, coordinates up to " ~ mechanism.rounding.limit | number ~
        ", secure aggregation: " ~ mechanism.rounding.secure_aggregation) }}
{% endif %}
{% if report.dropouts %}
{% set missing = report.dropouts %}
{{ fact("Missing clients", missing.rounds_with_missing_clients ~ " rounds had missing clients; " ~
        missing.tolerated ~ " may be missing; fewest shares of noise: " ~ missing.fewest_shares ~
        "; noise multiplier: " ~ missing.effective_noise_multiplier | ends) }}
{% endif %}
</dl>
<p class="meta">Every setting is in <code>config.toml</code> and in <code>report.json</code>.</p>
"""


Figures = Mapping[str, Figure]


@dataclass(frozen=True)
class Section:
    """One section of the page of a run.

    Attributes:
        applies: report, names of the figures -> whether this run has the section.
        specialist: whether it stands in the folded part for specialists.
    """

    title: str
    template: str
    applies: Callable[[Report, Figures], bool] = lambda report, figures: True
    specialist: bool = False


SECTIONS = (
    Section("Every observer in numbers", OBSERVERS),
    Section("Who is the target?", TARGET),
    Section("What the adversary believed", BELIEFS, lambda report, figures: "belief" in figures),
    Section("One-run audit", ONE_RUN, lambda report, figures: report.one_run is not None),
    Section("The crafted target", CRAFTED, lambda report, figures: report.crafted is not None),
    Section("What the model is worth", UTILITY),
    Section("How likely is re-identification?", RISKS),
    Section("Bayesian DP", BAYESIAN, lambda report, figures: report.bayesian is not None),
    Section(
        "Log-odds, advantages and sensitivity",
        OBSERVED,
        lambda report, figures: "advantage" in figures,
        specialist=True,
    ),
    Section(
        "Measured trade-off curve",
        CURVES,
        lambda report, figures: bool(_crossed(report)) or "trade-offs" in figures,
        specialist=True,
    ),
    Section(
        "The model at each client",
        AT_CLIENTS,
        lambda report, figures: "clients" in figures,
        specialist=True,
    ),
    Section("Theory and the running budget", THEORY, specialist=True),
    Section("Empirical ε′", LOWER_BOUNDS, specialist=True),
    Section(
        "Membership inference",
        MEMBERSHIP,
        lambda report, figures: bool(report.membership_inference or report.membership_missing),
        specialist=True,
    ),
    Section("Does the run agree with its own prediction?", PREDICTION, specialist=True),
    Section(
        "Is the residual pure noise?",
        RESIDUALS,
        lambda report, figures: report.residuals is not None,
        specialist=True,
    ),
    Section("Settings", SETTINGS, specialist=True),
)
"""In the order of the page; sections for specialists stand in a folded part behind the others."""

TRUST = {trust.value: trust.model.words for trust in Trust}
INFORMED = ("participant", "oracle")
"""The values of `audit.mode` whose adversaries know all that the bounds assume."""

REPLACEMENTS = {"record": "another record", "gradient": "its opposite"}


def parts(
    report: Report,
    figures: Figures,
    shown: target.Shown | None = None,
    sections: Sequence[Section] = SECTIONS,
) -> list[Part]:
    """Return the sections that a run has, those for specialists folded in the last part."""
    values = _values(report) | {"shown": shown}
    open_, folded = list[Part](), list[Part]()
    for section in sections:
        if section.applies(report, figures):
            blocks: list[Block] = [Html(section.template, values, figures)]
            if section.template is TARGET and shown is not None:
                name = f"Record {report.challenge.record}"
                blocks.append(target.record(shown, name, "The data are public."))
            (folded if section.specialist else open_).append(Part(section.title, blocks))
    return [*open_, Part("For specialists", folded, folded=True, anchor="specialists")]


def _values(report: Report) -> dict[str, Any]:
    """Return what the templates know: the report, short names of its facts, and wordings."""
    rows, challenge = observers.shown(report), report.challenge
    own = [
        (observers.NAMES[row.observer], observers.own_limit_cells(report, row, each))
        for row in rows
        for each in row.own_limits
    ]
    return {
        "report": report,
        "mechanism": report.mechanism,
        "client": facts.is_client(report),
        "clipped": facts.is_clipped(report),
        "sampled": facts.is_sampled(report),
        "local_steps": facts.takes_local_steps(report),
        "replaced": report.neighbouring == "replace",
        "several": challenge.records != 1,
        "replacement": REPLACEMENTS.get(challenge.kind, "the original record"),
        "informed": report.config["audit.mode"] in INFORMED,
        "challenge": facts.challenge_of(report),
        "confidence": facts.confidence_of(report).strip(),
        "score_caution": facts.score_caution(report),
        "names": observers.NAMES,
        "measured": observers.MEASURED,
        "numbers": [(row, observers.numbers(report, row)) for row in rows],
        "marks": {row.observer: observers.mark(report, row) for row in rows},
        "readings": {row.observer: observers.reading(report, row) for row in rows},
        "own": own,
        "trust": TRUST.get(report.trust, ""),
        "who": target.who(report),
        "holds_for": observers.holds_for(report),
        "worths": facts.worths_in_full(report),
        **_risks(report),
        **_theory(report),
        **_measured(report),
        "percent": wording.percent,
        "ratio": ratio_text,
        "median": median,
    }


def _risks(report: Report) -> dict[str, Any]:
    rows = observers.shown(report)
    return {
        "risk": risks.sentence({observers.WHO[row.observer]: row.limit.risks for row in rows}),
        "risk_table": risks.table({observers.NAMES[row.observer]: row.limit.risks for row in rows}),
        "allowed": dict(report.here.limit.risks),
        "crossed": _crossed(report),
    }


def _crossed(report: Report) -> list[str]:
    return [name for name, one in report.trade_offs.items() if one.surely_above > 0]


def _theory(report: Report) -> dict[str, Any]:
    multiplier = report.mechanism.effective_noise_multiplier
    if multiplier is not None and report.neighbouring != "replace":
        multiplier /= 2
    why = UNCLIPPED
    if facts.is_clipped(report):
        why = f"no noise hides {facts.clients_of(report)} at this vantage"

    def over_trials(epsilons: OverTrials | None) -> str:
        if epsilons is None or report.bayesian is None:
            return wording.DASH
        mean, largest = number(epsilons.mean), number(epsilons.max)
        return f"{mean} (mean of {report.bayesian.trials} trials; largest {largest})"

    return {
        "guaranteed": facts.released(report),
        "of_a_record": multiplier,
        "why_infinite": "" if math.isfinite(report.accounted.epsilon) else f" ({why})",
        "unclipped": UNCLIPPED,
        "spent": spent(report),
        "over_trials": over_trials,
    }


SPENT = "{who} spent ε = {epsilon}{together} towards the {vantage} at δ = {delta} (accountant {by})"


def spent(report: Report) -> str:
    """Return what the rounds have spent, and the budget, in sentences."""
    budget, limit = report.budget, f"privacy.stop-at = {number(report.budget.stop_at)}"
    if budget.stop_at_delta != budget.delta:
        limit += f" at δ = {wording.plain(budget.stop_at_delta)}"
    ending = "; no budget was set" * (not budget.stopped)
    if budget.stop_at:
        ending = f", within {limit}"
        if budget.stopped:
            ending = f"; {limit} left no room for another round"
    trainings = 1 if report.released is None else report.released.trainings
    who, has = "a person's record", "has"
    if facts.is_client(report):
        who, has = "a client's data", "have"
    if report.noise_source == "seed" and math.isfinite(report.spent):
        who, has = f"with secret noise {who}", "would have"
    cost = SPENT.format(
        who=f"{who} {has}",
        epsilon=number(report.spent),
        together=f" in all {trainings} trainings together" * (trainings > 1),
        vantage=budget.vantage.replace("-", " "),
        delta=wording.plain(budget.delta),
        by=budget.accountant,
    )
    told = f"After {budget.rounds_run} of {budget.rounds_planned} planned rounds, {cost}{ending}."
    if earlier := budget.earlier_attempts:
        released = wording.counted(earlier, "round")
        told += f" Before that, interrupted attempts had released {released}."
    return told + " The curve shows one training." * (trainings > 1)


def _measured(report: Report) -> dict[str, Any]:
    predicted, law = report.prediction, "alike" if report.prediction.deterministic else "different"
    if predicted.method in ("simulation", "none"):
        law = predicted.method
    elif facts.takes_local_steps(report):
        law = "local"
    limit, bounds = report.here.limit.epsilon, report.empirical.lower_bounds
    marks = {
        name: beside_theory(report, name, bound.epsilon, limit)
        for name, bound in bounds.items()
        if math.isfinite(limit) and not bound.reason
    }
    simulated = SIMULATED[predicted.deterministic] if predicted.method == "simulation" else ""
    return {
        "law": LAWS[law],
        "how_predicted": simulated,
        "apart": facts.standard_errors_apart(report),
        "fitted": _fitted,
        "residuals_mean": RESIDUALS_MEAN,
        "titles": facts.TITLES,
        "bound_marks": marks,
        "canary_bounds": CANARY_BOUNDS,
        "crafted_bounds": CRAFTED_BOUNDS,
        "attack_name": lambda name: attack_names(name, facts.is_client(report))[1],
    }


def _fitted(fit: Fit | None) -> str:
    if fit is None:
        return wording.DASH
    return f"Kolmogorov–Smirnov distance {number(fit.statistic)}, p = {number(fit.p_value)}"


def beside_theory(report: Report, alarm: str, value: float, limit: float) -> Mark:
    """Return how a lower bound on epsilon stands to the limit."""
    if alarm in report.contradictions:
        return Mark("alarm", "Above theory")
    if value > limit:
        return Mark("caution", "Above theory, within chance")
    return Mark("good", "Consistent")


FINAL_LOSS = "Yeom (loss of the final model)"


def attack_names(name: str, client: bool) -> tuple[str, str]:
    """Return the short and the full name of an attack by losses."""
    if name == empirical.POPULATION:
        return "Yeom", "Yeom: members are the records with at most the mean loss"
    if name == empirical.CHALLENGE and client:
        return FINAL_LOSS, "Yeom on the target client: by the mean loss of its records"
    if name == empirical.CHALLENGE:
        return FINAL_LOSS, "Yeom on the target record alone"
    if attack := LOSS_ATTACKS.get(name):
        return attack.title, f"{attack.title}, on the target"
    own = name.rpartition(":")[2].replace("_", " ")
    return own, f"{own}, an attack of your own, on the target"
