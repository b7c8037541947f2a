"""What the sources and the documentation state, made again: `python papers`."""
