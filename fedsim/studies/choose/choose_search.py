"""The search of `fedsim choose`: its request, its runs, its result and its privacy cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from adversaries.errors import InputError
from fedsim.common import reading, report_directory
from fedsim.common.strict_json import strict_json
from fedsim.config import Config, Scalar
from fedsim.config.jobs import KEYS, given
from fedsim.config.training import refuse_unless_classified
from fedsim.federation.runs.extension import extend
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.privacy.private_selection import SearchCost, search_cost
from fedsim.privacy.trust.model import Vantage
from fedsim.studies.choose import choose, grid
from fedsim.studies.choose.choose import Choice, Limit
from fedsim.studies.choose.grid import Point, RunOutcome

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.server.plan import Plan

KIND = "choice"
"""Value of `kind` in report.json."""

TRIALS = 40
"""Default number of trials of each setting. Few, since evaluating them all takes most of the time.
"""

EVERY = 1_000_000
"""Value of audit.evaluated-trials that evaluates all trials, also those that are added later.

It is a constant, since a run with another value cannot be extended.
"""


OF_THE_QUESTION = (
    *("audit.", "challenge.", "data.", "report.", "federation.vantage", "federation.colluding"),
    *("privacy.accountant", "privacy.delta", "privacy.neighbouring", "privacy.sensitivity"),
    *("privacy.unit", choose.BASELINE),
)
"""Prefixes of the keys that define the question: the target, the adversary and the confidence."""


@dataclass(frozen=True)
class ChoiceRequest:
    """The request of a user.

    Attributes:
        min_accuracy: minimum accuracy of the model; None to get the most accurate.
        against: the adversary's vantage point; None as configured.
        over: keys with the values to try. If no key sets the noise, the search tries noise around
            the limit.
        trials: of each setting; None for `TRIALS`.
        common: keys with the value that all settings take.

    Raises:
        InputError: a value cannot be searched for.
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
        if shared := [key for key in self.over if key.startswith(OF_THE_QUESTION)]:
            raise InputError(
                f"--over {shared[0]} varies the question itself, which must be the same in all "
                "settings; give it with --set"
            )
        if aimed := given(self.common):
            raise InputError(
                f"--set {aimed[0]} sets the noise, which fedsim choose searches for; leave "
                "it out, or try several values with --over"
            )
        if choose.BASELINE in self.common:
            raise InputError(f"--set {choose.BASELINE}: give --baseline-risk, with --max-risk")
        if self.common.get("privacy.noise-source", "seed") != "seed":
            raise InputError(
                "--set privacy.noise-source: fedsim choose draws the noise of its trials from "
                "the seed, to measure on records that need no protection; leave the key out"
            )

    @property
    def asked(self) -> dict[str, Scalar]:
        """Changes to the configuration that is written for the chosen setting."""
        vantage = {} if self.against is None else {"federation.vantage": self.against.value}
        return {**self.common, **self.limit.settings, **vantage}

    @property
    def played(self) -> dict[str, Scalar]:
        """Changes to the configuration of every run of the search."""
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
class Result:
    """The result of a search.

    Attributes:
        config: of the chosen setting; of the first setting if none was chosen.
        cost: of the search on private records; None if no guarantee can be stated.
        cost_within: of a search among only the settings that meet the limit; None if no setting
            meets it, or if no guarantee can be stated.
        needed: least nominal noise multiplier that meets the limit in theory, with the other keys
            of the chosen setting; None if the search tried it anyway, or if it cannot be computed.
    """

    request: ChoiceRequest
    config: Config
    outcomes: tuple[RunOutcome, ...]
    choice: Choice
    cost: SearchCost | None
    cost_within: SearchCost | None
    needed: float | None


Load = Callable[[Mapping[str, Scalar]], Config]
"""Returns the experiment with other values of some keys."""

Prepare = Callable[[Config], "Plan"]
"""Returns the plan of a run, without starting it."""


def search(
    request: ChoiceRequest,
    out: Path | None,
    load: Load,
    prepare: Prepare,
    several: grid.Runs,
    say: Callable[[str], None],
) -> tuple[Result, Path]:
    """Run every setting, or the part that is not done yet, and pick one.

    Args:
        out: directory with a folder for each run; None for one named after the experiment.
        several: carries out the runs.
        say: prints a line of progress.

    Returns:
        The result and its directory.

    Raises:
        InputError: a setting cannot be run, or no noise protects it. Raised before the first run.
    """
    varied = choose.varied(request.limit, request.over)
    points = grid.grid(varied)
    first = load({**request.played, **points[0].values})
    refuse_unless_classified(first.model.task, "fedsim choose")
    choose.check_protectable(first.scheme)
    limited = f"{request.limit.kind}-{request.limit.value:g}"
    out = out or Path("fedsim-runs") / f"{first.run.name}-choose-{limited}"
    report_directory.check_new(out, replacing=KIND)
    if _refuse_another(out, request, varied, first.federation.vantage):
        say(f"replacing the answer in '{out}', which is for another --min-accuracy")

    plans = []
    for point in points:
        own = {"run.out": str(out / point.name), "run.name": f"{first.run.name} {point.name}"}
        plans.append(_planned({**request.played, **point.values, **own}, point, load, prepare))
    cost = _cost(plans)  # may refuse, which must come before hours of training
    report_directory.create(out)
    trials = plans[0].config.trials.count
    say(f"{len(points)} settings, {trials} trials each")
    outcomes = grid.carry_out(points, plans, several, say)
    settings = (choose.candidate(each, request.limit, len(points)) for each in outcomes)
    choice = choose.choose([each for each in settings if each is not None], request.min_accuracy)
    final = choice.chosen.values if choice.chosen else points[0].values
    config = load({**request.asked, **final}).placed_at("")
    within = {each.name for each in choice.candidates if each.meets}
    meeting = [plan for point, plan in zip(points, plans, strict=True) if point.name in within]
    return Result(
        request,
        config,
        tuple(outcomes),
        choice,
        cost=cost,
        cost_within=_cost(meeting),
        needed=_needed(request, choice, load),
    ), out


def _planned(values: Mapping[str, Scalar], point: Point, load: Load, prepare: Prepare) -> "Plan":
    """Return the plan of a setting, whose name stands in any InputError."""
    try:
        return prepare(_extended(load(values)))
    except InputError as error:
        message = str(error).replace("(run.out)", "with --out")
        raise InputError(f"{point.name}: {message}") from None


def _refuse_another(
    out: Path, request: ChoiceRequest, varied: Mapping[str, Sequence[Scalar]], vantage: Vantage
) -> bool:
    """Return whether the directory holds the answer of the same runs for another minimum accuracy.

    Raises InputError if it holds the answer to another request.
    """
    if not (out / "report.json").is_file():
        return False
    earlier = reading.json_object(out / "report.json")
    limit, tried = earlier.get("limit"), earlier.get("varied")
    wanted = strict_json({key: list(values) for key, values in varied.items()})
    question = request.limit.numbers | {"against": vantage.value}
    same = isinstance(limit, dict) and question.items() <= limit.items()
    if same and tried in (None, wanted):
        return bool(earlier.get("min_accuracy") != request.min_accuracy)
    raise InputError(
        f"'{out}' holds the choice for another limit, adversary or --over; name another "
        "directory with --out"
    )


def _extended(config: Config) -> Config:
    """Extend an existing run to more trials, if nothing else differs; return its configuration."""
    path = Path(config.run.out)
    if not (path / "config.toml").is_file():
        return config
    directory = RunDirectory.open(path)
    old, count = directory.config, config.trials.count
    like = {"count": old.trials.count, "batch": old.trials.batch, "first": old.trials.first}
    alike = config.model_copy(update={"trials": config.trials.model_copy(update=like)})
    if alike.placed_at("") != old.placed_at(""):
        return config
    if old.trials.count != count:
        with directory.lock():
            old = extend(directory, count)
    first = {"first": old.trials.first}
    return config.model_copy(update={"trials": config.trials.model_copy(update=first)})


def _needed(request: ChoiceRequest, choice: Choice, load: Load) -> float | None:
    if choice.chosen is None or not set(request.over) & set(KEYS):
        return None
    values = {**dict(choice.chosen.others), request.limit.key: request.limit.value}
    try:
        return privacy.noise_multiplier(load({**request.played, **values}).scheme)
    except InputError:  # the answer stands without this number
        return None


def _cost(plans: Sequence["Plan"]) -> SearchCost | None:
    """Return the cost of one training with each setting; None if no guarantee can be stated."""
    neighbours = {plan.config.privacy.neighbouring for plan in plans}
    if len(neighbours) != 1 or any(plan.config.privacy.sensitivity == "local" for plan in plans):
        return None
    mechanisms = [privacy.mechanism(plan.config.scheme, plan.noise_multiplier) for plan in plans]
    return search_cost(mechanisms, min(plan.config.privacy.delta for plan in plans))
