"""What of the core paper is made again. A new item is a function and a line here."""

from functools import partial

from fedsim.studies.reproduction.bernau import (
    accuracy,
    audit_figures,
    complexity,
    decisions,
    dissimilarities,
    identification,
    norms,
    scores,
    sensitivities,
)
from fedsim.studies.reproduction.bernau.experiments import TITLES
from fedsim.studies.reproduction.findings.item import Item

MINUTES = {
    "sensitivity": {"mnist": 3.0, "adult": 0.5, "purchase-100": 3.0},
    "table-2a": {"mnist": 26.0, "adult": 2.0, "purchase-100": 26.0},
    "audit": {"mnist": 58.0, "adult": 2.5, "purchase-100": 58.0},
}
"""Of what is made for each data set, as measured; those of Purchase-100, which nobody here has, as
MNIST's."""


def _of_data(data: str) -> tuple[Item, ...]:
    title, needs = TITLES[data], (data,)
    figure = audit_figures.FIGURES[data]
    return (
        Item(
            "bernau",
            f"figures-4-5-{data}",
            f"Figures 4 and 5: local sensitivity, {title}",
            MINUTES["sensitivity"][data],
            partial(sensitivities.followed, data=data),
            needs,
        ),
        Item(
            "bernau",
            f"dissimilarities-{data}",
            f"Section 6.1: dissimilarity against local sensitivity, {title}",
            MINUTES["sensitivity"][data],
            partial(dissimilarities.compared, data=data),
            needs,
        ),
        Item(
            "bernau",
            f"norms-{data}",
            f"Section 5.1: C as the median of unclipped norms, {title}",
            0.5,
            partial(norms.surveyed, data=data),
            needs,
        ),
        Item(
            "bernau",
            f"table-2a-{data}",
            f"Table 2a: advantage and δ′ at ρβ = 0.9, {title}",
            MINUTES["table-2a"][data],
            partial(identification.table, data=data),
            needs,
        ),
        Item(
            "bernau",
            f"figure-6-{data}",
            f"Figure 6: beliefs at ρβ = 0.9, {title}",
            MINUTES["table-2a"][data],
            partial(identification.beliefs, data=data),
            needs,
        ),
        Item(
            "bernau",
            f"figure-{figure}",
            f"Figure {figure}: ε′ by three routes, and membership inference, {title}",
            MINUTES["audit"][data],
            partial(audit_figures.audit, data=data),
            needs,
        ),
    )


ITEMS: tuple[Item, ...] = (
    Item("bernau", "figure-1", "Figure 1: the decision boundary", 0.1, decisions.boundary),
    Item("bernau", "figure-2", "Figure 2: regions of error at ε 6 and 3", 0.1, decisions.errors),
    Item("bernau", "figure-3", "Figure 3: ρβ and ρα against ε", 0.1, scores.curves),
    Item("bernau", "table-1", "Table 1: complexity, as measured", 1.0, complexity.exponents),
    Item("bernau", "table-2b", "Table 2b: ε and ρα of ρβ", 0.1, scores.settings),
    *(item for data in TITLES for item in _of_data(data)),
    Item("bernau", "figure-6d", "Figure 6d: accuracy, MNIST", 25, accuracy.trained, ("mnist",)),
)
"""In the order in which they are made."""
