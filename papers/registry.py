"""The table of all items, by source. A new item is a function and a line here."""

from functools import partial
from typing import Any

from papers.abadi import accuracies, composition
from papers.bernau import audit_figures, complexity, identification, norms, scores, sensitivities
from papers.bernau.experiments import TITLES
from papers.findings import Item
from papers.jagielski import table as clipbkd
from papers.triastcyn import estimator, growth, members, orders, outlier
from papers.xiao import clusters, means, network

SOURCES = {
    "bernau": "Bernau et al., Quantifying identifiability to choose and audit ε in differentially "
    "private deep learning",
    "triastcyn": "Triastcyn and Faltings, Bayesian differential privacy for machine learning",
    "xiao": "Xiao and Devadas, PAC privacy: automatic privacy measurement and control",
    "jagielski": "Jagielski et al., Auditing differentially private machine learning: how private "
    "is private SGD?",
    "abadi": "Abadi et al., Deep learning with differential privacy; and Understanding privacy "
    "leakage in machine learning, a blog on composition",
}

MINUTES = {"mnist": (3.0, 26.0, 58.0), "adult": (0.5, 2.0, 2.5), "purchase-100": (3.0, 26.0, 58.0)}
"""Measured minutes of sensitivities, of the game and of the audit. Purchase-100 was not available;
its minutes are those of MNIST."""

Row = tuple[Any, ...]
"""Name, title, minutes and function of an item, then the data sets that it needs."""


def _of_bernaus_data(data: str) -> list[Row]:
    course, game, audit = MINUTES[data]
    figure = audit_figures.FIGURES[data]
    local = "Figures 4 and 5: local sensitivity"
    routes = f"Figure {figure}: ε′ by three routes, and membership inference"
    rows = (
        (f"figures-4-5-{data}", local, course, sensitivities.followed),
        (f"norms-{data}", "Section 5.1: C as the median of unclipped norms", 0.5, norms.surveyed),
        (f"table-2a-{data}", "Table 2a: advantage and δ′ at ρβ = 0.9", game, identification.table),
        (f"figure-6-{data}", "Figure 6: beliefs at ρβ = 0.9", game, identification.beliefs),
        (f"figure-{figure}", routes, audit, audit_figures.audit),
    )
    return [
        (name, f"{title}, {TITLES[data]}", minutes, partial(make, data=data), data)
        for name, title, minutes, make in rows
    ]


def _table_2(initialisation: str) -> Row:
    title = f"Table 2: ClipBKD, {clipbkd.WORDS[initialisation]}, in the published size"
    make = partial(clipbkd.published, initialisation=initialisation)
    return f"table-2-{initialisation}", title, 1700, make, "fashion-mnist"


def _figure_2(network: str) -> Row:
    title = f"Figure 2: three attacks, {network}, shrunk"
    make = partial(clipbkd.compared, network=network)
    return f"figure-2-{network}", title, 4, make, "fashion-mnist"


DISTANCES = "Figure 2: gradient distances of members and of others, MNIST"
BY_SIGMA = "Figures 3 and 4: ε against σ, bounded and unbounded"
COVERAGE = "Sections 4.3 and 4.4: coverage, percentiles, and the estimator's own cost"

_ROWS: dict[str, tuple[Row, ...]] = {
    "bernau": (
        ("figure-1", "Figure 1: the decision boundary", 0.1, scores.boundary),
        ("figure-2", "Figure 2: regions of error at ε 6 and 3", 0.1, scores.errors),
        ("figure-3", "Figure 3: ρβ and ρα against ε", 0.1, scores.curves),
        ("table-1", "Table 1: complexity, as measured", 1.0, complexity.exponents),
        ("table-2b", "Table 2b: ε and ρα of ρβ", 0.1, scores.settings),
        *(row for data in TITLES for row in _of_bernaus_data(data)),
        ("figure-6d", "Figure 6d: accuracy, MNIST", 25, identification.trained, "mnist"),
    ),
    "triastcyn": (
        ("outlier", "Section 3: one resident far above", 0.1, outlier.attacked),
        ("figure-1", "Figure 1: ε by step, Weibull gradients", 1.0, growth.followed),
        ("figure-2", DISTANCES, 2.0, members.compared, "mnist"),
        ("figures-3-4", BY_SIGMA, 1.0, growth.compared),
        ("figure-5", "Figure 5: ε against λ", 0.1, orders.searched),
        ("estimator", COVERAGE, 0.5, estimator.examined),
        ("theorem-3", "Theorem 3: a replaced record, sampled", 0.1, orders.shown),
    ),
    "xiao": (
        ("means", "Mean estimation: information in nats", 0.5, means.estimated),
        ("k-means", "K-means on MNIST at one nat", 4, clusters.clustered, "mnist"),
        ("network", "A network of half of MNIST at one nat", 4, network.released, "mnist"),
    ),
    "abadi": (
        ("composition", "ε against epochs by every composition", 2, composition.compared),
        ("accuracy", "Accuracy on MNIST at ε 8, 2, 0.5", 30, accuracies.private, "mnist"),
    ),
    "jagielski": (
        *map(_table_2, clipbkd.WORDS),
        ("table-2-small", "Table 2 at C = 1, shrunk", 10, clipbkd.small, "fashion-mnist"),
        *map(_figure_2, clipbkd.ATTACK_SIZES),
    ),
}

ITEMS = tuple(
    Item(source, name, title, minutes, make, tuple(needs))
    for source, rows in _ROWS.items()
    for name, title, minutes, make, *needs in rows
)
