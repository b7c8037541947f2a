"""Guarantees from theory: accounting, calibration, black boxes."""
