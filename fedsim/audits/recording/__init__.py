"""Recorders of other trainings, behind `fedsim.recording`."""
