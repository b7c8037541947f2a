"""A first configuration: from three answers to a commented file that runs."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.config import Scalar, documentation
from fedsim.config.needs import as_toml
from fedsim.data import BUNDLED, distribution
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


def values(answers: Answers, also: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return what the file says, by dotted key, for data that are there.

    Args:
        answers: to the three questions.
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
    said |= _sizes(configuration.from_run_config(said | dict(also)))
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
    said |= also
    config = configuration.from_run_config(said)
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


def _sizes(config: configuration.Config) -> dict[str, Scalar]:
    """Return how many records D and the held-out ones have: no more than half and a quarter."""
    found = distribution.dataset(config)
    there = len(found.train)
    aside = there // 4 if found.test is None else len(found.test)
    records, held_out = min(MOST_RECORDS, there // 2), min(MOST_RECORDS, aside)
    if records < 2 or not held_out:
        raise InputError(f"{found.name} has {there} records, too few to train on some of them")
    return {"data.records": records, "data.held-out": held_out}
