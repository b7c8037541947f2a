"""The verdict of a run: states and their order."""

import math

import pytest

from fedsim.audits.run import audit
from fedsim.audits.run.audited_run import AuditedRun

from .games import ROUNDS, TRIALS, gaussian_game

SETTING = {"training.rounds": ROUNDS, "privacy.delta": 0.01}


def _report(config, strength=1.0, trials=TRIALS, seed=0):
    """The report of a game; below 1 the worlds differ by less than clipping allows, and say so."""
    facts, transcript = gaussian_game(config, strength, seed, trials)
    transcript["sensitivities"] = transcript["sensitivities"] * min(1.0, strength)
    return audit.assemble(AuditedRun(config, facts, transcript, 0.95, config.privacy.delta))


def _towards(report, vantage):
    return report.rows[vantage]


@pytest.fixture
def of(small):
    """Return a function that makes a configuration of 30 rounds with so many trials."""

    def make(trials=TRIALS, **changes):
        over = {key.replace("__", ".").replace("_", "-"): value for key, value in changes.items()}
        return small(SETTING | {"trials.count": trials} | over)

    return make


# States


@pytest.mark.parametrize(
    ("strength", "trials", "state"),
    [
        (0.3, 2000, "below"),  # a record that the model hardly notices
        (0.3, 40, "agrees"),  # the same in too few trials
        (1.0, 2000, "agrees"),  # as much as theory allows
        (2.0, 2000, "contradicted"),  # under half the noise
    ],
)
def test_what_was_measured_is_below_the_limit_or_above_it_or_neither(strength, trials, state, of):
    found = _towards(_report(of(trials), strength, trials), "participant")
    assert found.standing == state
    assert found.attack is not None
    assert found.attack.interval is not None
    assert (found.attack.interval[1] < found.limit.rho_alpha) == (state == "below")


def test_a_vantage_without_noise_has_no_limit_and_one_that_nobody_measured_no_state(of):
    report = _report(of())
    server, released = _towards(report, "server"), _towards(report, "released-model")
    assert (server.standing, server.attack, server.limit.rho_alpha) == ("no-limit", None, 1)
    assert server.limit.epsilon == math.inf
    assert (released.standing, released.attack) == ("not-measured", None)
    assert released.limit.rho_alpha == _towards(report, "participant").limit.rho_alpha


# Order


@pytest.mark.parametrize(
    ("trust", "strength", "order"),
    [
        # Nothing hides the record from the server; the model shows no more than the rounds do.
        ("central", 1.0, ["server", "participant", "released-model"]),
        # An alarm comes first: whether any noise is as accounted is then in doubt.
        ("central", 2.0, ["participant", "server", "released-model"]),
        ("distributed", 1.0, ["participant", "released-model", "server"]),
        ("local", 1.0, ["server", "participant", "released-model"]),
    ],
)
def test_the_worst_vantage_comes_first(trust, strength, order, of):
    report = _report(of(federation__trust=trust), strength)
    assert [verdict.observer for verdict in report.rows.values()] == order
    limits = [
        verdict.limit.rho_alpha
        for verdict in report.rows.values()
        if verdict.standing != "contradicted"
    ]
    assert limits == sorted(limits, reverse=True)
