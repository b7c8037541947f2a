"""Commands that plan and run experiments, and report their results."""
