"""A user's code in a child process."""
