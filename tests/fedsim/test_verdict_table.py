"""The verdicts of all five audits: which evidence gives which, and what decides first.

Each audit has a table. The first row whose conditions all hold decides, so that the order of the
rows is the order of precedence. The test of an audit goes through every combination of evidence.
"""

import math
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace

from fedsim.audits.app.audit import client_evidence
from fedsim.audits.app.configuration import Configuration
from fedsim.audits.app.strategies import CentralNoise
from fedsim.audits.judgement.claim import (
    Claim,
    Evidence,
    Finding,
    Verdict,
    exit_status,
    judge,
)
from fedsim.audits.live import live_report
from fedsim.audits.loop.audit import loop_evidence
from fedsim.audits.loop.findings import MeasuredNoise
from fedsim.audits.loop.observation import Influence, LoopObservation, ObservedRun
from fedsim.audits.recorded import audit
from fedsim.audits.recorded.releases import MeasuredRounds
from fedsim.audits.results.rows import Limit, RunRow, standing
from fedsim.audits.run import rows
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring

EPSILON, DELTA = 2.0, 1e-5
INF = float("inf")


SIZES = {"below": 0.5, "rounding": 1 + 5e-7, "above": 1.5, "infinite": INF, "unknown": None}
"""An epsilon as a multiple of the claimed one; "rounding" is above it by less than 1e-6."""


def deciding(table, evidence):
    """Return the place of the first row whose conditions all hold; a tuple holds alternatives."""
    for place, (conditions, _) in enumerate(table):
        if all(
            evidence[name] in (each if isinstance(each, tuple) else (each,))
            for name, each in conditions.items()
        ):
            return place
    raise AssertionError(f"no row is for {evidence}")


def every(axes):
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def differing(axes, table, judged):
    """Return each combination of evidence that is judged otherwise than the table says."""
    cases = [(each, deciding(table, each)) for each in every(axes)]
    assert {place for _, place in cases} == set(range(len(table)))  # no row without a case
    found = [(each, table[place][1], judged(each)) for each, place in cases]
    return [each for each in found if each[1] != each[2]]


def _epsilon(size):
    return None if SIZES[size] is None else EPSILON * SIZES[size]


def _judged(claim, evidence, row, proven=0.0):
    """Return the verdict, as `concluded` comes to it."""
    if claim is None:
        return judge(None, Evidence()).verdict.value
    found = evidence(claim, row)
    return judge(claim, replace(found, proven=max(proven, found.proven))).verdict.value


def _row(observer, epsilon, at_least=0.0):
    attack = SimpleNamespace(epsilon_at_least=at_least, confidence=0.95)
    return SimpleNamespace(observer=observer, epsilon=epsilon, attack=attack)


def _claim(unit=None):
    return Claim(EPSILON, DELTA, "given", unit=unit)


def _findings(broken):
    return (Finding("why", "mend", rule="a-rule"),) if broken else ()


# Exit statuses, of every audit but runs

STATUSES = {
    # verdict: (as asked, with --strict)
    "convicted": (4, 4),
    "suspect": (4, 4),
    "not judged": (3, 3),
    "supported": (0, 0),
    "no claim": (0, 3),
}


def test_exit_statuses():
    found = {each.value: (exit_status(each, False), exit_status(each, True)) for each in Verdict}
    assert found == STATUSES


# Flower apps

APP_AXES = {
    "claim": (False, True),
    "training unseen": (False, True),
    "proven": ("below", "rounding", "above", "infinite"),
    "theory": ("below", "rounding", "above", "infinite", "unknown"),
    "noise": ("Flower's", "own", "uneven", "own, towards the server"),
    "server": ("right", "moved", "alarm", "counted alarm"),  # the last one is in theory's epsilon
    "broken rule": (False, True),  # which decides nothing
}
APP = [
    ({"claim": False}, "no claim"),
    ({"training unseen": True}, "not judged"),
    ({"proven": ("rounding", "above", "infinite")}, "convicted"),
    ({"noise": "uneven"}, "suspect"),
    ({"noise": ("Flower's", "own"), "server": "alarm"}, "suspect"),
    ({"theory": "unknown"}, "not judged"),
    ({"theory": ("above", "infinite")}, "suspect"),
    ({"noise": "own"}, "not judged"),
    ({"noise": "Flower's", "server": "moved"}, "not judged"),
    ({"theory": ("below", "rounding")}, "supported"),
]


def _app(evidence):
    central = CentralNoise("a strategy", 1.0, (1.0,), 5)
    own = "own" in evidence["noise"]
    central = replace(central, own_noise=own, varies=evidence["noise"] == "uneven")
    rule = {"alarm": ("",), "counted alarm": ("realised-noise",)}.get(evidence["server"], ())
    checks = tuple(Finding("why", rule=each) for each in rule)
    moved = "the model was moved" if evidence["server"] == "moved" else ""
    configuration = Configuration(3, ("a strategy",), central=central, checks=checks, unsure=moved)
    claim = _claim("record" if evidence["training unseen"] else None)
    observer = "server" if "server" in evidence["noise"] else "participant"
    return _judged(
        claim if evidence["claim"] else None,
        partial(client_evidence, configuration, _findings(evidence["broken rule"])),
        _row(observer, _epsilon(evidence["theory"])),
        _epsilon(evidence["proven"]),
    )


def test_apps():
    assert differing(APP_AXES, APP, _app) == []


# Training loops

LOOP_AXES = {
    "claim": (False, True),
    "proven": ("below", "rounding", "above", "infinite"),
    "at 95 %": ("below", "above"),
    "broken rule": (False, True),
    "theory": ("below", "rounding", "above", "infinite", "unknown"),
    "doubt": (False, True),
    "strict": (False, True),
    "share": ("not measured", "enough", "short"),
    "at measured noise": ("below", "rounding", "above", "unknown"),
}
LOOP = [
    ({"claim": False}, "no claim"),
    ({"proven": ("rounding", "above", "infinite")}, "convicted"),
    ({"broken rule": True}, "suspect"),
    ({"at 95 %": "above"}, "suspect"),
    ({"theory": "unknown"}, "not judged"),
    ({"theory": ("above", "infinite")}, "suspect"),
    ({"doubt": True}, "not judged"),
    ({"share": "not measured"}, "not judged"),
    ({"at measured noise": "unknown"}, "not judged"),
    ({"strict": True, "at measured noise": ("below", "rounding")}, "supported"),
    ({"strict": True}, "not judged"),
    ({"share": "enough"}, "supported"),
    ({}, "not judged"),
]


def _loop(evidence):
    noise = None
    if evidence["share"] != "not measured":
        share = 0.98 if evidence["share"] == "enough" else 0.96
        measured = _epsilon(evidence["at measured noise"])
        noise = MeasuredNoise(share, 0.95, measured, 0.9, 100, 10)
    unseen = "a test" if evidence["doubt"] else ""
    observation = LoopObservation(
        (ObservedRun(),), (), (), 59, Neighbouring.ADD_REMOVE, influence=Influence(unseen=unseen)
    )
    objections = _findings(evidence["broken rule"])
    return _judged(
        _claim() if evidence["claim"] else None,
        partial(loop_evidence, observation, objections, noise, evidence["strict"]),
        _row("loop", _epsilon(evidence["theory"]), _epsilon(evidence["at 95 %"])),
        _epsilon(evidence["proven"]),
    )


def test_loops():
    assert differing(LOOP_AXES, LOOP, _loop) == []


# Recorded federations

RECORDED_AXES = {
    "claim": (False, True),
    "unit": ("client", "not declared", "record"),
    "canaries": ("none", "below", "rounding", "above"),
    "release": ("none", "unclipped", "as claimed", "measured"),
    "proven": ("below", "rounding", "above"),
    "alarm": (False, True),
    "missing rounds": (False, True),
    "at most": ("below", "rounding", "above"),
    "doubt": ("none", "unsure", "alike"),
}
RECORDED = [
    ({"claim": False}, "no claim"),
    ({"unit": ("record", "not declared")}, "not judged"),
    ({"canaries": ("rounding", "above")}, "convicted"),
    ({"release": ("none", "unclipped")}, "not judged"),
    ({"proven": ("rounding", "above")}, "convicted"),
    ({"alarm": True}, "suspect"),
    ({"missing rounds": True}, "not judged"),
    ({"at most": ("below", "rounding"), "doubt": "none"}, "supported"),
    ({"at most": ("below", "rounding")}, "not judged"),
    ({"release": "as claimed"}, "suspect"),
    ({"release": "measured"}, "not judged"),
]


def _recorded(evidence):
    kind = evidence["release"]
    measurable = kind in ("as claimed", "measured")
    measured = MeasuredRounds(
        views=[],
        release=SimpleNamespace(noise=kind, clients=[]) if measurable else None,
        at_most=_epsilon(evidence["at most"]),
        unmeasured="" if measurable else "nothing was recorded",
        doubts=[] if evidence["doubt"] == "none" else [evidence["doubt"]],
    )
    missing = "rounds are missing" if evidence["missing rounds"] else ""
    unit = None if evidence["unit"] == "not declared" else evidence["unit"]
    proven = _epsilon(evidence["proven"]) if measurable else 0.0
    return _judged(
        _claim(unit) if evidence["claim"] else None,
        partial(audit.recorded_evidence, measured, evidence["alarm"], missing, {}),
        None,
        max(proven, _epsilon_or_none(evidence["canaries"]) or 0.0),
    )


def _epsilon_or_none(size):
    return None if size not in SIZES else _epsilon(size)


def test_recorded_federations():
    assert differing(RECORDED_AXES, RECORDED, _recorded) == []


# Federations that an auditor's node follows

LIVE_AXES = {
    "claim": (False, True),
    "round seen": (False, True),
    "unit": ("not given", "the run's", "another"),
    "alarm": (False, True),
    "no guarantee": (False, True),
    "theory": ("below", "rounding", "above", "infinite"),
    "ended": (False, True),
    "trials missed": (False, True),
    "could be refuted": (False, True),
}
LIVE = [
    ({"claim": False}, "no claim"),
    ({"round seen": False}, "not judged"),
    ({"unit": "another"}, "not judged"),
    ({"alarm": True}, "suspect"),
    ({"no guarantee": True}, "suspect"),
    ({"theory": ("above", "infinite")}, "suspect"),
    ({"ended": False}, "not judged"),
    ({"trials missed": True}, "not judged"),
    ({"could be refuted": False}, "not judged"),
    ({}, "supported"),  # it convicts nobody
]


def _live(evidence, protecting, failing, mechanism):
    config = failing if evidence["no guarantee"] else protecting
    audit = SimpleNamespace(
        config=config if evidence["round seen"] else None,
        everything=lambda: mechanism,
        trials=config.trials.count - evidence["trials missed"],
    )
    unit = {"not given": None, "the run's": "record", "another": "client"}[evidence["unit"]]
    alarms = _findings(evidence["alarm"])
    unable = [] if evidence["could be refuted"] else ["nothing was measured"]

    def found(claim, row):
        return live_report.live_evidence(audit, claim, alarms, unable, evidence["ended"])

    return _judged(_claim(unit) if evidence["claim"] else None, found, None)


def test_live_federations(small, monkeypatch):
    protecting = small({"federation.trust": "local", "privacy.noise-source": "system"})
    failing = small({"federation.trust": "local"})  # noise from the seed
    mechanism = Mechanism.alike(1.0, 3)

    def judged(evidence):
        # Theory's epsilon, exactly as far from the claim as the table says.
        size = _epsilon(evidence["theory"])
        monkeypatch.setattr(PLD.__class__, "epsilon", lambda *_: size)
        return _live(evidence, protecting, failing, mechanism)

    assert differing(LIVE_AXES, LIVE, judged) == []


# Runs, vantage by vantage

RUN_AXES = {
    "alarm": ("none", "advantage here", "advantage elsewhere", "noise"),
    "audited here": (False, True),
    "limit": (0.3, 1.0),
    "epsilon": (2.0, math.inf),
    "interval": (None, (0.1, 0.2), (0.2, 0.4), (0.4, 0.5), (0.1, 0.3), (0.3, 0.5)),
    "exact posterior": (False, True),
}
AT_OR_ABOVE = ((0.2, 0.4), (0.1, 0.3), (0.3, 0.5))
RUN = [
    ({"alarm": "advantage here"}, "contradicted"),
    ({"alarm": "noise", "audited here": True}, "contradicted"),
    ({"limit": 1.0}, "no-limit"),
    # Sampling alone limits this observer: no noise hides a sampled record from it.
    ({"epsilon": math.inf}, "no-limit"),
    ({"interval": (None,)}, "not-measured"),
    ({"interval": ((0.4, 0.5),)}, "above-by-chance"),
    ({"interval": AT_OR_ABOVE}, "agrees"),
    ({"exact posterior": True}, "below"),
    ({}, "attack-below"),
]


def _run(evidence):
    alarms = {
        "none": [],
        "advantage here": ["advantage_participant"],
        "advantage elsewhere": ["advantage_released-model"],
        "noise": ["noise_of_sums"],
    }[evidence["alarm"]]
    vantage = "participant" if evidence["audited here"] else "server"
    attack = None
    if evidence["interval"] is not None:
        attack = SimpleNamespace(interval=evidence["interval"], best=evidence["exact posterior"])
    limit = Limit.of_epsilon(evidence["epsilon"], evidence["limit"], "theory")
    alarmed = rows.alarmed(dict.fromkeys(alarms, "why"), vantage, "participant")
    row = RunRow("participant", "not-measured", limit, attack, None, None, "")
    return standing(row, alarmed=alarmed)


def test_runs():
    assert differing(RUN_AXES, RUN, _run) == []


def test_an_alarm_without_a_claim_is_never_green():
    assert exit_status(Verdict.NO_CLAIM, False, alarms=1) == 4
    assert exit_status(Verdict.NO_CLAIM, True, alarms=1) == 4
    assert exit_status(Verdict.SUPPORTED, False, alarms=1) == 0  # theory counts what it names
