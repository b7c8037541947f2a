"""Every item that is made again, by source; each source's room lists its own."""

from fedsim.studies.reproduction.abadi import accuracies, composition
from fedsim.studies.reproduction.bernau import items as bernau
from fedsim.studies.reproduction.findings.item import Item
from fedsim.studies.reproduction.jagielski import items as jagielski
from fedsim.studies.reproduction.triastcyn import items as triastcyn
from fedsim.studies.reproduction.xiao import clusters, means, network

SOURCES = {
    "bernau": "Bernau et al., Quantifying identifiability to choose and audit ε in differentially "
    "private deep learning",
    "triastcyn": "Triastcyn and Faltings, Bayesian differential privacy for machine learning",
    "xiao": "Xiao and Devadas, PAC privacy: automatic privacy measurement and control",
    "jagielski": "Jagielski et al., Auditing differentially private machine learning: how private "
    "is private SGD?",
    "abadi": "Abadi et al., Deep learning with differential privacy, as the course's slides have "
    "it; and Understanding privacy leakage in machine learning, a blog on composition",
}
"""By the name that the command line takes."""

ITEMS: tuple[Item, ...] = (
    *bernau.ITEMS,
    *triastcyn.ITEMS,
    Item("xiao", "means", "Mean estimation: information in nats", 0.5, means.estimated),
    Item("xiao", "k-means", "K-means on MNIST at one nat", 4, clusters.clustered, ("mnist",)),
    Item(
        "xiao", "network", "A network of half of MNIST at one nat", 4, network.released, ("mnist",)
    ),
    Item("abadi", "composition", "ε against epochs by every composition", 2, composition.compared),
    Item(
        "abadi", "accuracy", "Accuracy on MNIST at ε 8, 2, 0.5", 30, accuracies.private, ("mnist",)
    ),
    *jagielski.ITEMS,
)
"""In the order in which they are made."""
