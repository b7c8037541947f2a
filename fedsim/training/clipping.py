"""Per-example clipped gradients of T models at once.

Trials are the leading axis: parameters are [T, P], and the inclusion of a record in a trial is a
weight on its clipped gradient, so that both worlds of the challenge, and Poisson sampling, are one
computation. Gradients come layer by layer from one backward pass (`fedsim.training.layerwise`), or
for a model that does not allow it from `torch.func`, in blocks of trials and records that bound
memory.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from adversaries.errors import InputError
from fedsim.common.blocks import Pool, even, run, slices
from fedsim.common.device import Precision
from fedsim.common.memory import footprint, readable
from fedsim.training import cutting
from fedsim.training.clipped_block import (
    Gradients,
    Method,
    by_torch_func,
    check_finite,
    clipping_factors,
)
from fedsim.training.cutting import Cut
from fedsim.training.gradients import Dense, formed, weighted_sum
from fedsim.training.layerwise import LayerwiseModel, fallbacks
from fedsim.training.models import flatten, size

BLOCK_BYTES = {"cpu": 2**25, "cuda": 2**32}
"""Memory of a block's examples: what caches nearly hold, and what fills a GPU."""

SAMPLED = 0.8
"""The share of records, below which each trial's are gathered instead of weighting all of them."""


@dataclass(frozen=True)
class Clipper:
    """Clips the gradient of every record over all trained parameters together.

    Attributes:
        model: the structure, and the values of what is not trained; all others come with each call
            as [T, P] float32.
        clipping_norm: C, the largest norm of a record's gradient; infinite for no clipping.
        threads: that work on different blocks, whose cut depends on them only where max_memory
            binds.
        max_memory: bytes of working memory, beside the arguments and the result; None for no bound.
        precision: of forward and backward passes.
        layer_by_layer: False for `torch.func` alone.
    """

    model: nn.Module
    clipping_norm: float
    threads: int = 1
    max_memory: int | None = None
    precision: Precision = "float32"
    layer_by_layer: bool = True
    _methods: dict[tuple[object, ...], Method] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def clipped_sum(
        self, parameters: Tensor, features: Tensor, labels: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return sum_x w(x) g(x) min(1, C/|g(x)|) of every trial.

        For weights in [0, 1], adding or removing a record moves a trial's sum by at most C, up to
        float32 rounding: of the sums, and of norms from Gram matrices, whose terms may cancel.

        Args:
            parameters: float32 [T, P], a model for each trial.
            features: [n, *shape], the same records for all trials.
            labels: [n] integers.
            weights: w, [T, n]; a record of weight 0 is left out exactly. None for all ones.

        Returns:
            float64 [T, P].

        Raises:
            FloatingPointError: a gradient is not finite, which clipping would otherwise hide.
            InputError: max_memory is too little for one record of one trial.
        """
        total = torch.zeros(parameters.shape, dtype=torch.float64, device=parameters.device)
        # Where few records take part each trial gathers its own, else all share one batch.
        chosen = None if weights is None else _chosen(weights)
        own = chosen is not None
        records = len(labels) if chosen is None else chosen.shape[1]
        if not records:
            return total
        pool = self._method(features[0], labels[0], self.precision, own).gradients
        cut = self.cut(features[0], labels[0], len(parameters), records, own)

        # The clipped sum of some trials over some records.
        def block(trials: slice, part: slice) -> Tensor:
            if chosen is None or weights is None:
                inside = None if weights is None else weights[trials, part]
                return self._sum(pool, parameters[trials], features[part], labels[part], inside)
            here = chosen[trials, part]
            inside = weights[trials].gather(1, here)
            return self._sum(pool, parameters[trials], features[here], labels[here], inside)

        self._add_up(total, block, cut.blocks(len(parameters), records))
        return total

    def clipped_sums(
        self, parameters: Tensor, features: Tensor, labels: Tensor, masks: Tensor
    ) -> Tensor:
        """Return sum_x w_j(x) g(x) min(1, C/|g(x)|) for m selections, from one backward pass.

        Args:
            parameters: float32 [T, P].
            features: [n, *shape].
            labels: [n] integers.
            masks: w_j, [m, n], the same for all trials.

        Returns:
            float64 [T, m, P].

        Raises:
            FloatingPointError: a gradient is not finite.
            InputError: max_memory is too little for one record of one trial.
        """
        shape = (len(parameters), len(masks), parameters.shape[1])
        total = torch.zeros(shape, dtype=torch.float64, device=parameters.device)
        if not len(labels):
            return total
        pool = self._method(features[0], labels[0], self.precision).gradients
        cut = self.cut(features[0], labels[0], len(parameters), len(labels), sums=len(masks))

        def block(trials: slice, part: slice) -> Tensor:
            with pool.lend() as gradients_of:
                gradients = gradients_of(parameters[trials], features[part], labels[part])
            scale = clipping_factors(gradients, self.clipping_norm)
            sums = scale.new_empty(len(scale), *shape[1:])
            for position, mask in enumerate(masks[:, part].to(scale)):
                sums[:, position] = weighted_sum(gradients, scale * mask)
            return sums

        self._add_up(total, block, cut.blocks(len(parameters), len(labels)))
        return total

    def clipped_gradients(self, parameters: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the clipped gradient of each of a few records, float64 [T, n, P].

        Always in full precision: this is what a belief rests on.

        Args:
            parameters: float32 [T, P].
            features: [n, *shape].
            labels: [n] integers.

        Raises:
            FloatingPointError: a gradient is not finite.
        """
        method = self._method(features[0], labels[0], "float32")
        each = 16 * parameters[0].numel() * len(labels) + method.footprint.bytes(1, len(labels))
        limit = self._block_bytes(parameters.device)

        def block(trials: slice) -> Tensor:
            with method.gradients.lend() as gradients_of:
                gradients = gradients_of(parameters[trials], features, labels)
            each = formed(gradients).double()
            # By their own norms, which are exact where those from inputs and errors are rounded.
            return each * clipping_factors([Dense(each)], self.clipping_norm)[..., None]

        blocks = [(part,) for part in slices(len(parameters), max(1, int(limit / each)))]
        return torch.cat(list(run(block, blocks, self.threads)))

    def formed_at_once(self, record: Tensor, label: Tensor) -> int:
        """Return of how many records a thread may hold the clipped gradients at once, 1 at least.

        Args:
            record: [*shape], like those whose gradients `clipped_gradients` is to form.
            label: its label, a scalar.
        """
        need = self._method(record, label, "float32").footprint
        # Formed in float32, then in float64 before and after clipping.
        each = need.example + need.record + 32 * size(self.model)
        return max(1, int((self._block_bytes(record.device) - need.fixed - need.trial) / each))

    def _block_bytes(self, device: torch.device) -> float:
        """Return the memory of one thread's block."""
        limit = BLOCK_BYTES[device.type]
        return limit if self.max_memory is None else min(limit, self.max_memory // self.threads)

    def clipped_distances(
        self, parameters: Tensor, features: Tensor, labels: Tensor, groups: Tensor
    ) -> Tensor:
        """Return |g(x)|, or |g(x) - g(x')|, of clipped gradients, float64 [T, m].

        In full precision, as `clipped_gradients`; gradients exist for one block of trials and
        groups at a time.

        Args:
            parameters: float32 [T, P].
            features: [n, *shape].
            labels: [n] integers.
            groups: [T, m, 1] for the records x, or [T, m, 2] for the pairs x, x': positions among
                the n records, each trial its own.

        Raises:
            FloatingPointError: a gradient is not finite.
        """
        method = self._method(features[0], labels[0], "float32", True)
        members = groups.shape[-1]
        limit = self._block_bytes(parameters.device)
        # Formed in float32, then float64, clipped, subtracted and squared. Groups fill a block
        # first, then trials.
        each = members * (method.footprint.example + 32 * size(self.model))
        at_once = even(groups.shape[1], limit / each)
        trials_at_once = max(1, int(limit / (at_once * each + method.footprint.trial)))

        def block(trials: slice, part: slice) -> Tensor:
            # The members of these groups, [t, groups * members], are each trial's own batch.
            here = groups[trials, part].flatten(1)
            with method.gradients.lend() as gradients_of:
                gradients = gradients_of(parameters[trials], features[here], labels[here])
            each = formed(gradients).double()
            each.mul_(clipping_factors([Dense(each)], self.clipping_norm)[..., None])
            # [t, groups, members, P]
            each = each.unflatten(1, (-1, members))
            found = each[:, :, 0] if members == 1 else each[:, :, 0] - each[:, :, 1]
            return torch.linalg.vector_norm(found, dim=-1)

        blocks = cutting.blocks(len(parameters), trials_at_once, groups.shape[1], at_once)
        distances = torch.empty(groups.shape[:2], dtype=torch.float64, device=parameters.device)
        for place, found in zip(blocks, run(block, blocks, self.threads), strict=True):
            distances[place] = found
        return distances

    def fallbacks(self, record: Tensor, label: Tensor) -> dict[str, str]:
        """Return why layers go through `torch.func`, by their names; '' stands for the whole model.

        Args:
            record: [*shape].
            label: its label, a scalar.
        """
        return self._method(record, label, self.precision).fallbacks

    def cut(
        self,
        record: Tensor,
        label: Tensor,
        trials: int,
        records: int,
        own: bool = False,
        sums: int = 1,
    ) -> Cut:
        """Return how T trials of n records are cut into blocks.

        Args:
            record: [*shape], like all n.
            label: its label, a scalar.
            trials: T.
            records: n.
            own: whether every trial has records of its own, as where they are sampled.
            sums: how many are made of each trial's gradients.

        Raises:
            InputError: max_memory is too little for one record of one trial.
        """
        need = self._method(record, label, self.precision, own).footprint

        def held(trials: int, records: int) -> float:
            waiting = (self.threads + 1) * 4 * trials * sums * size(self.model)
            return self.threads * need.bytes(trials, records) + waiting

        examples = BLOCK_BYTES[record.device.type] / need.example
        at_once = cutting.examples_at_once(need, examples, trials, records)
        limit = math.inf if self.max_memory is None else self.max_memory
        while held(*at_once) > limit:
            if at_once == (1, 1):
                raise InputError(
                    f"run.max-memory leaves {readable(limit)} for gradients, but one record takes "
                    f"{readable(held(1, 1))} with run.threads = {self.threads}; allow more memory "
                    "or fewer threads"
                )
            at_once = cutting.halved(*at_once)
        return Cut(*at_once, held(*at_once))

    def _add_up(
        self,
        total: Tensor,
        block: Callable[[slice, slice], Tensor],
        blocks: Sequence[tuple[slice, slice]],
    ) -> None:
        """Add what all blocks come to, each float32, to a total in float64, in their order."""
        for (trials, _), added in zip(blocks, run(block, blocks, self.threads), strict=True):
            total[trials].add_(added)

    def _method(
        self, record: Tensor, label: Tensor, precision: Precision, own: bool = False
    ) -> Method:
        """Return how records of this kind are computed; found out once."""
        kind = (record.shape, record.dtype, record.device, precision, own)
        if kind not in self._methods:
            reasons = fallbacks(self.model, record) if self.layer_by_layer else {"": "as asked"}

            def make() -> Gradients:
                if "" in reasons:
                    return by_torch_func(self.model, precision)
                return LayerwiseModel(self.model, precision).gradients

            gradients = Pool(make)
            parameters = flatten(self.model).expand(3, -1)

            def block(trials: int, records: int) -> Tensor:
                features, labels = (x.expand(records, *x.shape) for x in (record, label))
                if own:  # a copy for each trial, as gathering makes
                    features, labels = (
                        x.expand(trials, *x.shape).clone() for x in (features, labels)
                    )
                return self._sum(gradients, parameters[:trials], features, labels, None)

            self._methods[kind] = Method(reasons, gradients, footprint(block, record.device))
        return self._methods[kind]

    def _sum(
        self,
        pool: Pool[Gradients],
        parameters: Tensor,
        features: Tensor,
        labels: Tensor,
        weights: Tensor | None,
    ) -> Tensor:
        """Return one block of the clipped sum, float32 [t, P]."""
        with pool.lend() as gradients_of:
            gradients = gradients_of(parameters, features, labels)
        if self.clipping_norm == math.inf:
            # No norms are needed: what is not finite stays so in the sum, even weighted by 0.
            scale = torch.ones_like(parameters[:, :1]).expand(-1, labels.shape[-1])
        else:
            scale = clipping_factors(gradients, self.clipping_norm)
        if weights is not None:
            # w = 0 must remove a record exactly, and 0 * g does for every finite g.
            scale = scale * weights
        total = weighted_sum(gradients, scale)
        if self.clipping_norm == math.inf:
            check_finite(total)
        return total


def _chosen(weights: Tensor) -> Tensor | None:
    """Return each trial's records of weight other than 0, [T, m]; None if that is most of them.

    Trials that have fewer than m are filled up with records of weight 0.
    """
    present = weights != 0
    most = int(present.sum(1).max()) if weights.numel() else 0
    if most >= SAMPLED * weights.shape[1]:
        return None
    return present.byte().sort(dim=1, descending=True, stable=True).indices[:, :most]
