"""The programs of the server."""
