"""What of Bayesian differential privacy is made again. A new item is a function and a line here."""

from functools import partial

from fedsim.studies.reproduction.findings.item import Item
from fedsim.studies.reproduction.triastcyn import (
    clipping,
    estimator,
    growth,
    members,
    orders,
    outlier,
    replaced,
    table,
)
from fedsim.studies.reproduction.triastcyn.trainings import SETTINGS

ITEMS: tuple[Item, ...] = (
    Item("triastcyn", "outlier", "Section 3: one resident far above", 0.1, outlier.attacked),
    Item("triastcyn", "figure-1", "Figure 1: ε by step, Weibull gradients", 1.0, growth.followed),
    Item(
        "triastcyn",
        "figure-2",
        "Figure 2: gradient distances of members and of others, MNIST",
        2.0,
        members.compared,
        ("mnist",),
    ),
    Item(
        "triastcyn",
        "figures-3-4",
        "Figures 3 and 4: ε against σ, bounded and unbounded",
        1.0,
        clipping.compared,
    ),
    Item("triastcyn", "figure-5", "Figure 5: ε against λ", 0.1, orders.searched),
    Item(
        "triastcyn",
        "estimator",
        "Sections 4.3 and 4.4: coverage, percentiles, and the estimator's own cost",
        0.5,
        estimator.examined,
    ),
    *(
        Item(
            "triastcyn",
            f"table-1-{data}",
            f"Table 1: DP against BDP at equal noise, {setting.title}",
            table.MINUTES[data],
            partial(table.made, data=data),
            (data,),
        )
        for data, setting in SETTINGS.items()
    ),
    Item("triastcyn", "theorem-3", "Theorem 3: a replaced record, sampled", 0.1, replaced.shown),
)
"""In the order in which they are made."""
