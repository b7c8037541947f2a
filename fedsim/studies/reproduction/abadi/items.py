"""What of DP-SGD and composition is made again. A new item is a function and a line here."""

from fedsim.studies.reproduction.abadi import accuracies, composition
from fedsim.studies.reproduction.findings.item import Item

ITEMS: tuple[Item, ...] = (
    Item("abadi", "composition", "ε against epochs by every composition", 2, composition.compared),
    Item(
        "abadi", "accuracy", "Accuracy on MNIST at ε 8, 2, 0.5", 30, accuracies.private, ("mnist",)
    ),
)
"""In the order in which they are made."""
