"""A guarantee speaks of everything that was released, and never of one training of several."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fedsim.audits.run import guarantee
from fedsim.configuration.files import load
from fedsim.deployment import kit
from fedsim.federation.client import admission
from fedsim.federation.runs import ledger, run_transcript, spending
from fedsim.federation.runs.batches import Batches
from fedsim.game.mechanisms import privacy
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust import Vantage
from fedsim.reports.document import terminal
from fedsim.reports.sections import first

SYSTEM = {"privacy.noise-source": "system"}
CAMPAIGN = SYSTEM | {"trials.count": 400, "training.rounds": 30, "privacy.delta": 0.001}


def of(config, vantage=None):
    nominal = privacy.noise_multiplier(config)
    everything = spending.describe_everything(config, nominal, [])
    training = privacy.describe(config, nominal)
    trainings, delta = config.trials.count, config.privacy.delta
    return guarantee.of(config, training, everything, trainings, delta, vantage)


def test_four_hundred_trainings_of_the_same_people_are_no_release_of_one(small):
    found = of(small(CAMPAIGN))
    assert found.given
    assert found.released is not None
    assert found.released.epsilon == pytest.approx(157.09, abs=0.01)
    assert found.released.epsilon_of_one_training == pytest.approx(2.1972, abs=1e-4)
    assert found.released.rounds == 12_000
    assert "400 trainings together released everything: epsilon 157.1 at delta 0.001" in found.note
    assert "it is not a guarantee" in found.note
    alone = of(small(CAMPAIGN | {"trials.count": 1}))
    assert "One training released everything: epsilon 2.197 at delta 0.001" in alone.note


def test_nothing_is_guaranteed_by_noise_from_the_seed_or_where_there_is_none(small):
    seed = of(small())
    assert (seed.given, seed.released) == (False, None)
    bare = of(small(SYSTEM), Vantage.SERVER)
    assert not bare.given
    assert bare.note == "Epsilon is infinite towards this vantage."


@pytest.mark.source
def test_the_example_of_a_deployment_keeps_its_budget_and_that_of_a_kits_client(tmp_path):
    config = load(Path(__file__).parents[4] / "configs" / "deployment.toml")
    found, nominal = of(config), privacy.noise_multiplier(config)
    assert found.given
    assert found.released is not None
    assert found.released.trainings == 1
    assert found.released.epsilon <= config.privacy.stop_at
    assert spending.planned_rounds(Batches(config), nominal) == config.training.rounds
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 1, 2, superlink_port=2)
    limits = tomllib.loads((tmp_path / "kit" / "clients" / "client-0" / "node.toml").read_text())
    assert config.trials.count <= limits["max-trials"]
    one = admission.released(config, nominal, config.trials.count)
    charged = Mechanism((replace(one, count=config.training.rounds),), config.privacy.neighbouring)
    assert PLD.epsilon(charged, limits["delta-limit"]) <= limits["epsilon-limit"]


def test_a_run_of_clients_who_protect_their_records_is_told_no_loss_of_any(
    small, tmp_path, reported
):
    one = {"trials.count": 1}
    local = {"federation.trust": "local", "federation.vantage": "server", "audit.attacks": "all"}
    config = small(SYSTEM | one | local)
    said = {"consent": "adversary,challenge", "epsilon-limit": 9.0}
    directory, written = reported(
        config, lambda node: said | {"state-path": str(tmp_path / f"state-{node}")}
    )
    events = (directory.path / "events.jsonl").read_text()
    assert '"uncompared": [0, 1, 2]' in events  # a digest of records would be one more release
    found = directory.read_arrays("transcript.npz")
    assert not {*run_transcript.LOSS_ATTACK, *run_transcript.LOSSES} & found.keys()
    assert written.details.membership_inference == {}
    console = Console(record=True, width=800)
    console.print(terminal.told(first.told(written, first.About()), verbose=True))
    page, shown = (directory.path / "report.html").read_text(), console.export_text()
    assert "so that they sent no losses" in page
    for text in (written.details.mechanism.dp_note, page, shown):
        assert guarantee.PLAYED in text
    assert "betray its members" not in page
    assert "Yeom" not in shown


@pytest.mark.parametrize("trials", [1, 8])
def test_the_report_of_a_real_run_states_everything_that_it_released(trials, small, reported):
    config = small(SYSTEM | {"trials.count": trials, "trials.batch": 4})
    directory, written = reported(config)
    expected = of(config).released
    assert expected is not None
    assert expected.vantages["server"] == math.inf
    assert written.details.released == expected
    rows = ledger.read(directory)
    replayed = spending.describe_everything(config, 0.0, rows).towards(Vantage.PARTICIPANT)
    assert PLD.epsilon(replayed, config.privacy.delta) == expected.epsilon
    console = Console(record=True, width=400)
    console.print(terminal.told(first.told(written, first.About())))
    page = (directory.path / "report.html").read_text()
    for text in (console.export_text(), page):
        assert f"everything released, by {'all 8' if trials > 1 else 'the one'} training" in text
        assert ("8 models of these people were released" in text) == (trials > 1)
