"""Every item that is made again, by source; each source's room lists its own."""

from fedsim.studies.reproduction.abadi import items as abadi
from fedsim.studies.reproduction.bernau import items as bernau
from fedsim.studies.reproduction.findings.item import Item
from fedsim.studies.reproduction.jagielski import items as jagielski
from fedsim.studies.reproduction.triastcyn import items as triastcyn
from fedsim.studies.reproduction.xiao import items as xiao

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
    *xiao.ITEMS,
    *abadi.ITEMS,
    *jagielski.ITEMS,
)
"""In the order in which they are made."""
