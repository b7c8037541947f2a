"""The challenge: target records, worlds, canaries, and what each client contributes."""
