"""Whether what is left of the sums is noise."""

from fedsim.audits.measurements.residual_report import MEANING, ratio_text
from fedsim.audits.results.report import Report
from fedsim.audits.results.residuals import Residuals
from fedsim.report.document.blocks import Block, Entries, Listing, Prose
from fedsim.report.document.wording import number, span
from fedsim.report.sections.section import Section


def _entries(found: Residuals) -> Entries:
    noise = found.noise
    lines = [
        (
            "Noise, over what is claimed",
            f"{ratio_text(noise.ratio)}, between {span(noise.interval, ratio_text)}; "
            f"{_p(noise.p_value)} of {noise.degrees_of_freedom} numbers",
        )
    ]
    rounds = [step for step in noise.by_step if step is not None]
    if len(rounds) > 1:
        lines.append(("The same, of single rounds", span((min(rounds), max(rounds)), ratio_text)))
    if repeats := found.repeats:
        lines.append(
            (
                "Noise of a round against that before it",
                f"cosine {number(repeats.cosine)} on average; {_p(repeats.p_value)}",
            )
        )
    if scale := found.scale:
        lines.append(
            (
                "Sum, over the sum of clipped gradients",
                f"{number(scale.factor)}; {_p(scale.p_value)}",
            )
        )
    if shape := found.shape:
        lines.append(
            (
                "Mean size of a coordinate, over its root mean square",
                f"{number(shape.ratio)}; {number(shape.normal)} if normal, {_p(shape.p_value)}",
            )
        )
    if sampling := found.sampling:
        lines.append(
            (
                "Sizes of batches, variance over the binomial's",
                f"{number(sampling.dispersion)}, of {sampling.batches} batches with a share "
                f"{number(sampling.rate)} of the records; {_p(sampling.p_value)}",
            )
        )
    return lines


def _p(value: float) -> str:
    return f"p = {number(value)}"


def _words(report: Report) -> list[Block]:
    found = report.residuals
    return [] if found is None else [Prose(MEANING), Listing(_entries(found))]


SECTION = Section("Is what is left noise?", _words, specialist=True)
