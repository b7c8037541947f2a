"""A deployed client answers what its run plans, once, within its terms and its budget; no lie."""

import math
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from adversaries.errors import InputError
from fedsim import client_app
from fedsim.configuration import from_run_config, to_run_config
from fedsim.federation.client import admission, client_ledger
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.consent import RefusedError
from fedsim.federation.protocol.flower_private import become_task
from fedsim.federation.protocol.messages import Request, Role
from fedsim.game import federation
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism, Steps

PARAMETERS = 650
Z = 5.0
ONE_TRAINING = {
    "federation.trust": "local",
    "privacy.noise-source": "system",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": Z,
    "trials.count": 1,
    "audit.attacks": "none",
}
"""What a client without any consent takes part in: noise of its own, and one trial."""

MODEL = np.zeros((1, PARAMETERS), dtype=np.float32)


@pytest.fixture
def client(small, tmp_path):
    """Return a function that makes a client's context: its node's config, the run's, the run."""

    def make(node=None, run=None, id=1):
        become_task(id, 1)
        agreed = {
            "partition-id": 1,
            "consent": "",
            "state-path": str(tmp_path / "state"),
            "epsilon-limit": 3.0,
            "delta-limit": 1e-5,
        }
        config = to_run_config(small(ONE_TRAINING | (run or {})))
        return Context(
            run_id=id,
            node_id=7,
            node_config=agreed | (node or {}),
            state=RecordDict(),
            run_config=config,
        )

    return make


def _message(model=MODEL, kind="train", **lie):
    said = {"round": 1, "first_trial": 0, "trials": 1, "noise_multiplier": Z, **lie}
    content = RecordDict({messages.REQUEST: Request(**said).to_record()})
    content[messages.MODEL] = messages.array_record(parameters=model)
    content[messages.WORLDS] = messages.array_record(bits=np.ones(len(model), dtype=bool))
    return Message(content, 7, kind)


def _answers(context, **lie):
    reply = client_app.app(_message(**lie), context)
    return messages.only(reply.content.array_records[messages.REPLY])


def _own_record(context, partition=1):
    return int(federation.load(from_run_config(context.run_config)).owned_by(partition)[0])


@pytest.mark.parametrize(
    ("lie", "refusal"),
    [
        ({"noise_multiplier": 0.0}, "multiplier of 0, but .* configuration gives 5,"),
        ({"noise_multiplier": math.nan}, "asks for a noise multiplier of nan"),
        ({"noise_multiplier": math.inf}, "asks for a noise multiplier of inf"),
        ({"noise_multiplier": -Z}, "asks for a noise multiplier of -5"),
        ({"noise_multiplier": 0.999 * Z}, "asks for a noise multiplier of 4.995"),
        ({"first_trial": 1}, "asks for 1 trial from trial 1 on, but .* has trials 0 to 0"),
        ({"first_trial": -1}, "asks for 1 trial from trial -1 on"),
        ({"trials": 0}, "0 trials from trial 0 on"),
        ({"trials": 2000, "model": np.repeat(MODEL, 2000, 0)}, "2000 trials from trial 0 on"),
        ({"model": np.repeat(MODEL, 2000, 0)}, r"invalid request: its 'model' is .*\[2000, 650\]"),
        ({"model": MODEL[:, 1:]}, "invalid request"),
        ({"model": MODEL.astype(np.float64)}, "invalid request"),
        ({"model": MODEL + np.nan}, "invalid request"),
        ({"model": MODEL + np.inf}, "invalid request"),
        ({"model": MODEL - 2.0**21}, "its model has a value of 2.1e.06, but a client trains no"),
        ({"round": 0}, "asks for round 0, but .* has rounds 1 to 3"),
        ({"round": 4}, "asks for round 4"),
        ({"round": 10**6}, "asks for round 1000000"),
        ({"round": 1.5}, "must be whole numbers"),
        ({"role": Role.ADVERSARY}, "did not consent to 'adversary'"),
        ({"role": Role.COLLUDER}, "did not consent to 'oracle'"),
        ({"role": Role.TARGET_CLIENT}, "did not consent to 'challenge'"),
        ({"role": Role.AUDITOR}, "the role is 'auditor', but a client's role is one of client,"),
        ({"role": "boss"}, "the role is 'boss'"),
    ],
)
def test_a_request_that_the_run_does_not_plan_is_refused(client, lie, refusal):
    context = client()
    with pytest.raises(RefusedError, match=refusal):
        client_app.app(_message(**lie), context)
    assert client_ledger.read_answers(_state(context)) == []
    assert _answers(context).shape == (1, PARAMETERS)


def test_worlds_that_are_no_array_are_refused_before_anything_is_charged(client):
    context, message = client(), _message()
    message.content[messages.WORLDS] = ConfigRecord({"bits": True})
    with pytest.raises(RefusedError, match="it has no record 'worlds' of one array"):
        client_app.app(message, context)
    assert client_ledger.read_answers(_state(context)) == []


@pytest.mark.parametrize(
    ("run", "refusal"),
    [
        ({"federation.trust": "central"}, "federation.trust is 'central', .* to 'central'"),
        ({"training.clipping": False}, "training.clipping is false, .* to 'experiment'"),
        ({"privacy.noise-source": "seed"}, "noise-source is 'seed', .* to 'experiment'"),
        ({"privacy.sensitivity": "local"}, "sensitivity is 'local', .* to 'experiment'"),
        ({"audit.mode": "oracle"}, "audit.mode is 'oracle', .* to 'oracle'"),
        ({"trials.count": 400}, r"trials.count is 400, .* max-trials = 1, .* max-trials = 400 in"),
    ],
)
def test_a_run_beyond_what_was_agreed_to_is_refused_with_what_would_allow_it(client, run, refusal):
    context = client({}, run)  # before a message, which needs its task
    with pytest.raises(RefusedError, match=refusal) as refused:
        client_app.app(_message(), context)
    assert "in the node's config" in str(refused.value)


def test_nobody_is_the_adversary_of_its_own_record_or_asked_about_anothers(client):
    context = client({"consent": "adversary,challenge"}, {"federation.vantage": "server"})
    own, others = _own_record(context), _own_record(context, 0)
    for place in ({"record": own, "target_client": 0}, {"record": others, "target_client": 1}):
        with pytest.raises(RefusedError, match="adversary of its own records"):
            client_app.app(_message(role=Role.ADVERSARY, **place), context)
    for place in ({"record": others, "target_client": 1}, {"record": own, "target_client": 0}):
        with pytest.raises(RefusedError, match="about another client's records"):
            client_app.app(_message(role=Role.TARGET_CLIENT, **place), context)


@pytest.mark.parametrize(("agreed", "told"), [("", False), ("experiment", True)])
def test_a_digest_of_records_leaves_only_where_nothing_is_protected(client, agreed, told):
    context = client({"consent": agreed})
    reply = client_app.app(Message(RecordDict(), 7, "query.data"), context)
    assert reply.content.config_records[messages.DATA]["records"] is told
    config = from_run_config(context.run_config)
    of_records = federation.digest(config, 1)
    assert (reply.content.config_records[messages.DATA]["sha256"] == of_records) is told
    assert federation.digest(config, 0) != of_records


def test_findings_leave_only_who_agreed_to_be_the_adversary(client):
    context = client()
    with pytest.raises(RefusedError, match="did not consent to 'adversary'"):
        client_app.app(Message(RecordDict(), 7, "query.findings"), context)


def test_each_round_is_answered_once_and_in_order_also_after_a_restart(client):
    for round in (1, 3):  # who was missing from the second may go on
        _answers(client(), round=round)
    for round in (1, 2, 3):
        with pytest.raises(RefusedError, match=f"round {round} of .* but round 3 .* answered"):
            _answers(client(), round=round)


def test_trials_that_share_a_message_are_each_answered_once(client):
    context = client({"max-trials": 4, "epsilon-limit": 9.0}, {"trials.count": 4})
    models = np.repeat(MODEL, 2, 0)
    _answers(context, model=models, trials=2)
    with pytest.raises(RefusedError, match="round 1 of trial 1"):
        _answers(context, model=models, first_trial=1, trials=2)
    _answers(context, model=models, first_trial=2, trials=2)


def _state(context):
    return Path(str(context.node_config["state-path"]))


def _spent(context):
    return client_ledger.epsilon(client_ledger.read_answers(_state(context)), 1e-5)


def _epsilon(*steps):
    return accountant("pld").epsilon(Mechanism(steps), 1e-5)


def test_runs_over_the_same_records_share_one_budget(client):
    limit = {"epsilon-limit": 2.2}
    answered = 0
    with pytest.raises(RefusedError, match=r"above its epsilon-limit = 2\.2\. To agree") as no:
        for run in range(1, 4):  # the records that a run picks are no budget of their own
            for round in (1, 2, 3):
                _answers(client(limit, {"data.records": 23 + run}, run), round=round)
                answered += 1
    assert answered == 6  # no run was begun that could not end
    assert _spent(client()) <= 2.2
    again = client(limit, {"data.records": 26}, 4)
    with pytest.raises(RefusedError) as still:
        _answers(again)
    assert "over all runs" in str(no.value)
    assert "over all runs" in str(still.value)


def test_a_run_that_the_budget_cannot_bring_to_its_end_is_refused_before_its_first_answer(client):
    node = {"epsilon-limit": _epsilon(Steps(Z, 5)), "max-trials": 2}
    two = {"trials.count": 2}
    with pytest.raises(RefusedError, match="with all rounds and trials that it plans, would bring"):
        _answers(client(node, two))
    assert client_ledger.read_answers(_state(client())) == []
    # Four rounds are planned, of which privacy.stop-at has the server run two for each trial.
    ends = two | {"training.rounds": 4, "privacy.delta": 1e-5}
    stop = {
        "privacy.stop-at": _epsilon(Steps(Z, 5)),
        "federation.vantage": "server",
    }
    for round in (1, 2):
        for trial in (0, 1):
            _answers(client(node, ends | stop), round=round, first_trial=trial)
    assert _spent(client()) == pytest.approx(_epsilon(Steps(Z, 4)))


def test_an_interrupted_run_goes_on_as_far_as_its_own_limit_allows(client):
    # As a kit has it: the client's limit is the run's, and the server ends the run within it.
    limit = _epsilon(Steps(Z, 3))
    node = {"epsilon-limit": limit}
    run = {"privacy.delta": 1e-5, "federation.vantage": "server"}
    stopping = run | {"privacy.stop-at": limit}
    _answers(client(node, stopping))
    for round in (1, 2):
        _answers(client(node, stopping, 2), round=round)
    with pytest.raises(RefusedError, match="would bring this client's records to"):
        _answers(client(node, stopping, 2), round=3)


def test_a_clock_that_is_set_back_changes_neither_the_order_nor_the_charge(client, monkeypatch):
    _answers(client())

    class Earlier(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(1971, 1, 1, tzinfo=tz)

    monkeypatch.setattr(admission, "datetime", Earlier)
    with pytest.raises(RefusedError, match="round 1 of it was answered in this run already"):
        _answers(client())
    _answers(client(), round=2)
    assert _spent(client()) == pytest.approx(_epsilon(Steps(Z, 2)))


def test_an_answer_whose_model_cannot_be_kept_leaves_and_is_charged_once(client, monkeypatch):
    def full(*_):
        raise InputError("No space left on device")

    monkeypatch.setattr("fedsim.federation.client.kept_models.keep", full)
    _answers(client({}, {"run.job": "training"}))
    assert [answer.round for answer in client_ledger.read_answers(_state(client()))] == [1]


def test_an_interrupted_attempt_stays_charged_and_another_is_possible(client):
    _answers(client(id=1))
    alone = _spent(client())
    _answers(client(id=2))
    twice = _spent(client())
    assert twice > alone
    assert twice == pytest.approx(_epsilon(Steps(Z, 2)))


def test_runs_that_differ_in_noise_sampling_and_trials_add_up(client):
    node = {"max-trials": 2, "epsilon-limit": 9.0}
    _answers(client(node))
    weaker = {"privacy.noise-multiplier": 4.0, "training.sampling-rate": 0.5, "trials.count": 2}
    models = np.repeat(MODEL, 2, 0)
    _answers(client(node, weaker, 2), model=models, trials=2, noise_multiplier=4.0)
    assert _spent(client()) == pytest.approx(_epsilon(Steps(Z), Steps(4.0, 2, 0.5)))


@pytest.mark.parametrize("other", [{"privacy.neighbouring": "replace"}, {"privacy.unit": "client"}])
def test_what_does_not_add_up_is_refused(client, other):
    _answers(client())
    with pytest.raises(RefusedError, match="the two do not add up"):
        _answers(client({}, other, 2))


def test_an_experiment_is_entered_and_charged_nothing(client):
    node = {"consent": "central,experiment", "epsilon-limit": 0}
    run = {"federation.trust": "central", "privacy.noise-source": "seed"}
    sums = [_answers(client(node, run, id)) for id in (1, 2)]
    np.testing.assert_array_equal(*sums)  # another attempt repeats the bits of the first
    assert _spent(client()) == 0
    with pytest.raises(RefusedError, match="answered in this run already"):
        _answers(client(node, run, 2))


def test_a_limit_that_integers_cannot_keep_is_refused(client):
    secure = {"federation.trust": "distributed", "data.records": 60}
    with pytest.raises(RefusedError, match=r"epsilon-limit is 1000, and .* or set a smaller"):
        _answers(client({"epsilon-limit": 1000.0}, secure))
    _answers(client({"epsilon-limit": 5.0}, secure))


def test_a_client_without_a_limit_answers_nothing(client):
    context = client()
    del context.node_config["epsilon-limit"]
    with pytest.raises(RefusedError, match=r"above its epsilon-limit = 0\. To agree"):
        _answers(context)


def test_what_was_answered_is_on_disk_before_the_answer_is_there(client, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsim.federation.client.training_node.local_steps", killed)
    context = client()
    with pytest.raises(KeyboardInterrupt):
        client_app.app(_message(), context)
    path = _state(context) / client_ledger.FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert [answer.round for answer in client_ledger.read_answers(path.parent)] == [1]


@pytest.mark.parametrize("torn", [True, False])
def test_a_torn_line_is_dropped_and_a_damaged_one_stops_everything(client, torn, caplog):
    context = client()
    _answers(context)
    path = _state(context) / client_ledger.FILE
    written = path.read_bytes()
    path.write_bytes(written + b'{"round": 2' if torn else written.replace(b"5.0", b"9.0"))
    if torn:
        _answers(context, round=2)
        assert len(client_ledger.read_answers(path.parent)) == 2
    else:
        with pytest.raises(RefusedError, match="its own log says why"):
            _answers(context, round=2)
        assert "damaged in line 1, so the releases" in caplog.text


SECURE = {
    "federation.trust": "distributed",
    "federation.secure-aggregation": "secagg+",
}


KEYS = {"peers-path": "peers", "key-path": "node.key"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"federation.trust": "local"}, Z),
        ({"federation.trust": "central"}, Z),
        # Three of four clients' shares hide what the fourth sends, and one in a message of its own.
        ({"federation.trust": "distributed"}, Z / math.sqrt(3)),
        (SECURE | KEYS | {"federation.clients": 4}, Z * math.sqrt(3 / 4)),
        # Of three clients a server finds the masks, whose seeds have 32 bits.
        (SECURE | KEYS, Z / math.sqrt(3)),
        # Without the others' keys, a server may read it alone.
        (SECURE, Z / math.sqrt(3)),
    ],
)
def test_a_message_is_charged_as_whoever_learns_most_of_it_sees_it(small, changes, expected):
    run = {key: value for key, value in changes.items() if "." in key}
    scheme = small(ONE_TRAINING | run)
    steps = admission.released(scheme, Z, 4, admission.read_alone(scheme, changes))
    assert steps.noise_multiplier == pytest.approx(expected)
    assert steps.count == 4
