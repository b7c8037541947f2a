"""Never less is charged than left: random rounds, attempts, missing clients and kills."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsim.configuration import from_run_config
from fedsim.federation.runs import ledger
from fedsim.federation.runs.ledger import Account, Ledger
from fedsim.federation.runs.run_directory import RunDirectory

CLIENTS, TRIALS, ROUNDS = 4, 4, 3

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["answered", "killed before", "killed after"]),
        st.sets(st.integers(0, CLIENTS - 1), min_size=2),
    ),
    max_size=ROUNDS,
)
"""What became of each round of an attempt, and which clients answered."""

ATTEMPTS = st.lists(st.tuples(st.sampled_from([0, TRIALS]), STEPS), min_size=1, max_size=5)


def _config(source, trust, tolerated):
    values = {"federation.clients": CLIENTS, "federation.trust": trust, "data.records": 60}
    values |= {"privacy.noise-multiplier": 3.0, "privacy.noise-source": source}
    values |= {"federation.tolerated-dropouts": tolerated, "training.rounds": ROUNDS}
    return from_run_config(values | {"trials.count": 2 * TRIALS, "trials.batch": TRIALS})


def _play(config, directory, attempts):
    """Charge the rounds of attempts as a server does; return what left: places, by their shares.

    A server that is killed after it asked may have received sums: they left with fewest shares.
    """
    source, tolerated = config.privacy.noise_source, config.federation.tolerated_dropouts
    left = {}
    for number, (batch, steps) in enumerate(attempts):
        attempt = Ledger(config, directory).begin(range(batch, batch + TRIALS), ROUNDS, 3.0)
        for round, (fate, answered) in enumerate(steps, start=1):
            place = (batch, 0 if source == "seed" else number, round)
            attempt.charge(round, range(CLIENTS))
            if fate == "killed before":
                left.setdefault(place, CLIENTS - tolerated)
                break
            present = answered if tolerated else range(CLIENTS)
            attempt.settle(round, present)
            left[place] = len(present)
            if fate == "killed after":
                break
    return left


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(["seed", "system"]),
    st.sampled_from(["central", "local"]),
    st.sampled_from([0, 2]),
    ATTEMPTS,
)
def test_never_less_is_charged_than_left(source, trust, tolerated, attempts):
    config = _config(source, trust, tolerated)
    with TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", config)
        left = _play(config, directory, attempts)
        rows = ledger.read(directory)
    everything = Account(rows, all_trials=True)
    for client in range(CLIENTS):
        counts, shares = everything.spent(client), Counter[int]()
        for kind, count in counts.items():
            shares[kind.participants or CLIENTS] += count
        # Every release counts for all trials of its batch, with no more noise than it had.
        for most in range(CLIENTS + 1):
            weakest = TRIALS * sum(1 for each in left.values() if each <= most)
            assert sum(count for each, count in shares.items() if each <= most) >= weakest
        assert counts.total() >= TRIALS * len(left)
