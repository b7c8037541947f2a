"""Which records there are and which client holds which."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from fedsim.common.tables import PositiveInt, Seed, Table
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage

OWN = "own"
"""The name of data that each client has for itself."""

TEXTS = "texts"
"""The name of texts without labels."""

CLIENT = "{client}"
"""What stands in data.root for the number of a client."""


LEAST_EPSILON = 0.01
"""The least of federation.measures-epsilon: counts with more noise than this say nothing."""


class DataConfig(Table):
    """Which records there are; D is drawn from them by `seed` alone, whatever the run's seed.

    Attributes:
        name: name of the data set (fedsim data lists them).
        root: the folder or file that the records are read from; where every client reads its own
            on one machine, "{client}" in it stands for the number of the client.
        label: the column of the labels, of a table.
        exclude: columns of a table that are no features, with commas between them.
        image_size: the side of the squares that pictures of a folder are brought to, in pixels; 0
            to leave them.
        download: whether missing originals may be fetched into root.
        length: tokens that each text of the data set "texts" has; what is longer is cut.
        target: range of the number that a regression predicts, as "LEAST,LARGEST": public, and what
            lies outside is clipped to it. Empty: labels are classes.
        classes: the labels whose records alone there are, with commas between them, "" for all.
        public_schema: what clients' own records have in common, as TOML; in a configuration file
            the path of a file with it.
        public_root: beside clients' own records, the folder or file of those that nobody trains on;
            "" for none.
        records: how many records D has; of clients' own, the public number that sums are divided
            by.
        held_out: how many records nobody trains on, for evaluation.
        pool: how many more records the replacement is chosen among; 0 for all that are left.
        seed: seed of the draw of D.
    """

    name: str = "digits"
    root: str = ""
    label: str = "label"
    exclude: str = ""
    image_size: Annotated[int, Field(ge=0, le=4096)] = 0
    download: bool = False
    length: Annotated[int, Field(ge=2, le=4096)] = 64
    target: str = ""
    classes: str = ""
    public_schema: str = ""
    public_root: str = ""
    records: PositiveInt = 200
    held_out: PositiveInt = 400
    pool: Annotated[int, Field(ge=0)] = 0
    seed: Seed = 0


class FederationConfig(Table):
    """Who holds which records, who adds the noise, where the adversary sits.

    Attributes:
        clients: how many clients there are.
        partition: the scheme by which D is divided among the clients.
        partition_key: the column that `partition = "key"` does not split, or "label"; what a
            partitioner of Flower goes by, "" for the labels.
        partition_options: what a partitioner of Flower takes besides, as "name=value, name=value".
        dirichlet_alpha: concentration of the partitions "dirichlet" and "quantity".
        sampling_rate: the probability that a client takes part in a round (1: every client in every
            round).
        adversary: number of the curious client; -1 for the last that does not hold the challenge.
        adversary_rounds: which rounds the curious client is asked in: "every" one, or its "own",
            in which it is sampled.
        trust: who adds the noise: the server ("central"), every client its own ("local"), or every
            client a share ("distributed").
        vantage: where the adversary sits: at the server, at a participant, or before the released
            model.
        timeout: seconds that a client has for an answer.
        secure_aggregation: how clients' messages are summed under distributed trust: "simulated",
            in the clear, where the server sees every message under a share of the noise only, or by
            Flower's protocol.
        auditor_sees: what an auditor's node is sent of a round: the released "sums", or under local
            trust also the clients' "messages", so that it can say who adds too little noise.
        colluding: how many other clients disclose to the adversary what they know, which leaves
            their own records unprotected.
        tolerated_dropouts: without how many clients a round may go on.
        dropout_rate: probability that a client fails to answer in a round, for simulations.
        measures_epsilon: epsilon of the one noisy confusion matrix that each consenting client
            answers after a training, 0.01 to 100; 0 asks no client.
        measures_share: share of its records that each simulated client holds back from a training
            for this, 0 to 0.5; a deployed client's own node.toml has its share.
    """

    clients: Annotated[int, Field(ge=2)] = 2
    partition: str = "iid"
    partition_key: str = ""
    partition_options: str = ""
    dirichlet_alpha: Annotated[float, Field(gt=0)] = 0.5
    sampling_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    adversary: Annotated[int, Field(ge=-1)] = -1
    adversary_rounds: Literal["every", "own"] = "every"
    trust: Annotated[Trust, Field(strict=False)] = Trust.CENTRAL
    vantage: Annotated[Vantage, Field(strict=False)] = Vantage.PARTICIPANT
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    secure_aggregation: Literal["simulated", "secagg+"] = "simulated"
    auditor_sees: Literal["sums", "messages"] = "sums"
    colluding: Annotated[int, Field(ge=0)] = 0
    tolerated_dropouts: Annotated[int, Field(ge=0)] = 0
    dropout_rate: Annotated[float, Field(ge=0, lt=1)] = 0.0
    measures_epsilon: Annotated[float, Field(ge=0, le=100)] = 0.0
    measures_share: Annotated[float, Field(ge=0, le=0.5)] = 0.0

    @field_validator("measures_epsilon")
    @classmethod
    def _says_something(cls, epsilon: float) -> float:
        """Refuse noise beyond which no count of records could be told apart."""
        if 0 < epsilon < LEAST_EPSILON:
            raise ValueError(f"give 0, or {LEAST_EPSILON:g} to 100")
        return epsilon

    @property
    def fewest_participants(self) -> int:
        """How many clients a round has at least."""
        return self.clients - self.tolerated_dropouts

    @property
    def summed_in_the_clear(self) -> bool:
        """Whether the server sees single messages that only their sum's noise protects."""
        return self.trust.model.summed_securely and self.secure_aggregation == "simulated"
