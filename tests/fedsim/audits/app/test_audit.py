"""Apps with a mistake are convicted, by a rule and by an attack; their corrected twins are not."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from scipy.stats import binom

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.app.audit import audit
from fedsim.audits.app.execution import opened
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Claim, Verdict
from fedsim.audits.results.rows import Limit
from fedsim.privacy.mechanism import Neighbouring
from fedsim.reports.document import terminal
from fedsim.reports.document.wording import percent
from fedsim.reports.kinds import audited as words

APP = Path(__file__).parents[3] / "apps" / "dp_app"
FOUR_SIGMA = {"noise-multiplier": 4.0, "num-server-rounds": 2}
CLAIM = Claim(1.4, 1e-5, "given")
"""What two rounds at noise multiplier 4 just keep: epsilon 1.356."""


def audited(
    variant, config, claim=CLAIM, trials=40, clients=3, seed=0, neighbouring=Neighbouring.ADD_REMOVE
):
    return _audited(variant, tuple(config.items()), claim, trials, clients, seed, neighbouring)


@cache
def _audited(variant, config, claim, trials, clients, seed, neighbouring):
    overrides = {"variant": variant, "clients": clients, **dict(config)}
    with opened(APP, clients, overrides) as app:
        return audit(app, trials=trials, seed=seed, claim=claim, neighbouring=neighbouring)


MISTAKES = {
    "weighted-average": ("weighted", FOUR_SIGMA, CLAIM),
    "realised-noise": ("noise-too-small", FOUR_SIGMA, CLAIM),
    "sampled-clients": ("too-many-clients", FOUR_SIGMA, CLAIM),
    "client-clipping": ("client-unclipped", FOUR_SIGMA, CLAIM),
    "seeded-noise": ("seeded", FOUR_SIGMA, CLAIM),
    "no-noise": ("none", FOUR_SIGMA, replace(CLAIM, unit="client")),
}
"""Apps by the rule that names their mistake."""

QUICK = ("realised-noise", "client-clipping")  # of a server and of a client; the others are slow


@pytest.mark.parametrize(
    "rule",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MISTAKES],
)
def test_a_mistake_is_convicted_by_its_rule_and_by_the_attack(rule):
    variant, config, claim = MISTAKES[rule]
    # Where the noise is not Flower's, counting alone convicts, and takes more trials.
    trials = 200 if rule == "realised-noise" else 120
    outcome = audited(variant, config, claim, trials)
    assert outcome.verdict is Verdict.CONVICTED
    assert rule in [finding.rule for finding in outcome.findings if finding.breaks]
    assert outcome.claim.epsilon < outcome.row.attack.proven <= (outcome.epsilon or math.inf)


SUPPORTED, NOT_JUDGED, SUSPECT = Verdict.SUPPORTED, Verdict.NOT_JUDGED, Verdict.SUSPECT
TRUE, LOOSE = 1.4, 40.0
"""Claims above the epsilon of two rounds as configured, and above nearly all."""

VERDICTS = {
    ("uniform", TRUE): SUPPORTED,
    ("client-fixed", TRUE): SUPPORTED,
    ("accountant-kept", TRUE): SUPPORTED,
    ("accountant-rebuilt", TRUE): SUPPORTED,  # what its accountant says is not the claim
    ("accountant-and-local", TRUE): SUPPORTED,
    ("own-start", TRUE): SUPPORTED,
    ("weighted", LOOSE): SUPPORTED,  # its epsilon counts the largest weight
    ("too-many-clients", LOOSE): SUPPORTED,
    ("uniform", 1.3): SUSPECT,
    ("accountant-kept", 1.3): SUSPECT,
    ("noise-but-first", LOOSE): SUSPECT,
    ("noise-repeated", LOOSE): SUSPECT,
    ("noise-too-small", LOOSE): SUSPECT,
    ("own-start-quiet", LOOSE): SUSPECT,
    ("client-unclipped", LOOSE): Verdict.CONVICTED,  # its update moves the model a thousandfold
    ("seeded", LOOSE): SUSPECT,
    ("noise-renamed", TRUE): NOT_JUDGED,
    ("sent-moved", LOOSE): NOT_JUDGED,
    ("sent-without-noise", LOOSE): NOT_JUDGED,
    ("noise-none-at-first", LOOSE): SUSPECT,
    ("noise-lowered", LOOSE): SUPPORTED,  # as configured in all rounds
    ("adaptive", LOOSE): NOT_JUDGED,
    ("server-adam", LOOSE): NOT_JUDGED,
    ("local-dp", LOOSE): NOT_JUDGED,
    ("own-clipping", LOOSE): NOT_JUDGED,
    ("own-adam", LOOSE): NOT_JUDGED,
}
"""Verdicts of apps on claims that few trials cannot refute."""


@pytest.mark.parametrize(("variant", "epsilon"), VERDICTS)
def test_theory_and_the_honest_run_judge_what_the_attack_cannot(variant, epsilon):
    outcome = audited(variant, FOUR_SIGMA, Claim(epsilon, 1e-5, "given", unit="client"), trials=20)
    expected = VERDICTS[variant, epsilon]
    assert outcome.verdict is expected
    alarms = [each.rule for each in outcome.findings if each.breaks]
    assert expected is not NOT_JUDGED or alarms == []
    if expected is SUPPORTED:
        assert outcome.row.attack.epsilon_at_least <= outcome.epsilon <= epsilon
    elif expected is NOT_JUDGED and outcome.epsilon is None:
        assert "what audits judge: FedAvg" in outcome.reasons[0] or variant == "local-dp"
    if variant.startswith("sent-"):
        assert "the server changed it in between" in outcome.reasons[0]
    if variant == "noise-renamed":
        assert "the training's own code" in outcome.reasons[0]


def test_a_verdict_says_which_shortfall_of_the_noise_it_would_have_noticed():
    watched, own = audited("uniform", FOUR_SIGMA), audited("own-clipping", FOUR_SIGMA)
    assert 0.8 < watched.row.detects < 0.9  # noise on 650 numbers is measured
    assert own.row.detects == 0
    assert "% of the claimed noise were missing" in shown(watched)
    assert "Even if nearly all noise were missing" in shown(own)
    # What theory or the attack holds against a claim needs no power.
    off = audited("noise-too-small", FOUR_SIGMA, CLAIM)
    assert "were missing" not in shown(off)
    assert off.row.limit is None


def shown(outcome):
    """Return the result of an audit as a terminal shows it, in one line."""
    return " ".join(terminal.text([terminal.told(words.told(outcome), verbose=True)]).split())


def test_noise_that_the_app_lowers_in_every_round_is_convicted():
    outcome = audited("noise-lowered", FOUR_SIGMA | {"num-server-rounds": 3}, CLAIM)
    assert outcome.verdict is Verdict.CONVICTED


def test_rounds_of_several_strategies_are_refused_by_their_names():
    why = r"several strategies \(FedAvg, then DifferentialPrivacyServerSideFixedClipping > FedAvg\)"
    with pytest.raises(InputError, match=why):
        audited("private-at-last", FOUR_SIGMA)


@pytest.mark.slow
def test_an_attack_reads_the_models_that_clients_are_sent():
    sixteen = FOUR_SIGMA | {"num-server-rounds": 16}
    assert audited("sent-without-noise", sixteen, CLAIM, 200).verdict is Verdict.CONVICTED


@pytest.mark.slow
def test_a_strategy_of_ones_own_with_too_little_noise_is_convicted_by_the_attack():
    assert audited("own-quiet", FOUR_SIGMA, CLAIM, trials=200).verdict is Verdict.CONVICTED


def test_training_without_opacus_is_judged_for_updates_and_not_for_records():
    claim = Claim(0.4, 1e-5, "given", unit="record")
    outcome = audited("none", FOUR_SIGMA, claim, trials=60)
    assert outcome.verdict is Verdict.NOT_JUDGED
    assert "the claim is about a record" in outcome.reasons[0]
    # The page says why, and of what its numbers are: not that the claim holds out against them.
    page = words.page(words.told(outcome))
    assert "is not judged. Why: The claim is about a record" in page
    assert "is supported" not in page
    assert f">{percent((1 + outcome.row.advantage) / 2)} (" in page
    assert "<dt>detects</dt>" in page
    assert "The unit of privacy is all data of one client, a device or an organisation." in page
    assert [finding for finding in outcome.findings if finding.breaks] == []
    # Noise for records is none for a client's whole update.
    claim = replace(claim, unit="client")
    assert audited("none", FOUR_SIGMA, claim, trials=60).verdict is Verdict.CONVICTED


def test_noise_of_the_right_kind_but_too_little_for_the_claim_is_convicted():
    outcome = audited("uniform", {"noise-multiplier": 0.8, "num-server-rounds": 2}, trials=80)
    assert outcome.verdict is Verdict.CONVICTED
    assert [finding.rule for finding in outcome.findings] == [""]


@pytest.mark.slow
def test_a_conviction_takes_the_confidence_of_every_alarm():
    noisy = {"noise-multiplier": 1.0, "num-server-rounds": 2}
    outcome = audited("uniform", noisy, None, 80)
    likely, sure = outcome.row.attack.epsilon_at_least, outcome.row.attack.proven
    bounds = outcome.details.decisions.lower_bounds
    game = {name: bound.confidence for name, bound in bounds.items()}
    assert game == dict.fromkeys(game, pytest.approx(0.975))
    assert 0 < sure < likely
    between = audited("uniform", noisy, Claim((likely + sure) / 2, 1e-5, "given"), 80)
    assert between.verdict is Verdict.SUSPECT
    attack = between.report["rows"]["participant"]["attack"]
    assert (attack["epsilon_at_least"], attack["proven"]) == (likely, sure)
    below = audited("uniform", noisy, Claim(sure / 2, 1e-5, "given"), 80)
    assert below.verdict is Verdict.CONVICTED


def test_a_conviction_against_theory_is_said_to_contradict_it():
    outcome = audited("uniform", FOUR_SIGMA, CLAIM)
    assert words.CONTRADICTION not in words.told(outcome).answer
    # An attack that proves more than theory allows.
    disproved = replace(outcome, verdict=Verdict.CONVICTED)
    assert words.CONTRADICTION in words.told(disproved).answer
    # Where theory does not support the claim, or knows nothing, there is nothing to contradict.
    for limit in (Limit.of_epsilon(2 * CLAIM.epsilon, 1.0, "theory"), None):
        row = replace(outcome.row, limit=limit)
        unsupported = replace(disproved, rows={outcome.vantage: row})
        assert words.CONTRADICTION not in words.told(unsupported).answer


def test_without_a_claim_there_is_no_verdict_but_a_guarantee():
    outcome = audited("uniform", FOUR_SIGMA, None, trials=20)
    assert outcome.verdict is Verdict.NO_CLAIM
    assert outcome.epsilon == pytest.approx(gaussian.epsilon(math.sqrt(2) / 4, 1e-5))


@pytest.mark.slow
@pytest.mark.parametrize("neighbouring", list(Neighbouring))
@pytest.mark.parametrize("variant", ["uniform", "client-fixed", "weighted"])
def test_the_measured_advantage_is_the_predicted_one(variant, neighbouring):
    config = {"noise-multiplier": 1.0, "num-server-rounds": 1}
    outcome = audited(variant, config, CLAIM, trials=100, clients=2, neighbouring=neighbouring)
    assert 0.05 < outcome.row.predicted.advantage < 0.96
    low, high = outcome.row.interval
    # Four standard errors: no test among eight is to fail by chance.
    slack = (high - low) / 2
    assert low - slack <= outcome.row.predicted.advantage <= high + slack


def test_an_audit_can_be_repeated():
    said = []
    for seed in (3, 3, 4):
        _audited.cache_clear()
        outcome = audited("uniform", FOUR_SIGMA, trials=20, seed=seed)
        said.append(json.dumps(outcome.report, allow_nan=False))
    first, second, other = said
    assert first == second
    assert first != other


def test_an_app_that_fails_and_few_trials_are_no_verdict():
    with pytest.raises(InputError, match="at least 20"):
        audited("uniform", FOUR_SIGMA, trials=5)
    with pytest.raises(AppFailedError, match="variant is 'nonsense'"):
        audited("nonsense", FOUR_SIGMA, trials=20)


def test_an_app_that_waits_for_more_clients_says_so(monkeypatch):
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: None)
    config = {"clients": 4.0}
    with (
        opened(APP, 2, {"variant": "uniform", **config}) as app,
        pytest.raises(AppFailedError, match="larger --clients"),
    ):
        audit(app, trials=20, seed=0)


@pytest.mark.slow
def test_an_honest_app_is_convicted_no_more_often_than_the_confidence_allows():
    # The claim is what theory gives, so that there is no slack between it and the truth.
    config = {"noise-multiplier": 1.0, "num-server-rounds": 1}
    audits, likely, convicted = 30, 0, 0
    with opened(APP, 2, {"variant": "uniform", "clients": 2, **config}) as app:
        honest = audit(app, trials=20, seed=0)
        assert honest.epsilon is not None
        claim = Claim(honest.epsilon, honest.delta, "the truth")
        for seed in range(audits):
            outcome = audit(app, trials=40, seed=seed, claim=claim, confidence=0.95)
            likely += outcome.row.attack.epsilon_at_least > honest.epsilon
            convicted += outcome.verdict is Verdict.CONVICTED
    assert likely <= binom.ppf(0.9999, audits, 0.05)
    assert convicted <= binom.ppf(0.9999, audits, 1 - ALARM_CONFIDENCE)
