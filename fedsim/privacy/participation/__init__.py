"""Who joins a round, with which coins, and what is charged for it."""
