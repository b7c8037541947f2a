"""Adversaries at the server, by `audit.mode`; a user's own class is "package.module:name"."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.arrays import Floats
from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.configuration import Config
from fedsim.game import federation as data
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms.step import Step, UnknownNoise
from fedsim.game.mechanisms.vantages import EXACT
from fedsim.game.observers.disclosed_noise import measure
from fedsim.game.observers.participant import of_local_steps, replay_target
from fedsim.game.observers.question import Question
from fedsim.game.pair import challenge_contributions, common_part
from fedsim.game.round_game import RoundGame
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Vantage

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class OracleView:
    """Secrets of a round that only an oracle may read, such as g and g', [T, P], and all noise."""

    worlds: Tensor
    present: Tensor
    absent: Tensor | None
    participation: Tensor | None
    noises: Iterable[tuple[int, Tensor]]


@dataclass(frozen=True)
class Seen:
    """The server's view of a round in which the target's client took part.

    Attributes:
        unknown_noise: noise that hides the target, by measured vantage that sees every round.
        total: [T, P] float64, the released sum less the disclosed noise.
    """

    config: Config
    game: RoundGame
    participants: tuple[int, ...]
    unknown_noise: Mapping[Vantage, UnknownNoise]
    model: Array
    total: Floats
    message: Callable[[int], Array]
    measured: Callable[[], OracleView]


class Seat(ABC):
    """An adversary that observes every round at the server; one for each batch of trials."""

    vantages: ClassVar[tuple[Vantage, ...]]
    follows: ClassVar[bool] = False
    reads_noise: ClassVar[bool] = False
    exact: ClassVar[bool] = True

    @abstractmethod
    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        """Return the evidence of a round at each measured vantage."""


class CuriousServer(Seat):
    """The server itself, beside a participant with a belief of its own."""

    vantages = (Vantage.SERVER,)
    follows = True

    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        if Vantage.SERVER not in seen.unknown_noise:
            return {}
        config, game = seen.config, seen.game
        federation, target = data.load(seen.config), game.target_client
        # The target's own message shows most: it lacks the other clients' gradients and noise.
        message, within = seen.total, seen.participants
        if not config.federation.trust.model.summed_securely:
            message, within = seen.message(target), (target,)
        model = torch.tensor(seen.model).to(federation.device)
        of_round = KnownRound.drawn(config, federation, game, model)
        noise_std = seen.unknown_noise[Vantage.SERVER].noise_std.to(federation.device)
        received = torch.tensor(message).to(federation.device)
        step = conclude(of_round, within, noise_std, received)
        return {Vantage.SERVER: step}


class Oracle(Seat):
    """An auditor that receives the noise, at every vantage that sees the rounds."""

    vantages = EXACT
    reads_noise = True

    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        measured = seen.measured()
        return measure(
            measured.present,
            measured.absent,
            measured.noises,
            measured.worlds,
            measured.participation,
            seen.unknown_noise,
            seen.config.participation.rate,
        )


SEATS: Mapping[str, type[Seat]] = {"participant": CuriousServer, "oracle": Oracle}
"""Adversaries at the server, by `audit.mode`."""


def seat(audit_mode: str) -> type[Seat]:
    """Return the adversary at the server for `audit.mode`. Raises InputError if there is none."""
    return lookup(SEATS, audit_mode, "audit.mode")


def is_exact(config: Config, vantage: Vantage) -> bool:
    """Return whether log-odds are the exact posterior's, not over local steps."""
    exact = seat(config.audit.mode).exact
    return vantage in EXACT and config.training.local_steps == 1 and exact


def check_seat(config: Config) -> None:
    """Raise InputError unless the adversary at the server has its knowledge and its vantage."""
    mode, primary = config.audit.mode, config.federation.vantage
    adversary = seat(mode)
    if not (
        primary in adversary.vantages
        or (primary is Vantage.PARTICIPANT and adversary.follows)
        or primary is Vantage.RELEASED_MODEL
    ):
        seats = " or ".join(f"'{vantage}'" for vantage in adversary.vantages)
        raise InputError(
            f"federation.vantage is '{primary}', but audit.mode '{mode}' observes only from "
            f"{seats}; set federation.vantage to {seats}"
        )
    participation = config.participation
    if participation.secret and participation.seed is None and not adversary.reads_noise:
        raise InputError(
            "privacy.noise-source is 'system' with training.sampling-rate below 1. The adversary "
            "needs to know which other records take part, but only their clients do; set "
            'audit.mode = "oracle" or privacy.noise-source = "seed"'
        )


def conclude(
    knowledge: KnownRound, summed: Collection[int], noise_std: Tensor, message: Tensor
) -> Step:
    """Return the server's evidence from one round, on the CPU.

    noise_std: of the noise that the server does not know, float64 [T], of one of several steps.
    message: [T, P], less the noise that was disclosed to the server.
    """
    config = knowledge.config
    if config.training.local_steps > 1:
        with_record, common = replay_target(knowledge)
        question = of_local_steps(config, common, with_record - common, noise_std)
    else:
        present, absent = challenge_contributions(knowledge)
        replaced = config.privacy.neighbouring is Neighbouring.REPLACE
        question = Question(
            common_part(knowledge, summed),
            present,
            absent if replaced else None,
            noise_std,
            config.participation.rate,
        )
    return question.answer(message).on_cpu()
