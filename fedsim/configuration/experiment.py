"""The whole configuration: all tables, and the rules that involve several of them."""

from functools import cached_property
from typing import Any, Self

from pydantic import model_validator

from fedsim.common.tables import Scalar, TomlTable
from fedsim.configuration import jobs
from fedsim.configuration.campaign import AuditConfig, RunConfig, TrialsConfig
from fedsim.configuration.challenge import CanariesConfig, ChallengeConfig
from fedsim.configuration.federation import DataConfig, FederationConfig
from fedsim.configuration.privacy import PrivacyConfig
from fedsim.configuration.refused import REFUSED
from fedsim.configuration.training import ModelConfig, TrainingConfig, chosen
from fedsim.privacy import delta
from fedsim.privacy.mechanism import LEAST_NOISE
from fedsim.privacy.participation.rule import Participation


class Config(TomlTable):
    """A whole experiment.

    Attributes:
        data: Data set, labels and sizes.
        federation: Clients, the party that adds the noise, and the adversary's place.
        model: Network to train.
        training: Training by the federation.
        privacy: Noise and its accounting.
        challenge: Target of the adversary.
        canaries: Canaries of a one-run audit.
        trials: Repetitions of the whole training.
        audit: Attacks and confidence of the audit.
        report: Limits of an organisation.
        run: Name, purpose, device and place of the run.
    """

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

    @model_validator(mode="before")
    @classmethod
    def _fill_in_delta(cls, tables: Any) -> Any:
        """Fill in privacy.delta by the rule of `fedsim.privacy.delta` where it is 0 or missing."""
        if not isinstance(tables, dict) or not isinstance(tables.get("privacy", {}), dict):
            return tables
        privacy, data = tables.get("privacy", {}), tables.get("data", {})
        default = DataConfig().records
        records = data.get("records", default) if isinstance(data, dict) else data.records
        # The field data.records itself refuses an invalid number.
        if privacy.get("delta", 0) != 0 or type(records) is not int or records < 2:
            return tables
        return {**tables, "privacy": {**privacy, "delta": delta.of_records(records)}}

    @model_validator(mode="before")
    @classmethod
    def _fill_in_optimiser(cls, tables: Any) -> Any:
        """Fill in training.optimizer and training.schedule by the rule of `chosen`."""
        if not isinstance(tables, dict) or not isinstance(tables.get("training", {}), dict):
            return tables
        return {**tables, "training": chosen(tables)}

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        self._honest_clients()
        self._one_target()
        self._clients_and_records()
        self._enough_canaries()
        for need in REFUSED:
            need.check(self)
        return self

    def __copy__(self) -> Self:
        """Return a copy without the cached objects, since `model_copy` then changes the values."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    @cached_property
    def participation(self) -> Participation:
        """The rule that decides who joins which round, with the sampling rate of its accounting."""
        federation, by_client = self.federation, self.privacy.unit == "client"
        return Participation(
            clients=federation.clients,
            units=federation.clients if by_client else self.data.records,
            missing=federation.tolerated_dropouts,
            client_rate=federation.sampling_rate,
            record_rate=self.training.sampling_rate,
            local_steps=self.training.local_steps,
            by_client=by_client,
            server_draws=federation.trust.model.server_draws,
            seed=self.noise_seed,
        )

    def placed_at(self, out: str) -> "Config":
        """Return the same experiment with another run directory."""
        return self.model_copy(update={"run": self.run.model_copy(update={"out": out})})

    def reading_data_from(
        self, root: str, public_root: str = "", *, offline: bool = False
    ) -> "Config":
        """Return the same experiment with other paths of its records, and no path of weights."""
        changes: dict[str, Scalar] = {"root": root, "public_root": public_root}
        if offline:
            changes["download"] = False
        data = self.data.model_copy(update=changes)
        return self.model_copy(update={"data": data}).starting_from("")

    def starting_from(self, weights: str) -> "Config":
        """Return the same experiment with another path of the file in `model.weights`, if any."""
        if (self.model.weights and not self.model.weights_path) or weights == self.model.weights:
            return self
        model = self.model.model_copy(update={"weights": weights})
        return self.model_copy(update={"model": model})

    def with_batch(self, batch: int) -> "Config":
        """Return the same experiment with another number of trials in a batch."""
        trials = self.trials.model_copy(update={"batch": batch})
        return self.model_copy(update={"trials": trials})

    @property
    def noise_seed(self) -> int | None:
        """The seed of the privacy noise; None: the noise comes from the operating system."""
        return self.run.seed if self.privacy.noise_source == "seed" else None

    def _honest_clients(self) -> None:
        """Raise ValueError where no honest client may remain beside the target's client."""
        federation = self.federation
        clients, colluding = federation.clients, federation.colluding
        dropouts = f"federation.tolerated-dropouts is {federation.tolerated_dropouts}"
        if colluding > clients - 2:
            raise ValueError(
                f"federation.colluding is {colluding}, but of {clients} clients one is the "
                f"adversary and one holds the target; give 0 to {clients - 2}"
            )
        if colluding + federation.tolerated_dropouts > clients - 2:
            raise ValueError(
                f"{dropouts}, but with the adversary and {colluding} colluding clients, a round "
                f"may then have no honest client; give 0 to {clients - 2 - colluding}"
            )

    def _one_target(self) -> None:
        privacy = self.privacy
        values = privacy.model_dump(by_alias=True)
        given = jobs.given({f"{jobs.TABLE}.{name}": value for name, value in values.items()})
        if not given:
            raise ValueError(
                f"{', '.join(jobs.KEYS[:-1])} and {jobs.KEYS[-1]} are all 0, which means not "
                "set; give one of them, for example privacy.rho-beta = 0.9, or "
                f"privacy.noise-multiplier = {LEAST_NOISE:g}, which hides nothing"
            )
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(given)} are set, but only one key can decide the noise; set one "
                f"of them to 0, for example {given[0]}=0"
            )
        if 0 < privacy.rho_beta <= 0.5:
            raise ValueError(
                f"privacy.rho-beta is {privacy.rho_beta}, but a coin toss already gives a belief "
                "of 0.5; give a number above 0.5 and below 1"
            )

        if 0 < privacy.max_risk <= privacy.baseline_risk:
            raise ValueError(
                f"privacy.max-risk is {privacy.max_risk:g}, but the attack already succeeds with "
                f"privacy.baseline-risk = {privacy.baseline_risk:g} without the model; give a "
                "larger number"
            )

    def _clients_and_records(self) -> None:
        clients, records = self.federation.clients, self.data.records
        if self.challenge.client >= clients:
            raise ValueError(
                f"challenge.client is {self.challenge.client}, but the clients are numbered 0 to "
                f"{clients - 1}; name one of them, or -1 to let fedsim choose"
            )
        if records < clients:
            raise ValueError(
                f"data.records is {records}, but {clients} clients need a record each; give more"
            )
        units = self.participation.units
        if self.run.job == "training" and self.privacy.delta > 1 / units:
            raise ValueError(
                f"privacy.delta is {self.privacy.delta:g}, above one over the {units} "
                f"{self.privacy.unit}s: a training that publishes one of them at random would keep "
                f"such a guarantee; give at most {1 / units:.3g}, or leave it out"
            )
        if self.challenge.record >= records:
            raise ValueError(
                f"challenge.record is {self.challenge.record}, but the records of D are numbered 0 "
                f"to {records - 1}; give one of them, or -1 to let fedsim choose"
            )

    def _enough_canaries(self) -> None:
        """Raise ValueError for more canaries than records."""
        canaries, pool = self.canaries, self.data.pool
        if canaries.kind == "mislabelled" and 0 < pool < canaries.count:
            raise ValueError(
                f"canaries.count is {canaries.count}, but mislabelled canaries are records of the "
                f"pool, and data.pool is {pool}; set data.pool to {canaries.count}, or to 0 for "
                "all remaining records"
            )
