"""Xiao and Devadas, PAC privacy."""
