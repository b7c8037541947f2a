"""Whether a run agrees with its own prediction."""

from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import Fit
from fedsim.report.document.blocks import Entries, Listing
from fedsim.report.document.wording import DASH, number, plain
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
    """Say what mu is, and how the advantage was predicted."""
    alike, method, how = report.prediction.deterministic, report.prediction.method, ""
    if method == "simulation":
        kind = "the signal-to-noise ratio were every step unsampled: not that of Λ, a mixture"
        how = " (the game played again with these gradient norms, this noise and sampling rate"
        how += "; alike in every trial)" if alike else "; approximate: they differ between trials)"
    elif alike:
        kind = "the same in every trial: Λ ~ N(±μ²/2, μ²)"
    else:
        kind = "differs between trials: Λ is a mixture over them, and μ a summary"
    if takes_local_steps(report):
        kind = "of the linearised attack; its score follows N(±μ²/2, μ²) at best roughly"
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
