"""What takes the place of the one sentence for everybody where there was one training."""

from scipy.special import expit

from fedsim.audits.one_training import CAUTION
from fedsim.report.guarantee_sections import released
from fedsim.report.report_sections import canaries_prove
from fedsim.report.report_values import Report, at, challenge_of, percent, rho_beta_of


def verdict(report: Report) -> str:
    """Return what takes the place of the one sentence for everybody."""
    largest, limit = at(report, "empirical.epsilon.belief"), rho_beta_of(report)
    said = [CAUTION, released(report)]
    if largest is not None:
        said.append(
            f"This one adversary came to believe with {percent(float(expit(largest)))} that "
            f"{challenge_of(report)} was used; the noise allows {percent(limit)}."
        )
    return " ".join(filter(None, said)) + canaries_prove(report)
