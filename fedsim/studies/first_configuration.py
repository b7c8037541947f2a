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
from fedsim.data import BUNDLED, Dataset, distribution
from fedsim.data.loaders import csv_file
from fedsim.privacy.mechanism import Neighbouring
from fedsim.trust import Trust

MOST_RECORDS = 600
"""Of D: hundreds of trainings on so many take a minute."""

WIDTH = 98
"""Of a comment, in characters."""


@dataclass(frozen=True)
class Answers:
    """What a first configuration is made from.

    Attributes:
        data: the name of a bundled data set, or the path of a user's own.
        clients: how many, at least 2.
        trust: who adds the noise, a name of `Trust`.
        max_belief: how sure an adversary may become at most, in (0.5, 1).
    """

    data: str = "digits"
    clients: int = 3
    trust: str = Trust.CENTRAL.value
    max_belief: float = 0.9


def recognised(data: str) -> tuple[str, str]:
    """Return data.name and data.root of what a user names.

    Args:
        data: the name of a bundled data set, or a path.

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

    Args:
        data: as of `recognised`.
        label: the name that is taken for the labels' column.

    Returns:
        Of a CSV whose first line has no `label`: what it has, and the names that its columns have
        if that is no header.

    Raises:
        InputError: as of `recognised`, or the table cannot be read.
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
        answers: to the questions.
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
    digits = name == "digits"
    said |= {
        "federation.clients": answers.clients,
        "federation.trust": answers.trust,
        "model.name": "mlp",
        "training.rounds": 30,
        "training.learning-rate": 1.5 if digits else 0.5,
        "training.clipping-norm": 1.0,
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
    return said


def text(said: Mapping[str, Scalar], path: Path) -> str:
    """Return the file: every key with its meaning above it.

    Args:
        said: by dotted key.
        path: of the file.
    """
    lines = [
        f"# How identifiable is one person in these data? Run it: fedsim run {path}",
        "# Every other key, with its default: fedsim config list",
    ]
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

    Where nobody says, D has no more than half of the records, no more than a quarter are held out,
    and the pool keeps what it was said to have, or half of what D leaves. Raises InputError.
    """
    config = configuration.from_run_config(given)
    found = distribution.dataset(config)
    there, pool = len(found.train), config.data.pool
    records, held_out = config.data.records, config.data.held_out
    if "data.records" not in given:
        aside = held_out if "data.held-out" in given and found.test is None else 0
        records = max(0, min(MOST_RECORDS, there // 2, there - aside - pool))
    if "data.held-out" not in given:
        left = there - records
        # At least one, which is then one too many where D takes all there are.
        most = max(1, min(there // 4, left - (pool or left // 2)))
        held_out = min(MOST_RECORDS, most if found.test is None else len(found.test))
    if config.data.name != OWN:  # whose clients have records besides those that are found here
        replaced = config.privacy.neighbouring is Neighbouring.REPLACE
        _check_sizes(data, found, records, held_out, max(pool, int(replaced)))
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
