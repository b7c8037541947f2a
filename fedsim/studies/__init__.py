"""At the researcher's desk: guarantees, sensitivity, attacks on models, choosing a setting."""
