"""Attacks, and the statistics of attacks. Nothing here imports Flower."""
