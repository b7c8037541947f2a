"""How trials and records are cut into blocks, which threads compute one by one."""

from dataclasses import dataclass

from fedsim.common.blocks import even, slices
from fedsim.common.memory import Footprint

BLOCK_TRIALS = 2
"""Trials for which a block has room at least, so that they share the first layer's input."""

BLOCKS = 8
"""Blocks into which trials are cut if there is enough to do, so that threads share them evenly."""

WORTH_A_BLOCK, WORTH_A_CUT = 2**22, 2**18
"""Bytes of examples in a block from which it is worth while to cut the trials further, so that
threads have more blocks; and, where there are too few trials for that, the records."""


@dataclass(frozen=True)
class Cut:
    """How many trials and records are computed at once.

    Attributes:
        trials: of a block.
        records: of a block.
        bytes: peak working memory of all threads' blocks, and of the sums that wait to be added.
    """

    trials: int
    records: int
    bytes: float

    def blocks(self, trials: int, records: int) -> list[tuple[slice, slice]]:
        """Return every block of T trials of n records."""
        return blocks(trials, self.trials, records, self.records)


def blocks(
    trials: int, trials_at_once: int, records: int, records_at_once: int
) -> list[tuple[slice, slice]]:
    """Return every block: which trials, and which records."""
    return [
        (some, part)
        for some in slices(trials, trials_at_once)
        for part in slices(records, records_at_once)
    ]


def examples_at_once(
    need: Footprint, examples: float, trials: int, records: int, whole: bool = False
) -> tuple[int, int]:
    """Return how many trials and records a block has, as far as memory allows it.

    examples: for which a block has room.
    whole: whether to cut only where memory asks for it, as on a GPU: each block is launched anew,
    and no threads share them.
    """
    if whole:
        records_at_once = even(records, examples)
        return even(trials, examples / records_at_once), records_at_once
    # As many records that what a trial costs of itself is little.
    fewest = max(need.trial, WORTH_A_CUT) / need.example
    most = max(fewest, min(examples / BLOCK_TRIALS, records / 2))
    records_at_once = even(records, most)
    # Then trials: as fill the block, but no fewer than a block is worth while for.
    fewest = WORTH_A_BLOCK / (records_at_once * need.example)
    most = min(examples / records_at_once, max(fewest, trials / BLOCKS))
    return even(trials, most), records_at_once


def halved(trials: int, records: int) -> tuple[int, int]:
    """Return less for a block: fewer trials at once, then fewer records.

    records: of a block; more than one, where it is one trial.
    """
    return (trials // 2, records) if trials > 1 else (trials, records // 2)
