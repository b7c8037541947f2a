"""What runs at a client's node."""
