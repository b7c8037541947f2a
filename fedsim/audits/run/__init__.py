"""The report of a run, computed from its transcript."""
