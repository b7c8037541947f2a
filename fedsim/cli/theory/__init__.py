"""Commands that compute guarantees of noise from theory."""
