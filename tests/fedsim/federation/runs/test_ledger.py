"""The ledger never forgets what was released, and the budget is kept to the round."""

import hashlib
import json
import math
from functools import cache

import numpy as np
import pytest
from scipy.stats import norm

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.federation.client import client_ledger
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.batches import Batches
from fedsim.federation.runs.ledger import Account, BudgetExceededError, Ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server import acceptance
from fedsim.federation.server.plan import preflight
from fedsim.game.mechanisms import privacy
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Steps
from fedsim.privacy.trust import Vantage
from fedsim.reports import page
from tests.findings import doubts

Z, DELTA = 3.0, 0.005
PARTICIPANT = Vantage.PARTICIPANT
NOISE = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": Z}
SYSTEM = {"privacy.noise-source": "system"}
SAMPLED = {"training.sampling-rate": 0.3}


def closed_form(steps, noise_multiplier=Z):
    """Solve delta = Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) (Balle and Wang, 2018)."""
    mu = math.sqrt(steps) / noise_multiplier
    low, high = 0.0, 100.0
    for _ in range(200):
        e = (low + high) / 2
        delta = norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)
        low, high = (e, high) if delta > DELTA else (low, e)
    return high


@cache
def exact(steps, sampling_rate):
    return PLD.epsilon(Mechanism.alike(Z, steps, sampling_rate), DELTA)


def between(steps):
    """Return a budget that `steps` full-batch rounds keep and one more exceeds."""
    return (closed_form(steps) + closed_form(steps + 1)) / 2


@pytest.fixture
def make(small):
    return lambda *changes: small(NOISE | {k: v for change in changes for k, v in change.items()})


@pytest.fixture
def opened(tmp_path):
    return lambda config: RunDirectory.create(tmp_path / "run", config)


def charged(config, directory, *attempts, batch=0, rounds=0):
    """Charge attempts of so many rounds with all clients, each with the file opened anew."""
    for count in attempts:
        attempt = Ledger(config, directory).begin(range(batch, batch + 1), rounds or count, Z)
        for round in range(1, count + 1):
            attempt.charge(round, range(config.federation.clients))
    return ledger.read(directory)


def epsilons(config, rows, vantage=PARTICIPANT, client=0, all_trials=False):
    """Return a client's epsilon after each row, of its batch or of all trainings, by replay."""
    found = []
    for end, row in enumerate(rows, start=1):
        mine = [each for each in rows[:end] if all_trials or each.batch == row.batch]
        counts = Account(mine, all_trials).spent(client)
        found.append(privacy.epsilon_of(config, counts, vantage))
    return found


# The file


def test_rows_form_a_chain_of_checksums_that_anybody_can_recompute(make, opened):
    directory = opened(make())
    charged(make(), directory, 2, 1)
    previous = ""
    lines = (directory.path / "ledger.jsonl").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        entry = json.loads(line)
        check = entry.pop("check")
        canonical = json.dumps(entry, sort_keys=True, separators=(",", ":"))
        assert check == hashlib.sha256((previous + canonical).encode()).hexdigest()[:16]
        previous = check
    assert entry == {
        "batch": 0,
        "trials": 1,
        "attempt": 2,
        "round": 1,
        "kind": {
            "noise_multiplier": Z,
            "count": 1,
            "sampling_rate": 1.0,
            "local_steps": 1,
            "participants": 3,
        },
        "clients": [0, 1, 2],
        "noise_source": "seed",
        "present": None,
        "colluders": [],
    }


# Rounds with missing clients

TOLERANT = {
    "federation.clients": 5,
    "federation.tolerated-dropouts": 2,
    "federation.trust": "local",
}


def test_a_round_is_entered_for_the_fewest_shares_and_then_for_those_that_came(make, opened):
    config = make(TOLERANT)
    directory = opened(config)
    attempt = Ledger(config, directory).begin(range(1), 3, Z)
    attempt.charge(1, range(5))
    (worst,) = ledger.read(directory)
    assert worst.present is None
    mechanism = spending.describe(config, Z, [worst]).towards(Vantage.PARTICIPANT)
    assert mechanism == Mechanism.alike(Z * math.sqrt(3 - 1), 1)
    attempt.settle(1, [0, 1, 3, 4])
    (row,) = ledger.read(directory)
    assert row.present == (0, 1, 3, 4)
    mechanism = spending.describe(config, Z, [row]).towards(Vantage.PARTICIPANT)
    assert mechanism == Mechanism.alike(Z * math.sqrt(4 - 1), 1)
    assert epsilons(config, [row]) < epsilons(config, [worst])
    assert row.clients == (0, 1, 2, 3, 4)  # whoever was asked is charged


@pytest.mark.parametrize("source", ["seed", "system"])
def test_a_round_that_was_never_settled_counts_for_the_worst_unless_the_seed_repeats_it(
    source, make, opened
):
    config = make(TOLERANT | {"privacy.noise-source": source})
    directory = opened(config)
    attempt = Ledger(config, directory).begin(range(1), 2, Z)
    attempt.charge(1, range(5))
    attempt.settle(1, range(5))
    attempt.charge(2, range(5))  # and killed
    attempt = Ledger(config, directory).begin(range(1), 2, Z)
    for round, shares in ((1, 5), (2, 4)):
        attempt.charge(round, range(5))
        attempt.settle(round, range(shares))
    rows = ledger.read(directory)
    found = spending.describe(config, Z, rows).towards(Vantage.PARTICIPANT)
    shares = [5, 4] if source == "seed" else [5, 3, 5, 4]
    expected = Mechanism(tuple(Steps(Z * math.sqrt(s - 1)) for s in shares))
    assert found == expected
    exact = privacy.epsilon_of(config, Account(rows).spent(0), PARTICIPANT)
    assert epsilons(config, rows)[-1] == pytest.approx(exact)
    assert spending.earlier_rounds(config, rows) == (0 if source == "seed" else 2)


FIRST, THEN = [0, 1, 2, 3], [0, 1, 2, 4]


def test_noise_of_the_system_may_meet_other_clients_and_is_one_more_release(make, opened):
    config = make(TOLERANT | SYSTEM)
    directory = opened(config)
    for present in (range(5), FIRST, THEN):
        attempt = Ledger(config, directory).begin(range(1), 1, Z)
        attempt.charge(1, range(5))
        attempt.settle(1, present)
    found = spending.describe(config, Z, ledger.read(directory)).towards(Vantage.PARTICIPANT)
    assert found == Mechanism((Steps(Z * 2), Steps(Z * math.sqrt(3), 2)))


# Colluders


@pytest.mark.parametrize("trust", ["local", "distributed", "central"])
def test_colluders_are_charged_as_unprotected_and_the_others_as_before(
    trust, make, opened, tmp_path
):
    keys = {"federation.clients": 5, "federation.colluding": 2, "federation.trust": trust}
    config = make(keys | {"privacy.stop-at": 50.0})
    honest = opened(config)
    charged(config, honest, 2)
    directory = RunDirectory.create(tmp_path / "colluding", config)
    attempt = Ledger(config, directory, [3, 1]).begin(range(1), 2, Z)
    for round in (1, 2):
        attempt.charge(round, range(5))
    rows, without = ledger.read(directory), ledger.read(honest)
    told = () if trust == "central" else (1, 3)
    assert rows[0].colluders == told
    # What is worst and what is left are the honest clients'.
    assert math.isfinite(attempt.epsilon)
    assert spending.describe(config, Z, rows) == spending.describe(config, Z, without)
    curve = spending.curve(config, Z, rows)
    assert np.all(np.isinf(curve[list(told), 1]))
    np.testing.assert_array_equal(
        np.delete(curve, told, 0), np.delete(spending.curve(config, Z, without), told, 0)
    )


@pytest.mark.parametrize("length", [1, 40, -1])
def test_a_torn_last_line_is_dropped_and_written_over(length, make, opened):
    config = make(SYSTEM)
    directory = opened(config)
    rows = charged(config, directory, 3)
    path = directory.path / "ledger.jsonl"
    *kept, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept) + last[:length])
    assert ledger.read(directory) == rows[:2]
    again = charged(config, directory, 1)
    assert [(row.attempt, row.round) for row in again] == [(1, 1), (1, 2), (2, 1)]
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    ("line", "damage"),
    [
        (3, lambda lines: [*lines[:2], lines[2].replace(b'"attempt": 1', b'"attempt": 0')]),
        (1, lambda lines: [lines[0].replace(b"3.0", b"9.0"), *lines[1:]]),
        (2, lambda lines: [lines[0], lines[2]]),
        (1, lambda lines: lines[1:]),
        (2, lambda lines: [lines[0], lines[2], lines[1]]),
        (2, lambda lines: [lines[0], lines[1][:20] + b"\n", lines[2]]),
        (2, lambda lines: [lines[0], lines[1][:20] + b"\r" + lines[1][20:], lines[2]]),
        (2, lambda lines: [lines[0], b"[]\n", lines[2]]),
    ],
    ids=["last", "first", "removed", "beginning", "swapped", "cut", "inserted", "other"],
)
def test_tampering_is_refused_with_the_place(line, damage, make, opened):
    directory = opened(make())
    charged(make(), directory, 3)
    path = directory.path / "ledger.jsonl"
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    message = rf"ledger\.jsonl in .* is damaged in line {line}"
    with pytest.raises(InputError, match=message):
        ledger.read(directory)
    with pytest.raises(InputError, match=message):
        Ledger(make(), directory)


# The account


def test_a_client_is_charged_only_for_the_rounds_that_it_took_part_in(make, opened):
    directory = opened(make())
    attempt = Ledger(make(), directory).begin(range(1), 4, Z)
    for round, present in enumerate([{0, 1, 2}, {0, 1}, {2, 0}, {0, 1, 2}], 1):
        attempt.charge(round, present)
    rows = ledger.read(directory)
    expected = {0: [1, 2, 3, 4], 1: [1, 2, 2, 3], 2: [1, 1, 2, 3]}
    for client, steps in expected.items():
        np.testing.assert_allclose(
            epsilons(make(), rows, client=client), [closed_form(n) for n in steps]
        )
        assert epsilons(make(), rows, Vantage.SERVER, client)[-1] == math.inf
    assert attempt.epsilon == pytest.approx(closed_form(4))
    mechanism = spending.describe(make(), Z, rows, client=1).towards(Vantage.PARTICIPANT)
    assert mechanism == Mechanism.alike(Z, 3)
    np.testing.assert_allclose(
        spending.curve(make(), Z, rows)[:, 1],
        [[closed_form(n) for n in s] for s in expected.values()],
    )


def test_the_noise_of_a_client_who_is_missing_is_missed_by_the_others(make, opened):
    config = make({"federation.trust": "local"})
    directory = opened(config)
    attempt = Ledger(config, directory).begin(range(1), 2, Z)
    attempt.charge(1, [0, 1, 2])
    attempt.charge(2, [0, 1])
    rows = ledger.read(directory)
    # Behind the noise of two others, then behind that of one: 1/z^2 adds up.
    assert epsilons(config, rows)[1] == pytest.approx(
        closed_form(1, 1 / math.sqrt(0.5 / Z**2 + 1 / Z**2))
    )
    assert epsilons(config, rows, Vantage.SERVER)[1] == pytest.approx(closed_form(2))
    mechanism = spending.describe(config, Z, rows).towards(Vantage.PARTICIPANT)
    assert [group.noise_multiplier for group in mechanism.groups] == [Z, Z * math.sqrt(2)]


def test_local_steps_are_charged_one_by_one(make, opened):
    config = make({"federation.trust": "local", "training.local-steps": 3})
    rows = charged(config, opened(config), 2)
    np.testing.assert_allclose(epsilons(config, rows), [closed_form(3), closed_form(6)])


def test_noise_from_the_seed_repeats_what_was_released_and_system_noise_adds_to_it(
    make, opened, tmp_path
):
    seed, system = make(), make(SYSTEM)
    rows = charged(seed, opened(seed), 2, 4, rounds=4)
    # Never less than before: after the restart the first two rounds are already out.
    np.testing.assert_allclose(epsilons(seed, rows), [closed_form(n) for n in (1, 2, 2, 2, 3, 4)])
    assert spending.earlier_rounds(seed, rows) == 0
    undisturbed = charged(seed, RunDirectory.create(tmp_path / "undisturbed", seed), 4)
    np.testing.assert_array_equal(
        spending.curve(seed, Z, rows), spending.curve(seed, Z, undisturbed)
    )

    directory = RunDirectory.create(tmp_path / "system", system)
    rows = charged(system, directory, 2, 1, 4, rounds=4)
    np.testing.assert_allclose(epsilons(system, rows), [closed_form(n) for n in range(1, 8)])
    assert spending.earlier_rounds(system, rows) == 3
    for described in spending.describe_run(directory):
        assert described is not None
        assert described.towards(Vantage.PARTICIPANT) == Mechanism.alike(Z, 7)
    np.testing.assert_allclose(
        spending.curve(system, Z, rows)[:, 1], [[closed_form(n) for n in range(4, 8)]] * 3
    )


def test_of_one_training_the_worst_batch_is_described_and_everything_adds_up(make, opened):
    config = make(SYSTEM, {"trials.batch": 2})
    directory = opened(config)
    charged(config, directory, 3, batch=0)
    charged(config, directory, 1, 3, batch=2, rounds=3)
    rows = charged(config, directory, 3, batch=4)
    np.testing.assert_allclose(
        epsilons(config, rows), [closed_form(n) for n in (1, 2, 3, 1, 2, 3, 4, 1, 2, 3)]
    )
    assert spending.describe(config, Z, rows).count == 4
    assert spending.curve(config, Z, rows)[0, 1, -1] == pytest.approx(closed_form(4))
    np.testing.assert_allclose(
        epsilons(config, rows, all_trials=True), [closed_form(n) for n in range(1, 11)]
    )


@pytest.mark.parametrize("trust", ["central", "local", "distributed"])
@pytest.mark.parametrize("tolerated", [0, 2])
def test_every_trial_of_every_batch_and_attempt_is_in_what_was_released(
    tolerated, trust, make, opened
):
    keys = {"federation.trust": trust, "federation.tolerated-dropouts": tolerated}
    config = make(SYSTEM, TOLERANT, keys)
    directory = opened(config)
    for trials, rounds in ((range(4), 2), (range(4, 8), 1), (range(4, 8), 2)):  # the second killed
        attempt = Ledger(config, directory).begin(trials, 2, Z)
        for round in range(1, rounds + 1):
            attempt.charge(round, range(5))
            attempt.settle(round, range(5))
    rows = ledger.read(directory)
    everything = spending.describe_everything(config, Z, rows)
    assert everything is not None
    assert everything.count == 4 * 5
    assert spending.describe(config, Z, rows).count == 3
    assert spending.trainings(rows) == 8
    assert attempt.epsilon == epsilons(config, rows, all_trials=True)[-1]
    for vantage in Vantage:
        total = PLD.epsilon(everything.towards(vantage), DELTA)
        assert epsilons(config, rows, vantage, all_trials=True)[-1] == total
    seed = make(TOLERANT, {"federation.tolerated-dropouts": tolerated})
    assert spending.describe_everything(seed, Z, rows) is None


@pytest.mark.parametrize("kept", [None, 0, 2, 3, 5])
def test_a_ledger_that_is_missing_or_cut_at_the_end_of_a_line_is_refused_after_the_run(
    kept, make, opened
):
    config = make({"trials.batch": 4})
    directory = opened(config)
    execute(config, directory)
    (directory.path / "events.jsonl").unlink()  # the finished batches of trials alone tell
    path = directory.path / "ledger.jsonl"
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:kept]))
    for refused in (
        lambda: spending.describe_run(directory),
        lambda: page.write_report(directory),
        lambda: spending.planned_rounds(Batches(config, directory), Z),
    ):
        with pytest.raises(InputError, match=r"ledger\.jsonl in .* lacks .*run\.out") as caught:
            refused()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [None, 0, 3])
def test_a_ledger_that_lacks_rounds_of_an_interrupted_attempt_is_refused(kept, make, opened):
    config = make(SYSTEM, {"trials.batch": 4, "privacy.stop-at": 99.0})
    directory = opened(config)
    killed(config, directory, batch=4, round=2)
    path = directory.path / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 5
    # The second round was charged, and never answered: it left no event and cannot be missed.
    path.write_bytes(b"".join(lines[:4]))
    assert spending.planned_rounds(Batches(config, directory), Z) == 3
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(b"".join(lines[:kept]))
    with pytest.raises(InputError, match=r"ledger\.jsonl in .* lacks rounds that were released"):
        spending.planned_rounds(Batches(config, directory), Z)


def test_torn_events_do_not_stop_a_run(make, opened):
    config = make(SYSTEM, {"privacy.stop-at": 99.0})
    directory = opened(config)
    killed(config, directory, batch=0, round=3)
    with (directory.path / "events.jsonl").open("ab") as file:
        file.write(b'{"time": 1.0, "rou')
    assert spending.planned_rounds(Batches(config, directory), Z) == 3


# The running value


@pytest.mark.parametrize(
    ("rounds", "changes"), [(7, {}), (97, {}), (1000, {}), (7, SAMPLED), (41, SAMPLED)], ids=str
)
def test_the_running_value_never_understates_never_falls_and_ends_exact(rounds, changes, make):
    config = make(changes, {"training.rounds": rounds})
    (running,) = {tuple(values) for values in spending.curve(config, Z, [])[:, 1]}
    rate = config.training.sampling_rate
    values = [exact(n, rate) for n in range(1, rounds + 1)]
    assert running[-1] == values[-1]
    assert np.all(np.diff(running) >= 0)
    assert np.all(np.array(running) >= values)
    np.testing.assert_array_equal(running[:16], values[:16])


@pytest.mark.parametrize("source", ["seed", "system"])
@pytest.mark.parametrize("before", [1, 37, 96, 97])
def test_a_restart_never_lowers_the_running_value(before, source, make, opened):
    config = make({"privacy.noise-source": source})
    rows = charged(config, opened(config), before, 97, rounds=97)
    assert np.all(np.diff(epsilons(config, rows)) >= 0)
    total = 97 + (before if source == "system" else 0)
    assert epsilons(config, rows)[-1] == pytest.approx(closed_form(total))


# The budget


def test_a_round_too_many_is_refused_and_not_written(make, opened):
    # 33 rounds count as 34 on the way to 50, but the decision is exact.
    config = make({"privacy.stop-at": between(33)})
    directory = opened(config)
    attempt = Ledger(config, directory).begin(range(1), 50, Z)
    for round in range(1, 34):
        attempt.charge(round, [0, 1, 2])
    assert attempt.epsilon > config.privacy.stop_at > closed_form(33)
    before = (directory.path / "ledger.jsonl").read_bytes()
    with pytest.raises(BudgetExceededError, match=r"round 34 would bring client 0 .*\.stop-at"):
        attempt.charge(34, [0, 1, 2])
    assert (directory.path / "ledger.jsonl").read_bytes() == before
    attempt.charge(34, [])  # costs nobody anything
    assert len(ledger.read(directory)) == 34


# The federation


def execute(config, directory):
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), directory)
    return directory.read_json("report.json")


class Killed(BaseException):
    """What a signal does, in a test."""


def killed(config, directory, batch, round):
    """Run until a round of a batch of trials has been answered, and no further."""
    with pytest.MonkeyPatch.context() as patch:
        accept = acceptance.accept_round

        def dying(of, begun, *rest):
            if (of.trials.start, begun.number) == (batch, round):
                raise Killed
            return accept(of, begun, *rest)

        patch.setattr(acceptance, "accept_round", dying)
        with pytest.raises(Killed):
            execute(config, directory)
    assert not directory.has("report.json")


FOUR_OF_SIX = {
    "training.rounds": 6,
    "trials.batch": 4,
    "privacy.stop-at": between(4),
}


@pytest.mark.slow
@pytest.mark.figures
def test_the_training_stops_at_the_last_round_within_the_budget(make, run, opened):
    keys = FOUR_OF_SIX | {"training.schedule": "cosine"}
    config = make(keys)
    directory = opened(config)
    report, transcript = execute(config, directory), directory.read_arrays("transcript.npz")
    whole = run(make(keys | {"privacy.stop-at": 0.0}))
    # The same training, learning rates and all, cut off after four rounds.
    np.testing.assert_array_equal(transcript["log_odds"], whole["log_odds"][:, :4])
    np.testing.assert_array_equal(transcript["accuracies"], whole["accuracies"][:5])
    assert (report["details"]["rounds"], report["details"]["mechanism"]["steps"]) == (4, 4)
    assert report["rows"]["participant"]["limit"]["epsilon"] == pytest.approx(closed_form(4))
    budget = report["details"]["budget"]
    assert budget["epsilon"]["participant"] <= budget["stop_at"] < closed_form(5)
    assert budget["epsilon"]["server"] == "Infinity"
    np.testing.assert_allclose(budget["epsilon_by_round"], [closed_form(n) for n in (1, 2, 3, 4)])
    expected = {"rounds_planned": 6, "rounds_run": 4, "stopped": True, "earlier_attempts": 0}
    expected |= {"vantage": "participant", "delta": DELTA, "accountant": "pld"}
    assert expected.items() <= budget.items()
    assert any("stopped after 4 of 6 rounds" in warning for warning in doubts(report))
    assert "left no room for another round" in (directory.path / "report.html").read_text()
    assert (directory.path / "figures" / "budget.svg").exists()
    assert transcript["epsilon_spent"].shape == (3, 3, 4)
    assert transcript["epsilon_spent"].dtype == np.float64
    events = [event for event, _ in directory.events()]
    assert [event["rounds"] for event in events if "rounds" in event] == [4]
    seen = [event["epsilon"] for event in events if event.get("round") is not None]
    np.testing.assert_allclose(seen, [0, *(closed_form(n) for n in (1, 2, 3, 4))] * 2)


def test_the_row_is_on_disk_before_the_rounds_messages_leave(make, opened, monkeypatch):
    config = make()
    directory = opened(config)
    send = InProcessGrid.send_and_receive
    seen = []

    def watched(self, messages, **options):
        sent = list(messages)
        if any(message.metadata.message_type == "train" for message in sent):
            seen.append(len(ledger.read(directory)))
        return send(self, sent, **options)

    monkeypatch.setattr(InProcessGrid, "send_and_receive", watched)
    execute(config, directory)
    assert seen == [1, 2, 3]


def test_a_restart_with_fresh_noise_adds_to_what_the_killed_attempt_released(make, opened):
    config = make(SYSTEM, {"trials.batch": 4})
    directory = opened(config)
    killed(config, directory, batch=4, round=2)
    # Eight trials of three rounds were planned; four of two rounds came on top.
    accepted = rf"will have released epsilon {closed_form(32):.4g} .*plans {closed_form(24):.4g}. "
    with pytest.raises(InputError, match=accepted + r".*set privacy.stop-at") as refused:
        execute(config, directory)
    enough = float(str(refused.value).partition("privacy.stop-at=")[2].split()[0])
    config = make(SYSTEM, {"trials.batch": 4, "privacy.stop-at": enough})
    assert opened(config).path == directory.path
    report = execute(config, directory)
    everything, found = report["details"]["released"], report["details"]["budget"]
    assert everything["epsilon"] == pytest.approx(closed_form(32))
    assert (everything["trainings"], everything["rounds"]) == (8, 32)
    assert (found["earlier_attempts"], found["rounds_run"]) == (2, 3)
    np.testing.assert_allclose(found["epsilon_by_round"], [closed_form(n) for n in (3, 4, 5)])
    assert report["details"]["mechanism"]["steps"] == 5
    assert report["rows"]["participant"]["limit"]["epsilon"] == pytest.approx(closed_form(5))
    assert any("released 2 rounds of the same trials" in text for text in doubts(report))
    other = page.write_report(directory, delta=0.05).details.budget
    assert other.epsilon["participant"] == PLD.epsilon(Mechanism.alike(Z, 5), 0.05)
    assert len(other.epsilon_by_round) == 3
    assert other.delta == 0.05


def test_a_restart_from_the_seed_releases_the_same_again(make, run, opened):
    config = make({"trials.batch": 4})
    directory = opened(config)
    killed(config, directory, batch=4, round=2)
    report = execute(config, directory)
    assert report["details"]["budget"]["earlier_attempts"] == 0
    assert report["details"]["budget"]["epsilon"]["participant"] == pytest.approx(closed_form(3))
    resumed, undisturbed = directory.read_arrays("transcript.npz"), run(config)
    for name in ("log_odds", "epsilon_spent"):
        np.testing.assert_array_equal(resumed[name], undisturbed[name])
    assert [row.attempt for row in ledger.read(directory)] == [1] * 3 + [1] * 2 + [2] * 3


def test_a_restart_that_cannot_afford_the_rounds_of_the_other_batches_is_refused(make, opened):
    config = make(SYSTEM, FOUR_OF_SIX, {"privacy.stop-at": between(32)})
    directory = opened(config)
    killed(config, directory, batch=4, round=2)
    before = ledger.read(directory)
    with pytest.raises(
        InputError, match=r"4 rounds \(as in .*\) of each of the 4 trials to come"
    ) as e:
        execute(config, directory)
    for expected in (closed_form(24), closed_form(40), between(32)):
        assert f"{expected:.4g}" in str(e.value) or f"{expected:g}" in str(e.value)
    assert ledger.read(directory) == before
    # What it says to do helps: more budget, and as many rounds as the other batches of trials ran.
    path = directory.path / "config.toml"
    path.write_text(path.read_text().replace(str(between(32)), str(between(40))))
    report = execute(directory.config, directory)
    assert report["details"]["rounds"] == 4
    assert report["details"]["budget"]["epsilon"]["participant"] == pytest.approx(closed_form(6))
    assert report["details"]["released"]["epsilon"] == pytest.approx(closed_form(40))


def test_nothing_is_left_of_a_budget_that_was_spent_on_an_interrupted_attempt(make, opened):
    config = make(SYSTEM, FOUR_OF_SIX, {"privacy.stop-at": between(32), "trials.batch": 8})
    directory = opened(config)
    killed(config, directory, batch=0, round=4)
    with pytest.raises(
        InputError, match=r"but one round of each of the 8 trials to come would cost epsilon"
    ):
        execute(config, directory)


def test_a_round_that_is_done_again_costs_what_it_cost_after_the_rounds_before_it(make, opened):
    config = make({"training.rounds": 4})
    directory = opened(config)
    before = charged(config, directory, 4)
    again = Ledger(config, directory).begin(range(1), 4, Z, first=3, repeats=True)
    again.charge(3, range(config.federation.clients))
    rows = ledger.read(directory)
    assert epsilons(config, rows) == epsilons(config, before)


def test_rounds_that_are_repeated_twice_under_another_noise_count_once_more(make, opened):
    """Answers under the first noise left, and those under the second are the same each time."""
    config = make(SYSTEM | {"training.rounds": 4})
    directory = opened(config)
    charged(config, directory, 4)
    for _ in range(3):
        again = Ledger(config, directory).begin(range(1), 4, 2 * Z, first=3, repeats=True)
        for round in (3, 4):
            again.charge(round, range(config.federation.clients))
    rows = ledger.read(directory)
    assert Account(rows).spent(0).total() == 4 + 2


def test_after_a_crash_clients_and_the_servers_ledger_state_the_same_epsilon(
    small, tmp_path, monkeypatch
):
    monkeypatch.setattr("fedsim.reports.page.write_report", lambda _: None)
    values = SYSTEM | {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 5.0, "trials.count": 1}
    values |= {"federation.trust": "local", "federation.vantage": "server", "privacy.delta": 1e-5}
    config = small(values)
    directory = RunDirectory.create(tmp_path / "run", config)

    def attempt(run):
        grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
        for client, context in enumerate(grid.contexts.values()):
            context.run_id = run
            state = {"state-path": str(tmp_path / f"client-{client}")}
            terms = {"consent": "adversary,challenge", "epsilon-limit": 5.0}
            context.node_config.update(state | terms)
        server_app.carry_out(grid, preflight(config), directory)

    def killed(batch, round, *rest):
        if round.number == 2:
            raise KeyboardInterrupt
        return accepted(batch, round, *rest)

    accepted = acceptance.accept_round
    monkeypatch.setattr(acceptance, "accept_round", killed)
    with pytest.raises(KeyboardInterrupt):
        attempt(1)
    monkeypatch.setattr(acceptance, "accept_round", accepted)
    config = small(values | {"privacy.stop-at": 5.0})  # the second attempt costs more than planned
    directory = RunDirectory.create(tmp_path / "run", config)
    attempt(2)
    stated = epsilons(config, ledger.read(directory), Vantage.SERVER)[-1]
    assert stated == pytest.approx(PLD.epsilon(Mechanism((Steps(5.0, 2 + 3),)), 1e-5))
    for client in range(config.federation.clients):
        answers = client_ledger.read_answers(tmp_path / f"client-{client}")
        assert client_ledger.epsilon(answers, 1e-5) == stated
