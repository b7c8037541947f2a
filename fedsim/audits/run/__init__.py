"""What a run's numbers prove: no wording, no drawing."""
