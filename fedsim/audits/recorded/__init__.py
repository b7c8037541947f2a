"""What a recorded federation proves."""
