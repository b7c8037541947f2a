"""The deployment kit: what each machine of a federation is handed, and whether it is in order."""
