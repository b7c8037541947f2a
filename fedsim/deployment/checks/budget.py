"""What runs have cost a client's records, and what is left: its own ledger, for its owner."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from adversaries.errors import InputError
from fedsim.deployment.checks.findings import NOTE, OK, WRONG, Line
from fedsim.federation.client import client_ledger
from fedsim.federation.client.client_ledger import Answer
from fedsim.federation.protocol.consent import EPSILON_LIMIT, EXPERIMENT, STATE, Terms


def budget(terms: Terms, state: Path) -> Iterator[Line]:
    """Look at every run that was answered, and at what they come to.

    Args:
        terms: of the client's consent, whose limit the runs are held to.

    Yields:
        What was looked at, how it is, and what to do about it.
    """
    try:
        answers = client_ledger.read(state)
    except InputError as error:
        yield "budget", WRONG, str(error)
        return
    seen: list[Answer] = []
    for run, group in groupby(answers, key=lambda answer: answer.run):
        mine = list(group)
        seen += mine
        charged = any(answer.charged for answer in mine)
        after = client_ledger.epsilon(seen, terms.delta_limit)
        rounds = len({answer.round for answer in mine})
        trials = len({trial for answer in mine for trial in answer.trial_numbers})
        cost = f"epsilon {after:.4g} after it" if charged else "nothing charged"
        yield (
            "answered",
            OK if charged else NOTE,
            f"{mine[0].name} (run {run}, records {mine[-1].records}): rounds {rounds}, trials "
            f"{trials}; {cost}",
        )
    spent, limit = client_ledger.epsilon(seen, terms.delta_limit), terms.epsilon_limit
    at = f"at delta {terms.delta_limit:g}"
    if EXPERIMENT in terms.kinds:
        yield "budget", NOTE, f"nothing is charged, for consent has '{EXPERIMENT}'"
    elif spent < limit:
        left = f"epsilon {spent:.4g} of {limit:g} is spent {at}, {limit - spent:.4g} is left"
        yield "budget", OK, left
    else:
        yield (
            "budget",
            NOTE,
            f"epsilon {spent:.4g} of {limit:g} is spent {at}: nothing more is answered; who agrees "
            f"to more raises {EPSILON_LIMIT}, and who has other people's records by now sets "
            f"another {STATE}",
        )
