"""A run's files: its directory, batches of trials, ledger, and when it stops."""
