"""The rounds that a budget allows, planned in advance, and the cost of a continued run."""

import math
from collections import Counter
from collections.abc import Sequence

from adversaries.errors import InputError
from fedsim.configuration.objects import Scheme
from fedsim.federation.runs import ledger
from fedsim.federation.runs.ahead import Ahead, affordable
from fedsim.federation.runs.batches import Batches, rounds_of
from fedsim.federation.runs.book import Book, LedgerRow, planned_course, planned_kind
from fedsim.game.mechanisms.privacy import adds_up, epsilon_of, times
from fedsim.privacy.releases import Rounds


def plan(campaign: Batches, nominal: float, done: int = 0) -> int:
    """Return the number of rounds of every batch: training.rounds, or as many as are affordable.

    campaign: its directory is that of a run to continue, whose finished batches fix the number.
    done: rounds of the continued training that need not be run again.
    Raises InputError if the budget does not allow that, if interrupted attempts make the run exceed
    its configured cost without privacy.stop-at, or if the ledger is damaged or of another source of
    noise.
    """
    config, directory, scheme = campaign.config, campaign.directory, campaign.config.scheme
    rows = [] if directory is None else ledger.verified(directory)
    if config.run.job == "training" and config.federation.repeats_answers:
        rows = ledger.kept(rows, done, nominal)
    source = config.privacy.noise_source
    if others := {row.noise_source for row in rows} - {source}:
        raise InputError(
            f"privacy.noise-source is '{source}', but rounds of this run had noise from "
            f"'{min(others)}', and the two do not add up. Restore it in config.toml of the run "
            "directory, or begin another run (run.out)."
        )
    finished = campaign.finished()
    left = [trials for trials in campaign.ranges() if trials.start not in finished]
    fixed = rounds_of(directory, finished[0]) if directory and finished else None
    rounds = fixed or config.training.rounds
    kind = planned_kind(config.training, config.participation, nominal)
    for ahead in _ahead(scheme, kind, rows, left, rounds, done):
        if config.privacy.stop_at:
            most = done + affordable(scheme, kind, rounds - done, ahead)
            if most == 0 or (fixed is not None and most < fixed):
                raise InputError(_too_dear(scheme, kind, fixed or 1, ahead))
            rounds = most
        elif directory and adds_up(source):
            _check_planned(scheme, kind, ahead, rounds - done)
    return rounds


def _ahead(
    scheme: Scheme,
    kind: Rounds,
    rows: Sequence[LedgerRow],
    left: Sequence[range],
    rounds: int,
    done: int,
) -> list[Ahead]:
    """Return the remaining work: all trainings together; with the seed's noise, one of them."""
    participation = scheme.participation
    clients = participation.accounts
    if not left:
        return []
    if adds_up(scheme.privacy.noise_source):
        book = Book.of(rows, all_trials=True)
        return [Ahead(sum(map(len, left)), [book.spent(client) for client in clients])]
    # A new attempt repeats the seed's noise, and so what earlier ones released.
    courses: list[list[Rounds | None]] = []
    if participation.varying:
        planned = planned_course(scheme.training, participation, kind.noise_multiplier, rounds)
        planned = planned[done:]
        courses = [[of if client in who else None for of, who in planned] for client in clients]
    return [Ahead(1, [Counter() for _ in clients], courses)]


def _check_planned(scheme: Scheme, kind: Rounds, ahead: Ahead, rounds: int) -> None:
    """Raise InputError if a run would cost more than its configuration plans."""
    vantage = scheme.federation.vantage
    whole = times(Counter({kind: scheme.training.rounds}), scheme.trial_count)
    target, final = epsilon_of(scheme, whole, vantage), ahead.epsilon(scheme, kind, rounds)
    if final > target * (1 + 1e-9):
        enough = f"{math.ceil(final * 1000) / 1000:g}"
        raise InputError(
            "the releases of interrupted attempts stay spent. In the end this run will have "
            f"released epsilon {final:.4g} at delta {scheme.privacy.delta:g} towards the "
            f"{vantage.value}, while its configuration plans {target:.4g}. To continue anyway, set "
            f"privacy.stop-at: add privacy.stop-at={enough} to the command that began the "
            f"run, or write stop-at = {enough} under [privacy] in its config.toml"
        )


def _too_dear(scheme: Scheme, kind: Rounds, needed: int, ahead: Ahead) -> str:
    """Return a message with the spent epsilon, the least cost to continue, and the remedy."""
    vantage, stop_at = scheme.federation.vantage, scheme.privacy.stop_at
    before, after = (ahead.epsilon(scheme, kind, rounds) for rounds in (0, needed))
    rounds = "one round" if needed == 1 else f"{needed} rounds (as in the finished trials)"
    left = "remaining " * any(ahead.spent)
    together = f" of each of the {ahead.trainings} {left}trials" * (ahead.trainings > 1)
    spent = f" beside the epsilon {before:.4g} that is spent" * any(ahead.spent)
    fewer = ", or run fewer trials" * (ahead.trainings > 1 and not any(ahead.spent))
    return (
        f"privacy.stop-at is {stop_at:g}, but {rounds}{together} would cost epsilon {after:.4g} at "
        f"delta {scheme.privacy.delta:g} towards the {vantage.value}{spent}; raise "
        f"privacy.stop-at, add noise (the noise multiplier is {kind.noise_multiplier:.4g}){fewer}"
    )
