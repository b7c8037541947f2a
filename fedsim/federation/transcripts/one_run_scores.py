"""The scores of a run's canaries, from the transcript of an auditor's node."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from adversaries.errors import InputError
from fedsim.configuration import KNOWN_KEYS, Config, from_run_config
from fedsim.federation.transcripts.records import ObservedRound, not_of_an_auditor
from fedsim.game.federation import load as federation_of
from fedsim.game.one_run import Scored, included, needs_data, scores


def transcript_scores(rounds: Iterable[ObservedRound], data_root: str = "") -> Scored:
    """Return the scores of a run's canaries, summed over the recorded rounds.

    data_root: path of the records here, for scores that need them; "": the run's.
    Raises InputError for another transcript, a run without canaries, or a run without a sum.
    """
    totals: dict[int, Tensor] = {}
    previous: dict[int, ObservedRound] = {}
    config, loaded = None, None
    for observed in rounds:
        first = observed.mechanism.get("request.first-trial")
        if not isinstance(first, int) or "parameters" not in observed.model:
            raise not_of_an_auditor(observed)
        if config is None:
            config = _recorded(observed, data_root)
            loaded = federation_of(config.experiment) if needs_data(config.canaries) else None
        before = previous.get(first)
        if before is not None and observed.round <= before.round:
            totals.pop(first, None)  # the batch of trials began again
        elif before is not None and observed.round == before.round + 1 and "sum" in observed.model:
            place = torch.device("cpu") if loaded is None else loaded.device
            sent = before.model["parameters"], observed.model["sum"], observed.model["parameters"]
            scored = scores(
                config.game, loaded, *(torch.tensor(array).to(place) for array in sent)
            ).cpu()
            totals[first] = totals[first] + scored if first in totals else scored
        previous[first] = observed
    if config is None or not totals:
        raise InputError("this transcript has no released sum yet; wait for the second message")
    batches = {first: range(first, first + len(totals[first])) for first in sorted(totals)}
    return Scored(
        np.concatenate([np.asarray(batch) for batch in batches.values()]),
        np.concatenate(
            [included(config.canaries.count, config.run.seed, batch) for batch in batches.values()]
        ),
        torch.cat([totals[first] for first in batches]).numpy(),
    )


def _recorded(observed: ObservedRound, data_root: str) -> Config:
    values = {key: value for key, value in observed.mechanism.items() if key in KNOWN_KEYS}
    config = from_run_config(values | {"run.device": "auto", "run.threads": 0})
    if not config.canaries.count:
        raise InputError(
            "this run has no canaries to score (canaries.count is 0); plant them before it begins"
        )
    return config.reading_data_from(data_root, offline=True) if data_root else config
