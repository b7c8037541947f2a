"""Reproduction of published tables and figures, with their numbers beside the published ones."""
