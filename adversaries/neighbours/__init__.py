"""Choice of the pair of neighbouring data sets to audit."""
