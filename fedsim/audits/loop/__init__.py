"""The audit of somebody's own training loop: run again and again, with a record and without it."""
