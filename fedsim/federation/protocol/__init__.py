"""What crosses the wire, and what is refused on arrival."""
