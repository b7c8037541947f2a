"""What runs at a data owner's node."""
