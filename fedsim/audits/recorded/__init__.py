"""The audit of a recorded transcript."""
