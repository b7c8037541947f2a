"""An auditor's node records what every client is sent, and beliefs follow from the recording."""

import numpy as np
import pytest

from adversaries.attacks.posterior import log_odds
from adversaries.errors import InputError
from fedsim.audits.live import live_report
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.run import report as results
from fedsim.federation.client import client_ledger
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import RUN_ID
from fedsim.federation.server import acceptance
from fedsim.federation.transcripts import reader
from fedsim.game.canary import Canaries
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust import Vantage
from tests.auditors_node import run_with_auditor


def replayed(audit, rounds):
    """Let the audit take in all rounds; return its beliefs."""
    looks = [audit.observe(each) for each in rounds]
    return [look for look in looks if look is not None and look.log_odds.size]


def _audited(config, folder, node_config=None, run_id=RUN_ID):
    """Run with an auditor beside the clients, whose first node has `node_config` besides.

    run_id: as Flower has it, which numbers a continued run anew.
    """
    directory = run_with_auditor(config, folder, node_config, run_id)
    recorded = reader.read_transcript(folder / "transcripts" / f"{run_id}.fedt")
    return directory.read_arrays("transcript.npz"), recorded, directory


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_under_central_trust_an_auditor_believes_what_a_participant_does(
    unit, neighbouring, small, tmp_path
):
    config = small({"privacy.unit": unit, "privacy.neighbouring": neighbouring, "trials.batch": 4})
    found, recorded, _ = _audited(config, tmp_path)
    audit = LiveAudit()
    replayed(audit, recorded.rounds)
    heard = np.concatenate(
        [np.stack([each.log_odds for each in audit.beliefs[first]], axis=1) for first in (0, 4)]
    )
    np.testing.assert_allclose(heard, found["log_odds"], rtol=0, atol=1e-6)
    assert recorded.ended


class Killed(BaseException):
    """What a signal does, in a test."""


@pytest.mark.slow
@pytest.mark.parametrize("batch", [8, 4], ids=["the only batch of trials", "the second of two"])
def test_after_a_crash_server_ledger_client_and_auditor_state_one_epsilon(
    batch, small, tmp_path, monkeypatch
):
    stop = {"privacy.stop-at": 98.0}  # the interrupted attempt comes on top of what is planned
    config = small({"privacy.noise-source": "system", "trials.batch": batch} | stop)
    delta, place = config.privacy.delta, (8 - batch, 2)
    terms = {"consent": "central,challenge", "max-trials": 8}
    terms |= {"state-path": str(tmp_path / "client"), "epsilon-limit": 99.0, "delta-limit": delta}
    accept = acceptance.accept_round

    def dying(batch, round, *rest):
        if (batch.trials.start, round.number) == place:
            raise Killed
        return accept(batch, round, *rest)

    monkeypatch.setattr(acceptance, "accept_round", dying)
    with pytest.raises(Killed):
        _audited(config, tmp_path, terms)
    monkeypatch.undo()
    directory = RunDirectory.open(tmp_path / "run")
    _, recorded, _ = _audited(config, tmp_path, terms, run_id=2)
    audit = LiveAudit()
    replayed(audit, recorded.rounds)
    report = results.read(directory)
    one, everything = results.accounted(report).epsilon, report.details.released.epsilon
    assert one == PLD.epsilon(Mechanism.alike(report.details.mechanism.noise_multiplier, 5), delta)
    assert report.details.released.rounds == 8 * 3 + batch * 2
    heard = live_report.assemble(audit, recorded.facts, 0.95).report
    assert heard["rows"]["auditor"]["limit"]["epsilon"] == pytest.approx(one, rel=1e-12)
    assert heard["details"]["released_epsilon"] == pytest.approx(everything, rel=1e-12)
    charged = spending.describe_everything(config, 0.0, ledger.read(directory))
    assert PLD.epsilon(charged.towards(Vantage.PARTICIPANT), delta) == pytest.approx(
        everything, rel=1e-12
    )
    answered = client_ledger.read_answers(tmp_path / "client")
    assert client_ledger.epsilon(answered, delta) == pytest.approx(everything, rel=1e-9)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_under_distributed_trust_an_auditor_faces_the_noise_of_all_clients(rate, small, tmp_path):
    config = small(
        {
            "federation.trust": "distributed",
            "audit.mode": "oracle",
            "audit.vantages": "all",
            "training.sampling-rate": rate,
        }
    )
    found, recorded, _ = _audited(config, tmp_path)
    audit = LiveAudit()
    beliefs = replayed(audit, recorded.rounds)
    # The server under secure aggregation sees the sum alone, and knows no noise either.
    np.testing.assert_allclose(
        beliefs[-1].log_odds, found["log_odds_server"][:, -1], rtol=0, atol=1e-5
    )


def test_rounds_without_a_client_are_told_apart(small, tmp_path):
    config = small(
        {
            "federation.clients": 5,
            "federation.tolerated-dropouts": 2,
            "federation.dropout-rate": 0.2,
        }
    )
    found, recorded, _ = _audited(config, tmp_path)
    beliefs = replayed(LiveAudit(), recorded.rounds)
    np.testing.assert_allclose(beliefs[-1].log_odds, found["log_odds"][:, -1], rtol=0, atol=1e-6)
    assert any(
        each.participants is not None and len(each.participants) < 5 for each in recorded.rounds
    )


def test_an_auditor_changes_nothing_for_anybody_else(small, run, tmp_path):
    config = small()
    found, _, directory = _audited(config, tmp_path)
    np.testing.assert_array_equal(found["final_models"], run(config)["final_models"])
    joined = [event for event, _ in directory.events() if "auditor" in event]
    assert joined == [joined[0]]
    assert joined[0]["joined"] is True


def test_an_auditor_that_cannot_write_is_noted_and_the_run_goes_on(small, tmp_path):
    (tmp_path / "transcripts").write_text("not a folder")
    with pytest.raises(InputError, match="cannot read the transcript"):
        _audited(small(), tmp_path)
    events = [event for event, _ in RunDirectory.open(tmp_path / "run").events()]
    assert [event["joined"] for event in events if "auditor" in event] == [True, False]
    assert (tmp_path / "run" / "report.json").exists()


def test_who_joins_late_knows_what_it_missed(small, tmp_path):
    config = small({"training.rounds": 4})
    found, recorded, _ = _audited(config, tmp_path)
    beliefs = replayed(LiveAudit(), recorded.rounds[2:])
    assert [belief.round for belief in beliefs] == [3, 4]
    assert beliefs[-1].missed == 2
    # The model that it saw first carries what the rounds before released.
    whole = replayed(LiveAudit(), recorded.rounds)
    assert beliefs[-1].epsilon == pytest.approx(whole[-1].epsilon, rel=1e-9)
    assert beliefs[-1].rho_beta == pytest.approx(config.privacy.rho_beta, abs=1e-6)
    steps = np.diff(found["log_odds"], axis=1)[:, 1:]
    expected = log_odds(steps)
    np.testing.assert_allclose(beliefs[-1].log_odds, expected[:, -1], rtol=0, atol=1e-6)


def test_a_message_that_is_missing_costs_both_rounds_that_it_is_part_of(small, tmp_path):
    config = small({"training.rounds": 4})
    found, recorded, _ = _audited(config, tmp_path)
    kept = [each for each in recorded.rounds if each.round != 3]
    beliefs = replayed(LiveAudit(), kept)
    assert [(belief.round, belief.missed) for belief in beliefs] == [(1, 0), (4, 2)]
    steps = np.diff(found["log_odds"], axis=1, prepend=0.0)[:, [0, 3]]
    np.testing.assert_allclose(beliefs[-1].log_odds, steps.sum(axis=1), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("order", "concluded"),
    [((0, 1, 3, 2, 4), []), ((0, 1, 3, 2, 3, 4), [3, 4]), ((0, 1, 1, 2, 3, 4), [2, 3, 4])],
)
def test_messages_out_of_order_are_never_put_together(order, concluded, small, tmp_path):
    config = small({"training.rounds": 4})
    found, recorded, _ = _audited(config, tmp_path)
    audit = LiveAudit()
    replayed(audit, [recorded.rounds[index] for index in order])
    steps = np.diff(found["log_odds"], axis=1, prepend=0.0)
    believed = audit.beliefs[0]
    assert [belief.round for belief in believed] == concluded
    assert audit.missed == 4 - len(concluded)
    expected = steps[:, [round - 1 for round in concluded]].sum(axis=1)
    if believed:
        np.testing.assert_allclose(believed[-1].log_odds, expected, rtol=0, atol=1e-6)


def _agreeing_to(kinds, folder):
    """Return the config of a node with canaries, whose records are public."""
    return {
        "canary-seed": 11,
        "consent": f"adversary,central,experiment,{kinds}",
        "max-trials": 200,
        "state-path": str(folder / "state"),
    }


def test_canaries_of_a_consenting_client_measure_the_noise(small, tmp_path):
    config = small(
        {"trials.count": 200, "trials.batch": 200, "training.rounds": 5}
        | {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 1.0}
    )
    node = _agreeing_to("canaries,challenge", tmp_path) | {"canary-count": 4}
    _, recorded, _ = _audited(config, tmp_path, node)

    def watched(seed):
        audit = LiveAudit(planted=[Canaries(seed, 4)], challenge=False)
        replayed(audit, recorded.rounds)
        assert audit.canaries is not None
        return audit.canaries

    effect, claimed = watched(11).effect(0.999), watched(11).prediction()
    assert effect is not None
    assert claimed == pytest.approx(np.sqrt(5))
    # Other records add spread along a random direction, so that mu is at most that of the noise:
    # all 24 gradients of norm 1 and 4 canaries together, if they agreed, 28/sqrt(650) beside sigma.
    fewest = claimed / np.hypot(1, 28 / np.sqrt(650))
    assert effect.interval.low < claimed
    assert effect.interval.high > fewest
    # Half as loud a canary would be told apart.
    assert effect.interval.low > 0.5 * claimed
    nothing = watched(12).effect(0.999)
    assert nothing is not None
    assert nothing.interval.low <= 0


def test_a_client_that_did_not_consent_adds_no_canary(small, tmp_path):
    with pytest.raises(RuntimeError, match="did not consent to 'canaries'"):
        _audited(small(), tmp_path, _agreeing_to("challenge", tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy.sensitivity": "local"},
        {"privacy.unit": "client"},
        {"federation.trust": "local", "training.local-steps": 2},
    ],
)
def test_canaries_are_refused_where_the_noise_does_not_fit_one_clipped_record(
    changes, small, tmp_path
):
    consenting = _agreeing_to("canaries,challenge,oracle", tmp_path)
    with pytest.raises(RuntimeError, match="canaries stand for single clipped records"):
        _audited(small(changes), tmp_path, consenting)


def test_a_run_that_cannot_be_audited_is_refused(small, tmp_path):
    config = small(
        {"privacy.noise-source": "system", "training.sampling-rate": 0.5, "audit.mode": "oracle"}
    )
    _, recorded, _ = _audited(config, tmp_path)
    with pytest.raises(InputError, match="Only the clients know which records"):
        replayed(LiveAudit(), recorded.rounds)
