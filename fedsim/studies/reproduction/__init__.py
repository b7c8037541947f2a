"""What the sources published, made again: items, their numbers beside the sources', one page."""
