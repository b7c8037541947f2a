"""Data sets, each read from its original files."""
