"""The search for a setting: which runs are made, what they found, and what the search costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from adversaries.errors import InputError
from fedsim.common import reading, report_directory
from fedsim.common.strict_json import strict_json
from fedsim.config import Config, Scalar
from fedsim.config.targets import KEYS, given
from fedsim.config.training import refuse_unless_classified
from fedsim.federation.runs.extension import extend
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.privacy.private_selection import SearchCost, search_cost
from fedsim.privacy.trust.model import Vantage
from fedsim.studies.choose import choose, grid
from fedsim.studies.choose.choose import Choice, Limit
from fedsim.studies.choose.grid import Outcome, Point

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.server.plan import Plan

KIND = "choice"
"""What report.json says that it is of."""

TRIALS = 40
"""Of each setting: every one is evaluated, which costs more than the adversary does."""

EVERY = 1_000_000
"""All trials are evaluated, those too that are added later: a number that does not vary, since runs
with another value of it cannot be extended."""


OF_THE_QUESTION = (
    *("audit.", "challenge.", "data.", "report.", "federation.vantage", "federation.colluding"),
    *("privacy.accountant", "privacy.delta", "privacy.neighbouring", "privacy.sensitivity"),
    "privacy.unit",
)
"""What keys begin with that say who is protected from whom, and how surely."""


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        min_accuracy: that the model is to have at least; None to have the best.
        over: keys with the values that are tried; noise around the limit where none of them says
            how much there is.
        common: keys that are otherwise in all settings.

    Raises:
        InputError: an accuracy that no model has, or that any has.
    """

    limit: Limit
    min_accuracy: float | None = None
    against: Vantage | None = None
    over: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    trials: int | None = None
    common: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.min_accuracy is not None and not 0 < self.min_accuracy < 1:
            raise InputError(
                f"--min-accuracy is {self.min_accuracy:g}; give a share of the records between 0 "
                "and 1, for example 0.8"
            )
        grid.refuse_overlap(self.common, self.over)
        if asked := [key for key in self.over if key.startswith(OF_THE_QUESTION)]:
            raise InputError(
                f"--over {asked[0]}: it is part of the question, which all settings have in "
                "common; give it with --set"
            )
        if aimed := given(self.common):
            raise InputError(
                f"--set {aimed[0]}: how much noise there is is what fedsim choose looks for; leave "
                "it out, or try several with --over"
            )
        if self.common.get("privacy.noise-source", "seed") != "seed":
            raise InputError(
                "fedsim choose plays its trials with noise of the seed, which is a measurement on "
                "records that need no protection; leave privacy.noise-source out of --set"
            )

    @property
    def asked(self) -> dict[str, Scalar]:
        """What is otherwise in the configuration that is written in the end."""
        vantage = {} if self.against is None else {"federation.vantage": self.against.value}
        return {**self.common, **vantage}

    @property
    def played(self) -> dict[str, Scalar]:
        """What is otherwise in the runs of the search besides."""
        trials: Scalar = self.common.get("trials.count", TRIALS)
        if self.trials is not None:
            trials = self.trials
        return {
            "audit.evaluated-trials": EVERY,
            "audit.attacks": "none",
            "trials.until-halfwidth": 0.0,
            **self.asked,
            "trials.count": trials,
            "privacy.noise-source": "seed",
        }


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        config: of the setting that was chosen, to be run; of the first one where none was.
        cost: of the search; None where no guarantee can be stated.
        cost_within: of a search among those settings alone that meet the limit; None where none
            does, or no guarantee can be stated.
        needed: the least nominal noise multiplier that meets the limit in theory, with the other
            keys of the chosen setting; None where it is among those that were tried anyway, or
            no multiplier can be worked out for them.
    """

    request: Request
    config: Config
    outcomes: tuple[Outcome, ...]
    choice: Choice
    cost: SearchCost | None
    cost_within: SearchCost | None
    needed: float | None


Load = Callable[[Mapping[str, Scalar]], Config]
"""Returns the experiment with other values of some keys."""


def search(
    request: Request,
    out: Path | None,
    load: Load,
    prepare: Callable[[Config], "Plan"],
    run: Callable[["Plan"], RunDirectory],
    say: Callable[[str], None],
) -> tuple[Found, Path]:
    """Carry out every setting, or what is left of it, and pick one.

    Args:
        out: where every run gets a folder; None for one that is named for the experiment.

    Raises:
        InputError: a setting that cannot be run, or that no noise protects, before the first run.
    """
    varied = choose.varied(request.limit, request.over)
    points = grid.grid(varied)
    first = load({**request.played, **points[0].values})
    refuse_unless_classified(first.model.task, "fedsim choose")
    choose.check(first.scheme)
    limited = f"{request.limit.kind}-{request.limit.value:g}"
    out = out or Path("fedsim-runs") / f"{first.run.name}-choose-{limited}"
    report_directory.check_new(out, replacing=KIND)
    if _refuse_another(out, request, varied, first.federation.vantage):
        say(f"the answer in '{out}' is replaced: it is for another --min-accuracy")

    plans = []
    for point in points:
        own = {"run.out": str(out / point.name), "run.name": f"{first.run.name} {point.name}"}
        plans.append(_planned({**request.played, **point.values, **own}, point, load, prepare))
    cost = _cost(plans)  # what it refuses is refused before hours of training
    report_directory.create(out)
    trials = plans[0].config.trials.count
    say(f"{len(points)} settings, {trials} trials each")
    outcomes = grid.carry_out(points, plans, run, say)
    found = (choose.candidate(each, request.limit, len(points)) for each in outcomes)
    choice = choose.choose([each for each in found if each is not None], request.min_accuracy)
    final = choice.chosen.values if choice.chosen else points[0].values
    config = load({**request.asked, **final}).placed_at("")
    within = {each.name for each in choice.candidates if each.meets}
    meeting = [plan for point, plan in zip(points, plans, strict=True) if point.name in within]
    return Found(
        request,
        config,
        tuple(outcomes),
        choice,
        cost=cost,
        cost_within=_cost(meeting),
        needed=_needed(request, choice, load),
    ), out


def _planned(
    values: Mapping[str, Scalar], point: Point, load: Load, prepare: Callable[[Config], "Plan"]
) -> "Plan":
    """Return the plan of a setting. Raises InputError that names it."""
    try:
        return prepare(_extended(load(values)))
    except InputError as error:
        said = str(error).replace("(run.out)", "with --out")
        raise InputError(f"{point.name}: {said}") from None


def _refuse_another(
    out: Path, request: Request, varied: Mapping[str, Sequence[Scalar]], vantage: Vantage
) -> bool:
    """Return whether the directory has the answer for another least accuracy, of the same runs.

    Raises InputError where it has that to another request.
    """
    if not (out / "report.json").is_file():
        return False
    there = reading.json_object(out / "report.json")
    limit, tried = there.get("limit"), there.get("varied")
    wanted = strict_json({key: list(values) for key, values in varied.items()})
    asked = {request.limit.kind: request.limit.value, "against": vantage.value}
    same = isinstance(limit, dict) and asked.items() <= limit.items()
    if same and tried in (None, wanted):
        return bool(there.get("min_accuracy") != request.min_accuracy)
    raise InputError(
        f"'{out}' holds the choice for another request (its limit, adversary or --over); name "
        "another directory with --out"
    )


def _extended(config: Config) -> Config:
    """Give a run that is there more trials, if that is all that differs."""
    path = Path(config.run.out)
    if not (path / "config.toml").is_file():
        return config
    directory = RunDirectory.open(path)
    there, count = directory.config, config.trials.count
    like = {"count": there.trials.count, "batch": there.trials.batch, "first": there.trials.first}
    alike = config.model_copy(update={"trials": config.trials.model_copy(update=like)})
    if alike.placed_at("") != there.placed_at(""):
        return config
    if there.trials.count != count:
        with directory.lock():
            there = extend(directory, count)
    first = {"first": there.trials.first}
    return config.model_copy(update={"trials": config.trials.model_copy(update=first)})


def _needed(request: Request, choice: Choice, load: Load) -> float | None:
    if choice.chosen is None or not set(request.over) & set(KEYS):
        return None
    values = {**dict(choice.chosen.others), request.limit.key: request.limit.value}
    try:
        return privacy.noise_multiplier(load({**request.played, **values}).scheme)
    except InputError:  # it is said beside the answer, which stands without it
        return None


def _cost(plans: Sequence["Plan"]) -> SearchCost | None:
    """Return what one training with each setting costs; None where noise is no guarantee's."""
    neighbours = {plan.config.privacy.neighbouring for plan in plans}
    if len(neighbours) != 1 or any(plan.config.privacy.sensitivity == "local" for plan in plans):
        return None
    mechanisms = [privacy.mechanism(plan.config.scheme, plan.noise_multiplier) for plan in plans]
    return search_cost(mechanisms, min(plan.config.privacy.delta for plan in plans))
