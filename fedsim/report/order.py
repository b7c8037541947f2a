"""The sections of a run's page, in the order in which they stand."""

from fedsim.report.sections import (
    answer,
    bayesian,
    beliefs,
    configuration,
    crafted,
    lower_bounds,
    membership,
    one_run,
    pac,
    precision,
    prediction,
    residuals,
    theory,
    to_whom,
    training,
    utility,
)

SECTIONS = (
    answer.SECTION,
    to_whom.SECTION,
    beliefs.SECTION,
    training.SECTION,
    theory.SECTION,
    pac.SECTION,
    crafted.SECTION,
    bayesian.SECTION,
    one_run.SECTION,
    lower_bounds.SECTION,
    prediction.SECTION,
    precision.SECTION,
    residuals.SECTION,
    membership.SECTION,
    utility.SECTION,
    configuration.SECTION,
)
"""A section is a module of `fedsim.report.sections` and a line here."""
