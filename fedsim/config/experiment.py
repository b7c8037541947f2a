"""The whole configuration: all tables, and the rules that join them."""

from typing import Any, Self

from pydantic import model_validator

from fedsim.common.tables import Scalar, Table
from fedsim.config import targets
from fedsim.config.campaign import AuditConfig, ReportConfig, RunConfig, TrialsConfig
from fedsim.config.challenge import CanariesConfig, ChallengeConfig
from fedsim.config.federation import DataConfig, FederationConfig
from fedsim.config.objects import GameRules, Scheme
from fedsim.config.privacy import PrivacyConfig
from fedsim.config.refused import REFUSED
from fedsim.config.training import ModelConfig, TrainingConfig, chosen
from fedsim.privacy import delta
from fedsim.privacy.participation import rule
from fedsim.privacy.participation.rule import Participation, Setting


class Config(Table):
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
        audit: Prior, attacks and confidence of the audit.
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
    report: ReportConfig = ReportConfig()
    run: RunConfig = RunConfig()

    @model_validator(mode="before")
    @classmethod
    def _delta_where_none_is_given(cls, given: Any) -> Any:
        """Fill in privacy.delta by the rule of `fedsim.privacy.delta` where it is 0 or missing."""
        if not isinstance(given, dict) or not isinstance(given.get("privacy", {}), dict):
            return given
        privacy, data = given.get("privacy", {}), given.get("data", {})
        default = DataConfig().records
        records = data.get("records", default) if isinstance(data, dict) else data.records
        # What is no number of records is refused where it stands.
        if privacy.get("delta", 0) != 0 or type(records) is not int or records < 2:
            return given
        return {**given, "privacy": {**privacy, "delta": delta.of_records(records)}}

    @model_validator(mode="before")
    @classmethod
    def _optimiser_where_none_is_given(cls, given: Any) -> Any:
        """Fill in training.optimizer and training.schedule by the rule of `chosen`."""
        if not isinstance(given, dict) or not isinstance(given.get("training", {}), dict):
            return given
        return {**given, "training": chosen(given)}

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        self._honest_clients()
        self._one_target()
        self._first_trials()
        self._clients_and_records()
        self._enough_canaries()
        for need in REFUSED:
            need.check(self)
        return self

    @property
    def participation(self) -> Participation:
        """Who takes part in which round, and the rate at which that is charged."""
        federation, by_client = self.federation, self.privacy.unit == "client"
        return rule(
            Setting(
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
        )

    @property
    def scheme(self) -> Scheme:
        """The privacy mechanism as it is planned."""
        return Scheme(
            self.privacy,
            self.federation,
            self.training,
            self.participation,
            self.data.records,
            self.challenge.copies,
            self.trials.count,
        )

    @property
    def game(self) -> GameRules:
        """What the game is played with."""
        return GameRules(
            self.scheme,
            self.challenge,
            self.canaries,
            self.model,
            self.trials,
            self.run.seed,
            self.data.seed,
            self.noise_seed,
            self.candidates,
        )

    @property
    def scored_by_counts(self) -> bool:
        """Whether the participant weighs how often a sampled target is in a sum over several steps.

        Such log-odds are an attack's score, whose law nobody knows in advance.
        """
        local = self.training.local_steps > 1 and self.training.sampling_rate < 1
        return local or self.federation.adversary_rounds == "own"

    @property
    def candidates(self) -> int:
        """How many secrets PAC noise has to choose from; 1 where the noise is DP-SGD's."""
        privacy = self.privacy
        if not privacy.noise.mechanism.by_candidate:
            return 1
        return 2 if privacy.pac_prior == "pair" else privacy.pac_draws

    def placed_at(self, out: str) -> "Config":
        """Return the same experiment with another run directory."""
        return self.model_copy(update={"run": self.run.model_copy(update={"out": out})})

    def reading_data_from(
        self, root: str, public_root: str = "", *, as_they_are: bool = False
    ) -> "Config":
        """Return the same experiment with its records in other places, and weights nowhere.

        public_root: where the public records are, beside clients' own.
        """
        changes: dict[str, Scalar] = {"root": root, "public_root": public_root}
        if as_they_are:
            changes["download"] = False
        data = self.data.model_copy(update=changes)
        return self.model_copy(update={"data": data}).starting_from("")

    def starting_from(self, weights: str) -> "Config":
        """Return the same experiment with the file of `model.weights`, if any, in another place."""
        if self.model.weights and not self.model.weights_path:
            return self
        model = self.model.model_copy(update={"weights": weights})
        return self.model_copy(update={"model": model})

    def with_batch(self, batch: int) -> "Config":
        """Return the same experiment with other batches of trials."""
        trials = self.trials.model_copy(update={"batch": batch})
        return self.model_copy(update={"trials": trials})

    @property
    def noise_seed(self) -> int | None:
        """The seed of the privacy noise; None where it comes from the operating system."""
        return self.run.seed if self.privacy.noise_source == "seed" else None

    def _honest_clients(self) -> None:
        """Raise ValueError where no honest client besides that of the record may be left."""
        federation = self.federation
        clients, colluding = federation.clients, federation.colluding
        dropouts = f"federation.tolerated-dropouts is {federation.tolerated_dropouts}"
        if colluding > clients - 2:
            raise ValueError(
                f"federation.colluding is {colluding}, but of {clients} clients one is the "
                f"adversary and one holds the challenge; give 0 to {clients - 2}"
            )
        if colluding + federation.tolerated_dropouts > clients - 2:
            raise ValueError(
                f"{dropouts}, but with the adversary and {colluding} colluding clients that may "
                f"leave no honest one of {clients}; give 0 to {clients - 2 - colluding}"
            )
        # A server that asked one half for keys and the other half for seeds would unmask a client.
        if (
            federation.secure_aggregation == "secagg+"
            and 2 * federation.fewest_participants <= clients
        ):
            raise ValueError(
                f"{dropouts}, but secagg+ keeps messages secret only while more than half of "
                f"{clients} clients must answer; give 0 to {(clients - 1) // 2}"
            )

    def _one_target(self) -> None:
        """Raise ValueError unless exactly one number says how much noise there is."""
        privacy = self.privacy
        values = privacy.model_dump(by_alias=True)
        given = targets.given({f"{targets.TABLE}.{name}": value for name, value in values.items()})
        if not given:
            raise ValueError(
                "privacy.rho-beta, privacy.rho-alpha, privacy.epsilon, privacy.noise-multiplier "
                "and privacy.mutual-information are all 0; give one of them, for example "
                "privacy.rho-beta = 0.9"
            )
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(given)} are both set, but one decides the other; set one of them "
                f"to 0, for example {given[0]}=0"
            )
        if 0 < privacy.rho_beta <= 0.5:
            raise ValueError(
                f"privacy.rho-beta is {privacy.rho_beta}, but a belief of 0.5 is a coin's; "
                "give a bound above 0.5 and below 1"
            )

    def _first_trials(self) -> None:
        """Raise ValueError where a campaign cannot have begun with so many trials."""
        trials = self.trials
        if trials.first > trials.count or (trials.worlds == "both" and trials.first % 2):
            raise ValueError(
                f"trials.first is {trials.first} of {trials.count} trials; give an even number "
                "below that, or 0 where the campaign was not extended"
            )

    def _clients_and_records(self) -> None:
        """Raise ValueError for a client or a record that there is not."""
        clients, records = self.federation.clients, self.data.records
        numbered = f"but the clients are numbered 0 to {clients - 1}"
        for key, client in (
            ("federation.adversary", self.federation.adversary),
            ("challenge.client", self.challenge.client),
        ):
            if client >= clients:
                raise ValueError(
                    f"{key} is {client}, {numbered}; name one of them, or -1 to let fedsim choose"
                )
        for name in filter(None, (name.strip() for name in self.canaries.clients.split(","))):
            if self.canaries.count and (not name.isdecimal() or int(name) >= clients):
                raise ValueError(
                    f"canaries.clients has '{name}', {numbered}; give some of them with commas "
                    'between, or "" for all'
                )
        if records < clients:
            raise ValueError(
                f"data.records is {records}, fewer than the {clients} clients; each needs a record"
            )
        if self.challenge.record >= records:
            raise ValueError(
                f"challenge.record is {self.challenge.record}, but D has records 0 to {records - 1}"
            )

    def _enough_canaries(self) -> None:
        """Raise ValueError for more canaries than records, or more guesses than canaries."""
        canaries, pool = self.canaries, self.data.pool
        if canaries.kind == "mislabelled" and 0 < pool < canaries.count:
            raise ValueError(
                f"canaries.count is {canaries.count} and mislabelled canaries are records of the "
                f"pool, but data.pool is {pool}; raise it to {canaries.count}, or 0 for all that "
                "is left"
            )
        if canaries.guesses > canaries.count > 0:
            raise ValueError(
                f"canaries.guesses is {canaries.guesses}, but there are {canaries.count} canaries; "
                f"give at most {canaries.count}"
            )
