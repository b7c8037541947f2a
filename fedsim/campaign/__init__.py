"""A run's files: its directory, cohorts of trials, ledger, and when it stops."""
