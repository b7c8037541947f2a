"""Which epsilon: grids of settings, their search, and its cost."""
