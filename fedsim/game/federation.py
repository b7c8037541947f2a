"""A federation before the first message: data, clients and model, without Flower."""

import copy
import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from adversaries.arrays import Floats, Ints
from fedsim.common import device
from fedsim.common.memory import installed, spare
from fedsim.configuration import Config
from fedsim.configuration.federation import OWN
from fedsim.learning import data
from fedsim.learning.data import distribution
from fedsim.learning.training import models
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.cutting import Cut
from fedsim.learning.training.slots import Contents
from fedsim.learning.training.tasks import task_of
from fedsim.privacy.mechanism import Neighbouring

if TYPE_CHECKING:
    from fedsim.game.crafting import Crafted

MOST_BYTES = 2**30
"""Bytes of the federations that `load` keeps; the two most recent stay whatever their size."""

recent: dict[tuple[Config, int | None], "Federation"] = {}
"""Federations that `load` keeps, by experiment and client; the last is the most recent."""

_lock = Lock()


@dataclass(frozen=True, eq=False)
class Federation:
    """The records of D, the clients that hold them, and the model that they train from `start`."""

    split: data.Split
    client_of: Ints
    model: nn.Module
    clipper: Clipper
    device: torch.device
    crafted: "Crafted | None" = None
    start: Tensor | None = None
    _kept: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def members(self, positions: npt.NDArray[np.intp]) -> tuple[Tensor, Tensor]:
        return self._tensors("members_records", positions)

    def pool(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        return self._tensors("pool_records", np.asarray(positions, dtype=np.intp))

    def held_out(self) -> tuple[Tensor, Tensor]:
        return self._tensors("held_out_records")

    def on_cpu(self) -> "Federation":
        """Return the federation on the CPU, where server and clients compute the same."""
        cpu = torch.device("cpu")
        return replace(self, model=copy.deepcopy(self.model).to(cpu), device=cpu)

    def sizes(self) -> dict[int, int]:
        """Return the bytes of each array and tensor held now, by identity: some are shared."""
        parts = [self.split.dataset.train, self.split.dataset.test, *vars(self.split).values()]
        records = [each for each in parts if isinstance(each, data.Records)]
        tensors = [
            *self.model.parameters(),
            *(each for pair in self._kept.values() for each in pair),
        ]
        arrays = [array for each in records for array in (each.features, each.labels)]
        return {id(each): each.nbytes for each in (*arrays, *tensors)}

    def owned_by(self, client: int) -> npt.NDArray[np.intp]:
        return self._owned.get(client, np.empty(0, dtype=np.intp))

    @cached_property
    def _owned(self) -> dict[int, npt.NDArray[np.intp]]:
        """Positions of every client's records, in order, for clients with records."""
        if not len(self.client_of):  # a split of nothing would still have one part
            return {}
        order = np.argsort(self.client_of, kind="stable")
        clients, first = np.unique(self.client_of[order], return_index=True)
        return dict(zip(clients.tolist(), np.split(order, first[1:]), strict=True))

    def clipped_sum(
        self,
        parameters: Tensor,
        positions: npt.NDArray[np.intp],
        participation: Tensor | None = None,
    ) -> Tensor:
        """Return the sum of the clipped gradients of records of D, of any clients.

        parameters: float32 [T, P].
        positions: positions in D, [m].
        participation: bool [T, n], which of all records of D take part; None for all.
        Returns: float64 [T, P].
        """
        if not positions.size:
            return torch.zeros_like(parameters, dtype=torch.float64)
        weights = None if participation is None else participation[:, positions].to(parameters)
        contents = self.contents(positions)
        return self.clipper.clipped_sum(
            parameters, *self.members(positions), weights, contents=contents
        )

    def contents(self, positions: npt.NDArray[np.intp]) -> Contents | None:
        """Return the contents of records of D, which places in an exact sum need; else None."""
        if not self.clipper.placed:
            return None
        return self._contents.at(torch.from_numpy(positions).to(self.device))

    def contents_of(self, client: int) -> Contents | None:
        """Return the contents of a client's records, whose places every round needs; else None."""
        if client not in self._of_client:
            self._of_client[client] = self.contents(self.owned_by(client))
        return self._of_client[client]

    @cached_property
    def _of_client(self) -> dict[int, Contents | None]:
        return {}

    @cached_property
    def _contents(self) -> Contents:
        return Contents.of(*self.members(np.arange(len(self.client_of))))

    def evaluate(
        self, parameters: Tensor, features: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return losses float64 [T, n] and scores float32 [T, n] of models [T, P] by task."""
        from fedsim.learning.training import evaluation  # noqa: PLC0415  (no client evaluates)

        return evaluation.evaluate(self.model, parameters, features, labels, self.clipper.threads)

    def measures(self, parameters: Tensor) -> dict[str, Tensor]:
        """Return further measures [T, ...] of models [T, P] on held-out records, by name."""
        from fedsim.learning.training import evaluation  # noqa: PLC0415  (no client evaluates)

        classes, threads = self.split.dataset.classes, self.clipper.threads
        return evaluation.measures(self.model, parameters, *self.held_out(), classes, threads)

    def outputs(self, parameters: Tensor, features: Tensor) -> Tensor:
        """Return the outputs [T, n, c] of models [T, P] for any number of records [n, *shape]."""
        from fedsim.learning.training import evaluation  # noqa: PLC0415  (no client evaluates)

        return evaluation.outputs(self.model, parameters, features, self.clipper.threads)

    @cached_property
    def baseline(self) -> dict[str, float]:
        """Score of a model that has learnt nothing, and its loss where the task compares losses."""
        baseline = task_of(self.model).baseline(self.model, *self.held_out())
        loss = {} if baseline.loss is None else {"baseline_loss": baseline.loss}
        return {"majority": baseline.score} | loss

    @cached_property
    def of_class(self) -> list[int]:
        """Numbers of the held-out records of each class; empty without classes."""
        if task_of(self.model).name != "classification":
            return []
        labels, classes = self.held_out()[1], self.split.dataset.classes
        counts: list[int] = torch.bincount(labels.flatten().long(), minlength=classes).tolist()
        return counts

    @property
    def direction(self) -> Tensor | None:
        """Unit vector [P] of a crafted gradient; None without one."""
        if self.crafted is None or self.crafted.direction is None:
            return None
        return self.crafted.direction.to(self.device)

    def fallbacks(self) -> dict[str, str]:
        """Return the layers that use `torch.func`, by name, with the reason."""
        reasons = self.clipper.fallbacks(*self._example())
        return {name or "the whole model": reason for name, reason in reasons.items()}

    def cut(self, trials: int, sampled: bool) -> Cut:
        """Return how the records of the largest client are cut into blocks.

        sampled: whether every trial has its own records.
        Raises InputError if memory does not allow for one record.
        """
        most = int(np.bincount(self.client_of).max())
        return self.clipper.cut(*self._example(), trials, most, sampled)

    def _example(self) -> tuple[Tensor, Tensor]:
        features, labels = self.members(np.asarray([0]))
        return features[0], labels[0]

    def _tensors(
        self, name: str, positions: npt.NDArray[np.intp] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return features and labels of the records of this name, all for positions None."""
        records: data.Records = getattr(self.split, name)
        if self.device.type == "cpu":
            some = records if positions is None else records.take(positions)
            # The arrays are shared and read-only, but torch needs its own copy.
            return torch.tensor(some.features), torch.tensor(some.labels)
        # A GPU keeps all records, so that each round sends only positions.
        if name not in self._kept:
            whole = torch.tensor(records.features), torch.tensor(records.labels)
            self._kept[name] = whole[0].to(self.device), whole[1].to(self.device)
        features, labels = self._kept[name]
        if positions is None:
            return features, labels
        where = torch.tensor(positions).to(self.device, non_blocking=True)
        return features[where], labels[where]


@lru_cache(maxsize=1024)
def digest(config: Config, client: int, records: bool = True) -> str:
    """Return the SHA-256 of a client's data of D: its records', or their place and shape."""
    if config.data.name == OWN:
        return hashlib.sha256(config.data.public_schema.encode()).hexdigest()
    federation = load(config)
    positions = federation.owned_by(client)
    own = federation.split.members_records.take(positions)
    digested = hashlib.sha256(np.ascontiguousarray(positions).data)
    for array in (own.features, own.labels):
        digested.update(f"{array.dtype.str} {array.shape}".encode())
        if records:
            digested.update(np.ascontiguousarray(array).data)
    return digested.hexdigest()


def build_model(config: Config, dataset: data.Dataset) -> nn.Module:
    """Return the configured network for the records of a dataset."""
    return models.network(config.model, dataset.train.features.shape[1:], dataset.classes)


def load(config: Config, client: int | None = None) -> Federation:
    """Return an experiment's federation, cached up to `MOST_BYTES`, with a client's own records.

    Raises InputError if its data cannot be loaded.
    """
    key = config, client
    with _lock:
        found = recent.pop(key, None)
    loaded = found or _load(config, client)
    with _lock:
        recent[key] = loaded
        while len(recent) > 2 and _size() > MOST_BYTES:
            del recent[next(iter(recent))]
    return loaded


def _size() -> int:
    """Return the bytes of all kept federations, each array once."""
    sizes: dict[int, int] = {}
    for each in recent.values():
        sizes |= each.sizes()
    return sum(sizes.values())


def _load(config: Config, client: int | None) -> Federation:
    run = config.run
    split, client_of = distribution.held(
        config.data,
        config.federation,
        config.model.weights,
        client,
        rehearsed=run.job == "rehearsal",
    )
    dataset = split.dataset
    where = device.resolve(run.device)
    model = models.structural_model(partial(build_model, config, dataset), run.seed)
    shape = dataset.train.features.shape[1:]
    models.check_input(model, config.model.name, shape, dataset.classes)
    model = model.to(where)
    device.check_precision(run.precision, where)
    exact = config.privacy.noise_source == "system"
    clipper = Clipper(
        model,
        # A client's update is clipped as a whole, not its gradients.
        config.training.clipping_norm
        if config.training.clipping and config.privacy.unit == "record"
        else math.inf,
        device.threads(run.threads) if where.type == "cpu" else 1,
        memory_limit(run.memory_limit, where, exact) // 2,
        run.precision,
        exact=exact,
        expected=config.participation.divisor / config.federation.clients,
    )
    loaded = Federation(split, client_of, model, clipper, where)
    return _with_challenge(config, loaded)


def initial_parameters(config: Config, loaded: Federation, trials: range) -> Tensor:
    """Return theta_0 of some trials by model.initialisation: float32 [T, P], on the CPU."""
    if loaded.start is not None:
        return loaded.start.expand(len(trials), -1).contiguous()
    return models.initial_parameters(
        partial(build_model, config, loaded.split.dataset), config.run.seed, trials
    )


def _with_challenge(config: Config, loaded: Federation) -> Federation:
    """Return the federation with its first model and a crafted target. Raises InputError.

    The crafted target may depend on the first model, but not the reverse.
    """
    challenge, client_of = config.challenge, loaded.client_of
    if challenge.kind == "record" and config.model.initialisation == "random":
        return loaded
    from fedsim.game import crafting  # noqa: PLC0415  (only for audits)

    record, neighbouring = challenge.record, config.privacy.neighbouring
    if challenge.kind != "record":
        record = crafting.place(challenge, config.data.seed, client_of)
    theta = initial_parameters(config, loaded, range(1))[0]
    host = loaded.on_cpu()
    if config.model.initialisation == "worst-case":
        from fedsim.learning.training import fitting  # noqa: PLC0415  (only for audits)

        others = np.delete(np.arange(len(client_of)), record)
        with device.one_thread():
            theta = fitting.fitted(host.model, theta, *host.members(others))
    if config.model.initialisation != "random":
        loaded = replace(loaded, start=theta)
    if challenge.kind == "record":
        return loaded
    if challenge.kind == "gradient":
        direction = crafting.direction(neighbouring, config.data.seed, record, theta.numel())
        return replace(loaded, crafted=direction)

    def outputs(features: npt.NDArray[Any]) -> Floats:
        with device.one_thread():
            return host.outputs(theta[None], torch.tensor(features)[None])[0, 0].double().numpy()

    crafted = crafting.craft(config, loaded.split, record, outputs)
    replaced = neighbouring is Neighbouring.REPLACE
    split = crafting.Planted.of(loaded.split, crafted, replaced)
    return replace(loaded, split=split, crafted=crafted)


def memory_limit(limit: int | None, where: torch.device, exact: bool = False) -> int:
    """Return the bytes that may be used: the configured limit, or what is free.

    exact: for sums that real noise protects. The memory of the machine then stands for what is
    free, which depends on the records, and would decide how they are cut into blocks.
    """
    if limit is not None:
        return limit
    return installed(where) if exact else spare(where)
