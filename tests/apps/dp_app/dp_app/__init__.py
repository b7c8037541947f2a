"""A small Flower app whose differential privacy is right or wrong, as its run config says."""
