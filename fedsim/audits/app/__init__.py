"""What guarantee the differential-privacy configuration of a Flower app really gives, and why."""
