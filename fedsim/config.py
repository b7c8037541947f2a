"""One experiment as typed, validated data, in Flower's run-config form.

A configuration file is TOML: tables of scalars, because Flower's run config is a flat map of dotted
keys to scalars. `fedsim run FILE` and `flwr run . --run-config FILE` read the same file. Every key
is declared here with its default; `[tool.flwr.app.config]` in `pyproject.toml` repeats the defaults
(a test compares them), since Flower refuses keys that an app does not declare.
"""

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedsim import reading
from fedsim.errors import InputError
from fedsim.mechanism import Neighbouring, Trust, Vantage

Scalar = bool | int | float | str
Needed = tuple[tuple[str, Scalar, Scalar], ...]
"""Keys, their values, and the only values that go with something else in the configuration."""

PositiveInt = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


def _require(needed: Needed, why: str, instead: str) -> None:
    """Raise ValueError for the first key that is not what something else in the file needs.

    why: what needs it; instead: the setting that would not.
    """
    for key, value, only in needed:
        if value != only:
            given = f"'{value}'" if isinstance(value, str) else _toml(value)
            mend = f"set {key} = {_toml(only)}, or {instead}"
            raise ValueError(f"{key} is {given}, but {why}; {mend}")


def _toml(value: Scalar) -> str:
    """Return a value as it is written in a configuration."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


class Table(BaseModel):
    """A TOML table: kebab-case keys, no unknown ones, no silent conversion between types."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class DataConfig(Table):
    """Which records there are; D is drawn from them by `seed` alone, whatever the run's seed.

    root: the folder or file that they are read from; label: of tables, the column of the labels;
    exclude: of tables, columns that are no features, with commas between them; image_size: the side
    of the squares that pictures of a folder are brought to, 0 to leave them; download: whether
    missing originals may be fetched into root; classes: the labels whose records alone there are,
    with commas between them, "" for all.
    """

    name: str = "digits"
    root: str = ""
    label: str = "label"
    exclude: str = ""
    image_size: Annotated[int, Field(ge=0, le=4096)] = 0
    download: bool = False
    classes: str = ""
    records: PositiveInt = 200
    held_out: PositiveInt = 400
    pool: Annotated[int, Field(ge=0)] = 0
    seed: Seed = 0


class FederationConfig(Table):
    """Who holds which records, who adds the noise, where the adversary sits.

    partition_key: the column that `partition = "key"` does not split, or "label";
    secure_aggregation: how owners' messages are summed under distributed trust: "simulated", in the
    clear, where the server sees every message under a share of the noise only, or by Flower's
    protocol; colluding: how many other owners tell the adversary what they know, which leaves their
    own records unprotected; tolerated_dropouts: without how many owners a round may go on;
    dropout_rate: probability that an owner fails to answer in a round, for simulations.
    """

    owners: Annotated[int, Field(ge=2)] = 2
    partition: str = "iid"
    partition_key: str = ""
    dirichlet_alpha: Annotated[float, Field(gt=0)] = 0.5
    adversary: Annotated[int, Field(ge=-1)] = -1
    trust: Annotated[Trust, Field(strict=False)] = Trust.CENTRAL
    vantage: Annotated[Vantage, Field(strict=False)] = Vantage.PARTICIPANT
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    secure_aggregation: Literal["simulated", "secagg+"] = "simulated"
    colluding: Annotated[int, Field(ge=0)] = 0
    tolerated_dropouts: Annotated[int, Field(ge=0)] = 0
    dropout_rate: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def fewest_participants(self) -> int:
        """How many owners a round has at least."""
        return self.owners - self.tolerated_dropouts

    @property
    def summed_in_the_clear(self) -> bool:
        """Whether the server sees single messages that only their sum's noise protects."""
        return self.trust is Trust.DISTRIBUTED and self.secure_aggregation == "simulated"

    @model_validator(mode="after")
    def _noise_remains(self) -> Self:
        """Raise ValueError where an honest owner besides that of the record may be missing."""
        if self.secure_aggregation == "secagg+" and self.trust is not Trust.DISTRIBUTED:
            raise ValueError(
                f"federation.secure-aggregation is 'secagg+', but federation.trust is "
                f"'{self.trust}', where the server sees every message; set federation.trust = "
                '"distributed", or drop it'
            )
        if self.colluding > self.owners - 2:
            raise ValueError(
                f"federation.colluding is {self.colluding}, but of {self.owners} owners one is the "
                f"adversary and one holds the challenge; give 0 to {self.owners - 2}"
            )
        if self.colluding + self.tolerated_dropouts > self.owners - 2:
            raise ValueError(
                f"federation.tolerated-dropouts is {self.tolerated_dropouts}, but with the "
                f"adversary and {self.colluding} colluding owners that may leave no honest one of "
                f"{self.owners}; give 0 to {self.owners - 2 - self.colluding}"
            )
        # A server that asked one half for keys and the other half for seeds would unmask an owner.
        if self.secure_aggregation == "secagg+" and 2 * self.fewest_participants <= self.owners:
            raise ValueError(
                f"federation.tolerated-dropouts is {self.tolerated_dropouts}, but secagg+ keeps "
                f"messages secret only while more than half of {self.owners} owners must answer; "
                f"give 0 to {(self.owners - 1) // 2}"
            )
        return self

    @model_validator(mode="after")
    def _adversary_is_an_owner(self) -> Self:
        if self.adversary >= self.owners:
            raise ValueError(
                f"federation.adversary is {self.adversary}, but the owners are numbered 0 to "
                f"{self.owners - 1}; name one of them, or -1 to let fedsim choose"
            )
        return self


class ModelConfig(Table):
    """The network that the federation trains.

    batch_norm: what takes the place of layers that mix the records of a batch; frozen: names of
    layers or parameters that are not trained, with commas between them; initialisation: whether
    every trial draws a first model of its own, all start from that of the first, or all from that
    one fitted to the records that both worlds have.
    """

    name: str = "mlp"
    hidden: PositiveInt = 32
    batch_norm: Literal["refuse", "group-norm", "channel-affine"] = "refuse"
    frozen: str = ""
    initialisation: Literal["random", "fixed", "worst-case"] = "random"


class TrainingConfig(Table):
    """DP-SGD: in every round each owner sums clipped gradients and the server takes one step.

    Where privacy.unit is "client" an owner sends the clipped update of its own training instead.

    clipping: false sums gradients as they are, and clipping_norm is then the unit of the noise
    alone; sampling_rate: the probability that a record takes part in a round (1: full batch);
    local_steps: noisy steps that an owner takes on its own model within a round;
    local_learning_rate: their learning rate, or that of an owner's own training, 0 for that of the
    server; local_epochs, batch_size: of an owner's own training, 0 for all its records in one
    batch; warmup_rounds: over which the learning rate grows to its full value; decay_every,
    decay_factor: of the schedule "step".
    """

    rounds: PositiveInt = 30
    learning_rate: Annotated[float, Field(gt=0)] = 0.5
    clipping_norm: Annotated[float, Field(gt=0)] = 1.0
    clipping: bool = True
    sampling_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    local_steps: PositiveInt = 1
    local_learning_rate: Annotated[float, Field(ge=0)] = 0.0
    local_epochs: PositiveInt = 1
    batch_size: Annotated[int, Field(ge=0)] = 0
    optimizer: str = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    adam_epsilon: Annotated[float, Field(gt=0)] = 1e-8
    schedule: str = "constant"
    warmup_rounds: Annotated[int, Field(ge=0)] = 0
    decay_every: PositiveInt = 10
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.5


class PrivacyConfig(Table):
    """The mechanism. One of the targets or noise-multiplier is not 0.

    unit: what neighbouring federations differ in, one record or all data of one owner ("client").
    rho_beta, rho_alpha, epsilon: what the noise is calibrated to; mutual_information: another such
    target, the nats that all rounds together may tell of the secret; stop_at: the epsilon at delta
    that no round may exceed (0: no limit); noise: "isotropic" for DP-SGD's, or "pac" for noise
    shaped by the candidates of the stated prior, which are D and D' ("pair") or pac_draws random
    halves of the records of all owners but the adversary.
    """

    unit: Literal["record", "client"] = "record"
    neighbouring: Annotated[Neighbouring, Field(strict=False)] = Neighbouring.ADD_REMOVE
    sensitivity: Literal["global", "local"] = "global"
    rho_beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rho_alpha: Annotated[float, Field(ge=0, lt=1)] = 0.0
    epsilon: Annotated[float, Field(ge=0)] = 0.0
    noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    delta: Fraction = 0.005
    accountant: str = "pld"
    noise_source: Literal["seed", "system"] = "seed"
    stop_at: Annotated[float, Field(ge=0)] = 0.0
    noise: Literal["isotropic", "pac"] = "isotropic"
    mutual_information: Annotated[float, Field(ge=0)] = 0.0
    pac_prior: Literal["pair", "halves"] = "pair"
    pac_draws: Annotated[int, Field(ge=4, le=256)] = 32

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        targets = {
            "rho-beta": self.rho_beta,
            "rho-alpha": self.rho_alpha,
            "epsilon": self.epsilon,
            "noise-multiplier": self.noise_multiplier,
            "mutual-information": self.mutual_information,
        }
        given = [f"privacy.{name}" for name, value in targets.items() if value]
        if not given:
            raise ValueError(
                "privacy.rho-beta, privacy.rho-alpha, privacy.epsilon, privacy.noise-multiplier "
                "and privacy.mutual-information are all 0; give one of them, for example "
                "privacy.rho-beta = 0.9"
            )
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(given)} are both set, but one decides the other; set one of them "
                f"to 0, for example --set {given[0]}=0"
            )
        if self.rho_beta and self.rho_beta <= 0.5:
            raise ValueError(
                f"privacy.rho-beta is {self.rho_beta}, but a belief of 0.5 is a coin's; "
                "give a bound above 0.5 and below 1"
            )
        return self

    @model_validator(mode="after")
    def _stated_prior(self) -> Self:
        halves = self.pac_prior == "halves"
        if self.noise == "pac" and not self.mutual_information:
            raise ValueError(
                "privacy.noise is 'pac', which is scaled to a budget of information; give "
                "privacy.mutual-information above 0, and set the other targets to 0"
            )
        if self.noise != "pac" and halves:
            raise ValueError(
                "privacy.pac-prior is 'halves', but privacy.noise is 'isotropic', which no prior "
                'shapes; set privacy.noise = "pac", or drop it'
            )
        if self.pac_draws % 2:
            raise ValueError(
                f"privacy.pac-draws is {self.pac_draws}, but halves come with their complements; "
                "give an even number"
            )
        if halves and self.neighbouring is not Neighbouring.ADD_REMOVE:
            raise ValueError(
                "privacy.pac-prior is 'halves', in which a record is there or is not; set "
                'privacy.neighbouring = "add-remove"'
            )
        if self.noise == "pac" and self.sensitivity == "local":
            raise ValueError(
                "privacy.sensitivity is 'local', but privacy.noise is 'pac', which no sensitivity "
                'scales; set privacy.sensitivity = "global"'
            )
        return self


class ChallengeConfig(Table):
    """Whom the adversary must identify: the most dissimilar record or owner, or a given one.

    space: what dissimilarity is between, features or what the last layer sees of a record at the
    initial parameters of the first trial; owner: where one record is in question, whose records the
    choice is among.
    kind: what is in question: a "record" of D; one that was made to be noticed and takes the place
    of one of D: "backdoor", "clipbkd", "mislabelled" or "blank"; or "gradient", a vector of norm C
    that is added to the sum in place of a record's gradient. copies: how many of it D has; label:
    that of what was made, -1 for what the first model likes least; coordinate: which one of the
    model the vector lies along, -1 for a random direction.
    """

    dissimilarity: str = "euclidean"
    space: Literal["features", "embedding"] = "features"
    choice: Literal["max", "min", "median"] = "max"
    record: Annotated[int, Field(ge=-1)] = -1
    replacement: Annotated[int, Field(ge=-1)] = -1
    owner: Annotated[int, Field(ge=-1)] = -1
    kind: Literal["record", "backdoor", "clipbkd", "mislabelled", "blank", "gradient"] = "record"
    copies: Annotated[int, Field(ge=1, le=1024)] = 1
    label: Annotated[int, Field(ge=-1)] = -1
    coordinate: Annotated[int, Field(ge=-1)] = -1

    @property
    def is_made(self) -> bool:
        """Whether a record was made that takes the place of one of D."""
        return self.kind not in ("record", "gradient")

    @model_validator(mode="after")
    def _of_this_kind(self) -> Self:
        kind = f"but challenge.kind is '{self.kind}'"
        if self.label >= 0 and not self.is_made:
            raise ValueError(
                f"challenge.label is {self.label}, {kind}, which is given no label; drop it"
            )
        if self.coordinate >= 0 and self.kind != "gradient":
            raise ValueError(
                f"challenge.coordinate is {self.coordinate}, {kind}, which has a gradient of its "
                'own; drop it, or set challenge.kind = "gradient"'
            )
        if self.replacement >= 0 and self.kind != "record":
            raise ValueError(
                f"challenge.replacement is {self.replacement}, {kind}, which D' has nothing of the "
                "pool in place of; drop it"
            )
        return self


class CanariesConfig(Table):
    """Canaries for a one-run audit, each in or out of a trial's whole training by a fair coin.

    count: how many, 0 for none; kind: gradients in random directions ("gradient") or along single
    parameters ("dirac"), as long as clipping allows, or records of the pool with a wrong label
    ("mislabelled"); owners: where they are planted in turn, with commas between them, "" for all;
    guesses: how many of them are guessed about, 0 for one in eight, -1 to try several numbers and
    pay for it; known_data: whether scores leave out what the records add to a sum, as an auditor
    can who knows D.
    """

    count: Annotated[int, Field(ge=0, le=100_000)] = 0
    kind: Literal["gradient", "dirac", "mislabelled"] = "gradient"
    owners: str = ""
    guesses: Annotated[int, Field(ge=-1)] = 0
    known_data: bool = False


class TrialsConfig(Table):
    """Repetitions of the whole training; `cohort` of them share one message.

    pairing: "independent", or "common" where trials 2i and 2i + 1 are in opposite worlds and have
    all random numbers but that bit in common; until_halfwidth: of the interval of the advantage, at
    which no further cohort is begun, 0 to run all `count`; first: how many of them were planned at
    first where a campaign was extended, 0 where it was not.
    """

    count: PositiveInt = 200
    cohort: PositiveInt = 100
    worlds: Literal["both", "d-only"] = "both"
    pairing: Literal["independent", "common"] = "independent"
    until_halfwidth: Annotated[float, Field(ge=0, lt=1)] = 0.0
    first: Annotated[int, Field(ge=0)] = 0

    @property
    def in_pairs(self) -> bool:
        """Whether trials 2i and 2i + 1 are in opposite worlds, all of them."""
        return self.pairing == "common" or self.until_halfwidth > 0

    @property
    def shuffled(self) -> int:
        """How many trials, the first of them, have worlds that are balanced over all of them."""
        return 0 if self.in_pairs else self.first or self.count

    def leaves(self, trials: range) -> Sequence[int]:
        """Return the trials whose leaves of the seed tree these trials draw from."""
        return trials if self.pairing == "independent" else [trial // 2 * 2 for trial in trials]

    @model_validator(mode="after")
    def _pairs_stay_together(self) -> Self:
        key = "pairing" if self.pairing == "common" else "until-halfwidth"
        if self.in_pairs and self.worlds == "d-only":
            raise ValueError(
                f"trials.{key} is given, but trials.worlds is 'd-only', where nothing has an "
                'interval and no trial a partner; drop it, or set trials.worlds = "both"'
            )
        if self.in_pairs and self.cohort % 2:
            raise ValueError(
                f"trials.cohort is {self.cohort}, but trials.{key} needs pairs of trials to stay "
                "together; give an even number"
            )
        if self.first > self.count or (self.worlds == "both" and self.first % 2):
            raise ValueError(
                f"trials.first is {self.first} of {self.count} trials; give an even number below "
                "that, or 0 where the campaign was not extended"
            )
        return self


class AuditConfig(Table):
    """The adversary's prior, the confidence of every statement, and what utility is measured on.

    mode: "participant" computes the belief as the adversary must, from what it receives and knows;
    "instrumented" computes the same belief from the noise, which the auditor of a campaign reads.
    vantages: whose beliefs are computed; "configured" is federation.vantage alone. bayesian_pairs:
    how many pairs of its records each owner compares in a round, in the evaluated trials, for the
    Bayesian accountant; 0 for none. attacks: by membership inference on the challenge, names with
    commas between them, "all" or "none".
    """

    mode: Literal["participant", "instrumented"] = "participant"
    vantages: Literal["configured", "all"] = "configured"
    prior: Fraction = 0.5
    confidence: Fraction = 0.95
    evaluated_trials: PositiveInt = 20
    bayesian_pairs: Annotated[int, Field(ge=0)] = 0
    attacks: str = "all"

    def evaluated(self, trials: range) -> int:
        """Return how many of these trials, the first of them, are evaluated."""
        return max(0, min(self.evaluated_trials - trials.start, len(trials)))


class RunConfig(Table):
    """How the run is carried out; only the seed and the precision change a result.

    Where memory binds, blocks are cut otherwise and sums round otherwise, in the seventh digit.
    threads: 0 for one per core; max_memory: such as "4GiB", "" for what the device has to spare;
    precision: of the forward and backward passes, never of norms, sums and beliefs; client_cpus,
    client_gpus: what Flower's simulation gives each owner (0 GPUs: an equal share of one).
    """

    name: str = "digits"
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=0)] = 0
    max_memory: str = ""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    client_cpus: PositiveInt = 1
    client_gpus: Annotated[float, Field(ge=0)] = 0.0
    out: str = ""

    @model_validator(mode="after")
    def _memory_is_a_size(self) -> Self:
        if self.max_memory and not self.memory_limit:
            raise ValueError(
                f"run.max-memory is '{self.max_memory}'; give a size such as '4GiB' or '500MB'"
            )
        return self

    @property
    def memory_limit(self) -> int | None:
        """The bytes that each process may use; None where the device decides."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?", self.max_memory.strip().upper())
        if match is None:
            return None
        return int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " "))


class Config(Table):
    """A whole experiment."""

    data: DataConfig = DataConfig()
    federation: FederationConfig = FederationConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    challenge: ChallengeConfig = ChallengeConfig()
    canaries: CanariesConfig = CanariesConfig()
    trials: TrialsConfig = TrialsConfig()
    audit: AuditConfig = AuditConfig()
    run: RunConfig = RunConfig()

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if self.trials.worlds == "both" and self.trials.count % 2:
            raise ValueError(
                f"trials.count is {self.trials.count}, but half of the trials train on D and half "
                'on D\'; give an even number, or trials.worlds = "d-only"'
            )
        self._check_unit()
        self._check_steps()
        self._check_pac()
        self._check_distributed()
        self._check_dropouts()
        self._check_budget()
        self._check_canaries()
        self._check_pairing()
        self._check_crafted()
        if self.run.precision != "float32" and self.audit.mode == "participant":
            raise ValueError(
                f"run.precision is '{self.run.precision}', but a participant's belief compares "
                "sums that it computed in full precision with what others rounded; choose "
                "audit.mode = \"instrumented\", or precision = 'float32'"
            )
        if self.run.precision != "float32" and self.privacy.sensitivity == "local":
            raise ValueError(
                f"run.precision is '{self.run.precision}', but privacy.sensitivity is 'local': the "
                "sensitivity of rounded gradients is not the one that is measured; choose one of "
                "precision = 'float32' and sensitivity = 'global'"
            )
        if self.data.records < self.federation.owners:
            raise ValueError(
                f"data.records is {self.data.records}, fewer than the "
                f"{self.federation.owners} owners; every owner needs a record"
            )
        replace = self.privacy.neighbouring is Neighbouring.REPLACE
        if self.challenge.replacement >= 0 and not replace:
            raise ValueError(
                "challenge.replacement is given, but privacy.neighbouring is add-remove, which "
                'replaces nothing; drop it or set privacy.neighbouring = "replace"'
            )
        given = self.challenge.record >= 0, self.challenge.replacement >= 0
        if replace and self.challenge.kind == "record" and given[0] != given[1]:
            raise ValueError(
                "challenge.record and challenge.replacement go together under replace; "
                "give both, or neither to choose them by dissimilarity"
            )
        if self.challenge.record >= self.data.records:
            raise ValueError(
                f"challenge.record is {self.challenge.record}, but D has records 0 to "
                f"{self.data.records - 1}"
            )
        return self

    def _check_unit(self) -> None:
        """Raise ValueError for keys that say nothing about the configured unit of privacy."""
        training, challenge, unit = self.training, self.challenge, self.privacy.unit
        needed: Needed = (
            ("training.local-epochs", training.local_epochs, 1),
            ("training.batch-size", training.batch_size, 0),
        )
        why = "where an owner sends its gradients and one record is in question"
        if unit == "client":
            needed = (
                ("training.sampling-rate", training.sampling_rate, 1.0),
                ("training.local-steps", training.local_steps, 1),
                ("training.clipping", training.clipping, True),
                ("privacy.noise", self.privacy.noise, "isotropic"),
                ("audit.bayesian-pairs", self.audit.bayesian_pairs, 0),
                ("challenge.record", challenge.record, -1),
                ("challenge.replacement", challenge.replacement, -1),
            )
            why = "where an owner sends one clipped update and all its data are in question"
        other = "record" if unit == "client" else "client"
        _require(needed, f"privacy.unit is '{unit}', {why}", f'privacy.unit = "{other}"')
        if challenge.owner >= 0 and challenge.record >= 0:
            raise ValueError(
                f"challenge.record is {challenge.record} and challenge.owner is {challenge.owner}, "
                "but a given record is whoever's it is; drop one of them"
            )
        if challenge.owner >= self.federation.owners:
            raise ValueError(
                f"challenge.owner is {challenge.owner}, but the owners are numbered 0 to "
                f"{self.federation.owners - 1}; name one of them, or -1 to let fedsim choose"
            )

    def _check_steps(self) -> None:
        """Raise ValueError for steps whose privacy or whose adversary nobody has worked out."""
        training, privacy = self.training, self.privacy
        isotropic = privacy.noise != "pac"
        if isotropic and not training.clipping and not privacy.noise_multiplier:
            targets = {
                "rho-beta": privacy.rho_beta,
                "rho-alpha": privacy.rho_alpha,
                "epsilon": privacy.epsilon,
                "mutual-information": privacy.mutual_information,
            }
            given = " and ".join(f"privacy.{name}" for name, value in targets.items() if value)
            raise ValueError(
                "training.clipping is false, so that nothing bounds what one record can change and "
                "no noise meets a target; set privacy.noise-multiplier to a positive number, and "
                f"{given} to 0"
            )
        if training.momentum and training.optimizer != "sgd":
            raise ValueError(
                f"training.momentum is {training.momentum:g}, but training.optimizer is "
                f"'{training.optimizer}', which has none; use training.beta1 or optimizer 'sgd'"
            )
        on_their_own = training.local_steps > 1 or privacy.unit == "client"
        if training.local_learning_rate and not on_their_own:
            raise ValueError(
                "training.local-learning-rate is given, but training.local-steps is 1 and no owner "
                "steps on its own; drop it, or take several local steps"
            )
        sampled_pair = privacy.neighbouring is Neighbouring.REPLACE and training.sampling_rate < 1
        if sampled_pair and privacy.sensitivity == "local":
            raise ValueError(
                "privacy.sensitivity is 'local' with sampled steps and replace neighbours, where "
                "no one distance describes the pair; choose sensitivity 'global' or neighbouring "
                "'add-remove'"
            )
        if training.local_steps == 1:
            return
        steps = f"training.local-steps is {training.local_steps}"
        if self.federation.trust is not Trust.LOCAL:
            raise ValueError(
                f"{steps}, whose noise each owner must add itself before its next step; set "
                'federation.trust = "local"'
            )
        if training.sampling_rate < 1:
            raise ValueError(
                f"{steps} and training.sampling-rate is {training.sampling_rate:g}: no adversary "
                "for sampled local steps is known; use one of the two"
            )
        if self.audit.bayesian_pairs:
            raise ValueError(
                f"{steps}, but audit.bayesian-pairs compares gradients at the model of the round "
                "and not within it; set audit.bayesian-pairs to 0 or training.local-steps to 1"
            )
        if privacy.sensitivity == "local":
            raise ValueError(
                f"{steps}, but privacy.sensitivity is 'local', which is measured at the model of "
                'the round and not within it; choose sensitivity = "global"'
            )
        if self.audit.mode == "instrumented":
            raise ValueError(
                f"{steps}, after which the noise alone does not tell the belief; choose "
                'audit.mode = "participant"'
            )

    def _check_pac(self) -> None:
        """Raise ValueError where noise shaped by candidates has not been worked out."""
        if self.privacy.noise != "pac":
            return
        needed: Needed = (
            ("federation.trust", self.federation.trust.value, "central"),
            ("training.clipping", self.training.clipping, True),
            ("training.sampling-rate", self.training.sampling_rate, 1.0),
            ("training.local-steps", self.training.local_steps, 1),
            ("federation.vantage", self.federation.vantage.value, "participant"),
            ("audit.mode", self.audit.mode, "instrumented"),
            ("audit.vantages", self.audit.vantages, "configured"),
            ("audit.bayesian-pairs", self.audit.bayesian_pairs, 0),
            ("trials.worlds", self.trials.worlds, "both"),
            ("run.precision", self.run.precision, "float32"),
        )
        why = "privacy.noise is 'pac', where the server compares what all candidates would send"
        _require(needed, why, 'privacy.noise = "isotropic"')

    def _check_distributed(self) -> None:
        """Raise ValueError where nothing public bounds what owners send, or scales their noise."""
        if self.federation.trust is not Trust.DISTRIBUTED:
            return
        trust = "federation.trust is 'distributed', where owners send integers of a stated range"
        if not self.training.clipping:
            raise ValueError(
                f"{trust}, but training.clipping is false, so that nothing bounds their sums; set "
                "training.clipping = true"
            )
        if self.privacy.sensitivity == "local":
            raise ValueError(
                f"{trust}, but privacy.sensitivity is 'local', which depends on the data; choose "
                'sensitivity = "global", or trust "local"'
            )

    def _check_dropouts(self) -> None:
        """Raise ValueError for steps in which nobody has worked out a missing or false owner."""
        for name, value in (
            ("colluding", self.federation.colluding),
            ("tolerated-dropouts", self.federation.tolerated_dropouts),
        ):
            if not value:
                continue
            given = f"federation.{name} is {value}"
            if self.training.local_steps > 1:
                raise ValueError(
                    f"{given}, but training.local-steps is {self.training.local_steps}, which is "
                    "accounted for owners that all answer and keep their noise to themselves; set "
                    f"federation.{name} to 0 or training.local-steps to 1"
                )
            if self.privacy.noise == "pac":
                raise ValueError(
                    f"{given}, but privacy.noise is 'pac', whose candidates are sums over all "
                    f"owners; set federation.{name} = 0"
                )
        if self.federation.tolerated_dropouts and self.audit.bayesian_pairs:
            raise ValueError(
                f"federation.tolerated-dropouts is {self.federation.tolerated_dropouts}, but "
                "audit.bayesian-pairs compares the gradients of all owners in every round; set one "
                "of them to 0"
            )

    def _check_budget(self) -> None:
        """Raise ValueError for a budget that no round keeps, because epsilon is infinite."""
        if not self.privacy.stop_at:
            return
        budget = f"privacy.stop-at is {self.privacy.stop_at:g}"
        if self.privacy.noise == "pac":
            raise ValueError(
                f"{budget}, but privacy.noise is 'pac', which is no differential privacy: epsilon "
                "is infinite from the first round on; set privacy.stop-at to 0 "
                "(privacy.mutual-information is the budget)"
            )
        if not self.training.clipping:
            raise ValueError(
                f"{budget}, but training.clipping is false, so that nothing bounds what one record "
                "can change and epsilon is infinite from the first round on; set privacy.stop-at "
                "to 0, or training.clipping = true"
            )

    def _check_canaries(self) -> None:
        """Raise ValueError where a canary would not be what one record or client is."""
        count, owners = self.canaries.count, self.federation.owners
        if not count:
            return
        given = f"canaries.count is {count}"
        needed: Needed = (
            ("training.clipping", self.training.clipping, True),
            ("training.sampling-rate", self.training.sampling_rate, 1.0),
            ("training.local-steps", self.training.local_steps, 1),
            ("privacy.noise", self.privacy.noise, "isotropic"),
            ("privacy.sensitivity", self.privacy.sensitivity, "global"),
        )
        why = f"{given}, and nobody has worked out what canaries show under it"
        _require(needed, why, "canaries.count = 0")
        if self.federation.trust is Trust.DISTRIBUTED:
            raise ValueError(
                f"{given}, but federation.trust is 'distributed', whose integers have no room for "
                'canaries; set federation.trust = "local" or "central", or canaries.count = 0'
            )
        if self.federation.vantage is Vantage.RELEASED_MODEL or self.audit.vantages == "all":
            raise ValueError(
                f"{given}, but the beliefs about the released model replay the training without "
                'canaries; set federation.vantage to another and audit.vantages = "configured", '
                "or canaries.count = 0"
            )
        if self.trials.pairing == "common":
            raise ValueError(
                f"{given}, but trials.pairing is 'common', where two trials share what is random "
                'and canaries have coins for each; set trials.pairing = "independent", or '
                "canaries.count = 0"
            )
        if self.canaries.kind == "mislabelled" and self.privacy.unit == "client":
            raise ValueError(
                "canaries.kind is 'mislabelled', but privacy.unit is 'client', where a canary "
                'stands for a client; set canaries.kind = "gradient" or "dirac"'
            )
        if self.canaries.known_data and self.privacy.unit == "client":
            raise ValueError(
                "canaries.known-data is true, but privacy.unit is 'client', where owners send "
                "updates of their own and not sums over records; set canaries.known-data = false"
            )
        if self.canaries.kind == "mislabelled" and 0 < self.data.pool < count:
            raise ValueError(
                f"{given} and mislabelled canaries are records of the pool, but data.pool is "
                f"{self.data.pool}; raise it to {count}, or 0 for all that is left"
            )
        if self.canaries.guesses > count:
            raise ValueError(
                f"canaries.guesses is {self.canaries.guesses}, but there are {count} canaries; "
                f"give at most {count}"
            )
        for name in filter(None, (name.strip() for name in self.canaries.owners.split(","))):
            if not name.isdecimal() or int(name) >= owners:
                raise ValueError(
                    f"canaries.owners has '{name}', but the owners are numbered 0 to {owners - 1}; "
                    'give some of them with commas between, or "" for all'
                )

    def _check_pairing(self) -> None:
        """Raise ValueError where two trials cannot have their random numbers in common."""
        if self.trials.pairing == "independent":
            return
        needed: Needed = (
            ("privacy.noise-source", self.privacy.noise_source, "seed"),
            ("privacy.noise", self.privacy.noise, "isotropic"),
        )
        why = "trials.pairing is 'common', where two trials draw the same noise from the seed"
        _require(needed, why, 'trials.pairing = "independent"')

    def _check_crafted(self) -> None:
        """Raise ValueError where a made challenge, or a group, has not been worked out."""
        challenge, unit = self.challenge, self.privacy.unit
        crafted = f"challenge.kind is '{challenge.kind}'"
        group = f"challenge.copies is {challenge.copies}"
        fitted = self.model.initialisation == "worst-case"
        if unit == "client" and (challenge.kind != "record" or challenge.copies > 1):
            raise ValueError(
                f"{crafted if challenge.kind != 'record' else group}, but privacy.unit is "
                "'client', where all data of an owner are in question; set privacy.unit = "
                '"record"'
            )
        if fitted and (unit == "client" or (challenge.kind == "record" and challenge.record < 0)):
            raise ValueError(
                "model.initialisation is 'worst-case', which is fitted to all records but that of "
                "the challenge, which is not known yet; give challenge.record or another "
                'challenge.kind, and privacy.unit = "record", or set model.initialisation = '
                '"random"'
            )
        if challenge.kind == "gradient" and not self.training.clipping:
            raise ValueError(
                f"{crafted}, a vector of the clipping norm, but training.clipping is false; set "
                "training.clipping = true"
            )
        if self.privacy.noise == "pac" and (challenge.kind == "gradient" or challenge.copies > 1):
            raise ValueError(
                f"{group if challenge.copies > 1 else crafted}, but privacy.noise is 'pac', whose "
                'candidates are sets of records; set privacy.noise = "isotropic"'
            )
        if self.audit.bayesian_pairs and (challenge.kind != "record" or challenge.copies > 1):
            raise ValueError(
                f"audit.bayesian-pairs is {self.audit.bayesian_pairs}, but what was put into D for "
                "the challenge is not from the distribution of its records, which the Bayesian "
                "guarantee is for; set audit.bayesian-pairs = 0"
            )
        if challenge.copies > 1 and self.training.sampling_rate < 1:
            raise ValueError(
                f"{group}, but training.sampling-rate is {self.training.sampling_rate:g}: copies "
                "are sampled one by one, and no adversary here counts them; set challenge.copies "
                "= 1 or training.sampling-rate = 1.0"
            )
        if challenge.copies > 1 and self.privacy.sensitivity == "local":
            raise ValueError(
                f"{group}, but privacy.sensitivity is 'local', which would hide the group as well "
                'as one of them; set privacy.sensitivity = "global"'
            )

    @property
    def divisor(self) -> float:
        """n, the public constant that a released sum is divided by.

        The expected number of records in a step; the number of owners where each sends one update.
        """
        if self.privacy.unit == "client":
            return float(self.federation.owners)
        return self.training.sampling_rate * self.data.records

    @property
    def candidates(self) -> int:
        """How many secrets PAC noise has to choose from; 1 where the noise is DP-SGD's."""
        privacy = self.privacy
        if privacy.noise != "pac":
            return 1
        return 2 if privacy.pac_prior == "pair" else privacy.pac_draws

    def placed_at(self, out: str) -> "Config":
        """Return the same experiment with another run directory."""
        return self.model_copy(update={"run": self.run.model_copy(update={"out": out})})

    def reading_data_from(self, root: str, *, as_they_are: bool = False) -> "Config":
        """Return the same experiment with its files in another folder.

        as_they_are: nothing is downloaded into that folder, whatever the experiment says.
        """
        changes: dict[str, Scalar] = {"root": root}
        if as_they_are:
            changes["download"] = False
        return self.model_copy(update={"data": self.data.model_copy(update=changes)})

    def with_cohort(self, cohort: int) -> "Config":
        """Return the same experiment with other cohorts."""
        trials = self.trials.model_copy(update={"cohort": cohort})
        return self.model_copy(update={"trials": trials})

    @property
    def noise_seed(self) -> int | None:
        """The seed of the privacy noise; None where it comes from the operating system."""
        return self.run.seed if self.privacy.noise_source == "seed" else None


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of nested tables, as Flower does."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def to_run_config(config: Config) -> dict[str, Scalar]:
    """Return the flat dotted map that Flower hands to every app."""
    return dict(flatten(config.model_dump(mode="json", by_alias=True)))


KNOWN_KEYS = tuple(to_run_config(Config()))


def from_run_config(values: Mapping[str, Any]) -> Config:
    """Validate a flat dotted map. Raises InputError with one line that names the key."""
    tree: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if key not in KNOWN_KEYS:
            raise InputError(f"unknown key '{key}'{_suggestion(key)}")
        table, name = key.split(".")
        tree.setdefault(table, {})[name] = value
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise InputError(explain(error)) from None


def load(path: Path, overrides: Mapping[str, Scalar] | None = None) -> Config:
    """Read a TOML file and apply dotted overrides. Raises InputError."""
    try:
        tree = reading.toml(path)
    except FileNotFoundError:
        raise InputError(f"no configuration file '{path}'; see configs/ for examples") from None
    values = dict(flatten(tree)) | dict(overrides or {})
    if "run.name" not in values:
        values["run.name"] = path.stem
    return from_run_config(values)


def parse_override(text: str) -> tuple[str, Scalar]:
    """Read one `KEY=VALUE`; VALUE is a TOML scalar, or else a string. Raises InputError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {text!r} is not KEY=VALUE, for example --set data.records=100")
    key, text = key.strip(), value.strip().strip("\"'")
    if isinstance(to_run_config(Config()).get(key), str):
        return key, text  # a layer may be named 1
    try:
        parsed = reading.toml_of(f"value = {value}".encode())["value"]
    except reading.DAMAGE:
        return key, text
    return key, parsed if isinstance(parsed, bool | int | float) else text


def parse_overrides(texts: Iterable[str] | None) -> dict[str, Scalar]:
    """Read what `--set` was given, the last word on a key counting. Raises InputError."""
    return dict(parse_override(text) for text in texts or ())


def dump(config: Config) -> str:
    """Return the resolved configuration as TOML that `load` reads back to the same value."""
    return tomli_w.dumps(config.model_dump(mode="json", by_alias=True))


def _suggestion(key: str) -> str:
    if key in Config.model_fields:
        within = next(known for known in KNOWN_KEYS if known.startswith(f"{key}."))
        return f": it is a table; give one of its keys, such as {within}"
    if near := difflib.get_close_matches(key, KNOWN_KEYS, n=1):
        return f"; did you mean '{near[0]}'?"
    # The table may be missing or wrong: compare the last part alone.
    names = {known.rpartition(".")[2]: known for known in KNOWN_KEYS}
    if near := difflib.get_close_matches(key.rpartition(".")[2], names, n=1):
        return f"; did you mean '{names[near[0]]}'?"
    return f"; the tables are {', '.join(Config.model_fields)}"


def explain(error: ValidationError) -> str:
    """Return the first complaint as one line that names the key."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return message
    if first["type"] == "extra_forbidden":
        *table, name = map(str, first["loc"])
        return f"unknown key '{name}'" + (f" in {'.'.join(table)}" if table else "")
    if meant := _number_meant(first["input"], first["type"]):
        return f"{key} is {first['input']!r}, which is text and no number; TOML wants {meant}"
    message = message[0].lower() + message[1:]
    return f"{key} is {first['input']!r}: {message.replace('input', 'it', 1)}"


def _number_meant(given: Any, complaint: str) -> str | None:
    """Return how TOML writes the number that a text stands for, None where it is none."""
    if complaint not in ("float_type", "int_type") or not isinstance(given, str):
        return None
    try:
        number = float(given)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    if complaint == "int_type":
        return str(int(number)) if number.is_integer() else None
    return repr(number)
