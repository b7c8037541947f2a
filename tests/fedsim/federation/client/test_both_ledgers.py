"""After a crash, and for every trust, both ledgers state what was released."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from flwr.app import Message

from fedsim import client_app, server_app
from fedsim.config import Config, Scalar, to_run_config
from fedsim.federation.client import admission, client_ledger
from fedsim.federation.runs import ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.federation.server.strategy import DPSGD
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism, Steps

Make = Callable[..., Config]

Z = 5.0
ONE_TRAINING: dict[str, Scalar] = {
    "federation.trust": "local",
    "privacy.noise-source": "system",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": Z,
    "trials.count": 1,
    "audit.attacks": "none",
}
"""What a client without any consent takes part in: noise of its own, and one trial."""

SECURE: dict[str, Scalar] = {
    "federation.trust": "distributed",
    "federation.secure-aggregation": "secagg+",
}


def test_after_a_crash_clients_and_the_servers_ledger_state_the_same_epsilon(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.report.page.write_report", lambda _: None)
    values = ONE_TRAINING | {"federation.vantage": "server", "privacy.delta": 1e-5}
    config = small(values)
    directory = RunDirectory.create(tmp_path / "run", config)

    def attempt(run: int) -> None:
        grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
        for client, context in enumerate(grid.contexts.values()):
            context.run_id = run
            state: dict[str, Scalar] = {"state-path": str(tmp_path / f"client-{client}")}
            terms: dict[str, Scalar] = {"consent": "adversary,challenge", "epsilon-limit": 5.0}
            context.node_config.update(state | terms)
        server_app.carry_out(grid, preflight(config), directory)

    def killed(strategy: DPSGD, round: int, replies: Iterable[Message]) -> object:
        if round == 2:
            raise KeyboardInterrupt
        return released(strategy, round, replies)

    released = DPSGD.aggregate_train
    monkeypatch.setattr(DPSGD, "aggregate_train", killed)
    with pytest.raises(KeyboardInterrupt):
        attempt(1)
    monkeypatch.setattr(DPSGD, "aggregate_train", released)
    config = small(values | {"privacy.stop-at": 5.0})  # the second attempt costs more than planned
    directory = RunDirectory.create(tmp_path / "run", config)
    attempt(2)
    stated = ledger.read(directory)[-1].epsilon[0]["server"]
    assert stated == pytest.approx(accountant("pld").epsilon(Mechanism((Steps(Z, 2 + 3),)), 1e-5))
    for client in range(config.federation.clients):
        answers = client_ledger.read_answers(tmp_path / f"client-{client}")
        assert client_ledger.epsilon(answers, 1e-5) == stated


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"federation.trust": "local"}, Z),
        ({"federation.trust": "central"}, Z),
        # Two of three clients' shares hide what the third sends, and one in a message of its own.
        ({"federation.trust": "distributed"}, Z / math.sqrt(3)),
        (SECURE | {"peers-path": "peers", "key-path": "node.key"}, Z * math.sqrt(2 / 3)),
        # Without the others' keys, or with lists of missing clients, a server may read it alone.
        (SECURE, Z / math.sqrt(3)),
        (
            SECURE
            | {"peers-path": "peers", "key-path": "node.key"}
            | {"federation.clients": 5, "federation.tolerated-dropouts": 1},
            Z / math.sqrt(5),
        ),
    ],
)
def test_a_message_is_charged_as_whoever_learns_most_of_it_sees_it(
    small: Make, changes: dict[str, Scalar], expected: float
) -> None:
    run = {key: value for key, value in changes.items() if "." in key}
    scheme = small(ONE_TRAINING | run).scheme
    steps = admission.released(scheme, Z, 4, admission.read_alone(scheme, changes))
    assert steps.noise_multiplier == pytest.approx(expected)
    assert steps.count == 4
