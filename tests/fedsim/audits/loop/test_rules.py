"""Rules on loops with Opacus: each mistake breaks its own rule and no other, right loops none."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from adversaries.statistics import gaussian
from fedsim.audits.loop.contract import loaded
from fedsim.audits.loop.running import Loop
from fedsim.audits.steps.noise import NoiseSums
from fedsim.audits.steps.rules import findings
from fedsim.audits.steps.theory import epsilon, mechanism
from fedsim.privacy.mechanism import Neighbouring

LOOPS = Path(__file__).parents[3] / "apps" / "loops" / "opacus_loops.py"

WRONG = {
    "weighted": "sampler",
    "fixed_batches": "sampler",
    "skipped_steps": "sampler",
    "hook_lost": "untold-steps",
    "hook_forgotten": "untold-steps",
    "step_without_noise": "untold-steps",
    "noise_decays_untold": "noise-norm",
    "per_layer_noise_of_one": "noise-norm",
    "per_layer_by_hand": "noise-norm",
    "noise_of_a_part": "realised-noise",
    "noise_of_a_mean": "realised-noise",
    "bias_without_noise": "realised-noise",
    "clip_after_average": "clipping",
    "adaptive": "adaptive-clipping",
    "median_norm": "adaptive-clipping",
    "no_noise": "no-noise",
    "constant_seed": "seeded-noise",
    "constant_noise_generator": "seeded-noise",
    "full_batch": "data-dependent-divisor",
    "standardised": "data-dependent-records",
    "running_mean": "unreleased-change",
    "layer_beside": "unreleased-change",
    "unnoised_gradient": "unreleased-change",
    "rate_by_loss": "unreleased-change",
    "divisor_of_the_batch": "data-dependent-divisor",
}

RIGHT = {
    "rebuilt": 5.707,  # all of its steps are composed, whatever its accountant counts
    "correct": 1.829,
    "by_hand": 1.829,
    "persistent": 5.707,
    "hook_kept": 1.829,
    "step_in_two": 1.829,
    "noise_decays": 1.992,
    "per_layer": 1.829,
    "scheduled_norm": 1.829,
    "secret_noise_generator": 1.829,
    "secure": 1.829,
    "split": 1.829,
    "frozen": 1.829,
    "weight_decay": 1.829,
    "averaged": None,
    "parts_of_a_batch": 1.829,
    "virtual_steps": 1.829,
    "small_batches": 1.122,
    "rate_changes": 1.368,
    "ghost": 1.829,
}
"""Epsilon by theory at delta = 1e-5; None where it cannot see what was averaged."""


# As in the process that an audit runs a loop in: a rule says once what Opacus says in every run.
pytestmark = pytest.mark.filterwarnings("ignore")


def broken(seen):
    return {each.rule for each in findings(seen) if each.breaks}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_breaks_its_own_rule_and_no_other(name, watch, observe):
    seen = observe(Loop(loaded(f"{LOOPS}:{name}"), watch))
    assert broken(seen) == {WRONG[name]}
    # What is broken is never more private than the same loop done right.
    found = epsilon(seen, 1e-5)
    if name == "bias_without_noise":
        assert found == math.inf
    assert found is None or found >= RIGHT["correct"] - 1e-3


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_loop_breaks_none_and_theory_knows_its_epsilon(name, watch, observe):
    seen = observe(Loop(loaded(f"{LOOPS}:{name}"), watch))
    assert broken(seen) == set()
    assert epsilon(seen, 1e-5) == (RIGHT[name] and pytest.approx(RIGHT[name], abs=1e-3))
    advice = {each.rule for each in findings(seen)}
    counted = {"rebuilt-accountant"} if name == "rebuilt" else set()
    assert advice == counted | (set() if name == "secure" else {"secure-noise"})


def test_too_little_noise_in_some_steps_is_an_alarm_though_all_together_have_enough(watch, observe):
    seen = observe(Loop(loaded(f"{LOOPS}:correct"), watch))

    def uneven(run):
        shares = (0.49, 2 - 0.49)  # of the energy, in turn
        steps = [
            replace(
                step, noise_energies=tuple(each * shares[place % 2] for each in step.noise_energies)
            )
            for place, step in enumerate(run.steps)
        ]
        return replace(run, steps=tuple(steps))

    changed = replace(seen, present=tuple(map(uneven, seen.present)), absent=(), more=NoiseSums())
    assert not changed.one_scale
    assert changed.noise_off is not None and changed.noise_off[0].startswith("in step")
    assert "realised-noise" in broken(changed)


def test_a_norm_that_stays_is_no_adaptive_clipping_where_the_multiplier_varies(
    watch,
    observe,
):
    seen = observe(Loop(loaded(f"{LOOPS}:correct"), watch))
    first, *others = seen.present
    louder = tuple(
        replace(step, noise_multiplier=2 * step.noise_multiplier) for step in first.steps
    )
    varied = replace(seen, present=(replace(first, steps=louder), *others))
    assert varied.varied == ("noise multiplier",)
    assert "adaptive-clipping" not in broken(varied)


def test_a_loop_that_keeps_records_by_chance_is_not_known(watch, observe):
    """Its divisor follows how many it kept, and so do its rate and number of steps."""
    seen = observe(Loop(loaded(f"{LOOPS}:kept_by_chance"), watch))
    assert epsilon(seen, 1e-5) is None
    assert mechanism(seen) is None


def test_a_full_batch_is_right_where_the_other_world_has_as_many_records(watch, observe):
    seen = observe(Loop(loaded(f"{LOOPS}:full_batch"), watch), Neighbouring.REPLACE)
    assert broken(seen) == set()
    assert epsilon(seen, 1e-5) is not None


def test_passes_over_the_data_that_are_cut_short_count_as_begun(watch, observe):
    """A record is in few of them by chance, and may be in all."""
    seen = observe(Loop(loaded(f"{LOOPS}:cut_short"), watch))
    passes = seen.present[0].epochs
    assert passes == 10
    drawn = Counter(member for each in seen.steps for member in each.members or ())
    assert max(drawn.values()) < passes
    assert epsilon(seen, 1e-5) == pytest.approx(
        gaussian.epsilon(math.sqrt(5 * passes) / 2.0, 1e-5), rel=1e-6
    )
