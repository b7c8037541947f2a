"""A first configuration: from a few answers to a commented file that runs."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.config import Scalar, documentation
from fedsim.config.federation import OWN
from fedsim.config.needs import as_toml
from fedsim.config.targets import overlaid
from fedsim.learning.data import BUNDLED, Dataset, distribution
from fedsim.learning.data.loaders import csv_file
from fedsim.privacy import delta
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Trust

MOST_HELD_OUT = 4000
"""Records on which accuracy is measured: so many give it within two points at 99 %."""

WIDTH = 98
"""Of a comment, in characters."""


@dataclass(frozen=True)
class Answers:
    """What a first configuration is made from.

    Attributes:
        data: the name of a bundled data set, or the path of a user's own.
        clients: how many, at least 2.
        max_belief: how sure an adversary may become at most, in (0.5, 1).
        rehearse: how many records the trials use in place of all, for speed; None for all.
    """

    data: str = "digits"
    clients: int = 3
    trust: str = Trust.CENTRAL.value
    max_belief: float = 0.9
    rounds: int = 30
    rehearse: int | None = None


def recognised(data: str) -> tuple[str, str]:
    """Return data.name and data.root of what a user names.

    Raises:
        InputError: it is neither, or nothing that can be read.
    """
    path = Path(data).expanduser()
    if data in BUNDLED and not path.exists():
        return data, ""
    if not path.exists():
        raise InputError(
            f"there is no '{data}'; give the path of a CSV, of an .npz or of a folder, or "
            f"{' or '.join(BUNDLED)}"
        )
    root = str(path.absolute())
    if not path.is_dir():
        name = {".csv": "csv", ".npz": "npz"}.get(path.suffix.lower())
        if name is None:
            raise InputError(f"'{data}' is neither .csv nor .npz; fedsim data lists what is read")
        return name, root
    if any(path.glob("*-ubyte*")):
        return "idx", root
    if (path / "dataset_info.json").exists() or any(path.rglob("*.parquet")):
        return "hf", root
    return "images", root


def columns(data: str, label: str) -> list[str]:
    """Return the columns of which a user must name the labels', none where there is no need to.

    Returns:
        Of a CSV whose first line has no `label`: what it has, and the names that its columns have
        if that is no header.
    """
    name, root = recognised(data)
    if name != "csv":
        return []
    first = csv_file.rows(Path(root))[0]
    numbered = [f"c{number}" for number in range(len(first))]
    return [] if label in first + numbered else first + numbered


def values(answers: Answers, also: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return what the file says, by dotted key, for data that are there.

    Args:
        also: what is said besides, by dotted key, in place of what would be.

    Raises:
        InputError: an answer is impossible, or the data cannot be read.
    """
    if not 0.5 < answers.max_belief < 1:
        raise InputError(
            f"the belief is {answers.max_belief:g}; 0.5 is a guess and 1 certainty: give a number "
            "between them, such as 0.9"
        )
    name, root = recognised(answers.data)
    said: dict[str, Scalar] = {"data.name": name}
    if root:
        said["data.root"] = root
    said |= _sizes(answers.data, said | dict(also))
    clipping_norm = float(also.get("training.clipping-norm", 1.0))
    said |= {
        "federation.clients": answers.clients,
        "federation.trust": answers.trust,
        "model.name": "mlp",
        "training.rounds": answers.rounds,
        "training.clipping-norm": clipping_norm,
        "privacy.rho-beta": answers.max_belief,
        "trials.count": 400,
    }
    said = overlaid(said, also)
    config = configuration.from_run_config(said)
    distribution.held(config)  # which has enough records for every client, or says so
    # Two digits, rounded down: no more than the rule says.
    exact = config.privacy.delta
    ulp = 10.0 ** (int(f"{exact:e}".partition("e")[2]) - 1)
    said.setdefault("privacy.delta", float(f"{exact // ulp * ulp:.2g}"))
    if answers.rehearse is not None:
        records = config.data.records
        if not answers.clients <= answers.rehearse < records:
            raise InputError(
                f"--rehearse is {answers.rehearse}; give a number below the {records} records and "
                f"at least the {answers.clients} clients"
            )
        # Delta stays that of all records, as do the rounds and the sampling rate: so does epsilon.
        said["data.records"] = answers.rehearse
    return said


def rehearsal(said: Mapping[str, Scalar], records: int) -> str:
    """Return what a rehearsal on fewer records tells, and what not.

    Args:
        said: by dotted key, with the rehearsal's number of records.
    """
    few = int(said["data.records"])
    return (
        f"A rehearsal on {few} of {records} records. The noise multiplier, epsilon, delta = "
        f"{said['privacy.delta']:g} and the bounds are those of a training on all {records}; by "
        f"the same rule, a training on {few} alone would have delta = {delta.of_records(few):.2g}. "
        f"Its models are less accurate than with all: the noise is divided by {few} and not by "
        f"{records}."
    )


def text(said: Mapping[str, Scalar], path: Path, note: str = "") -> str:
    """Return the file: every key with its meaning above it."""
    lines = [
        f"# How identifiable is one person in these data? Run it: fedsim run {path}",
        "# Every other key, with its default: fedsim config list",
    ]
    lines += textwrap.wrap(note, WIDTH, initial_indent="# ", subsequent_indent="# ")
    known = [key for key in documentation.every_key() if key in said]
    for table in configuration.Config.model_fields:
        own = [key for key in known if key.startswith(f"{table}.")]
        if own:
            lines += ["", f"[{table}]"]
        for key in own:
            name = key.partition(".")[2]
            comment = f"{name}: {documentation.key(key).meaning}"
            lines += textwrap.wrap(comment, WIDTH, initial_indent="# ", subsequent_indent="# ")
            lines.append(f"{name} = {as_toml(said[key])}")
    return "\n".join(lines) + "\n"


def _sizes(data: str, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return how many records D and the held-out ones have: what was said, or what fits beside it.

    Where nobody says, a fifth is held out, or the test records are, `MOST_HELD_OUT` at most. The
    pool has what it was said to have, a tenth where neighbours replace a record, and else nothing;
    D has all that is left. Raises InputError.
    """
    config = configuration.from_run_config(given)
    found = distribution.dataset(config)
    there, pool = len(found.train), config.data.pool
    records, held_out = config.data.records, config.data.held_out
    if config.privacy.neighbouring is Neighbouring.REPLACE and "data.pool" not in given:
        pool = max(1, there // 10)
    if "data.held-out" not in given:
        left = there - pool - (records if "data.records" in given else 0)
        # At least one, which is then one too many where D takes all there are.
        most = max(1, min(there // 5, left)) if found.test is None else len(found.test)
        held_out = min(MOST_HELD_OUT, most)
    if "data.records" not in given:
        records = max(0, there - pool - (held_out if found.test is None else 0))
    if config.data.name != OWN:  # whose clients have records besides those that are found here
        _check_sizes(data, found, records, held_out, pool)
    return {"data.records": records, "data.held-out": held_out}


def _check_sizes(data: str, found: Dataset, records: int, held_out: int, pool: int) -> None:
    """Raise InputError where data do not have as many records as are wanted of them."""
    there = len(found.train)
    aside = held_out if found.test is None else 0
    few = records < 2 or held_out < 1 or records + aside + pool > there
    if few or (found.test is not None and held_out > len(found.test)):
        tests = "" if found.test is None else f" and {len(found.test)} test records"
        raise InputError(
            f"'{data}' has {there} records{tests}, too few for data.records = {records} (2 or "
            f"more), data.held-out = {held_out} and data.pool = {pool}; lower one with --set"
        )
