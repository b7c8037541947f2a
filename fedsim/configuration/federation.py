"""Configuration of the data and of the clients that hold them."""

from typing import Annotated, Literal

from pydantic import Field

from fedsim.common.tables import PositiveInt, Seed, TomlTable
from fedsim.privacy.trust import FEWEST_SUMMED, Trust, Vantage

OWN = "own"
"""Name of the data set where each client has its own records."""

TEXTS = "texts"
"""Name of the data set of texts without labels."""

CLIENT = "{client}"
"""Placeholder in data.root for the number of a client."""


TABLES = (".csv", ".tsv", ".gz", ".parquet", ".npz")
"""Suffixes of tables, which a user may take for a configuration."""

TOLERATED = "federation.tolerated-dropouts"


class DataConfig(TomlTable):
    """Data set, labels and sizes. `seed` alone decides which records D holds, not the run's seed.

    Attributes:
        name: Name of the data set. fedsim data lists the names.
        root: Folder or file with the records. "{client}" stands for the number of the client, where
            each client has its own file on one machine.
        label: Column of the labels in a table.
        exclude: Columns of a table to leave out, separated by commas.
        image_size: Side length of pictures from a folder, in pixels. Pictures are resized to
            squares. 0: keep their size.
        download: Permission to download missing files into data.root.
        length: Length of each text of the data set "texts", in tokens. Longer texts are cut.
        target: Range of the number to predict, as "LEAST,LARGEST". The range is public; values
            outside it are clipped. Needed for regression. Empty: labels are classes.
        classes: Labels to keep, separated by commas. Empty: all.
        public_schema: Public schema of the clients' own records, as TOML. In a configuration file:
            the path of a file with the schema.
        public_root: Folder or file of public records, never trained on. Used beside the clients'
            own records. Empty: none.
        records: Number of records in the training set, D. Where clients have their own records: the
            public number that sums are divided by.
        held_out: Number of records kept for evaluation, not trained on.
        pool: Number of candidate records for the replacement. 0: all records that remain.
        seed: Seed for drawing D from the data set.
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


class FederationConfig(TomlTable):
    """Clients and their records, the party that adds the noise, and the adversary's place.

    Attributes:
        clients: Number of clients.
        partition: Scheme that divides D among the clients. Options of a partitioner of Flower
            follow its name, as "flwr:shard, num-shards-per-partition=2".
        partition_key: Column that decides the client of a record. The partition "key" gives all
            records with the same value to one client. "label" stands for the label. Flower's
            partitioners use the labels where this is empty.
        dirichlet_alpha: Concentration of "dirichlet" and "quantity" partitions.
        sampling_rate: Probability that a client joins a round. 1: every client joins every round.
        trust: Party that adds the noise. "central": the server; "local": each client, all of its
            own; "distributed": each client, a share.
        vantage: Vantage point of the adversary. It sees what the "server" sees, what a
            "participant" sees, or the "released-model" only.
        timeout: Time limit for the answer of a client, in seconds.
        secure_aggregation: Protocol that sums messages under distributed trust. "simulated": in the
            clear, so that the server sees each message under a share of the noise only; "secagg+":
            the protocol of Flower.
        auditor_sees: Data that an auditor's node receives in each round. "sums": the released sums;
            "messages": also the clients' messages, under local trust, which show which client adds
            too little noise.
        colluding: Number of other clients that help the adversary. They disclose what they know,
            which leaves their own records unprotected.
        tolerated_dropouts: Number of clients that may be missing from a round.
        dropout_rate: Probability that a client drops out of a round. For simulations.
    """

    clients: Annotated[int, Field(ge=2)] = 2
    partition: str = "iid"
    partition_key: str = ""
    dirichlet_alpha: Annotated[float, Field(gt=0)] = 0.5
    sampling_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    trust: Annotated[Trust, Field(strict=False)] = Trust.CENTRAL
    vantage: Annotated[Vantage, Field(strict=False)] = Vantage.PARTICIPANT
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    secure_aggregation: Literal["simulated", "secagg+"] = "simulated"
    auditor_sees: Literal["sums", "messages"] = "sums"
    colluding: Annotated[int, Field(ge=0)] = 0
    tolerated_dropouts: Annotated[int, Field(ge=0)] = 0
    dropout_rate: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def fewest_participants(self) -> int:
        return self.clients - self.tolerated_dropouts

    @property
    def summed_in_the_clear(self) -> bool:
        """Whether the server sees single messages, each with only a share of the sum's noise."""
        return self.trust.model.summed_securely and self.secure_aggregation == "simulated"

    @property
    def masked(self) -> bool:
        """Whether clients send masked messages only."""
        return self.secure_aggregation == "secagg+"

    @property
    def few_masks(self) -> bool:
        """Whether a hostile server can find the masks that hide a message of a secure sum."""
        return self.masked and self.clients - self.colluding < FEWEST_SUMMED
