"""The noise in a release at each vantage, and its composition over rounds."""
