"""Checks of a deployment: the files in a folder, the listening ports, the answers."""
