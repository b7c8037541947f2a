"""In the adversary's own game attacks by losses learn from half of the trials and play the rest."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from adversaries.attacks.membership_attacks import ATTACKS
from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.audits.measurements import membership_audit
from fedsim.audits.measurements.membership_audit import (
    decisions,
    observations,
    of_shadows,
    why_none,
)
from fedsim.audits.run import report as results
from fedsim.configuration import to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight, prepare
from fedsim.game import federation


def transcript_of(trials, gap, seed=0):
    """Losses of a challenge that is easier by `gap` deviations where it was trained on."""
    rng = np.random.default_rng(seed)
    worlds = rng.permutation(np.arange(trials) % 2 == 0)
    losses = np.logaddexp(0, -rng.normal(0, 1, trials) - gap * worlds)
    return {
        "worlds": worlds,
        "true_positive_rate": np.zeros(trials),
        "challenge_loss": losses,
        "population_losses": np.logaddexp(0, -rng.normal(0, 1, (trials, 32))),
    }


def played(config, transcript, confidence):
    chosen = config.challenge.kind, config.audit.attacks
    return membership_audit.attacks(*chosen, transcript, confidence)


def test_every_attack_that_needs_no_other_records_finds_a_plain_difference(small):
    found = played(small(), transcript_of(400, 2.0), 0.95)
    assert set(found) == set(ATTACKS) - {"yeom-mean"}
    for name, entry in found.items():
        low, high = entry.advantage_interval
        assert 0 < low <= entry.advantage <= high, name
        assert entry.advantage == pytest.approx(entry.tpr - entry.fpr), name


def test_nothing_is_found_where_there_is_nothing(small):
    found = played(small(), transcript_of(400, 0.0, seed=1), 0.999)
    for entry in found.values():
        assert entry.advantage_interval[0] <= 0 <= entry.advantage_interval[1]


def test_a_likelihood_ratio_wins_more_at_even_odds_than_where_few_shadows_say():
    attack, won = ATTACKS["lira"], []
    for seed in range(400):
        arrays = transcript_of(100, 0.3, seed)
        seen, shadows = observations(arrays), of_shadows(arrays["worlds"])
        worlds = arrays["worlds"][~shadows]
        assert seen is not None
        both = (
            decisions(each, seen, shadows)[1] for each in (attack, replace(attack, threshold=None))
        )
        won.append([called[worlds].mean() - called[~worlds].mean() for called in both])
    at_even_odds, learnt = np.mean(won, axis=0)
    assert at_even_odds > learnt > 0


def test_attacks_that_were_not_asked_for_are_not_played(small):
    config = small({"audit.attacks": "lira, rmia"})
    assert set(played(config, transcript_of(40, 1.0), 0.95)) == {"lira", "rmia"}
    assert played(small({"audit.attacks": "none"}), transcript_of(40, 1.0), 0.95) == {}


def test_a_transcript_without_losses_or_of_few_trials_still_reports(small):
    whole = transcript_of(40, 1.0)
    assert played(small(), {"worlds": whole["worlds"]}, 0.95) == {}
    assert played(small(), whole | {"worlds": np.ones(40, bool)}, 0.95) == {}
    assert played(small(), transcript_of(8, 1.0), 0.95) == {}
    del whole["population_losses"]
    assert set(played(small(), whole, 0.95)) == {"lira", "lira-offline"}


class Watching(InProcessGrid):
    """A grid that keeps every model that clients are sent."""

    def __init__(self, config):
        super().__init__(client_app.app, config.federation.clients, to_run_config(config))
        self.models: list[npt.NDArray[np.float32]] = []

    def execute(self, message):
        if messages.MODEL in message.content:
            model = messages.only(message.content.array_records[messages.MODEL]).copy()
            if not self.models or not np.array_equal(self.models[-1], model):
                self.models.append(model)
        return super().execute(message)


@pytest.mark.parametrize("mode", [pytest.param("participant", marks=pytest.mark.slow), "oracle"])
def test_a_run_records_the_challenges_loss_at_the_final_model(mode, small, tmp_path):
    config = small({"audit.mode": mode, "trials.count": 12, "trials.batch": 12})
    grid, directory = Watching(config), RunDirectory.create(tmp_path / "run", config)
    server_app.carry_out(grid, preflight(config), directory)
    transcript, facts = directory.read_arrays("transcript.npz"), directory.read_json("facts.json")
    known = federation.load(config)
    record = known.members(np.asarray([facts["challenge"]["record"]]))
    expected = known.evaluate(torch.tensor(grid.models[-1]), *record)[0][:, 0].numpy()
    np.testing.assert_array_equal(transcript["challenge_loss"], expected)
    non_members, _ = known.evaluate(torch.tensor(grid.models[-1]), *known.held_out())
    np.testing.assert_array_equal(transcript["population_losses"], non_members.numpy())
    seen = observations(transcript)
    assert seen is not None
    report = results.read(directory)
    assert {"yeom", "yeom-challenge", "lira", "rmia"} <= set(report.details.membership_inference)
    assert "LiRA, online" in (directory.path / "report.html").read_text()


@pytest.mark.slow
def test_without_attacks_a_run_records_no_losses(small, run):
    transcript = run(small({"audit.attacks": "none"}))
    assert not {"challenge_loss", "population_losses"} & set(transcript)


@pytest.mark.parametrize(
    ("attacks", "complaint"),
    [
        ("lyra", r"audit\.attacks is 'lyra'.*did you mean 'lira'"),
        ("lira, yeom-mean", "'yeom-mean', which compares .* every run reports as 'yeom'"),
    ],
)
def test_what_a_run_cannot_play_is_refused_before_anything_is_trained(attacks, complaint, small):
    with pytest.raises(InputError, match=complaint):
        prepare(small({"audit.attacks": attacks}))


def test_a_report_without_attacks_that_were_asked_for_says_why(small):
    few, plenty = transcript_of(8, 1.0), transcript_of(40, 1.0)
    assert "4 trials of a world are too few" in str(
        why_none(small().challenge.kind, small().audit.attacks, few)
    )
    without = {name: plenty[name] for name in ("worlds", "true_positive_rate")}
    assert "no finite losses" in str(
        why_none(small().challenge.kind, small().audit.attacks, without)
    )
    assert "protect their records" in str(
        why_none(small().challenge.kind, small().audit.attacks, {"worlds": plenty["worlds"]})
    )
    assert why_none(small().challenge.kind, small().audit.attacks, plenty) is None
    assert (
        why_none(
            small({"audit.attacks": "none"}).challenge.kind,
            small({"audit.attacks": "none"}).audit.attacks,
            few,
        )
        is None
    )
