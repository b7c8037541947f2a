"""fedsim: a Flower federation with DP-SGD owners and an identifiability adversary inside it."""

__version__ = "0.1.0"
