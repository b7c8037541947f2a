"""Signed statements about reports that others can verify."""
