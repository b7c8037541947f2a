"""The command line."""

INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM."""
