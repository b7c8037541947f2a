"""Training functions in both worlds: wrong ones are convicted, right ones are not accused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adversaries.errors import InputError
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Claim, Verdict
from fedsim.audits.loop.audit import audit_loop, judged, measure
from fedsim.audits.loop.contract import drawn, loaded
from fedsim.audits.loop.running import Loop, LoopOrder, opened
from fedsim.reports.kinds import audited as words
from tests.console import run

LOOPS = Path(__file__).parents[3] / "apps" / "loops"
OWN, OPACUS = LOOPS / "own_loops.py", LOOPS / "opacus_loops.py"
SMALL, RETURNED = LOOPS / "small_loops.py", LOOPS / "returned_loops.py"
NETWORKS = LOOPS / "own_networks.py"


def outcome(loop, epsilon=None, trials=200, **how):
    claim = None if epsilon is None else Claim(epsilon, 1e-5, "given")
    return audit_loop(loop, claim=claim, trials=trials, **how)


def measured(loop, trials=20, records=59, target="real"):
    """Return what the runs of a loop on few features show, and its own claim."""
    order = LoopOrder(loop, "breast-cancer", records, target, "add-remove", 0)
    with opened(order) as lent:
        return measure(lent, order, trials, None, 0.95)


def rules(found):
    return {each.rule for each in found.findings if each.breaks}


@pytest.mark.slow
def test_own_code_that_leaks_is_convicted_by_the_attack_alone():
    for name, records in (("clip_after_average", 64), ("data_dependent_noise", 16)):
        found = outcome(f"{OWN}:{name}", 1.0, records=records)
        assert (found.verdict, name) == (Verdict.CONVICTED, name)
        assert found.row.attack.proven > 1


@pytest.mark.slow
def test_one_step_without_noise_and_noise_of_one_seed_are_found():
    found = outcome(f"{OWN}:last_step_naked", 0.5, trials=300)
    assert found.verdict is Verdict.CONVICTED
    found = outcome(f"{OWN}:few_numbers_of_one_seed", 2.0, trials=60)
    assert "seeded-noise" in rules(found)


@pytest.mark.slow
def test_own_code_that_is_right_is_not_judged_with_the_reason():
    found = outcome(f"{OWN}:correct", 1.0)
    assert found.verdict is Verdict.NOT_JUDGED
    assert "Opacus" in found.reasons[0]
    assert found.row.attack.epsilon_at_least < 1


@pytest.mark.slow
def test_opacus_as_its_pages_say_is_supported_and_the_divisor_of_another_size_is_not():
    right, wrong = (outcome(f"{OPACUS}:correct", trials=40, records=n) for n in (63, 64))
    assert (right.verdict, rules(right)) == (Verdict.SUPPORTED, set())
    assert right.claim is not None
    assert right.claim.epsilon == pytest.approx(right.epsilon, rel=0.3)
    assert "trade_off" in right.details.decisions.lower_bounds
    assert "trade_off" not in wrong.details.decisions.lower_bounds
    assert "data-dependent-divisor" in rules(wrong)
    assert wrong.verdict in (Verdict.CONVICTED, Verdict.SUSPECT)


@pytest.mark.slow
def test_a_claim_with_room_for_a_mistake_is_not_supported_by_it():
    """Half of the noise is still private at 8: so says theory, and a gate is to go red."""
    found = outcome(f"{OPACUS}:noise_at_50", 8.0, trials=40, records=63)
    assert found.epsilon is not None
    assert found.epsilon < 8
    assert (found.verdict, rules(found), found.alarms) == (
        Verdict.SUSPECT, {"realised-noise"}, 1
    )  # fmt: skip
    assert found.report["alarms"] == 1


@pytest.mark.slow
def test_a_claim_of_a_small_model_is_supported_by_the_noise_that_was_measured():
    (right, claim), (less, less_claim) = (
        measured(f"{SMALL}:parameters_7_noise_at_{share}") for share in (100, 80)
    )
    assert all(found.observation.noise.enough(0.95) for found in (right, less))
    assert claim is not None
    supported = judged(right, claim)
    assert supported.verdict is Verdict.SUPPORTED
    noise, theory = supported.details.noise, supported.epsilon
    assert claim.epsilon > noise.epsilon > theory
    assert f"noise at least {noise.at_least:.1%}" in supported.reasons[0]
    assert supported.row.detects > 0.9
    suspect = judged(less, less_claim)
    assert (suspect.verdict, rules(suspect)) == (Verdict.SUSPECT, {"realised-noise"})
    assert "the least noise that was measured in the model, over all steps" in words.page(
        words.told(suspect)
    )
    assert suspect.row.limit is not None and suspect.row.limit.source == "measured"
    # A claim of exactly what theory says has no room for the measurement, and is right.
    exact = replace(claim, epsilon=theory)
    assert judged(right, exact).verdict is Verdict.SUPPORTED
    assert f"epsilon is {noise.epsilon:.4g}" in judged(right, exact).reasons[0]


@pytest.mark.slow
def test_a_lower_bound_above_the_claim_makes_it_suspect_with_both_numbers():
    found, _ = measured(f"{OWN}:no_clipping", 200, 63, "crafted")
    likely, sure = (
        max(each.epsilon for each in found.bounds(level).values()) for level in (0.95, 0.9999)
    )
    claim = Claim(likely - 0.01, 1e-5, "given")
    above = judged(found, claim)
    assert sure < claim.epsilon
    assert above.verdict is Verdict.SUSPECT
    assert above.reasons == (
        f"the attack measured epsilon of at least {likely:.3g}, above the "
        f"claimed {claim.epsilon:.3g}, with 95% confidence",
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batch_clipping", "noise_before_clipping"])
def test_the_first_network_does_not_hide_the_target(name):
    """Drawn anew in every run, it left an advantage of .455 and .865, and no conviction."""
    found = outcome(f"{NETWORKS}:{name}", 2.2, trials=400)
    assert found.verdict is Verdict.CONVICTED
    assert found.row.advantage > 0.9


@pytest.mark.long
@pytest.mark.slow
def test_an_engine_of_every_round_is_convicted_and_one_for_all_is_not():
    wrong, right = (
        outcome(f"{OPACUS}:{name}", trials=trials, records=63)
        for name, trials in (("rebuilt", 800), ("persistent", 40))
    )
    assert (wrong.verdict, rules(wrong)) == (Verdict.CONVICTED, {""})
    assert wrong.row.attack.estimator == "trade_off"
    assert wrong.epsilon is not None
    assert wrong.claim is not None
    assert wrong.claim.epsilon < wrong.row.attack.proven < wrong.epsilon
    assert (right.verdict, rules(right)) == (Verdict.SUPPORTED, set())
    assert right.epsilon == wrong.epsilon


@pytest.mark.slow
def test_a_loop_that_sets_its_own_seed_hides_nothing(tmp_path):
    (tmp_path / "seeded.py").write_text(
        "import numpy as np\n"
        "def train(features, labels, seed):\n"
        "    noise = np.random.default_rng(7).standard_normal(64)\n"
        "    return np.asarray(features).reshape(len(labels), -1).sum(0) + noise\n"
    )
    found = outcome(f"{tmp_path / 'seeded.py'}:train", 1.0)
    assert found.verdict is Verdict.CONVICTED
    assert "seeded-noise" in rules(found)


@pytest.mark.slow
def test_randomized_response_repeats_its_outputs_and_is_not_accused(tmp_path):
    """Exactly: one bit that tells whether the rarest label is there, kept with e/(1 + e)."""
    (tmp_path / "response.py").write_text(
        "import numpy as np\n"
        "def train(features, labels, seed):\n"
        "    bit = len(labels) == 59\n"
        "    kept = np.random.default_rng(seed).random() < np.e / (1 + np.e)\n"
        "    return np.array([float(bit == kept)])\n"
    )
    found = outcome(f"{tmp_path / 'response.py'}:train", 1.0, trials=100)
    assert (found.verdict, rules(found)) == (Verdict.NOT_JUDGED, set())


@pytest.mark.slow
def test_what_cannot_be_audited_is_said_in_one_line(tmp_path, watch):
    (tmp_path / "odd.py").write_text(
        "def two(features, labels): ...\n"
        "def nothing(features, labels, seed): ...\n"
        "def fails(features, labels, seed): raise KeyError('x')\n"
        "def more(features, labels, seed): return {'loss': 0.3}\n"
    )
    odd = tmp_path / "odd.py"
    for name, why in (("two", "features, labels, seed"), ("none", "imported")):
        with pytest.raises(InputError, match=why):
            loaded(f"{odd}:{name}")
    for name, why in (("nothing", "returned nothing"), ("more", "return the model alone")):
        with pytest.raises(AppFailedError, match=why):
            Loop(loaded(f"{odd}:{name}"), watch).released(drawn("digits", 3, 0), 0)
    with pytest.raises(AppFailedError, match=r"KeyError: .x. \(its data were .*--data"):
        outcome(f"{odd}:fails")
    with pytest.raises(InputError, match="from 0 to"):
        outcome(f"{odd}:fails", seed=-1)
    with pytest.raises(InputError, match="at most"):
        drawn("digits", 10**6, 0)


def test_the_command_says_the_verdict_by_its_exit_status_and_leaves_a_page(tmp_path):
    out = tmp_path / "audit"
    claim = "--claimed-epsilon 1 --claimed-delta 1e-5"
    result = run(f"audit {OWN}:no_clipping {claim} --trials 100 --out {out}")
    assert (result.exit_code, "is refuted" in result.stdout) == (4, True)
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert (report["verdict"], report["claim"]["source"]) == ("convicted", "given")
    proven = f"at least {report['rows']['loop']['attack']['proven']:.3g} (99.99% confidence)"
    assert (report["alarms"], proven in report["findings"][-1]["why"]) == (1, True)
    assert "audit of a training loop" in (out / "report.html").read_text(encoding="utf-8").lower()
    result = run(f"audit {OWN}:correct --trials 40 --strict --json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (3, "no claim")


@pytest.mark.slow
def test_models_of_several_steps_are_refused_with_what_to_return_instead():
    result = run(f"audit {RETURNED}:lists_noise_400 --data breast-cancer --trials 20")
    assert result.exit_code == 1
    assert "every released step as an array [k, P]" in result.stderr
