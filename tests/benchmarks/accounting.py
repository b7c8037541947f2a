"""Epsilon of rounds that all differ: fedsim's loss distribution beside other accountants."""

import time

import dp_accounting
import numpy as np
import opacus.accountants
from dp_accounting.pld import PLDAccountant
from tables import Table

from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Steps

DELTA = 1e-5
PATIENCE = 10.0
"""Seconds after which a contestant is not asked for more rounds."""

NOTE = (
    "Every round has a noise multiplier and a sampling rate of its own, near .9 to 1.1 and .009 to "
    ".011. Ratio: the contestant's seconds over fedsim's. A contestant that took more than ten "
    "seconds is not asked for more rounds."
)


def measure(smoke):
    """Yield seconds and epsilons of every contestant at delta = 1e-5."""
    rows = []
    tired = set()
    for count in (2, 3) if smoke else (1, 10, 100, 1000, 10_000):
        random = np.random.default_rng(count)
        noise, rates = random.uniform(0.9, 1.1, count), random.uniform(0.009, 0.011, count)
        rounds = [(float(z), float(q)) for z, q in zip(noise, rates, strict=True)]
        own = None
        for name, contestant in CONTESTANTS.items():
            if name in tired:
                rows.append((count, name, None, None, None))
                continue
            start = time.perf_counter()
            epsilon = contestant(rounds)
            seconds = time.perf_counter() - start
            own = seconds if own is None else own
            rows.append((count, name, seconds, seconds / own, f"{epsilon:.5f}"))
            if seconds > PATIENCE:
                tired.add(name)
    columns = ("rounds", "accountant", "seconds", "ratio", "epsilon")
    yield Table("Epsilon of rounds that all differ", columns, rows, NOTE)


def _fedsim(rounds):
    return PLD.epsilon(Mechanism(tuple(Steps(z, 1, q) for z, q in rounds)), DELTA)


def _pld(rounds):
    accountant = PLDAccountant()
    for z, q in rounds:
        accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)))
    return float(accountant.get_epsilon(DELTA))


def _prv(rounds):
    accountant = opacus.accountants.PRVAccountant()
    accountant.history = [(z, q, 1) for z, q in rounds]
    return float(accountant.get_epsilon(DELTA))


def _rdp(rounds):
    accountant = opacus.accountants.RDPAccountant()
    accountant.history = [(z, q, 1) for z, q in rounds]
    return float(accountant.get_epsilon(DELTA))


CONTESTANTS = {
    "fedsim pld": _fedsim,
    "dp_accounting PLD": _pld,
    "Opacus PRV": _prv,
    "Opacus RDP": _rdp,
}
