"""What a report says of the residuals: what was left of sums beside what was expected."""

from fedsim.audits.residual_report import ratio_text
from fedsim.report.report_values import DASH, Report, at, interval_at, number, plain, span


def entries(report: Report) -> list[tuple[str, str]]:
    """Return what the page says of the residuals; nothing where the report says nothing."""
    found = at(report, "residuals")
    if not found:
        return []
    ends, sampling = interval_at(found, "noise.interval"), at(found, "sampling")
    lines = [
        (
            "Noise, over what is claimed",
            f"{ratio_text(at(found, 'noise.ratio'))}, between {span(ends, ratio_text) or DASH}; "
            f"{_p_value(found, 'noise')} of {plain(at(found, 'noise.degrees_of_freedom'))} numbers",
        )
    ]
    rounds = [step for step in at(found, "noise.by_step") or [] if step is not None]
    if len(rounds) > 1:
        lines.append(("The same, of single rounds", span((min(rounds), max(rounds)), ratio_text)))
    if at(found, "repeats"):
        lines.append(
            (
                "Noise of a round against that before it",
                f"cosine {number(at(found, 'repeats.cosine'))} on average; "
                f"{_p_value(found, 'repeats')}",
            )
        )
    if at(found, "scale"):
        lines.append(
            (
                "Sum, over the sum of clipped gradients",
                f"{number(at(found, 'scale.factor'))}; {_p_value(found, 'scale')}",
            )
        )
    if shape := at(found, "shape"):
        lines.append(
            (
                "Mean size of a coordinate, over its root mean square",
                f"{number(shape['ratio'])}; {number(shape['normal'])} if normal, "
                f"{_p_value(found, 'shape')}",
            )
        )
    if sampling:
        lines.append(
            (
                "Sizes of batches, variance over the binomial's",
                f"{number(at(sampling, 'dispersion'))}, of {plain(at(sampling, 'batches'))} "
                f"batches with a share {number(at(sampling, 'rate'))} of the records; "
                f"{_p_value(found, 'sampling')}",
            )
        )
    return lines


def _p_value(found: Report, test: str) -> str:
    return f"p = {number(at(found, f'{test}.p_value'))}"
