"""What an item of a source comes to, and what it may use."""
