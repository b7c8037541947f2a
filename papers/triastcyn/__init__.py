"""Triastcyn and Faltings, Bayesian differential privacy for machine learning."""
