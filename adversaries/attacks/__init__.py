"""The adversaries' computations."""
