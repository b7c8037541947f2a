"""The audit of a Flower app as one HTML page that needs no other file, script or network."""

from collections.abc import Sequence

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.app_audit.audit import AppAudit
from fedsim.audits.verdict import Verdict
from fedsim.pages import audit_page

MEANINGS = {
    Verdict.CONVICTED: f"the attack proves, with {ALARM_CONFIDENCE:.2%} confidence, that the "
    "claim is false",
    Verdict.SUSPECT: "theory does not support the claim; the attack has not disproved it",
    Verdict.SUPPORTED: "theory supports the claim, and the attack found nothing against it",
    Verdict.NO_CLAIM: "nobody claims anything",
}


def render_html(outcome: AppAudit, results: Sequence[tuple[str, str]]) -> str:
    """Return the page as HTML.

    Args:
        outcome: whose verdict and findings it shows.
        results: the numbers behind the verdict, as worded for the terminal: name and value.
    """
    return audit_page.render(
        PAGE,
        app=outcome.app,
        verdict=outcome.verdict.value.capitalize(),
        # A claim that is not judged says itself why.
        meaning="; ".join(outcome.reasons) or MEANINGS[outcome.verdict],
        alarming=outcome.verdict is Verdict.CONVICTED,
        results=results,
        findings=[
            (found.rule, "yes" if found.breaks else "no", found.why, found.mend)
            for found in outcome.findings
        ],
    )


PAGE = """\
{% extends "frame" %}
{% from "parts" import settings, tabulated %}
{% block title %}{{ app }} – audit of a Flower app{% endblock %}
{% block kind %}Audit of a Flower app{% endblock %}
{% block heading %}{{ app }}{% endblock %}
{% block meta %}
<p class="meta">The unit of privacy is one client's update.</p>
{% endblock %}
{% block body %}
<section class="verdict{{ ' alarm' if alarming else '' }}">
<p>{{ verdict }}: {{ meaning }}.</p></section>
{{ settings(results) }}
<h2>Findings</h2>
{% if findings %}
{{ tabulated(["rule", "weakens the guarantee", "why", "how to mend it"], findings) }}
{% else %}
<p>No rule objects to anything.</p>
{% endif %}
{% endblock %}
"""
