"""Configuration of the adversary's target and of the canaries."""

from typing import Annotated, Literal

from pydantic import Field

from fedsim.common.tables import TomlTable


class ChallengeConfig(TomlTable):
    """The target of the adversary: the most dissimilar record or client, or one that you choose.

    Attributes:
        dissimilarity: Measure that ranks candidates for the target.
        space: Space in which dissimilarity is measured. "features": the features of records;
            "embedding": the input of the last layer, at the initial parameters of the first trial.
        record: Position of the target in D. -1: choose by dissimilarity.
        replacement: Position of the replacement in the pool. It takes the place of the target in
            D'. -1: choose by dissimilarity.
        client: Client that holds the target. -1: any client.
        kind: Kind of target. "record": a record of D; "clipbkd", "mislabelled": a crafted record
            that replaces one of D. "gradient": a vector of norm C in place of a record's gradient.
    """

    dissimilarity: str = "euclidean"
    space: Literal["features", "embedding"] = "features"
    record: Annotated[int, Field(ge=-1)] = -1
    replacement: Annotated[int, Field(ge=-1)] = -1
    client: Annotated[int, Field(ge=-1)] = -1
    kind: Literal["record", "clipbkd", "mislabelled", "gradient"] = "record"

    @property
    def is_crafted(self) -> bool:
        """Whether a crafted record replaces a record of D."""
        return self.kind not in ("record", "gradient")


class CanariesConfig(TomlTable):
    """Canaries for a one-run audit. A fair coin decides whether a trial includes each canary.

    Attributes:
        count: Number of canaries. They are dealt to the clients in turn. 0: none.
        kind: Kind of canary. "gradient": gradients of the clipping norm in random directions;
            "mislabelled": records of the pool with a wrong label.
        known_data: Use of D by the auditor to score canaries. true: subtract what D's records add
            to each sum.
    """

    count: Annotated[int, Field(ge=0, le=100_000)] = 0
    kind: Literal["gradient", "mislabelled"] = "gradient"
    known_data: bool = False
