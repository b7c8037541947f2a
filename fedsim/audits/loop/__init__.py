"""The audit of a user's training loop, which runs many times with and without a record."""
