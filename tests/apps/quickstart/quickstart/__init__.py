"""A Flower app in the manner of Flower's PyTorch quickstart."""
