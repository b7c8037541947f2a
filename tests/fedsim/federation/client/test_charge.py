"""The ledger charges what one record can change in what a client sends, whatever the unit is."""

import numpy as np
import pytest
import torch
from hostile import Case, contexts

from fedsim import client_app
from fedsim.federation.client import client_ledger
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.consent import RefusedError

HEAD, NO, YES = "age,ward,ill", "60,south,no", "60,south,yes"
DOUBTFUL = np.asarray([[0, 0, 0, 0, 0, 0, 2.0, 0]], dtype=np.float32)
"""A linear model by which YES is unlikely, so that one such record outweighs one NO."""
EVEN = np.zeros((1, 8), dtype=np.float32)

Z, NORM = 5.0, 1e-3
"""Noise multiplier, and a clipping norm below the length of every gradient."""


def _sent(run, model, rows, machine):
    """Return what a client sends, with the noise of the run left out, and its ledger's entry."""
    case = Case("", run, model=lambda _: model, node={"epsilon-limit": 100.0, "consent": "central"})
    context, message = contexts(case, "patients.csv", machine, rows)
    sent = messages.only(client_app.app(message, context).content.array_records[messages.REPLY])
    (entry,) = client_ledger.read_answers(machine / "state")
    return sent, entry


@pytest.mark.parametrize("trust", ["local", "central"])
@pytest.mark.parametrize(
    ("unit", "neighbouring", "model", "one", "other"),
    [
        ("record", "add-remove", DOUBTFUL, (NO, YES), (NO,)),
        ("record", "replace", EVEN, (NO, YES), (NO, NO)),
        ("client", "add-remove", DOUBTFUL, (NO, YES), (NO,)),
        ("client", "add-remove", DOUBTFUL, (NO,), ()),
        ("client", "replace", DOUBTFUL, (NO, YES), (NO, NO)),
    ],
)
def test_one_record_moves_a_message_as_far_as_is_charged(
    trust, unit, neighbouring, model, one, other, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "fedsim.federation.client.training_node.noise", lambda *_: torch.zeros(1, 8).double()
    )
    run = {
        "federation.trust": trust,
        "federation.vantage": "participant",
        "privacy.unit": unit,
        "privacy.neighbouring": neighbouring,
        "training.clipping-norm": NORM,
    }
    (sent, entry), (without, _) = (
        _sent(run, model, (HEAD, *rows), tmp_path / str(n)) for n, rows in enumerate((one, other))
    )
    moved = float(np.linalg.norm(sent.astype(np.float64) - without))
    visible = Z * (NORM if neighbouring == "add-remove" else 2 * NORM)
    assert entry.charged is not None
    charged = entry.charged.noise_multiplier
    assert charged <= visible / moved * (1 + 1e-5)
    if len(other):  # the charge is tight
        assert charged == pytest.approx(visible / moved, rel=1e-4)


def test_a_client_states_the_cost_of_one_record_and_of_all(tmp_path):
    run = {"privacy.unit": "client"}
    _, entry = _sent(run, DOUBTFUL, (HEAD, NO, YES), tmp_path)
    answers, delta = [entry] * 3, 1e-5
    for_record = client_ledger.epsilon(answers, delta)
    together = client_ledger.epsilon_of_client(answers, delta)
    assert entry.charged is not None and entry.charged.noise_multiplier == Z / 2
    assert together is not None and for_record > 1.9 * together
    _, single = _sent({}, DOUBTFUL, (HEAD, NO), tmp_path / "single")
    assert client_ledger.epsilon_of_client([single], delta) is None


def test_a_limit_that_one_record_would_exceed_is_kept(tmp_path):
    """11 rounds at z = 5 cost the client 2.74 and one of its records 6.1, above a limit of 3."""
    run = {"privacy.unit": "client", "training.rounds": 11}
    case = Case("", run, node={"epsilon-limit": 3.0})
    context, message = contexts(case, "patients.csv", tmp_path, (HEAD, NO, YES))
    with pytest.raises(RefusedError, match=r"epsilon 6\.09\d? at delta .* above its epsilon-limit"):
        client_app.app(message, context)
