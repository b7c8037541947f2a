"""What a section of a report is, and what its figures are drawn from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Block, Figure
from fedsim.report.figures.canvas import Bools, Floats


@dataclass(frozen=True, eq=False)
class Transcript:
    """The adversary's observations of T trials of k rounds.

    Attributes:
        worlds: whether each trial trained on D, bool [T].
        log_odds: for D after each round, [T, k].
        sensitivities: local ones of each round, [T, k].
        noise_stds: standard deviations of each round's noise, [T, k].
        poison_scores: of the released models, [T]; None unless the target was crafted.
    """

    worlds: Bools
    log_odds: Floats
    sensitivities: Floats
    noise_stds: Floats
    poison_scores: Floats | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> "Transcript":
        """Return the arrays of a run, as `run_transcript.read` has checked them."""
        return cls(
            arrays["worlds"],
            arrays["log_odds"],
            arrays["sensitivities"],
            arrays["noise_stds"],
            arrays.get("poison_scores"),
        )


@dataclass(frozen=True)
class Section:
    """One section of the page of a run: its blocks and figures.

    Its numbers come from the report, which `fedsim.audits.run` computed.

    Attributes:
        words: report -> blocks; a section without blocks and figures is left out.
        figures: report, transcript -> figures; figures that no block places stand at the end.
        specialist: whether it stands in the folded part for specialists.
    """

    title: str | Callable[[Report], str]
    words: Callable[[Report], Sequence[Block]] = lambda report: ()
    figures: Callable[[Report, Transcript], Sequence[Figure]] = lambda report, seen: ()
    specialist: bool = False

    def heading(self, report: Report) -> str:
        """Return the heading of the section in a report."""
        return self.title if isinstance(self.title, str) else self.title(report)
