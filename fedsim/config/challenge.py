"""What the adversary is to find out: the challenge of every trial, and canaries beside it."""

from typing import Annotated, Literal

from pydantic import Field

from fedsim.common.tables import Table


class ChallengeConfig(Table):
    """Whom the adversary must identify: the most dissimilar record or client, or a given one.

    Attributes:
        dissimilarity: the measure by which record, replacement or client are chosen.
        space: what dissimilarity is between, features or what the last layer sees of a record at
            the initial parameters of the first trial.
        choice: which of the pairs or clients is the target: the most dissimilar, the least, or the
            median.
        record: position in D of a given target; -1 to choose.
        replacement: position in the pool of what D' has in the target's stead; -1 to choose.
        client: the client whose record is to be the target; -1 for any.
        kind: what the target is: a "record" of D; one that was crafted to be noticed and takes the
            place of one of D: "backdoor", "clipbkd", "mislabelled" or "blank"; or "gradient", a
            vector of norm C that is added to the sum in place of a record's gradient.
        copies: how many copies of the target D has.
        label: label of a crafted record; -1 for what the first model likes least.
        coordinate: which parameter of the model the vector lies along; -1 for a random direction.
    """

    dissimilarity: str = "euclidean"
    space: Literal["features", "embedding"] = "features"
    choice: Literal["max", "min", "median"] = "max"
    record: Annotated[int, Field(ge=-1)] = -1
    replacement: Annotated[int, Field(ge=-1)] = -1
    client: Annotated[int, Field(ge=-1)] = -1
    kind: Literal["record", "backdoor", "clipbkd", "mislabelled", "blank", "gradient"] = "record"
    copies: Annotated[int, Field(ge=1, le=1024)] = 1
    label: Annotated[int, Field(ge=-1)] = -1
    coordinate: Annotated[int, Field(ge=-1)] = -1

    @property
    def is_crafted(self) -> bool:
        """Whether a record was crafted that takes the place of one of D."""
        return self.kind not in ("record", "gradient")


class CanariesConfig(Table):
    """Canaries for a one-run audit, each in or out of a trial's whole training by a fair coin.

    Attributes:
        count: how many canaries are planted; 0 for none.
        kind: what canaries are: gradients in random directions ("gradient") or along single
            parameters ("dirac"), as long as clipping allows, records of the pool with a wrong
            label ("mislabelled"), or texts of random tokens ("text").
        clients: clients at whom they are planted in turn, with commas between them; "" for all.
        guesses: how many canaries are guessed about; 0 for one in eight, -1 to try several numbers
            and pay for it.
        known_data: whether scores leave out what the records add to a sum, as an auditor can who
            knows D.
        score: where canaries are looked for: in the released sums ("sums"), or by how much less
            the loss of the last model is than that of the first, which never saw them ("loss").
    """

    count: Annotated[int, Field(ge=0, le=100_000)] = 0
    kind: Literal["gradient", "dirac", "mislabelled", "text"] = "gradient"
    clients: str = ""
    guesses: Annotated[int, Field(ge=-1)] = 0
    known_data: bool = False
    score: Literal["sums", "loss"] = "sums"
