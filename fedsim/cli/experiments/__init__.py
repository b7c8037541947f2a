"""Commands that run experiments, report what they found, and plan them."""
