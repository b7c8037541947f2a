"""Commands that say what noise guarantees, from theory alone."""
