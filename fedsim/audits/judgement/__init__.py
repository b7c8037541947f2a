"""What is concluded from what was claimed and what was found."""
