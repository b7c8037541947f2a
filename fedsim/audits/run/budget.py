"""What the rounds of a run spent."""

import numpy as np

from fedsim.audits.results.theory import Budget
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.federation.runs import spending
from fedsim.privacy.trust.model import Vantage


def measure(run: AuditedRun) -> Budget:
    """Return what the rounds of one training cost the worst client of the worst batch of trials, at
    delta.

    Colluders are left out: their records are no secret. What privacy.stop-at limits is of
    everything released where the noise is the operating system's.
    """
    config, delta, rows = run.config, run.delta, run.rows
    spent = run.transcript[spending.EPSILON]
    if delta != config.privacy.delta:
        restated = config.privacy.model_copy(update={"delta": delta})
        config_then = config.model_copy(update={"privacy": restated})
        spent = spending.curve(config_then.scheme, run.noise_multiplier, rows)
    # A budget is for those whom a guarantee is meant for.
    worst = np.delete(spent, sorted(spending.colluders(rows)), axis=0).max(axis=0)
    vantages, stop_at = list(Vantage), config.privacy.stop_at
    mine, released = worst[vantages.index(run.vantage)], run.together.released
    return Budget(
        stop_at=stop_at or None,
        stop_at_delta=config.privacy.delta if stop_at else None,
        delta=delta,
        accountant=config.privacy.accountant,
        vantage=run.vantage.value,
        rounds_planned=config.training.rounds,
        rounds_run=run.rounds,
        stopped=run.rounds < config.training.rounds,
        epsilon={vantage.value: float(worst[place, -1]) for place, vantage in enumerate(vantages)},
        spent=float(mine[-1]) if released is None else released.epsilon,
        epsilon_by_round=mine.tolist(),
        earlier_attempts=spending.earlier_rounds(config.scheme, rows),
    )
