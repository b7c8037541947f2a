"""What every study says of itself: its experiment, and the blocks of its page."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import fedsim
from fedsim.configuration import Config
from fedsim.reports.document.blocks import Block, Heading, Label, Listing, Told
from fedsim.reports.document.wording import plain

UNLISTED = ("kind", "label", "name", "question")
"""Keys of a study's report that are no settings."""


def told(
    config: Config,
    document: Mapping[str, Any],
    label: str,
    sections: Callable[[], Iterator[Block]],
    **said: Any,
) -> Told:
    """Return what a study says.

    Args:
        document: report.json; the page lists its numbers and short texts as settings.
        label: what the numbers are, and what they are not; "" where a caution says it.
        sections: of the page, behind the label.
        said: other fields of `Told`.
    """

    def blocks() -> list[Block]:
        settings = [
            (key.replace("_", " "), plain(value))
            for key, value in document.items()
            if key not in UNLISTED and not isinstance(value, dict | list)
        ]
        listed = Listing(settings, several=True)
        read = [Label("How to read this:", label)] if label else []
        return [*read, *sections(), Heading("Settings"), listed]

    today = datetime.now().astimezone().date().isoformat()
    return Told(
        **{"limits": label} | said,
        name=config.run.name,
        data=f"{config.data.name}, {config.data.records} records",
        report=document,
        label=label,
        sections=blocks,
        date=today,
    )


def settings(config: Config) -> dict[str, Any]:
    return {
        "name": config.run.name,
        "data": config.data.name,
        "records": config.data.records,
        "model": config.model.name,
        "neighbouring": config.privacy.neighbouring.value,
        "rounds": config.training.rounds,
        "sampling_rate": config.participation.rate,
        "clipping": config.training.clipping,
        "clipping_norm": config.training.clipping_norm,
        "trust": config.federation.trust.value,
        "clients": config.federation.clients,
        "seed": config.run.seed,
        "versions": {"fedsim": fedsim.__version__},
    }
