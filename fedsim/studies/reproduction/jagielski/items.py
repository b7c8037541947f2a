"""What of the audit of DP-SGD is made again. A new item is a function and a line here."""

from functools import partial

from fedsim.studies.reproduction.findings.item import Item
from fedsim.studies.reproduction.jagielski import attacks, table

ITEMS: tuple[Item, ...] = (
    *(
        Item(
            "jagielski",
            f"table-2-{initialisation}",
            f"Table 2: ClipBKD, {words}, in the published size",
            1700,
            partial(table.published, initialisation=initialisation),
            ("fashion-mnist",),
        )
        for initialisation, words in table.WORDS.items()
    ),
    Item(
        "jagielski",
        "table-2-small",
        "Table 2 at C = 1, shrunk",
        10,
        table.small,
        ("fashion-mnist",),
    ),
    *(
        Item(
            "jagielski",
            f"figure-2-{network}",
            f"Figure 2: three attacks, {network}, shrunk",
            4,
            partial(attacks.compared, network=network),
            ("fashion-mnist",),
        )
        for network in attacks.SIZES
    ),
)
"""In the order in which they are made."""
