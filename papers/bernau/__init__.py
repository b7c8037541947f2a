"""Bernau et al., Quantifying identifiability to choose and audit epsilon."""
