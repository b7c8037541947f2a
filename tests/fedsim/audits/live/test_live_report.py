"""A live report says what was seen, and cries alarm where there is less noise than claimed."""

import json
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Claim, judge
from fedsim.audits.live import live_report
from fedsim.audits.live.live_audit import LiveAudit, Look
from fedsim.federation.runtimes.inprocess import RUN_ID
from fedsim.federation.transcripts import reader
from fedsim.federation.transcripts.records import AUDITOR, TranscriptFacts
from fedsim.game.canary import Canaries
from fedsim.reports.document import terminal
from fedsim.reports.kinds import audited as words
from fedsim.reports.kinds import course
from tests.auditors_node import run_with_auditor

FACTS = TranscriptFacts("auditor", AUDITOR, "fedsim", run="1 <b>")


def _replay(audit, rounds):
    for each in rounds:
        audit.observe(each)


def _summary(report):
    """Return what the terminal shows of a report, in one line."""
    return " ".join(terminal.text([terminal.told(words.told(report))]).split())


def _recorded(config, tmp_path):
    """Return what an auditor was sent."""
    with patch("fedsim.reports.page.write_report"):
        run_with_auditor(config, tmp_path)
    return list(reader.read_transcript(tmp_path / "transcripts" / f"{RUN_ID}.fedt").rounds)


@pytest.fixture(scope="module")
def seen(small, tmp_path_factory):
    """60 trials of two rounds."""
    changes = {"trials.count": 60, "trials.batch": 60, "training.rounds": 2}
    config = small(changes | {"privacy.rho-beta": 0.9999, "privacy.sensitivity": "local"})
    return _recorded(config, tmp_path_factory.mktemp("seen"))


@pytest.fixture(scope="module")
def uneven(small, tmp_path_factory):
    """Two batches of trials under local trust, of which the second had half of the four clients."""
    config = small(
        {
            "federation.trust": "local",
            "federation.clients": 4,
            "federation.tolerated-dropouts": 2,
            "audit.mode": "oracle",
            "audit.vantages": "all",
            "trials.batch": 4,
        }
    )
    rounds = _recorded(config, tmp_path_factory.mktemp("uneven"))
    second = [each.mechanism["request.first-trial"] == 4 for each in rounds]
    return [
        replace(each, participants=(0, 1)) if cut else each
        for each, cut in zip(rounds, second, strict=True)
    ]


def _report(rounds):
    audit = LiveAudit()
    _replay(audit, rounds)
    return live_report.assemble(audit, FACTS, 0.95)


@pytest.mark.parametrize("value", ["0", 0.5, True, None, [0], b"0"])
@pytest.mark.parametrize("name", ["first-trial", "earlier", "noise-multiplier"])
def test_a_request_of_another_type_is_one_line(name, value, seen):
    rounds = seen
    changed = replace(rounds[0], mechanism={**rounds[0].mechanism, f"request.{name}": value})
    if name == "noise-multiplier" and value == 0.5:
        LiveAudit().observe(changed)
        return
    with pytest.raises(InputError, match="was not recorded by an auditor's node"):
        LiveAudit().observe(changed)


def test_nothing_seen_is_said_so():
    report = live_report.assemble(LiveAudit(), FACTS, 0.95)
    said = "The auditor has not yet seen a whole round."
    assert words.told(report).answer == ["Cannot tell.", said]
    assert report.details.belief is None
    assert "1 &lt;b&gt;" in words.page(words.told(report))


def test_honest_noise_raises_no_alarm_and_is_bounded(seen):
    report = _report(seen)
    assert report.alarms == 0
    # rho-beta is the configuration's own target, for the noise of all rounds.
    row = report.row
    assert row.limit.rho_beta == pytest.approx(0.9999, abs=1e-5)
    assert row.attack.interval is None
    page = words.page(words.told(report))
    assert "1 &lt;b&gt;" in page
    assert "1 <b>" not in page
    json.dumps(report.report, allow_nan=False)


def test_the_bounds_are_those_of_the_batch_with_the_least_noise(uneven):
    rounds = uneven
    audit = LiveAudit()
    _replay(audit, rounds)
    whole, half = (audit.beliefs[first][-1] for first in (0, 4))
    # Half of the clients' noise is missing: sqrt(2) times the signal-to-noise ratio.
    nominal = float(rounds[0].mechanism["request.noise-multiplier"])
    mu = np.sqrt(3 / (2 * nominal**2))
    assert audit.config is not None
    expected = gaussian.epsilon(mu, audit.config.privacy.delta)
    assert half.epsilon == pytest.approx(expected, rel=0.01)
    assert half.epsilon > 1.3 * whole.epsilon
    bounds = live_report.assemble(audit, FACTS, 0.95).row.limit
    assert bounds is not None
    assert bounds.epsilon == pytest.approx(half.epsilon, rel=1e-9)
    assert bounds.rho_beta == pytest.approx(half.rho_beta, rel=1e-9)
    assert bounds.rho_alpha == pytest.approx(gaussian.advantage(mu), rel=0.01)
    assert bounds.noise_multiplier == pytest.approx(nominal * np.sqrt(2))


@pytest.mark.parametrize(("count", "lacking"), [(20, "8 of 20 trials were observed"), (8, "")])
def test_a_run_is_judged_only_if_all_its_trials_were_observed(uneven, count, lacking):
    audit = LiveAudit(challenge=False)
    _replay(audit, uneven)
    assert audit.config is not None
    trials = audit.config.trials.model_copy(update={"count": count})
    privacy = audit.config.privacy.model_copy(update={"noise_source": "system"})
    mode = audit.config.audit.model_copy(update={"mode": "participant"})
    changes = {"trials": trials, "privacy": privacy, "audit": mode}
    audit.config = audit.config.model_copy(update=changes)
    claim = Claim(100, 1e-3, "a test")
    found = judge(claim, live_report.live_evidence(audit, claim, [], [], ended=True))
    assert found.verdict == ("not judged" if lacking else "supported"), found.reasons
    assert "".join(found.reasons).startswith(lacking)


def test_the_noise_that_canaries_face_is_that_of_the_batch_with_the_least(uneven):
    rounds = uneven
    audit = LiveAudit(planted=[Canaries(11)], challenge=False)
    _replay(audit, rounds)
    nominal = float(rounds[0].mechanism["request.noise-multiplier"])
    assert audit.canaries is not None
    rounds_seen = len(rounds) // 2 - 1
    expected = np.sqrt(rounds_seen) / (nominal * np.sqrt(2))
    assert audit.canaries.prediction() == pytest.approx(expected)


def test_canaries_too_few_to_measure_are_said_to_be(uneven, monkeypatch):
    audit = LiveAudit(planted=[Canaries(11)], challenge=False)
    monkeypatch.setattr(Canaries, "coins", lambda _, trials: np.ones((len(trials), 1), bool))
    _replay(audit, uneven)
    said = words.told(live_report.assemble(audit, FACTS, 0.95)).answer
    why = "Canaries measured nothing yet: fewer than two rounds on one side of the coin."
    assert said == ["Limited by theory.", why]


def test_nobody_says_who_was_right(seen):
    report = _report(seen)
    assert report.row.attack.interval is None
    assert "of 2, 0 missed" in _summary(report)
    assert words.every_audit.mark(report, report.row).text == "Cannot tell"
    assert "does not know which trials used the record" in words.decisions(report)[0]


def test_noise_below_the_claim_contradicts_theory_at_that_round():
    look = Look(range(1), 1, 1.0, 0.9, 0, noise_at_most={"sum": 1.3})
    assert course.so_far(look).text == "Agrees with theory"
    assert course.so_far(replace(look, noise_at_most={"sum": 0.8})).text == "Contradicted"
    assert course.so_far(replace(look, noise_at_most={})).text == "Limited by theory"
