"""Membership inference against many models of a federation."""
