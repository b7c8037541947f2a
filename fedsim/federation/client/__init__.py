"""The programs of a client's node."""
