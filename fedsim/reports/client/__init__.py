"""A client's report on its own records, for its owner, on that machine only."""
