"""Intervals, tests and lower bounds on epsilon, from numbers alone."""
