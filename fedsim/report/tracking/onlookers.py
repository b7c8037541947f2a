"""Who a user asked to look on: a page in the run's directory, and places that keep its numbers."""

from dataclasses import dataclass

from rich.console import Console

from fedsim.config import Config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report.tracking import trackers
from fedsim.report.tracking.following import Watcher
from fedsim.report.tracking.numbers import Tracking
from fedsim.report.tracking.tracker import Tracker


@dataclass(frozen=True)
class Onlookers:
    """Who looks on at one run.

    Attributes:
        trackers: by the place that the user named.
    """

    page: bool
    trackers: dict[str, Tracker]

    @classmethod
    def asked(cls, page: bool, places: list[str] | None) -> "Onlookers":
        """Return who is asked to look on, before there is a run.

        Args:
            places: such as "tensorboard:DIR".
        """
        return cls(page, {place: trackers.opened(place) for place in places or ()})

    def watchers(self, directory: RunDirectory, config: Config, console: Console) -> list[Watcher]:
        """Return them as watchers of a run that is about to go on."""
        found: list[Watcher] = [
            Tracking(directory, tracker, place) for place, tracker in self.trackers.items()
        ]
        if self.page:
            from fedsim.report.tracking.live_page import FILE, LivePage  # noqa: PLC0415  (matplotlib)

            found.append(LivePage(directory, config))
            console.print(
                f"Live page: {directory.path / FILE}", soft_wrap=True, highlight=False, markup=False
            )
        return found
