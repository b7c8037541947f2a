"""Which pair of neighbouring data sets to audit."""
