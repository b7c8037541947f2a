"""At the researcher's desk: sensitivity, membership games, sweeps."""
