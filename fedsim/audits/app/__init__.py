"""The audit of a Flower app: what its differential-privacy configuration guarantees."""
