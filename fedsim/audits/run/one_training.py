"""What can be told of a single training, and what cannot: it has no statistics.

How often an adversary is right, or surer than it may be, is a share of several trials. Of one there
is none, and a report leaves these values out: an adversary that was right has no advantage of 1.
"""

from dataclasses import replace

from fedsim.audits.results.report import Report

CAUTION = (
    "One training has no statistics: how often an adversary is right cannot be told from it, nor "
    "whether its noise is what was claimed. Measure that beforehand, with many trials on data that "
    "need no protection."
)


def is_single(report: Report) -> bool:
    """Return whether a report is of one training."""
    return report.trials == 1


def without_rates(report: Report) -> Report:
    """Return the report of one training with None for everything that is a share of trials."""
    return replace(
        report,
        empirical=replace(
            report.empirical,
            advantage=None,
            advantage_interval=None,
            standard_error=None,
            wins=None,
            losses=None,
            ties=None,
            delta_prime=None,
            delta_prime_interval=None,
            epsilon=replace(report.empirical.epsilon, advantage=None),
        ),
        vantages={
            name: replace(
                row,
                empirical=row.empirical
                and replace(
                    row.empirical,
                    advantage=None,
                    advantage_interval=None,
                    standard_error=None,
                    delta_prime=None,
                    within_bound=None,
                    near_prediction=None,
                ),
            )
            for name, row in report.vantages.items()
        },
        pac=replace(report.pac, success=None),
    )
