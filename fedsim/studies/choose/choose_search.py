"""The search of `fedsim choose`: model, rounds, learning rate and clipping norm, at each noise.

Theory says how much noise a number of rounds needs for a limit. A first pass trains every setting
on a part of the records with as much less noise, which keeps the ratio of signal to noise. The best
of each noise level, and of each model and number of rounds at the limit, are trained anew on all
records, with other first models and noise. Only these trainings are reported, so that no setting
is reported for the luck of its first pass. Settings that differ in numbers alone are trials of one
batch (`game.trainings`).

Without a limit, every combination of the given values is trained, and none is picked.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from adversaries.errors import InputError, InterruptedRunError
from fedsim.common import journal, reading, report_directory
from fedsim.common.blocks import slices
from fedsim.common.strict_json import strict_json
from fedsim.configuration import Config, Scalar
from fedsim.configuration.federation import OWN
from fedsim.configuration.jobs import KEYS, given, overlaid
from fedsim.configuration.needs import require
from fedsim.federation.server.plan import check_possible
from fedsim.game import federation, trainings
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import privacy
from fedsim.game.trainings import Setting
from fedsim.learning.data import distribution
from fedsim.learning.training import models
from fedsim.learning.training.criterion import AUC
from fedsim.privacy import identifiability, risks
from fedsim.privacy.trust import Vantage
from fedsim.studies.choose import grid, rule, utility
from fedsim.studies.choose.rule import Candidate, Choice, Least, Limit
from fedsim.studies.choose.utility import Utility
from fedsim.studies.guarantees.accounting import tail_limit

KIND = "choice"
"""Value of `kind` in report.json."""

MODEL, ROUNDS = "model.name", "training.rounds"
RATE, NORM = "training.learning-rate", "training.clipping-norm"
OPTIMIZER = "training.optimizer"

OF_TABLES = ("linear", "mlp")
MULTIPLES = (1, 2, 5)
"""Multiples of the given number of rounds that are tried for tables. For pictures and texts, whose
trainings take long, it is the given number."""

RATES, NORMS = (0.25, 1.0, 4.0), (1 / 3, 1.0, 3.0)
"""Factors that are tried first. If the best rate or norm is at an end of those tried, a further one
follows, at most `FURTHER` times."""

FURTHER, STEP = 3, {RATE: 4.0, NORM: 3.0}

FIRST, FIRST_RECORDS = 2, {"tabular": 4000, "image": 1000}
"""Trainings of a setting in the first pass, and the largest number of their records."""

FEWEST, MOST, PRECISE = 3, 12, 0.01
"""Trainings of a reported setting: more until the mean is known to `PRECISE`, or well enough beside
the number of held-out records, or to the most."""

BYTES = 200
"""Memory of a trial between the blocks, for each parameter: models, sums, noise, the optimiser."""

TRAININGS = "trainings.jsonl"
"""File of a search with the measures of its trainings, from which it continues."""

OF_THE_QUESTION = (
    *("audit.", "challenge.", "data.", "report.", "federation.vantage", "federation.colluding"),
    *("privacy.accountant", "privacy.delta", "privacy.neighbouring", "privacy.sensitivity"),
    *("privacy.unit", rule.BASELINE),
)
"""Prefixes of the keys that define the question: the target, the adversary and the confidence."""

Load = Callable[[Mapping[str, Scalar]], Config]
"""Returns the experiment with other values of some keys."""


@dataclass(frozen=True)
class ChoiceRequest:
    """The request of a user.

    Attributes:
        limit: on the adversary; None to list every combination of `over`.
        least: a measure of the model with its least value; None to get the best model.
        against: the adversary's vantage point; None as configured.
        over: keys with the values to try. Noise levels, models, rounds, rates and norms that are
            not among them are the search's own.
        common: keys with the value that all settings take.

    Raises:
        InputError: a value cannot be searched for.
    """

    limit: Limit | None = None
    least: Least | None = None
    against: Vantage | None = None
    over: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    common: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.least is not None and not 0 < self.least[1] < 1:
            name, value = self.least
            raise InputError(
                f"--min-{name.lower().replace(' ', '-')} is {value:g}; give a number between 0 and "
                "1, for example 0.8"
            )
        if self.limit is None and (self.least is not None or not self.over):
            raise InputError(
                "the limit on the adversary is missing; give --max-belief, such as 0.75, "
                "--max-advantage, such as 0.2, or --max-risk, such as 0.005; or give only --over "
                "KEY=V1,V2,... for a table of all settings"
            )
        if repeated := set(self.common) & set(self.over):
            raise InputError(f"{min(repeated)} is fixed, and --over varies it; drop one of them")
        if own := set(self.common).intersection(grid.OF_A_RUN):
            raise InputError(f"{min(own)}: a search has one directory; give --out DIR")
        if shared := [key for key in self.over if key.startswith(OF_THE_QUESTION)]:
            raise InputError(
                f"--over {shared[0]} varies the question itself, which must be the same in all "
                "settings; give it as KEY=VALUE"
            )
        if aimed := given(self.common):
            raise InputError(
                f"{aimed[0]} sets the noise, which fedsim choose searches for; leave "
                "it out, or try several values with --over"
            )
        if rule.BASELINE in self.common:
            raise InputError(f"{rule.BASELINE}: give --baseline-risk, with --max-risk")
        if self.common.get("privacy.noise-source", "seed") != "seed":
            raise InputError(
                "privacy.noise-source: fedsim choose draws the noise of its trainings from "
                "the seed, to measure on records that need no protection; leave the key out"
            )

    @property
    def asked(self) -> dict[str, Scalar]:
        """Changes to the configuration that is written for the chosen setting."""
        vantage = {} if self.against is None else {"federation.vantage": self.against.value}
        limit = self.limit
        limited = {rule.BASELINE: limit.baseline} if limit and limit.key == rule.RISK else {}
        return {**self.common, **limited, **vantage}

    @property
    def played(self) -> dict[str, Scalar]:
        """Changes to the configuration of every training of the search."""
        return {**self.asked, "privacy.noise-source": "seed", "canaries.count": 0}

    @property
    def levels(self) -> list[dict[str, Scalar]]:
        """The targets of the noise to try, from strict to loose unless the user gave them."""
        if own := {key: values for key, values in self.over.items() if key in KEYS}:
            return [dict(zip(own, each, strict=True)) for each in itertools.product(*own.values())]
        if self.limit is None:
            return [{}]
        return [{self.limit.key: value} for value in self.limit.levels(rule.FACTORS)]


@dataclass(frozen=True)
class Result:
    """The result of a search.

    Attributes:
        question: digest of what was asked, but for the least value.
        config: of the chosen setting; of the nearest if none was chosen.
        tried: number of settings that were trained.
        plain: the criterion of a model trained without privacy; None if not measured.
    """

    request: ChoiceRequest
    question: str
    config: Config
    choice: Choice
    tried: int
    plain: float | None


Point = tuple[int, float, float]
"""A setting of a family: its level of noise, learning rate and clipping norm."""


@dataclass(frozen=True)
class _Trained:
    """A setting with its measured trainings."""

    family: "_Family"
    level: int
    rate: float
    norm: float
    utility: Utility

    @property
    def point(self) -> Point:
        return self.level, self.rate, self.norm

    @property
    def rounds(self) -> int:
        return self.family.bases[0].config.training.rounds


def search(
    request: ChoiceRequest, out: Path | None, load: Load, say: Callable[[str], None]
) -> tuple[Result, Path]:
    """Search, or continue a search, and pick a setting.

    Args:
        out: directory; None for one named after the experiment.
        say: prints a line of progress.

    Returns:
        The result and its directory.

    Raises:
        InputError: a setting cannot be trained, or no noise protects it. Raised before the first
            training.
    """
    first = load(overlaid(request.played, request.levels[0]))
    _refuse_unsearchable(first)
    limit = request.limit
    limited = "all" if limit is None else f"{limit.kind}-{limit.value:g}"
    out = out or Path("fedsim-runs") / f"{first.run.name}-choose-{limited}"
    report_directory.check_new(out, replacing=KIND)
    question = _question(request, first, out)
    families = list(_families(request, load, first))
    for family in families:
        family.check_possible()
    _refuse_measure(request.least, first.model.task, families[0].loaded.split.dataset.classes)
    report_directory.create(out)
    book = _Book(out)
    try:
        if limit is None:
            taken, tried = [(each, each.points) for each in families], 0
        else:
            screened = [_screened(family, book, say) for family in families]
            taken, tried = _best_of(screened, limit), sum(map(len, screened))
        candidates = [
            _candidate(each, limit)
            for family, points in taken
            for each in _precise(family, points, book, say)
        ]
    except KeyboardInterrupt:
        raise InterruptedRunError("interrupted; give the same command again to continue") from None
    if limit is None:
        choice, config, tried = Choice("listed", tuple(candidates)), first, len(candidates)
    else:
        candidates.sort(key=lambda each: (each.rho_alpha, -each.utility.gain))
        choice, config = rule.choose(candidates, request.least, limit.key), first
    if choice.chosen is not None:
        # A rate that is set changes the default optimiser, with which the models were not trained.
        training = first.training
        stepping = {OPTIMIZER: training.optimizer, "training.schedule": training.schedule}
        own = {} if OPTIMIZER in request.over else stepping
        config = load(overlaid({**request.asked, **own}, choice.chosen.values)).placed_at("")
    return Result(request, question, config, choice, tried, _without_privacy(families)), out


def _refuse_unsearchable(first: Config) -> None:
    """Raise InputError for a configuration that no trainings of the search stand for."""
    rule.check_protectable(first)
    stop_at = ("privacy.stop-at", first.privacy.stop_at, 0.0)
    require((stop_at,), "fedsim choose trains in all rounds, and this key may end a training")
    if first.data.name == OWN:
        one_step = ("training.local-steps", first.training.local_steps, 1)
        require(
            (("privacy.unit", first.privacy.unit, "record"), one_step),
            "public records stand in for clients' own, which is right for single steps only",
        )


def _refuse_measure(least: Least | None, task: str, classes: int) -> None:
    """Raise InputError for a least value of what the models' task cannot have."""
    if least is None:
        return
    option = f"--min-{least[0].lower().replace(' ', '-')}"
    if task != "classification":
        raise InputError(
            f"{option} needs classes, but model.task is {task}; leave it out to get the best model"
        )
    if least[0] == AUC and classes > 2:
        raise InputError(
            f"{option} ranks two classes, but the data have {classes}; give --min-balanced-accuracy"
        )


def _question(request: ChoiceRequest, first: Config, out: Path) -> str:
    """Return a digest of all that decides the trainings: not of the least value.

    Raises InputError if the directory holds the answer to another question.
    """
    config = first.placed_at("").model_dump_json()
    over = {key: list(values) for key, values in request.over.items()}
    question = sha256(f"{config} {request.limit} {json.dumps(over)}".encode()).hexdigest()
    there = out / "report.json"
    if there.is_file() and reading.json_object(there).get("question") != question:
        raise InputError(
            f"'{out}' holds the choice for another configuration, limit, adversary or --over; name "
            "another directory with --out"
        )
    return question


@dataclass(frozen=True)
class _Family:
    """Settings of one model and number of rounds.

    Attributes:
        values: of the keys that the family shares.
        bases: an experiment for each level, with the noise that it needs.
        rates, norms: to try first.
        open: the keys of which further values may be tried, `RATE` and `NORM`.
    """

    values: dict[str, Scalar]
    levels: list[dict[str, Scalar]]
    bases: list[Setting]
    rates: list[float]
    norms: list[float]
    open: list[str]

    @cached_property
    def loaded(self) -> Federation:
        config = self.bases[0].config
        loaded = federation.load(config)
        if len(loaded.client_of):
            return loaded
        return trainings.on_public_records(loaded, config.federation.clients, config.run.seed)

    def check_possible(self) -> None:
        """Raise InputError for a setting that would fail later."""
        for base in self.bases:
            check_possible(base.config)
        self.loaded.fallbacks()

    @property
    def name(self) -> str:
        config = self.bases[0].config
        return f"{config.model.name}, {config.training.rounds} rounds"

    @property
    def points(self) -> list[Point]:
        return [*itertools.product(range(len(self.levels)), self.rates, self.norms)]

    def setting(self, point: Point) -> Setting:
        base, numbers = self.bases[point[0]], {"learning_rate": point[1], "clipping_norm": point[2]}
        training = base.config.training.model_copy(update=numbers)
        return Setting(base.config.model_copy(update={"training": training}), base.noise_multiplier)


def _families(request: ChoiceRequest, load: Load, first: Config) -> Iterator[_Family]:
    """Yield the families to search. Raises InputError for one that the user asked for."""
    levels, over = request.levels, request.over
    searches = request.limit is not None
    batched = trainings.numbers_of_trials(first) and "training.local-steps" not in over
    numbers = (RATE, NORM) if batched else ()
    own = {key: list(each) for key, each in over.items() if key not in (*KEYS, *numbers)}
    table = distribution.dataset(first.data, first.model.weights).kind == "tabular"
    fixed = {*over, *request.common}
    alone = first.privacy.unit == "record" and first.training.local_steps == 1
    if searches and MODEL not in fixed and first.model.name in OF_TABLES and table and alone:
        own[MODEL] = [*OF_TABLES]
    if searches and ROUNDS not in fixed:
        multiples = MULTIPLES if table and alone else (1,)
        own[ROUNDS] = [times * first.training.rounds for times in multiples]
    for combination in itertools.product(*own.values()):
        values = dict(zip(own, combination, strict=True))
        bases = []
        try:
            for level in levels:
                config = load(overlaid({**request.played, **values}, level))
                bases.append(Setting(config, privacy.noise_multiplier(config)))
        except InputError as error:
            if MODEL in own and MODEL not in over and values[MODEL] != first.model.name:
                continue  # a model that only the search proposed
            named = ", ".join(f"{key}={value}" for key, value in values.items())
            raise InputError(f"{named}: {error}" if named else str(error)) from None
        config = bases[0].config
        training = config.training
        rates = _axis(request, config, RATE, training.rate, RATES)
        factors = NORMS if table else (1.0,)
        norms = _axis(request, config, NORM, training.clipping_norm, factors)
        axes = ((RATE, rates), (NORM, norms))
        open_keys = [key for key, each in axes if key not in fixed and len(each) > 1]
        yield _Family(values, levels, bases, rates, norms, open_keys)


def _axis(
    request: ChoiceRequest, config: Config, key: str, value: float, factors: Sequence[float]
) -> list[float]:
    numbers = trainings.numbers_of_trials(config)
    if key in request.over and key in numbers:
        return [float(each) for each in request.over[key]]
    if request.limit is None or key in request.common or key not in numbers:
        return [value]
    return [float(f"{factor * value:.3g}") for factor in factors]


class _Book:
    """The trainings of a search, in a file from which the search continues."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / TRAININGS
        kept = journal.read(
            self._path,
            lambda line: (str(line["key"]), list(line["rows"])),
            "the search cannot continue from it; delete it to search anew",
        )
        journal.drop_unfinished(self._path, kept)
        self._kept, self._check = dict(kept.entries), kept.check

    def trained(
        self,
        family: _Family,
        points: Sequence[Point],
        repeats: int,
        records: int | None = None,
        start: int = 0,
    ) -> list[_Trained]:
        """Return the settings at some points, trained now or as the file has them."""
        loaded, settings = family.loaded, [family.setting(point) for point in points]
        # The file may stem from other records at the same place.
        data = federation.digest(settings[0].config, 0)
        keys = [_key(setting, f"{data} {repeats} {records} {start}") for setting in settings]
        missing = [at for at, key in enumerate(keys) if key not in self._kept]
        # Trials that fit in half of the memory, beside the blocks of gradients.
        memory = federation.memory_limit(settings[0].config.run.memory_limit, loaded.device)
        most = memory // 2 // (BYTES * models.size(loaded.model))
        for part in slices(len(missing), max(1, int(most) // repeats)):
            some = missing[part]
            theta = trainings.trained(
                [settings[at] for at in some], loaded, repeats, records, start
            )
            rows = strict_json(utility.measure(loaded, theta))
            for place, at in enumerate(some):
                own = rows[place * repeats : (place + 1) * repeats]
                line = {"key": keys[at], "rows": own}
                self._check = journal.append(self._path, line, self._check)
                self._kept[keys[at]] = own
        return [
            _Trained(family, *point, utility.utility(loaded, self._kept[key]))
            for point, key in zip(points, keys, strict=True)
        ]


def _key(setting: Setting, more: str) -> str:
    text = setting.config.placed_at("").model_dump_json()
    return sha256(f"{text} {setting.noise_multiplier!r} {more}".encode()).hexdigest()


def _best(settings: Iterable[_Trained]) -> _Trained:
    return max(settings, key=lambda each: each.utility.gain)


def _screened(family: _Family, book: _Book, say: Callable[[str], None]) -> list[_Trained]:
    config, found, wanted = family.bases[0].config, list[_Trained](), family.points
    of_kind = FIRST_RECORDS.get(family.loaded.split.dataset.kind, min(FIRST_RECORDS.values()))
    records = of_kind if trainings.numbers_of_trials(config) else None
    for _ in range(1 + FURTHER):
        found += book.trained(family, wanted, FIRST, records)
        levels = [[each for each in found if each.level == at] for at in range(len(family.levels))]
        wanted = [point for settings in levels for point in _beyond(family, settings)]
        if not wanted:
            break
    say(f"{family.name}: {len(found)} settings, the best {_best(found).utility.shown}")
    return found


def _beyond(family: _Family, settings: Sequence[_Trained]) -> Iterator[Point]:
    """Yield the points beside the best of a level's settings that is at an end of those tried."""
    level, rate, norm = _best(settings).point
    for key, at, tried in (
        (RATE, rate, [each.rate for each in settings]),
        (NORM, norm, [each.norm for each in settings]),
    ):
        if key in family.open and at in (min(tried), max(tried)):
            moved = float(f"{at * (STEP[key] if at == max(tried) else 1 / STEP[key]):.3g}")
            yield (level, moved, norm) if key == RATE else (level, rate, moved)


def _best_of(
    screened: Sequence[Sequence[_Trained]], limit: Limit
) -> list[tuple[_Family, list[Point]]]:
    """Return the settings to train anew, of each family those of the first pass that are best.

    screened: every setting of the first pass, of each family.
    """
    best = [
        [_best(each for each in found if each.level == level) for found in screened]
        for level in range(len(screened[0][0].family.levels))
    ]
    bounds = [_candidate(each[0], limit) for each in best]
    meeting = [level for level, each in enumerate(bounds) if each.meets]
    loosest = max(meeting, key=lambda level: bounds[level].rho_alpha, default=-1)
    taken = [
        each
        for level, some in enumerate(best)
        for each in (some if level == loosest else rule.fewest_rounds(some)[:1])
    ]
    families = [found[0].family for found in screened]
    points = [[each.point for each in taken if each.family is family] for family in families]
    return [(family, own) for family, own in zip(families, points, strict=True) if own]


def _precise(
    family: _Family, points: Sequence[Point], book: _Book, say: Callable[[str], None]
) -> list[_Trained]:
    """Return settings trained on all records, as often as they need to be precise."""
    repeats = FEWEST
    while True:
        found = book.trained(family, points, repeats, start=FIRST)
        if repeats >= MOST or all(each.utility.is_precise(PRECISE) for each in found):
            say(f"{family.name}, all records: {len(found)} settings")
            return found
        repeats *= 2


def _candidate(trained: _Trained, limit: Limit | None) -> Candidate:
    family, setting = trained.family, trained.family.setting(trained.point)
    config, multiplier = setting.config, setting.noise_multiplier
    at, vantage = config.privacy.delta, config.federation.vantage
    releases = privacy.describe(config, multiplier)
    mechanism = releases.towards(vantage)
    found = identifiability.bounds(mechanism, at, config.privacy.accountant)
    risk = risks.success(mechanism, risks.BASELINE if limit is None else limit.baseline)
    numbers = {RATE: trained.rate, NORM: trained.norm}
    return Candidate(
        values={**family.levels[trained.level], **family.values, **numbers},
        noise_multiplier=multiplier,
        epsilon=found.epsilon,
        rho_beta=found.rho_beta,
        rho_alpha=found.rho_alpha,
        tail_limit=tail_limit(mechanism, found.epsilon),
        risk=risk,
        meets=limit is None or limit.met_by(found.rho_beta, found.rho_alpha, risk),
        rounds=config.training.rounds,
        towards=tuple(identifiability.vantage_bounds(releases, at)),
        utility=trained.utility,
    )


def _without_privacy(families: Sequence[_Family]) -> float | None:
    """Return the criterion of a linear model without clipping and noise, for a table."""
    for loaded in (one.loaded for one in families if one.bases[0].config.model.name == "linear"):
        if loaded.split.dataset.kind == "tabular":
            rows = utility.measure(loaded, utility.fitted(loaded))
            return utility.utility(loaded, rows).criterion.value
    return None
