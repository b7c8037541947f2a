"""The sections of a run's page, in the order in which they stand."""

from fedsim.report.sections import (
    bayesian,
    beliefs,
    configuration,
    crafted,
    lower_bounds,
    lowering,
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
    verdict,
)

SECTIONS = (
    verdict.SECTION,
    to_whom.SECTION,
    beliefs.SECTION,
    lowering.SECTION,
    utility.SECTION,
    theory.SECTION,
    one_run.SECTION,
    crafted.SECTION,
    bayesian.SECTION,
    training.SECTION,
    configuration.SECTION,
    to_whom.NUMBERS,
    theory.FURTHER,
    pac.SECTION,
    lower_bounds.SECTION,
    prediction.SECTION,
    precision.SECTION,
    residuals.SECTION,
    membership.SECTION,
)
"""A section is a module of `fedsim.report.sections` and a line here. Those for specialists stand
together in a folded part behind the others."""
