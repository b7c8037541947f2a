"""`fedsim deploy`: a federation across machines, from keys to a run."""
