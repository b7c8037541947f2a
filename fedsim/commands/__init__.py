"""The commands. Each is a public function of `fedsim`, and returns an `Answer`."""

INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM."""
