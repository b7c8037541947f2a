"""A federation: what crosses the wire, its clients and server, their runs, and where they run."""
