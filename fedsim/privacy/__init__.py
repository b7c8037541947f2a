"""Theory: mechanisms, accountants, identifiability and calibration; knows no configuration."""
