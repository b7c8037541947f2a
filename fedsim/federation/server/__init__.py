"""What runs at the server."""
