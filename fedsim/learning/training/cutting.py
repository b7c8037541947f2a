"""The cut of trials and records into blocks, which threads share."""

from dataclasses import dataclass

from fedsim.common.blocks import even, slices
from fedsim.common.memory import Footprint

BLOCK_TRIALS = 2
"""Least number of trials for which a block has room, so that they share the first layer's input."""

BLOCKS = 8
"""Number of blocks of trials, if there is enough work, so that threads share it evenly."""

WORTH_A_BLOCK, WORTH_A_CUT = 2**22, 2**18
"""Bytes of examples in a block from which cutting trials further pays, so that threads have more
blocks; and from which cutting records pays, where there are too few trials."""


@dataclass(frozen=True)
class Cut:
    """Trials and records of a block, and the peak memory of all threads' blocks and sums."""

    trials: int
    records: int
    bytes: float

    def blocks(self, trials: int, records: int) -> list[tuple[slice, slice]]:
        """Return every block of T trials of n records."""
        return blocks(trials, self.trials, records, self.records)


def blocks(
    trials: int, trials_at_once: int, records: int, records_at_once: int
) -> list[tuple[slice, slice]]:
    """Return every block as slices of trials and of records."""
    return [
        (some, part)
        for some in slices(trials, trials_at_once)
        for part in slices(records, records_at_once)
    ]


def examples_at_once(
    need: Footprint, examples: float, trials: int, records: int, whole: bool = False
) -> tuple[int, int]:
    """Return the number of trials and of records in a block, as far as memory allows.

    examples: number of examples for which a block has room.
    whole: whether to cut only where memory requires it, as on a GPU: each block costs a launch, and
    no threads share them.
    """
    if whole:
        records_at_once = even(records, examples)
        return even(trials, examples / records_at_once), records_at_once
    # Enough records that the cost of a trial itself is small. All records of fewer trials take less
    # time than half of the records of more trials, where threads have enough blocks either way.
    fewest = max(need.trial, WORTH_A_CUT) / need.example
    parts = 1 if trials >= 2 * BLOCKS * BLOCK_TRIALS else 2
    most = max(fewest, min(examples / BLOCK_TRIALS, records / parts))
    records_at_once = even(records, most)
    # Then enough trials to fill the block, but at least enough to make it worthwhile.
    fewest = WORTH_A_BLOCK / (records_at_once * need.example)
    most = min(examples / records_at_once, max(fewest, trials * parts / (2 * BLOCKS)))
    return even(trials, most), records_at_once


def halved(trials: int, records: int) -> tuple[int, int]:
    """Return a smaller block: half of the trials, or half of the records of a single trial."""
    return (trials // 2, records) if trials > 1 else (trials, records // 2)
