"""What a report says of rounding, of missing clients and of colluders."""

from dataclasses import replace

import numpy as np
import pytest

from fedsim.audits.run import audit, guarantee
from fedsim.audits.run import report as results
from fedsim.federation.runs.ledger import LedgerRow
from fedsim.game.challenge import Challenge, colluders
from fedsim.privacy.releases import Rounds
from tests.findings import doubts


def test_a_report_counts_the_noise_of_the_clients_that_came(small, reported):
    config = small(
        {
            "federation.clients": 5,
            "federation.trust": "distributed",
            "federation.tolerated-dropouts": 2,
            "federation.dropout-rate": 0.3,
            "federation.colluding": 1,
        }
    )
    directory, report = reported(config)
    facts = directory.read_json("facts.json")
    std = directory.read_arrays("transcript.npz")["noise_stds"][0]
    found, missing = report.details.dropouts, [e for e, _ in directory.events() if "dropped" in e]
    assert missing
    assert found.rounds_with_missing_clients == len({event["of"] for event in missing})
    # Present, less the adversary and the one colluder; what the adversary faced or, where the
    # colluder itself was missing, at most that.
    z, shares = facts["noise_multiplier"], found.fewest_shares
    assert found.effective_noise_multiplier[0] == pytest.approx(z * np.sqrt((shares - 2) / 5))
    sensitivity = report.details.mechanism.rounding.sensitivity
    assert found.effective_noise_multiplier[0] <= std.min() / sensitivity * (1 + 1e-9)
    text = " ".join(doubts(report))
    assert "Clients were missing in" in text
    assert "1 of 5 clients colluded" in text
    # Neither is a guarantee, whatever the bounds say of the others.
    assert not report.details.mechanism.dp_guarantee
    assert "Secure aggregation was simulated" in report.details.mechanism.dp_note
    assert "1 client sent their noise" in report.details.mechanism.dp_note
    notes = {name: row.limit.note for name, row in report.rows.items()}
    assert "as if aggregated securely" in notes["server"]
    assert "as if aggregated securely" in report.rows["server"].limit.note
    chosen = facts["challenge"]
    (told,) = colluders(config.federation, Challenge(**chosen))
    spent = directory.read_arrays("transcript.npz")["epsilon_spent"]
    unprotected = np.isinf(spent[:, 1, -1])
    assert np.flatnonzero(unprotected).tolist() == [told]
    budget = report.details.budget
    assert budget.epsilon["participant"] == pytest.approx(spent[~unprotected, 1].max())
    page = " ".join(directory.path.joinpath("report.html").read_text().split())
    assert (
        "The messages were integers, aggregated in the clear: a simulation of secure aggregation"
        in page
    )
    assert "1 of the 5 clients disclosed their noise to the adversary" in page
    # Calibrated for two missing clients in every round: the target holds.
    assert results.accounted(report).rho_beta <= 0.9


def _failings(config):
    return guarantee.dp_failings(config)


def _row(batch, attempt, round, came, z=2.0):
    return LedgerRow(
        *(batch, 4, attempt, round, Rounds(z, participants=came), (0, 1, 2, 3, 4), "system"),
        present=tuple(range(came)),
        colluders=(),
    )


def test_rounds_with_missing_clients_are_counted_over_batches_and_attempts(small):
    config = small({"federation.clients": 5, "federation.tolerated-dropouts": 1})
    rows = [_row(0, 1, 1, 4), _row(0, 2, 1, 4), _row(0, 2, 2, 5), _row(4, 1, 1, 4)]
    found = audit.dropouts(config, 2.0, rows)
    assert found is not None
    assert found.rounds_with_missing_clients == 3
    repeated = [replace(row, noise_source="seed") for row in rows]
    found = audit.dropouts(config, 2.0, repeated)
    assert found is not None
    assert found.rounds_with_missing_clients == 2


@pytest.mark.parametrize("trust", ["central", "local"])
def test_only_clients_that_add_noise_take_any_of_it_along(trust, small):
    keys = {"federation.clients": 5, "federation.tolerated-dropouts": 1, "federation.trust": trust}
    config = small(keys)
    missing, whole = (audit.dropouts(config, 2.0, [_row(0, 1, 1, came)]) for came in (4, 5))
    assert missing is not None
    assert whole is not None
    less = missing.effective_noise_multiplier < whole.effective_noise_multiplier
    assert less == (trust == "local")
    (said,) = audit.participation_cautions(config.federation, missing)
    assert "The worst round had 4 of 5" in said


def test_what_is_no_guarantee_under_distributed_trust_and_collusion_is_said(small):
    real = {"privacy.noise-source": "system", "federation.clients": 5}
    shared = real | {"federation.trust": "distributed"}
    secure = shared | {"federation.secure-aggregation": "secagg+"}
    helped = {"federation.colluding": 2}
    assert not _failings(small(secure))
    assert not _failings(small(real | helped))  # they have no noise to tell
    for keys, reason in (
        (shared, "the server saw every message, with only a share of the noise"),
        (secure | helped, "2 clients sent their noise to the adversary"),
        (real | helped | {"federation.trust": "local"}, "in the clear, so that their own records"),
    ):
        (failing,) = _failings(small(keys))
        assert reason in failing
