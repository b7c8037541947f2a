"""Per-example clipped gradients of T models at once.

The inclusion of a record in a trial is a weight on its clipped gradient, so both worlds of the
challenge, and Poisson sampling, are one computation. Blocks of trials and records bound the memory.
Parameters are float32 [T, P], features [n, *shape] for all trials, and labels [n] integers.
"""

import math
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from adversaries.errors import InputError
from fedsim.common.blocks import even, run, slices
from fedsim.common.device import Precision
from fedsim.common.memory import readable
from fedsim.learning.training import clipped_block, cutting
from fedsim.learning.training.clipped_block import Method
from fedsim.learning.training.cutting import Cut
from fedsim.learning.training.gradients import Formed, formed
from fedsim.learning.training.models import size
from fedsim.learning.training.slots import SLOTS, Contents, arranged, in_front
from fedsim.learning.training.tasks import task_of

BLOCK_BYTES = {"cpu": 2**25, "cuda": 2**32}
"""Memory of a block's examples: about the size of CPU caches, or enough to fill a GPU."""

EXACT_ROWS, EXACT_BYTES = (1024, 64), 2**24
"""Largest and smallest number of records in a block of an exact sum, and the memory up to which it
may have more than the smallest. Beyond the memory at the smallest, a block has one group."""

MOST_ROWS, CACHED = 4096, 2**21
"""Number of records in a block of an exact sum of many small records, and its memory."""

WORTH_THREADS = 2**20
"""Bytes of a block's examples below which threads that share blocks take longer than one."""

SAMPLED = 0.8
"""Share of the records below which each trial gathers its own records instead of weighting all."""


@dataclass(frozen=True)
class Clipper:
    """Clips the gradient of every record over all trained parameters together.

    Attributes:
        clipping_norm: C, the largest norm of a record's gradient; infinite for no clipping.
        exact: needed for real noise. Sums are float64 throughout, so that their rounding is within
            C too, and a record whose gradient is not finite adds nothing. Otherwise it is an error.
        expected: public number of records in an exact sum, by which its blocks are cut.
    """

    model: nn.Module
    clipping_norm: float
    threads: int = 1
    max_memory: int | None = None
    precision: Precision = "float32"
    layer_by_layer: bool = True
    exact: bool = False
    expected: float = math.inf
    _methods: dict[tuple[object, ...], Method] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def placed(self) -> bool:
        """Whether records have places by content; not where a client's whole update is clipped."""
        return self.exact and self.clipping_norm < math.inf

    def clipped_sum(
        self,
        parameters: Tensor,
        features: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
        positions: Tensor | None = None,
        checked: bool = True,
        sampled: bool = True,
        contents: Contents | None = None,
        norms: Tensor | None = None,
    ) -> Tensor:
        """Return sum_x w(x) r(x) g(x) min(1, C/|g(x)|) of every trial.

        r is `Task.shares_of_norm`, 1 without class priors. It multiplies a gradient that was
        clipped to C, and is at most 1. So no record's term is longer than C, for every model and
        record, rounding included, and the sensitivity is as without priors. With
        `exact`, leaving a record out changes a trial's sum by at most C, because it moves no other
        record (`slots`). Otherwise the float32 sum of a block of b records may round by b^2 2^-23 C
        more.

        weights: w, [T, n]; a weight of 0 leaves a record out exactly. None for all ones.
        positions: [T, m] among the n records, the records of each trial; weights are then [T, m].
        None for all records.
        checked: False if the caller checks the sum, which is NaN if a gradient is not finite.
        sampled: False if few weights are 0, so that the CPU need not wait for a GPU to count them.
        contents: of the records, for `exact`; None to compute them.
        norms: finite C of each trial, [T, 1], instead of `clipping_norm`; not with `exact`.
        Returns: float64 [T, P].
        Raises FloatingPointError if a gradient is not finite, which clipping would otherwise hide.
        Raises InputError if max_memory is too little for one record of one trial.
        """
        if self.placed and len(labels):
            if positions is not None or len(parameters) > 1:
                weights = _of_all(parameters, len(labels), weights, positions)
            positions, weights = self._places(features, labels, weights, contents)
        total = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
        # If few records take part, each trial gathers its own; else all trials share one batch.
        chosen = positions
        if chosen is None and weights is not None and sampled:
            chosen = _chosen(weights)
            weights = weights if chosen is None else weights.gather(1, chosen)
        own = chosen is not None
        records = len(labels) if chosen is None else chosen.shape[1]
        if not records:
            return total
        record, label = self._example(features, labels)
        pool = self._method(record, label, self.precision, own).gradients
        summed = partial(clipped_block.clipped_sum, pool, exact=self.exact)
        cut = self.cut(record, label, len(parameters), records, own)

        def block(trials: slice, part: slice) -> Tensor:
            models = parameters[trials]
            inside = None if weights is None else weights[trials, part]
            at = part if chosen is None else chosen[trials, part]
            if (shares := self._shares(labels[at])) is not None:
                inside = shares.expand(len(models), -1) * (1.0 if inside is None else inside)
            norm = self.clipping_norm if norms is None else norms[trials]
            return summed(norm, models, features[at], labels[at], inside)

        threads = self.threads if cut.bytes >= self.threads * WORTH_THREADS else 1
        blocks = cut.blocks(len(parameters), records)
        # In the order of the blocks, in which threads need not finish: equal to the bit.
        for (trials, _), added in zip(blocks, run(block, blocks, threads), strict=True):
            total[trials].add_(added)
        if checked:
            clipped_block.check_finite(total)
        return total

    def clipped_gradients(self, parameters: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return r(x) g(x) min(1, C/|g(x)|) of a few records, float64 [T, n, P], in full precision.

        Raises FloatingPointError if a gradient is not finite.
        Raises RuntimeError if one is longer than the clipping norm, on which every statement
        about privacy rests.
        """
        method = self._method(features[0], labels[0], "float32")
        each = 16 * parameters[0].numel() * len(labels) + method.footprint.bytes(1, len(labels))
        at_once = max(1, int(self.block_bytes(parameters.device) / each))

        def block(trials: slice) -> Tensor:
            return self._clipped(method, parameters[trials], features, labels)

        blocks = [(part,) for part in slices(len(parameters), at_once)]
        each_clipped = torch.cat(list(run(block, blocks, self.threads)))
        clipped_block.check_lengths(each_clipped, self.clipping_norm)
        return each_clipped

    def _clipped(
        self, method: Method, parameters: Tensor, features: Tensor, labels: Tensor
    ) -> Tensor:
        """Return a block's clipped gradients times their records' shares, float64 [t, n, P]."""
        with method.gradients.lend() as gradients_of:
            each = formed(gradients_of(parameters, features, labels)).double()
        # Norms of formed gradients: they are exact where norms from inputs are rounded.
        norms, shares = clipped_block.joint_norms([Formed(each)]), self._shares(labels)
        each.mul_(clipped_block.clipping_factors(norms, self.clipping_norm)[..., None])
        return each if shares is None else each * shares[..., None]

    def formed_at_once(self, record: Tensor, label: Tensor) -> int:
        """Return the number of clipped gradients that a thread may hold at once, at least 1."""
        need = self._method(record, label, "float32").footprint
        # A gradient is formed in float32, then held in float64 before and after clipping.
        each = need.example + need.record + 24 * size(self.model)
        return max(1, int((self.block_bytes(record.device) - need.fixed - need.trial) / each))

    def block_bytes(self, device: torch.device) -> float:
        limit = BLOCK_BYTES[device.type]
        return limit if self.max_memory is None else min(limit, self.max_memory // self.threads)

    def clipped_distances(
        self, parameters: Tensor, features: Tensor, labels: Tensor, groups: Tensor | None = None
    ) -> Tensor:
        """Return |g(x)|, or |g(x) - g(x')|, of clipped gradients, float64 [T, m].

        groups: positions [m, 1] of the records x, or [m, 2] of the pairs x, x'; None for each
        record by itself.
        Raises FloatingPointError if a gradient is not finite.
        """
        if groups is None:
            groups = torch.arange(len(labels), device=labels.device)[:, None]
        members = groups.shape[1]
        method = self._method(features[0], labels[0], "float32")
        # Groups fill the memory of a block first, then trials.
        held = max(1, self.formed_at_once(features[0], labels[0]) // members)
        at_once = even(len(groups), held)
        trials_at_once = max(1, held // max(1, at_once))

        def block(trials: slice, part: slice) -> Tensor:
            at = groups[part].flatten()
            each = self._clipped(method, parameters[trials], features[at], labels[at])
            each = each.unflatten(1, (-1, members))  # [t, groups, members, P]
            difference = each[:, :, 0] if members == 1 else each[:, :, 0] - each[:, :, 1]
            return torch.linalg.vector_norm(difference, dim=-1)

        blocks = cutting.blocks(len(parameters), trials_at_once, len(groups), at_once)
        distances = torch.empty(len(parameters), len(groups), dtype=torch.float64)
        distances = distances.to(parameters.device)
        for place, part in zip(blocks, run(block, blocks, self.threads), strict=True):
            distances[place] = part
        clipped_block.check_finite(distances)
        return distances

    def longest(self, labels: Tensor) -> Tensor:
        """Return the largest norm of each record's term, float64 [n]: C, or less by its class."""
        shares = self._shares(labels)
        norms = torch.full(labels.shape[:1], self.clipping_norm, dtype=torch.float64)
        return norms.to(labels.device) * (1.0 if shares is None else shares)

    def _shares(self, labels: Tensor) -> Tensor | None:
        return task_of(self.model).shares_of_norm(labels)

    def fallbacks(self, record: Tensor, label: Tensor) -> dict[str, str]:
        """Return why layers go through `torch.func`, by name; '' stands for the whole model."""
        return self._method(record, label, self.precision).fallbacks

    def cut(
        self, record: Tensor, label: Tensor, trials: int, records: int, own: bool = False
    ) -> Cut:
        """Return the blocks into which T trials of n records are cut.

        own: whether every trial has separate records.
        Raises InputError for too little max_memory.
        """
        method = self._method(record, label, self.precision, own)
        need = method.footprint

        def held(trials: int, records: int) -> float:
            waiting = (self.threads + 1) * (8 if self.exact else 4) * trials * size(self.model)
            return self.threads * need.bytes(trials, records) + waiting

        # How many examples (a record in a trial) fill the cache or the device.
        examples = BLOCK_BYTES[record.device.type] / need.example
        if self.placed and own:
            # The groups of one trial share its parameters in memory.
            at_once = 1, self._rows(method)
        else:
            whole = record.device.type != "cpu"
            at_once = cutting.examples_at_once(need, examples, trials, records, whole)
        limit = math.inf if self.max_memory is None else self.max_memory
        # Halve the block until the gradients of all threads, and the results that wait to be added,
        # fit into the memory.
        while held(*at_once) > limit:
            if at_once == (1, 1):
                raise InputError(
                    f"run.max-memory leaves {readable(limit)} for gradients, but one record takes "
                    f"{readable(held(1, 1))} with run.threads = {self.threads}; allow more memory "
                    "or fewer threads"
                )
            at_once = cutting.halved(*at_once)
            if self.placed and own and at_once[1] < EXACT_ROWS[1]:
                at_once = 1, min(at_once[1], SLOTS)
        return Cut(*at_once, held(*at_once))

    def _rows(self, method: Method) -> int:
        """Return the number of records in every block of an exact sum."""
        return fixed_rows(method.footprint.example, self.expected) if method.divisible else SLOTS

    def _places(
        self, features: Tensor, labels: Tensor, weights: Tensor | None, contents: Contents | None
    ) -> tuple[Tensor, Tensor]:
        """Return positions and weights [T, m]: places by content, in blocks of one fixed size.

        weights: None for one trial of all records.

        A kernel rounds differently for another number of rows or at another place, and a hostile
        model can make that rounding as large as a gradient. Here a record's absence changes no
        other record's place in a group, and no block's shape. An empty place has weight 0.
        """
        record, label = self._example(features, labels)
        rows = self._rows(self._method(record, label, self.precision, own=True))
        contents = contents or Contents.of(features, labels)
        if weights is None:
            positions, filled = contents.whole(rows // SLOTS)
            return positions, filled.float()
        positions, filled = arranged(contents, weights != 0, rows // SLOTS)
        return positions, weights.gather(1, positions) * filled

    def _example(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return a record and its label to measure with; zeros instead of real ones where exact."""
        record, label = features[0], labels[0]
        return (
            (torch.zeros_like(record), torch.zeros_like(label)) if self.exact else (record, label)
        )

    def _method(
        self, record: Tensor, label: Tensor, precision: Precision, own: bool = False
    ) -> Method:
        """Return the method for records of this kind, which is made once."""
        kind = (record.shape, record.dtype, record.device, precision, own)
        if kind not in self._methods:
            self._methods[kind] = Method.of(
                self.model,
                self.clipping_norm,
                record,
                label,
                precision=precision,
                layer_by_layer=self.layer_by_layer,
                own=own,
                exact=self.exact,
            )
        return self._methods[kind]


def _of_all(
    parameters: Tensor, records: int, weights: Tensor | None, positions: Tensor | None
) -> Tensor:
    """Return the weights of all n records, [T, n]; 0 at no position [T, m] of a trial."""
    if positions is None:
        return parameters.new_ones(len(parameters), records) if weights is None else weights
    if weights is None:
        weights = torch.ones(positions.shape, device=parameters.device)
    return weights.new_zeros(len(parameters), records).scatter_(1, positions, weights)


def fixed_rows(example: float, expected: float) -> int:
    """Return the number of records in every block of an exact sum, a power of two.

    It depends on public numbers alone. A record's absence must not change the shape of a block. It
    is at least 64, or `SLOTS`: then kernels that take 64 numbers at a time leave no rest that only
    some groups would have.

    example: bytes of a record.
    expected: number of records in a sum. Their slots need up to a few times as many places.
    """
    largest, smallest = EXACT_ROWS
    rows = MOST_ROWS
    while rows > largest and (2 * rows > expected or rows * example > CACHED):
        rows //= 2
    while rows > smallest and (rows > 4 * expected or rows * example > EXACT_BYTES):
        rows //= 2
    return rows if rows * example <= EXACT_BYTES else SLOTS


def _chosen(weights: Tensor) -> Tensor | None:
    """Return each trial's records of nonzero weight, [T, m]; None if these are most records."""
    present = weights != 0
    most = int(present.sum(1).max()) if weights.numel() else 0
    # If most records take part anyway, weighting a shared batch costs less than gathering.
    if most >= SAMPLED * weights.shape[1]:
        return None
    return in_front(present, most)
