"""Somebody else's code in a child process."""
