"""The sections about prediction, precision and residual noise of a run."""

from fedsim.audits.measurements.residual_report import MEANING, ratio_text
from fedsim.audits.results.report import Report
from fedsim.audits.results.residuals import Residuals
from fedsim.audits.results.theory import Fit
from fedsim.report.document.blocks import Block, Entries, Listing, Prose
from fedsim.report.document.wording import DASH, number, plain, span
from fedsim.report.sections.facts import is_scored, standard_errors_apart, takes_local_steps
from fedsim.report.sections.section import Section


def _entries(report: Report) -> Entries:
    predicted, measured = report.prediction, report.empirical
    kind, how = _words_of(report)
    error = predicted.standard_error
    return [
        ("μ", f"{number(predicted.mu)} ({kind})"),
        (
            "Advantage predicted",
            f"{number(predicted.advantage)}{f' ± {number(error)}' if error else ''}{how}",
        ),
        (
            "Advantage measured",
            f"{number(measured.advantage)} ± "
            f"{number(measured.standard_error)} {standard_errors_apart(report)}",
        ),
        (
            "Trials won, lost, tied",
            ", ".join(map(plain, (measured.wins, measured.losses, measured.ties))),
        ),
        ("Fit on D", _fit(predicted.fit.world_d)),
        ("Fit on D′", _fit(predicted.fit.world_d_prime)),
    ]


def _words_of(report: Report) -> tuple[str, str]:
    """Return the meaning of mu, and how the advantage was predicted."""
    alike, method, how = report.prediction.deterministic, report.prediction.method, ""
    if method == "simulation":
        kind = "the signal-to-noise ratio if no step were sampled; Λ is a mixture"
        how = " (by simulation of the game with these gradient norms, noise and sampling rate; "
        how += "equal in every trial)" if alike else "approximate, since trials differ)"
    elif alike:
        kind = "the same in every trial: Λ ~ N(±μ²/2, μ²)"
    else:
        kind = "differs between trials: Λ is a mixture over them, and μ a summary"
    if takes_local_steps(report):
        kind = "of the linearised attack, whose score follows N(±μ²/2, μ²) only roughly"
    if method == "none":
        if is_scored(report):
            return "no closed form: the log-odds are the score of an attack", how
        kind = "no closed form: the log-odds are a mixture over the candidates"
    return kind, how


def _fit(found: Fit | None) -> str:
    if found is None:
        return DASH
    return f"Kolmogorov–Smirnov distance {number(found.statistic)}, p = {number(found.p_value)}"


SECTION = Section(
    "Does the run agree with its own prediction?",
    lambda report: [Listing(_entries(report))],
    specialist=True,
)


def _precision(report: Report) -> list[Block]:
    found, ratio = report.campaign, report.campaign.variance
    rows = [
        ("Trials", f"{found.trials} of {found.planned} planned"),
        ("Half the length of the advantage's interval", number(found.halfwidth)),
        ("Why the run stopped there", found.reason),
        ("Random numbers of the two worlds", found.pairing),
    ]
    if ratio is not None:
        rows.append(
            (
                "Variance of the advantage, against independent trials",
                DASH
                if ratio.measured is None
                else f"{number(ratio.measured)} measured, {number(ratio.predicted)} predicted",
            )
        )
    if found.validity:
        rows.append(("Validity after stopping", found.validity))
    return [Listing(rows)]


PRECISION = Section("How precise is it?", _precision, specialist=True)


def _residual_entries(found: Residuals) -> Entries:
    noise = found.noise
    lines = [
        (
            "Noise, divided by the claimed noise",
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
                "Noise of a round against the round before",
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


def _residuals(report: Report) -> list[Block]:
    found = report.residuals
    return [] if found is None else [Prose(MEANING), Listing(_residual_entries(found))]


RESIDUALS = Section("Is the residual pure noise?", _residuals, specialist=True)
