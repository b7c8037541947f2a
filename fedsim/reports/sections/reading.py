"""What the verdicts of a page mean, what the page does not say, and what its readers should ask."""

from typing import Any

from fedsim.audits.judgement.report import AuditReport
from fedsim.reports.document.blocks import Html, Part
from fedsim.reports.sections import every_audit

BEFORE_YOU_DECIDE = """
<h3>What the verdicts mean</h3>
{{ bullets(meanings) }}
<h3>What this does not say</h3>
<ul>
<li>That the model is anonymous, or that its release is approved. Both are legal questions
(GDPR, Recital 26); the numbers are evidence on one part: can an adversary tell whether a record was
used?</li>
<li>{% if attacked %}What other people, or other attacks, would have given.
{%- else %}What an attack achieves: none was played.{% endif %}</li>
<li>Whether the software ran as configured, which the limits of theory assume.</li>
<li>How well a person with several records is protected, where one record is the unit.</li>
<li>Whether the model repeats texts, or records can be rebuilt without a list of candidates.</li>
<li>What links with other data, breaches, or other releases about the same people add.</li>
</ul>
<h3>What to ask</h3>
<ul>
<li>Who operates the server, and do we trust that party?</li>
<li>Which limit does our organisation accept?</li>
<li>Which observers were tested by an attack? Should the others be tested too?</li>
<li>What else was released about the same people?</li>
{% if attacked %}
<li>Does the real training use secret noise (privacy.noise-source = system)?</li>
{% endif %}
</ul>
"""


def part(report: AuditReport[Any], attacked: bool = True) -> Part:
    """Return the folded part for a reader who decides, such as a data-protection officer.

    attacked: whether an adversary was played.
    """
    states = (every_audit.state_words(report, row) for row in every_audit.shown(report))
    meanings = [*dict.fromkeys(f"{state.text}: {state.means}." for state in states)]
    inside = Html(BEFORE_YOU_DECIDE, {"meanings": meanings, "attacked": attacked})
    return Part("Before you decide", [inside], folded=True, anchor="before-you-decide")
