"""Watchers of a run: each receives every event, with the state of the run after it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console

from fedsim.common.foreign_text import without_password
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report.tracking import trackers
from fedsim.report.tracking.course import Course, Event, after
from fedsim.report.tracking.numbers import Tracking
from fedsim.report.tracking.trackers import Tracker

PAUSE = 0.2
"""Seconds between two looks at the file."""


class Watcher(Protocol):
    """A watcher of a run: progress bar, live page or tracker."""

    name: str
    """Its name in messages."""
    from_the_beginning: bool
    """Whether it also receives the earlier events of a resumed run."""

    def see(self, event: Event, course: Course) -> None:
        """Take note of an event."""

    def leave(self, finished: bool) -> None:
        """Take note of the end, also after an error or Ctrl-C."""


@contextmanager
def following(
    directory: RunDirectory, watchers: Sequence[Watcher], console: Console
) -> Iterator[None]:
    """Pass the events of a run to its watchers while any process writes them.

    Each watcher has its own thread, so a slow watcher delays only the end. A watcher that fails is
    named and dropped, and the run goes on.
    """
    stop, finished, before = threading.Event(), False, directory.events_size()

    def follow(watcher: Watcher) -> None:
        course, position = Course(), 0
        try:
            while True:
                ending = stop.is_set()
                for event, behind in directory.events(position):
                    course, position = after(course, event), behind
                    if behind > before or watcher.from_the_beginning:
                        watcher.see(event, course)
                if ending:
                    break
                stop.wait(PAUSE)
            watcher.leave(finished)
        except Exception as error:  # of a server elsewhere, a full disk: not the run's business
            why = " ".join(without_password(str(error)).split()) or type(error).__name__
            console.print(
                f"{watcher.name} is no longer written: {why}", highlight=False, markup=False
            )

    threads = [threading.Thread(target=follow, args=[one], daemon=True) for one in watchers]
    for thread in threads:
        thread.start()
    try:
        yield
        finished = True
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def replay(directory: RunDirectory, watcher: Watcher) -> None:
    """Pass all events of a finished or interrupted run to a watcher."""
    course = Course()
    for event, _ in directory.events():
        course = after(course, event)
        watcher.see(event, course)
    watcher.leave(directory.finished)


@dataclass(frozen=True)
class Onlookers:
    """Observers of a run: the live page and experiment trackers.

    Attributes:
        page: whether the live page is written.
        trackers: by the place that the user named.
    """

    page: bool
    trackers: dict[str, Tracker]

    @classmethod
    def asked(cls, page: bool, places: list[str] | None) -> "Onlookers":
        """Return the observers that the command names, before the run exists.

        Args:
            places: such as "tensorboard:DIR".
        """
        return cls(page, {place: trackers.opened(place) for place in places or ()})

    def watchers(self, directory: RunDirectory, console: Console) -> list[Watcher]:
        """Return the observers as watchers of a run that is about to start."""
        found: list[Watcher] = [
            Tracking(directory, tracker, place) for place, tracker in self.trackers.items()
        ]
        if self.page:
            from fedsim.report.tracking.live_page import FILE, LivePage  # noqa: PLC0415  (matplotlib)

            found.append(LivePage(directory))
            console.print(
                f"Live page: {directory.path / FILE}", soft_wrap=True, highlight=False, markup=False
            )
        return found
