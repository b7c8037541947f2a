"""Measurements for a report, each from arrays and a configuration."""
