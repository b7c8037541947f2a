"""What of PAC privacy is made again. A new item is a function and a line here."""

from fedsim.studies.reproduction.findings.item import Item
from fedsim.studies.reproduction.xiao import clusters, means, network

ITEMS: tuple[Item, ...] = (
    Item("xiao", "means", "Mean estimation: information in nats", 0.5, means.estimated),
    Item("xiao", "k-means", "K-means on MNIST at one nat", 4, clusters.clustered, ("mnist",)),
    Item(
        "xiao", "network", "A network of half of MNIST at one nat", 4, network.released, ("mnist",)
    ),
)
"""In the order in which they are made."""
