"""The verdicts of all audits: which evidence gives which. Each case changes a supported claim."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fedsim.audits.app.audit import ClientTheory, client_evidence
from fedsim.audits.app.game import Observed, findings
from fedsim.audits.judgement.claim import Claim, Evidence, Finding, Verdict, exit_status
from fedsim.audits.judgement.report import concluded
from fedsim.audits.live import live_report
from fedsim.audits.loop.audit import loop_evidence
from fedsim.audits.recorded import audit
from fedsim.audits.recorded.releases import MeasuredRounds
from fedsim.audits.results.rows import Limit, Row, View, standing
from fedsim.audits.run import rows
from fedsim.audits.steps.observation import Influence
from fedsim.audits.steps.theory import Judged, MeasuredNoise
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring
from tests.fedsim.audits.app.test_rules import FACTS as TWO_ROUNDS

EPSILON, DELTA = 2.0, 1e-5
BELOW, ROUNDED, ABOVE = 1.0, EPSILON * (1 + 5e-7), 3.0
SUPPORTED, NOT_JUDGED, SUSPECT, CONVICTED, NO_CLAIM = (
    *(Verdict.SUPPORTED, Verdict.NOT_JUDGED, Verdict.SUSPECT),
    *(Verdict.CONVICTED, Verdict.NO_CLAIM),
)


def verdict(
    evidence, limit=BELOW, source="theory", proven=0.0, shown=0.0, claim=EPSILON, delta=DELTA
):
    """Return the verdict on a claim, where rows prove and limit so much epsilon."""
    view = View(
        observer="participant",
        limit=None if limit is None else Limit.of_epsilon(limit, 0.3, source),
        bounds=lambda level: {"a bound": proven if level > 0.95 else max(shown, proven)},
    )
    report = concluded(
        [view],
        evidence,
        claim=None if claim is None else Claim(claim, DELTA),
        findings=(),
        delta=delta,
        confidence=0.95,
        kind="app audit",
        name="",
        unit=None,
        details=None,
        versions={},
    )
    return report.verdict


RULE = (Finding("why", "mend", rule="a-rule"),)

EVIDENCE = {
    # What decides, in this order, whatever follows it.
    "nothing": ({}, SUPPORTED),
    "exceeded": ({"exceeded": True, "unsure": ["why"]}, SUSPECT),
    "unsure": ({"unsure": ["why"]}, NOT_JUDGED),
    "unknown": ({"unknown": ["why"], "exceeded": True}, NOT_JUDGED),
    "broken": ({"broken": True, "unknown": ["why"]}, SUSPECT),
    "proven": ({"proven": ABOVE, "broken": True, "unknown": ["why"]}, CONVICTED),
    "rounded": ({"proven": ROUNDED}, CONVICTED),  # a bound needs no rounding
    "incomparable": ({"incomparable": "why", "proven": ABOVE}, NOT_JUDGED),
}


LIMITS = {
    # What the judged row says of the claim, at its delta.
    "below": ({}, SUPPORTED),
    "rounding": ({"limit": ROUNDED}, SUPPORTED),
    "configured above": ({"limit": ABOVE}, SUSPECT),
    "stated above": ({"limit": ABOVE, "source": "claim"}, SUSPECT),
    "measured above": ({"limit": ABOVE, "source": "measured"}, NOT_JUDGED),
    "infinite": ({"limit": math.inf}, SUSPECT),
    "unknown": ({"limit": None}, SUPPORTED),  # the evidence says why
    "proven": ({"proven": ABOVE}, CONVICTED),
    "shown at 95 %": ({"shown": ABOVE}, SUPPORTED),
    "at another delta": ({"limit": ABOVE, "proven": ABOVE, "delta": 1e-3}, SUPPORTED),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_judged_limit_contradicts_a_claim_at_its_delta(name):
    numbers, expected = LIMITS[name]
    assert verdict(Evidence(), **numbers) is expected


@pytest.mark.parametrize("name", EVIDENCE)
def test_the_gravest_evidence_decides(name):
    fields, expected = EVIDENCE[name]
    assert verdict(Evidence(**fields)) is expected
    assert verdict(Evidence(**fields), claim=None) is NO_CLAIM


FACTS = replace(TWO_ROUNDS, rounds=1, multipliers=(4.0,), detects=())
APPS = {
    "as configured": ({}, {}, SUPPORTED),
    "proven": ({}, {"proven": ABOVE}, CONVICTED),
    "theory is silent": ({"multipliers": ()}, {"limit": None}, NOT_JUDGED),
    "an alarm": ({"findings": RULE}, {"limit": None}, SUSPECT),
    "a mistake that theory counts": ({"weighted_by": "examples"}, {}, SUPPORTED),
    "a doubt": ({"doubts": ("why",)}, {}, NOT_JUDGED),
    "a record": ({"unit": "record"}, {"proven": ABOVE}, NOT_JUDGED),
}


@pytest.mark.parametrize("name", APPS)
def test_apps(name):
    changes, numbers, expected = APPS[name]
    facts = {name: value for name, value in changes.items() if name != "unit"}
    claim = Claim(EPSILON, DELTA, unit=changes.get("unit"))
    seen = Observed(replace(FACTS, **facts), [], unclipped=False, added=False)
    theory = ClientTheory(seen, findings(seen, None), Neighbouring.ADD_REMOVE)
    assert verdict(client_evidence(theory, claim), **numbers) is expected


ENOUGH = MeasuredNoise(0.98, 0.95, BELOW, 0.9, 100, 10)
LOOPS = {
    "as configured": ({}, SUPPORTED),
    "shown at 95 %": ({"above": "why"}, SUSPECT),
    "theory is silent": ({"unknown": ("why",)}, NOT_JUDGED),
    "an alarm": ({"findings": RULE}, SUSPECT),
    "a doubt": ({"unsure": ("why",)}, NOT_JUDGED),
    "unmeasured": ({"noise": None}, NOT_JUDGED),
    "too little measured": ({"noise": replace(ENOUGH, at_least=0.96)}, NOT_JUDGED),
    "measured above": ({"noise": replace(ENOUGH, epsilon=ABOVE)}, SUPPORTED),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name):
    changes, expected = LOOPS[name]
    given = {"findings": (), "unknown": (), "unsure": (), "noise": ENOUGH, "above": ""} | changes
    found = Judged(None, given["findings"], given["unknown"], given["unsure"])
    evidence = loop_evidence(found, given["noise"], Influence(), given["above"])
    assert verdict(evidence) is expected


RECORDED = {
    "as configured": ({}, {}, SUPPORTED),
    "no unit": ({"unit": None}, {"proven": ABOVE}, NOT_JUDGED),
    "another unit": ({"unit": "record"}, {"proven": ABOVE}, NOT_JUDGED),
    "unmeasured": ({"unmeasured": "why"}, {}, NOT_JUDGED),
    "proven": ({}, {"proven": ABOVE}, CONVICTED),
    "an alarm": ({"broken": True}, {}, SUSPECT),
    "missing rounds": ({"missing": "why"}, {}, NOT_JUDGED),
    "a doubt": ({"doubts": ["why"]}, {}, NOT_JUDGED),
    "own noise": ({"mechanism": {"own_noise": "add_noise"}}, {}, NOT_JUDGED),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_trainings(name):
    changes, numbers, expected = RECORDED[name]
    given = {"unmeasured": "", "broken": False, "missing": "", "doubts": [], "mechanism": {}}
    given |= {"unit": "client"} | changes
    measured = MeasuredRounds(
        views=[],
        findings=[],
        release=SimpleNamespace(clients=[]),
        unmeasured=given["unmeasured"],
        doubts=given["doubts"],
    )
    facts = given["broken"], given["missing"], given["mechanism"]
    claim = Claim(EPSILON, DELTA, unit=given["unit"])
    assert verdict(audit.recorded_evidence(measured, *facts, claim), **numbers) is expected


LIVE = {
    "as stated": ({}, {}, SUPPORTED),
    "no round": ({"seen": False}, {}, NOT_JUDGED),
    "another unit": ({"unit": "client"}, {}, NOT_JUDGED),
    "proven": ({}, {"proven": ABOVE}, CONVICTED),
    "an alarm": ({"alarms": RULE}, {}, SUSPECT),
    "noise of a seed": ({"protecting": False}, {}, SUSPECT),
    "stated above": ({"epsilon": ABOVE}, {}, SUSPECT),
    "not ended": ({"ended": False}, {}, NOT_JUDGED),
    "missed trials": ({"missed": 1}, {}, NOT_JUDGED),
    "not measurable": ({"unable": ["why"]}, {}, NOT_JUDGED),
}


@pytest.mark.parametrize("name", LIVE)
def test_live_federations(name, small, monkeypatch):
    changes, numbers, expected = LIVE[name]
    given = {"seen": True, "alarms": (), "protecting": True, "epsilon": BELOW, "ended": True}
    given |= {"missed": 0, "unable": [], "unit": None} | changes
    source = "system" if given["protecting"] else "seed"
    config = small({"federation.trust": "local", "privacy.noise-source": source})
    monkeypatch.setattr(PLD.__class__, "epsilon", lambda *_: given["epsilon"])
    audited = SimpleNamespace(
        config=config if given["seen"] else None,
        everything=lambda: Mechanism.alike(1.0, 3),
        trials=config.trials.count - given["missed"],
    )
    claim = Claim(EPSILON, DELTA, unit=given["unit"])
    facts = given["alarms"], given["unable"], given["ended"]
    assert verdict(live_report.live_evidence(audited, claim, *facts), **numbers) is expected


AT_OR_ABOVE = ((0.2, 0.4), (0.1, 0.3), (0.3, 0.5))
RUNS = [
    # interval, limit, epsilon, best attack, alarms, audited here
    (interval, 0.3, 2.0, best, [], True, "agrees")
    for interval in AT_OR_ABOVE
    for best in (True, False)
] + [
    ((0.1, 0.2), 0.3, 2.0, True, [], True, "below"),
    ((0.1, 0.2), 0.3, 2.0, False, [], True, "attack-below"),
    ((0.4, 0.5), 0.3, 2.0, True, [], True, "above-by-chance"),
    (None, 0.3, 2.0, True, [], True, "not-measured"),
    ((0.4, 0.5), 1.0, 2.0, True, [], True, "no-limit"),
    # Sampling alone limits this observer: no noise hides a sampled record from it.
    ((0.1, 0.2), 0.3, math.inf, True, [], True, "no-limit"),
    ((0.1, 0.2), 0.3, 2.0, True, ["advantage_participant"], False, "contradicted"),
    ((0.1, 0.2), 1.0, 2.0, True, ["noise_of_sums"], True, "contradicted"),
    ((0.1, 0.2), 0.3, 2.0, True, ["noise_of_sums"], False, "below"),
    ((0.1, 0.2), 0.3, 2.0, True, ["advantage_released-model"], True, "below"),
    ((0.1, 0.2), 0.3, 2.0, True, ["curve_participant"], False, "contradicted"),
]


@pytest.mark.parametrize(
    ("interval", "limit", "epsilon", "best", "alarms", "here", "expected"), RUNS
)
def test_runs(interval, limit, epsilon, best, alarms, here, expected):
    attack = None if interval is None else SimpleNamespace(interval=interval, best=best)
    allowed = Limit.of_epsilon(epsilon, limit, "theory")
    vantage = "participant" if here else "server"
    alarmed = rows.alarmed(alarms, vantage, "participant")
    row = Row("participant", "not-measured", allowed, attack, None, None, "")
    assert standing(row, alarmed=alarmed) == expected


STATUSES = {
    # verdict: (as asked, with --strict)
    CONVICTED: (4, 4),
    SUSPECT: (4, 4),
    NOT_JUDGED: (3, 3),
    SUPPORTED: (0, 0),
    NO_CLAIM: (0, 3),
}


def test_exit_statuses():
    assert {
        each: (exit_status(each, False), exit_status(each, True)) for each in Verdict
    } == STATUSES
    # An alarm without a claim is never green; theory may count what an alarm names.
    assert exit_status(NO_CLAIM, False, alarms=1) == exit_status(NO_CLAIM, True, alarms=1) == 4
    assert exit_status(SUPPORTED, False, alarms=1) == 0
