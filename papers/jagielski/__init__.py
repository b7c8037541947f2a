"""Jagielski et al., Auditing differentially private machine learning."""
